//! Redisson's `RRateLimiter` for Rust: one rate limiter in Redis or Valkey, shared by Rust and Java services.
//!
//! A [`Client`] connects to a server ([`Client::connect`]) or to another [`Topology`](topology::Topology), or
//! uses a store in this process ([`ClientBuilder::in_process`]). [`Client::limiter`] makes handles of its
//! limiters. A [`RateLimiter`] answers a request for permits with a [`Decision`]: a [`Grant`], which can be
//! given back, or a [`Denial`], which says after how long to try again.
//!
//! ```
//! use std::time::Duration;
//! use redisson_rate_limiter::{Client, Decision, InProcessStore, Rate};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redisson_rate_limiter::Error> {
//! // Or: Client::connect("redis://127.0.0.1:6379").await?
//! let client = Client::builder().in_process(&InProcessStore::new())?;
//! // If the limiter does not exist, the first acquire creates it with this rate.
//! let limiter = client.limiter("api")?.with_rate(Rate::per_second(100));
//!
//! match limiter.try_acquire(5, Duration::from_millis(250)).await? {
//!     Decision::Granted(grant) => assert_eq!(grant.left(), 95),
//!     Decision::Denied(denial) => println!("try again in {:?}", denial.retry_after()),
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Which call
//!
//! | | waits | returns |
//! |---|---|---|
//! | [`try_acquire_now`](RateLimiter::try_acquire_now) | never | [`Decision`] |
//! | [`try_acquire`](RateLimiter::try_acquire) | up to a timeout; not at all if the permits cannot be available by then | [`Decision`] |
//! | [`acquire`](RateLimiter::acquire) | for as long as it takes | [`Grant`] |
//! | [`peek`](RateLimiter::peek), [`available_permits`](RateLimiter::available_permits) | never | what an acquire would find; takes nothing |
//! | [`run`](RateLimiter::run) | for as long as it takes | the output of a future that runs once it has its permits |
//! | [`stream.rate_limited`](stream::StreamRateLimitExt::rate_limited) | for each item as long as it takes | a stream |
//! | [`guava::SmoothRateLimiter`] | as Guava does, in this process only | how long it waited |
//! | [`Grant::refund`] | never | how many of this grant's permits are available again |
//!
//! A handle can carry the rate ([`with_rate`](RateLimiter::with_rate)), so that its first acquire creates the
//! limiter. Otherwise [`try_set_rate`](RateLimiter::try_set_rate) sets the rate of a new limiter,
//! [`update_rate`](RateLimiter::update_rate) changes that of an existing one, and
//! [`set_rate`](RateLimiter::set_rate) does either. [`ensure_rate`](RateLimiter::ensure_rate) writes only if
//! the rate differs; call it when a service starts.
//!
//! # More than one limiter with a rate
//!
//! - [`Client::all_of`] makes one limiter of several: a request takes from all of them, or from none.
//! - [`Client::limiter_of`] makes a limiter that follows a [`Policy`]: a bucket, a window, a quota, a queue.
//! - [`Client::concurrency`] makes a [`Semaphore`], which bounds how many at once instead of how often.
//!
//! # Waiting, dropping, failing
//!
//! All handles of one name and headroom in one client share a queue in each tokio runtime. Concurrent calls go to the
//! server together, and waiting calls are served in the order of their arrival. A client can be used from any
//! number of runtimes, and from outside any runtime: see [`Client`](Client#runtimes). [`block_on`] makes calls without
//! async.
//!
//! Every future can be dropped at any time; an acquire then takes nothing, or gives back in the background
//! what it was granted. A call whose answer is lost is repeated under the same id, and counts once. An
//! [`Error`] says whether its call was carried out ([`Error::execution`]) and whether trying again is safe
//! and useful ([`Error::is_transient`]). [`RateLimiter`](RateLimiter#if-the-server-is-away) says how soon
//! calls fail if the server is away.
//!
//! # Features
//!
//! - `redisson-yaml`: the configuration file of the Java side ([`ClientBuilder`]'s `redisson_yaml`).
//! - `time-zones`: calendar windows in other time zones than UTC ([`Policy`]'s `in_zone`).
//! - `tls`: `rediss://` addresses, through rustls with ring ([`ClientBuilder`]'s `tls`).
//! - `serde`: [`Rate`] and [`Mode`] are serialized as text, for configuration files: `"100/s"`,
//!   `"OVERALL"`.
//! - `tower`: layers for axum, tonic and other tower services, and for HTTP clients (`layer`, `web`).
//! - `axum`: `tower`, and a server for axum that shuts down gracefully (`serve`).
//! - `actix-web`: middleware (`actix`, `web`).
//! - `metrics`: counters, gauges and histograms through the `metrics` facade; `tracing`: spans and
//!   events. `docs/observability.md` lists them.
//! - `admin`: inspecting, repairing, finding and removing limiters, for tools (`admin`).
//! - `cli`: the program `redisson-limiter`, for operators (docs/cli.md); the library contains none of it.

