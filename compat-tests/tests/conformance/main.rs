//! One suite for every store and topology: each case runs on the in-process store, on a server, on a
//! cluster and by a sentinel, through the public API, with a clock that the case sets.

use std::future::Future;
use std::time::Duration;

use compat_tests::cluster::{Cluster, slot};
use compat_tests::scenario::fresh_name;
use compat_tests::sentinels::WatchedServer;
use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{
    Client, ClientBuilder, Clock, DecidedBy, Decision, Denial, Ensured, ErrorKind, Execution,
    ExpireCondition, Grant, InProcessStore, LimiterOptions, ManualClock, Mode, Rate, RateLimiter,
    RemainingTime, Usage,
};

use redisson_rate_limiter::raw_store::{Content, Key};
use tokio::sync::OnceCell;

const SECOND: Duration = Duration::from_secs(1);
const START: i64 = 1_800_000_000_000;

enum Backend {
    InProcess(InProcessStore),
    Server(Server),
    /// Both are shared by all cases, and at rest.
    Cluster(&'static Cluster),
    Sentinel(&'static WatchedServer),
}

/// Where a case runs.
#[derive(Clone, Copy)]
enum Place {
    InProcess,
    Server,
    Cluster,
    Sentinel,
}

impl Place {
    async fn start(self) -> Backend {
        static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
        static WATCHED: OnceCell<WatchedServer> = OnceCell::const_new();
        match self {
            Place::InProcess => Backend::InProcess(InProcessStore::new()),
            Place::Server => Backend::Server(Server::start().await),
            Place::Cluster => Backend::Cluster(CLUSTER.get_or_init(Cluster::start).await),
            Place::Sentinel => Backend::Sentinel(WATCHED.get_or_init(WatchedServer::start).await),
        }
    }
}

/// A store, and a clock that all its clients use.
struct World {
    backend: Backend,
    /// What the names on a shared server begin with: a hash tag, so that one case is in one slot, and
    /// the cases are all over the cluster.
    prefix: String,
    clock: Clock,
    time: ManualClock,
}

impl World {
    async fn client(&self) -> Client {
        self.client_by(Client::builder()).await
    }

    async fn client_by(&self, builder: ClientBuilder) -> Client {
        self.connect(builder.clock(self.clock.clone()), "").await
    }

    /// A client with these settings, and with this prefix besides that of the case.
    async fn connect(&self, builder: ClientBuilder, prefix: &str) -> Client {
        let builder = builder.key_prefix(format!("{}{prefix}", self.prefix));
        match &self.backend {
            Backend::InProcess(store) => builder.in_process(store).unwrap(),
            Backend::Server(server) => builder.connect(&server.url()).await.unwrap(),
            Backend::Cluster(cluster) => builder.connect(&cluster.url()).await.unwrap(),
            Backend::Sentinel(watched) => builder.connect(&watched.url()).await.unwrap(),
        }
    }

    /// A limiter of 10 permits a second.
    async fn limiter(&self) -> RateLimiter {
        let limiter = self.client().await.limiter("api").unwrap();
        assert!(limiter.try_set_rate(rate(10)).await.unwrap());
        limiter
    }

    /// Leaves a hash behind that has no field but this one.
    async fn put_hash(&self, name: &str, field: &str, text: &str) {
        let name = format!("{}{name}", self.prefix);
        let put = redis::cmd("HSET").arg(&[&*name, field, text]).take();
        match &self.backend {
            Backend::InProcess(store) => {
                let content = Content::Hash([(field.to_owned(), text.to_owned())].into());
                store.raw_put(&name, Some(Key { content, ttl_ms: None }));
            }
            Backend::Server(server) => server.run(put).await,
            Backend::Cluster(cluster) => cluster.run(slot(&name), &mut put.clone()).await,
            Backend::Sentinel(watched) => watched.server.run(put).await,
        }
    }

    fn pass(&self, ms: i64) {
        self.time.advance(ms);
    }
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// By how many ms a grant may be dated late: an attempt whose answer comes late is repeated, and each is dated a
/// millisecond after the one before.
const LATE: i64 = 20;

/// The wait for permits that were taken `exact` before their interval ends, but for a late date.
#[track_caller]
fn assert_wait(wait: Duration, exact: Duration) {
    assert!((exact..=exact + ms(LATE as u64)).contains(&wait), "{wait:?}, not {exact:?}");
}

async fn granted(limiter: &RateLimiter, permits: u64) -> Grant {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.into_grant().unwrap_or_else(|| panic!("{permits} were denied"))
}

async fn denied(limiter: &RateLimiter, permits: u64) -> Denial {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.into_denial().unwrap_or_else(|| panic!("{permits} were granted"))
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.available_permits().await.unwrap()
}

fn run<F: Future<Output = ()>>(case: impl Fn(World) -> F, place: Place) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = place.start().await;
        let prefix = match place {
            // A store of its own, in which names are what they are.
            Place::InProcess | Place::Server => String::new(),
            Place::Cluster | Place::Sentinel => format!("{{{}}}", fresh_name()),
        };
        let (clock, time) = Clock::manual(START);
        case(World { backend, prefix, clock, time }).await;
    });
}

/// Each case in each place, in each topic: `in_process::name`, `server::name` and so on.
macro_rules! conformance {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: World) $body:block)*) => {
        $($(#[$doc])* async fn $name($world: World) $body)*

        mod in_process {
            use super::Place;
            $(#[test] fn $name() { super::run(super::$name, Place::InProcess); })*
        }

        mod server {
            use super::Place;
            $(#[test] fn $name() { super::run(super::$name, Place::Server); })*
        }

        mod cluster {
            use super::Place;
            $(#[test] fn $name() { super::run(super::$name, Place::Cluster); })*
        }

        mod sentinel {
            use super::Place;
            $(#[test] fn $name() { super::run(super::$name, Place::Sentinel); })*
        }
    };
}

mod amounts;
mod arguments;
mod classes;
mod creation;
mod groups;
mod keys;
mod pauses;
mod permits;
mod policies;
mod rates;
mod waiting;
