//! One client: one id, one clock, one connection, many limiters.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::engine::busy_poll::{self, BusyPoll};
use crate::engine::{Core, Engine, Tasks};
use crate::error::{Error, ErrorKind, Execution, Operation};
use crate::limiter::{RateLimiter, checked_deadline};
use crate::options::LimiterOptions;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::wire::keys::Keys;

/// The default deadline of an operation: that of Redisson.
const DEADLINE: Duration = Duration::from_secs(3);

/// An attempt is given up, and made again, after this part of the deadline.
const ATTEMPTS: u32 = 3;

/// Limiters that are not in use are forgotten once there are so many.
const MANY_LIMITERS: usize = 1024;

/// A client of one server, or of one in-process store: what `RedissonClient` is in Java.
///
/// Its id distinguishes its budget from those of others in the mode
/// [`Mode::PerClient`](crate::Mode::PerClient). It is cheap to clone; clones are the same client.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = redisson_rate_limiter::Client::connect("redis://127.0.0.1:6379").await?;
/// let limiter = client.limiter("api")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    id: Box<str>,
    key_prefix: Box<str>,
    deadline: Duration,
    core: Arc<Core>,
    limiters: Mutex<Limiters>,
    closed: AtomicBool,
}

struct Limiters {
    by_name: HashMap<Arc<str>, Arc<Engine>>,
    /// Forget those that are not in use once there are so many.
    limit: usize,
}

impl Client {
    /// Starts to build a client, with an id, a prefix, a clock and a deadline of its own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Connects to a server, with a random id, no prefix, the system's clock and a deadline of
    /// three seconds: [`ClientBuilder::connect`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Client::builder().connect(url).await
    }

    /// This client's id.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The limiter of this name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the name is empty; [`ErrorKind::Closed`] if the client is
    /// closed.
    pub fn limiter(&self, name: &str) -> Result<RateLimiter, Error> {
        if name.is_empty() {
            return Err(Error::invalid(
                Operation::Limiter,
                "an empty name: must have at least one character",
            ));
        }
        if self.is_closed() {
            return Err(crate::engine::closed().of(Operation::Limiter, Some(name.into())));
        }
        let mut limiters = self.0.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = match limiters.by_name.get(name) {
            Some(engine) => engine.clone(),
            None => {
                limiters.make_room();
                let name: Arc<str> = name.into();
                let keys = self.keys(&name, Operation::Limiter)?;
                let engine = Arc::new(Engine::new(name.clone(), keys, self.0.core.clone()));
                limiters.by_name.insert(name, engine.clone());
                engine
            }
        };
        drop(limiters);
        Ok(RateLimiter::new(self.clone(), engine))
    }

    /// The limiter of this name, with options. Nothing is sent.
    ///
    /// Options belong to the name: they apply to all its handles in this client, including those that
    /// [`limiter`] makes. An option that the name does not have yet is added; one that it has must be
    /// the same.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for an option that is out of range or differs from the one in
    /// force; otherwise as [`limiter`].
    ///
    /// [`limiter`]: Client::limiter
    pub fn limiter_with(&self, name: &str, options: LimiterOptions) -> Result<RateLimiter, Error> {
        let limiter = self.limiter(name)?;
        limiter.set_options(&options)?;
        Ok(limiter)
    }

    /// Asks the server for a sign of life: one round trip, for health checks. An in-process store
    /// answers at once.
    ///
    /// A server that cannot be reached is reported at once, without a second attempt; a connection
    /// that has died is made anew.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`],
    /// [`ErrorKind::Timeout`] after the client's deadline,
    /// [`ErrorKind::Auth`] and
    /// [`ErrorKind::Server`] for the server;
    /// [`ErrorKind::Closed`] for a closed client.
    pub async fn ping(&self) -> Result<(), Error> {
        let store = &self.0.core.store;
        let attempts = async {
            match store.ping().await {
                // The connection has died since it was last used; whether the server has, only a new
                // one can tell.
                Err(error) if error.may_be_retried() && error.execution() == Execution::Unknown => {
                    store.ping().await
                }
                answer => answer,
            }
        };
        let answer = match self.is_closed() {
            true => Err(crate::engine::closed()),
            false => tokio::time::timeout(self.0.deadline, attempts)
                .await
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, Execution::Unknown))),
        };
        answer.map_err(|error| error.of(Operation::Ping, None).with_server(store.address()))
    }

    /// Makes all waiting calls check again at once: after a [manual clock](Clock::manual) was set,
    /// or if permits are known to have come back elsewhere.
    pub fn recheck_waiters(&self) {
        for engine in self.engines() {
            engine.clock_was_set();
            engine.ask_again();
        }
    }

    /// Closes this client: waiting calls fail with [`ErrorKind::Closed`], and so do later ones. Calls in
    /// flight and permits that are being given back, leased ones included, are awaited, for the
    /// client's deadline at most.
    ///
    /// A client that is dropped without it leaves nothing behind but permits that were not given
    /// back: they expire an interval after they were granted, those of a lease an interval after
    /// the end of its hold.
    pub async fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        for engine in self.engines() {
            engine.close();
        }
        let drained = async {
            self.0.core.tasks.drained().await;
            // A caller that went straight has no task; its call ends with its own future.
            for engine in self.engines() {
                while !engine.is_idle() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            self.0.core.tasks.drained().await;
        };
        let _ = tokio::time::timeout(self.0.deadline, drained).await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// The keys of the limiter of this name.
    pub(crate) fn keys(&self, name: &str, operation: Operation) -> Result<Keys, Error> {
        if name.is_empty() {
            return Err(Error::invalid(
                operation,
                "an empty name: must have at least one character",
            ));
        }
        Ok(Keys::new(&format!("{}{name}", self.0.key_prefix), &self.0.id))
    }

    fn engines(&self) -> Vec<Arc<Engine>> {
        let limiters = self.0.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.by_name.values().cloned().collect()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.0.id)
            .field("key_prefix", &self.0.key_prefix)
            .field("clock", &self.0.core.clock)
            .field("deadline", &self.0.deadline)
            .field("server", &self.0.core.store.address())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Limiters {
    /// A service that names a limiter for each of its users must not keep them all.
    fn make_room(&mut self) {
        if self.by_name.len() >= self.limit {
            self.by_name.retain(|_, engine| Arc::strong_count(engine) > 1 || engine.holds_lease());
            self.limit = (self.by_name.len() * 2).max(MANY_LIMITERS);
        }
    }
}

/// Builds a [`Client`].
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    id: Option<String>,
    key_prefix: String,
    clock: Clock,
    deadline: Option<Duration>,
    busy_poll: Duration,
}

