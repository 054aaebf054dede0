//! One suite for every store: each case runs on the in-process store and on a server, through the
//! public API, with a clock that the case sets.

use std::future::Future;
use std::time::Duration;

use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{
    Client, ClientBuilder, Clock, DecidedBy, Decision, Denial, Ensured, ErrorKind, Execution,
    ExpireCondition, Grant, InProcessStore, LimiterOptions, ManualClock, Mode, Rate, RateLimiter,
    RemainingTime, Usage,
};

use redisson_rate_limiter::raw_store::{Content, Key};

const SECOND: Duration = Duration::from_secs(1);
const START: i64 = 1_800_000_000_000;

enum Backend {
    InProcess(InProcessStore),
    Server(Server),
}

/// A store, and a clock that all its clients use.
struct World {
    backend: Backend,
    clock: Clock,
    time: ManualClock,
}

impl World {
    async fn client(&self) -> Client {
        self.client_by(Client::builder()).await
    }

    async fn client_by(&self, builder: ClientBuilder) -> Client {
        let builder = builder.clock(self.clock.clone());
        match &self.backend {
            Backend::InProcess(store) => builder.in_process(store).unwrap(),
            Backend::Server(server) => builder.connect(&server.url()).await.unwrap(),
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
        match &self.backend {
            Backend::InProcess(store) => {
                let content = Content::Hash([(field.to_owned(), text.to_owned())].into());
                store.raw_put(name, Some(Key { content, ttl_ms: None }));
            }
            Backend::Server(server) => {
                let () = server.run(redis::cmd("HSET").arg(&[name, field, text]).take()).await;
            }
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

async fn granted(limiter: &RateLimiter, permits: u64) -> Grant {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.granted().unwrap_or_else(|| panic!("{permits} were denied"))
}

async fn denied(limiter: &RateLimiter, permits: u64) -> Denial {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.denied().unwrap_or_else(|| panic!("{permits} were granted"))
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.available_permits().await.unwrap()
}

fn run<F: Future<Output = ()>>(case: impl Fn(World) -> F, on_server: bool) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = if on_server {
            Backend::Server(Server::start().await)
        } else {
            Backend::InProcess(InProcessStore::new())
        };
        let (clock, time) = Clock::manual(START);
        case(World { backend, clock, time }).await;
    });
}

/// Each case twice, in each topic: `in_process::name` and `server::name`.
macro_rules! conformance {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: World) $body:block)*) => {
        $($(#[$doc])* async fn $name($world: World) $body)*

        mod in_process {
            $(#[test] fn $name() { super::run(super::$name, false); })*
        }

        mod server {
            $(#[test] fn $name() { super::run(super::$name, true); })*
        }
    };
}

mod arguments;
mod creation;
mod keys;
mod permits;
mod rates;
mod waiting;
