//! The two stores a client can use, for scenarios that must pass on both.

use redisson_rate_limiter::raw_store::Content;
use redisson_rate_limiter::{Client, ClientBuilder, InProcessStore, Rate, RateLimiter};

use crate::keys::Keys;
use crate::runtimes::current_thread;
use crate::scenario;
use crate::server::Server;
use crate::watchdog;

/// A store that a test owns.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    InProcess(InProcessStore),
    /// A Redis or Valkey server.
    Server(Server),
}

impl Store {
    /// An empty store in this process.
    pub fn in_process() -> Store {
        Store::InProcess(InProcessStore::new())
    }

    /// A server, started on a separate runtime so that the scenario has only the runtimes it
    /// creates itself.
    pub fn server() -> Store {
        Store::Server(scenario::run(Server::start()))
    }

    /// A client with the default settings. It connects on its first call.
    pub fn client(&self) -> Client {
        self.client_by(Client::builder())
    }

    /// A client with these settings. It connects on its first call, so that creating it needs no
    /// runtime and ties it to none.
    pub fn client_by(&self, builder: ClientBuilder) -> Client {
        match self {
            Store::InProcess(store) => builder.in_process(store).expect("valid settings"),
            Store::Server(server) => builder.connect_lazy(server.url()).expect("valid settings"),
        }
    }

    /// A limiter with this rate. Another client sets it: the returned handle's client has made no
    /// call yet.
    pub fn limiter(&self, name: &str, rate: Rate) -> RateLimiter {
        self.set_rate(name, rate);
        self.client().limiter(name).expect("a name")
    }

    /// Sets a rate, as another client.
    pub fn set_rate(&self, name: &str, rate: Rate) {
        self.elsewhere(name, async |limiter| limiter.set_rate(rate).await.expect("the rate"));
    }

    /// Takes permits, as another client.
    pub fn take(&self, name: &str, permits: u64) {
        self.elsewhere(name, async |limiter| {
            let decision = limiter.try_acquire_now(permits).await.expect("an answer");
            assert!(decision.is_granted(), "{permits} permits of {name} are not there to take");
        });
    }

    /// The permits available to a client that has not used the limiter before.
    pub fn available(&self, name: &str) -> u64 {
        self.elsewhere(name, async |limiter| limiter.available_permits().await.expect("an answer"))
    }

    /// Makes calls through a new client on a new runtime; both end with it.
    pub fn elsewhere<T>(&self, name: &str, calls: impl AsyncFnOnce(&RateLimiter) -> T) -> T {
        current_thread().block_on(async {
            let client = self.client();
            let result = calls(&client.limiter(name).expect("a name")).await;
            client.close().await;
            result
        })
    }

    /// Lowers the value of a limiter, as if that many permits had been lost.
    pub fn lose(&self, name: &str, permits: i64) {
        let key = Keys::new(name).value(None);
        match self {
            Store::InProcess(store) => {
                let mut found = store.snapshot().remove(&key).expect("a value");
                let Content::Text(value) = &mut found.content else { panic!("{found:?}") };
                *value = (value.parse::<i64>().expect("a number") - permits).to_string();
                store.raw_put(&key, Some(found));
            }
            // On a separate thread: the caller may be inside a runtime, where `block_on` panics.
            Store::Server(server) => std::thread::scope(|scope| {
                let command = redis::cmd("DECRBY").arg(key).arg(permits).take();
                let done = scope.spawn(|| scenario::run(server.run::<i64>(command))).join();
                done.expect("an integer");
            }),
        }
    }

    /// The server, if it is one.
    pub fn as_server(&self) -> Option<&Server> {
        match self {
            Store::InProcess(_) => None,
            Store::Server(server) => Some(server),
        }
    }

    /// Freezes the server. Does nothing for the in-process store, which cannot be frozen.
    pub fn pause(&self) {
        if let Store::Server(server) = self {
            server.pause();
        }
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        if let Store::Server(server) = self {
            server.resume();
        }
    }
}

/// Runs a scenario on a store, under a watchdog. For [`on_both_stores!`](crate::on_both_stores).
pub fn run(test: &str, store: fn() -> Store, scenario: fn(&Store)) {
    watchdog::watch(test, watchdog::LIMIT, move || scenario(&store()));
}

/// Makes each scenario two tests, `in_process::name` and `server::name`, each under a
/// [watchdog](crate::watchdog).
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[$doc:meta])* fn $name:ident($store:ident: &Store) $body:block)*) => {
        $($(#[$doc])* fn $name($store: &$crate::store::Store) $body)*

        mod in_process {
            $(#[test] fn $name() {
                let test = concat!("in_process::", stringify!($name));
                $crate::store::run(test, $crate::store::Store::in_process, super::$name);
            })*
        }

        mod server {
            $(#[test] fn $name() {
                let test = concat!("server::", stringify!($name));
                $crate::store::run(test, $crate::store::Store::server, super::$name);
            })*
        }
    };
}