impl ClientBuilder {
    /// The client's id, so that a process keeps its budget of the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient) across restarts: a UUID. By default it is random. No
    /// two clients may have the same id at the same time.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The prefix of every limiter's name on the server: Redisson's name mapper. Java clients of the
    /// same limiters need the same prefix.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// The clock that dates this client's grants. By default it is the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long an operation may take, on the way to the server and back; an acquire's wait for
    /// permits does not count. Three seconds by default; longer ones than 30 years count as 30 years.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Polls for the answer of an acquire for up to `longest`, so that the thread need not be woken
    /// for it. `longest` must be at most 1 ms; 0, the default, turns it off. It is checked when the
    /// client is built or connects.
    ///
    /// Waking a thread takes some microseconds, on a virtual machine some tens: as long as a call
    /// to a server in the same rack. Polling costs processor time: up to `longest` of one thread per
    /// call, for one call of a client at a time. After an answer that took longer, the next 15 calls
    /// are not polled for, so that a server farther away costs a sixteenth of that. Measure it on the
    /// machines in question before you use it: 100 µs is a good value if a round trip takes less.
    ///
    /// It gains most on a runtime with one thread, `current_thread` or one worker. With more threads,
    /// the one on which answers arrive may be asleep and has to be woken; what is awaited in
    /// `#[tokio::main]` itself keeps only the main thread awake.
    ///
    /// Other tasks run meanwhile as usual. A lone caller polls its own call: its task is polled again
    /// and again, with everything else that it awaits.
    #[must_use]
    pub fn busy_poll(mut self, longest: Duration) -> Self {
        self.busy_poll = longest;
        self
    }