// On docs.rs, which builds with a nightly compiler, each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "actix-web")]
pub mod actix;
#[cfg(any(feature = "admin", test))]
pub mod admin;
mod blocking;
mod client;
mod clock;
mod decision;
mod engine;
mod error;
#[cfg(any(all(test, not(shuttle)), feature = "_fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod group;
pub mod guava;
#[cfg(any(feature = "admin", test))]
mod inspection;
#[cfg(feature = "tower")]
pub mod layer;
mod limiter;
mod limiters;
pub mod observe;
mod options;
mod policy;
mod queue;
mod rate;
mod rt;
mod semaphore;
#[cfg(feature = "axum")]
pub mod serve;
#[cfg(all(test, not(shuttle)))]
mod sim;
#[cfg_attr(
    not(any(feature = "admin", test)),
    allow(dead_code, unused_imports, reason = "what only `admin` asks a store")
)]
mod store;
pub mod stream;
#[cfg(any(feature = "tower", feature = "actix-web"))]
pub mod web;
mod wire;

/// Where the servers are, if the URL of a single server is not enough.
pub mod topology {
    pub use crate::store::redis::{Cluster, Endpoint, Replicated, Sentinels, Topology};
}

pub use blocking::block_on;
pub use client::Client;
pub use client::builder::ClientBuilder;
#[cfg(feature = "redisson-yaml")]
pub use client::builder::redisson_yaml::{IgnoredSetting, RedissonYaml};
pub use clock::{Clock, ClockSkew, ManualClock};
pub use decision::{DecidedBy, Decision, Denial, Grant};
pub use engine::outage::{CircuitState, OutageReport};
pub use error::{Error, ErrorKind, Execution, Operation};
pub use group::{Costs, LimitGroup};
pub use limiter::RateLimiter;
pub use limiter::rates::{Ensured, Usage};
pub use options::{Fraction, LimiterOptions, OnOutage};
pub use policy::{CalendarUnit, ChangeRule, Policy, Weekday};
pub use rate::{Mode, Rate};
pub use semaphore::{Permit, Semaphore, SemaphoreOptions};
pub use store::memory::InProcessStore;
#[cfg(feature = "tls")]
pub use store::redis::Tls;
pub use store::{ExpireCondition, Peek, RemainingTime};

/// The contents of an in-process store's keys, for this project's own tests: not part of the API.
#[cfg(feature = "_raw-store")]
#[doc(hidden)]
pub mod raw_store {
    pub use crate::store::memory::raw::{Content, Key, Snapshot};
}

/// Runs the programs in the pages as tests, each with the features that it needs. Those of pages that need
/// other crates are in compat-tests/pages.
#[cfg(doctest)]
mod pages {
    macro_rules! page {
        ($(#[$needs:meta])? $name:ident, $path:literal) => {
            $(#[$needs])?
            #[doc = include_str!($path)]
            struct $name;
        };
    }
    page!(Guide, "../docs/guide.md");
    page!(Concepts, "../docs/concepts.md");
    page!(Fleet, "../docs/fleet.md");
    page!(Waiting, "../docs/waiting.md");
    page!(
        #[cfg(all(feature = "tls", feature = "redisson-yaml"))]
        Deployment,
        "../docs/deployment.md"
    );
    page!(Migrating, "../docs/migrating.md");
    page!(Groups, "../docs/groups.md");
    page!(Policies, "../docs/policies.md");
    page!(Semaphores, "../docs/semaphores.md");
}