    /// Connects to the server at this address: `redis://[user][:password@]host[:port][/database]`,
    /// or `rediss://` with the feature `tls`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for an invalid address, an id that is not a UUID, a deadline
    /// of zero, a busy poll of more than 1 ms; [`ErrorKind::Unavailable`], [`ErrorKind::Timeout`] and
    /// [`ErrorKind::Auth`] for the server.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.check()?;
        let store = RedisStore::connect(url, self.attempt()).await.map_err(connect_error)?;
        self.build(Arc::new(store))
    }

    /// Like [`connect`](Self::connect), but the first call connects: a service can start before its
    /// server does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`], as [`connect`](Self::connect).
    pub fn connect_lazy(self, url: &str) -> Result<Client, Error> {
        let store = RedisStore::new(url, self.attempt()).map_err(connect_error)?;
        self.build(Arc::new(store))
    }

    /// How long one attempt may take: a part of the deadline, so that a lost answer leaves time to
    /// ask again.
    fn attempt(&self) -> Duration {
        self.deadline.unwrap_or(DEADLINE) / ATTEMPTS
    }

    /// A client of an in-process store, for which no server is needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for an id that is not a UUID, a deadline of zero, a busy poll of
    /// more than 1 ms.
    pub fn in_process(self, store: &InProcessStore) -> Result<Client, Error> {
        self.build(Arc::new(store.0.clone()))
    }

    /// Refuses what is out of its range, before anything is sent.
    fn check(&self) -> Result<(), Error> {
        let invalid = |detail| Err(Error::invalid(Operation::Connect, detail));
        if let Some(deadline) = self.deadline {
            checked_deadline(deadline, Operation::Connect)?;
        }
        if self.busy_poll > busy_poll::LONGEST {
            return invalid(format!("a busy poll of {:?}: must be at most 1 ms", self.busy_poll));
        }
        match &self.id {
            Some(id) if !is_uuid(id) => invalid(format!(
                "the client id {id:?}: must be a UUID, 32 hexadecimal digits in groups of 8-4-4-4-12"
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn build(self, store: Arc<dyn Store>) -> Result<Client, Error> {
        self.check()?;
        let deadline = checked_deadline(self.deadline.unwrap_or(DEADLINE), Operation::Connect)?;
        let id = self.id.unwrap_or_else(random_uuid);
        let core = Core {
            store,
            clock: self.clock,
            origin: Instant::now(),
            server_time: AtomicI64::new(0),
            busy_poll: BusyPoll::new(self.busy_poll),
            tasks: Tasks::default(),
        };
        Ok(Client(Arc::new(Inner {
            id: id.into(),
            key_prefix: self.key_prefix.into(),
            deadline,
            core: Arc::new(core),
            limiters: Mutex::new(Limiters { by_name: HashMap::new(), limit: MANY_LIMITERS }),
            closed: AtomicBool::new(false),
        })))
    }
}

/// A store in this process instead of a server, with the same rules and the same decisions. Clones are
/// the same store, and clients that are built over it share its limiters.
#[derive(Clone)]
pub struct InProcessStore(MemoryStore);

impl InProcessStore {
    /// An empty store, whose times to live go by the system's clock.
    pub fn new() -> Self {
        InProcessStore(MemoryStore::new())
    }

    /// An empty store, whose times to live go by this clock, which is its own clock for clients
    /// that ask for the server's; [`Clock::server`] is the system's here.
    pub fn with_clock(clock: Clock) -> Self {
        InProcessStore(MemoryStore::with_clock(clock))
    }

    /// All keys, for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_snapshot(&self) -> crate::raw_store::Snapshot {
        self.0.snapshot()
    }

    /// Makes a key hold this, for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_put(&self, name: &str, key: Option<crate::raw_store::Key>) {
        self.0.raw_put(name, key);
    }

    /// Forgets all, for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_clear(&self) {
        self.0.flush();
    }
}

impl Default for InProcessStore {
    fn default() -> Self {
        InProcessStore::new()
    }
}

impl fmt::Debug for InProcessStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessStore").finish_non_exhaustive()
    }
}

fn connect_error(failure: Error) -> Error {
    failure.of(Operation::Connect, None)
}

fn is_uuid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A random (version 4) UUID, as Java writes it.
fn random_uuid() -> String {
    let random = rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{random:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_uuid_is_one_of_version_4() {
        for _ in 0..100 {
            let id = random_uuid();
            assert!(is_uuid(&id), "{id}");
            assert_eq!(&id[14..15], "4");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        }
        assert!(!is_uuid("not-a-uuid"));
        assert!(!is_uuid(&"a".repeat(36)));
    }

    #[test]
    fn debug_shows_what_was_set_and_no_secret() {
        let id = "0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11";
        let builder = Client::builder().id(id).key_prefix("shop:").clock(Clock::server());
        let builder = builder.deadline(Duration::from_millis(250));
        let shown = format!("{builder:?}");
        for part in [id, "shop:", "Clock::server", "250ms"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let client = builder.connect_lazy("redis://user:secret@host:1234/0").unwrap();
        let options = LimiterOptions::new().denial_memory(Duration::from_millis(70));
        let options = options.lease(500, Duration::from_millis(100));
        let limiter = client.limiter_with("api", options).unwrap();
        let limiter = limiter.with_rate(crate::Rate::per_minute(77));
        let (client, limiter) = (format!("{client:?}"), format!("{limiter:?}"));
        for part in [id, "shop:", "Clock::server", "250ms", "host:1234"] {
            assert!(client.contains(part), "{part}: {client}");
        }
        for part in ["api", id, "250ms", "77", "70ms", "500", "100ms"] {
            assert!(limiter.contains(part), "{part}: {limiter}");
        }
        for shown in [client, limiter] {
            assert!(!shown.contains("secret") && !shown.contains("user"), "{shown}");
        }
    }

    #[test]
    fn a_busy_poll_has_a_bound() {
        let client =
            |longest| Client::builder().busy_poll(longest).in_process(&InProcessStore::new());
        assert!(client(busy_poll::LONGEST).is_ok());
        let error = client(Duration::from_micros(1001)).unwrap_err();
        assert_eq!(error.to_string(), "connect: a busy poll of 1.001ms: must be at most 1 ms");
    }
}
