//! Building a client: its settings, and the servers or store that it uses.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::clock::Clock;
use crate::engine::{Core, SkewWatch};
use crate::error::{Error, Operation};
use crate::limiter::checked_deadline;
use crate::limiters::Limiters;
use crate::observe::Observer;
use crate::options::OnOutage;
use crate::queue::ATTEMPTS_PER_DEADLINE;
use crate::rt;
use crate::store::Store;
use crate::store::memory::InProcessStore;
#[cfg(feature = "tls")]
use crate::store::redis::Tls;
use crate::store::redis::{Access, RedisStore, Topology};

#[cfg(feature = "redisson-yaml")]
pub(crate) mod redisson_yaml;

/// The default deadline of an operation, the same as Redisson's.
const DEADLINE: Duration = Duration::from_secs(3);

impl Client {
    /// Builds a client with other settings than those of [`connect`](Self::connect), or on an in-process
    /// store.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Connects to a server by its URL, or to another [`Topology`], with the settings of a new [`ClientBuilder`]: see
    /// [`ClientBuilder::connect`]. If a service may start before its server, use [`ClientBuilder::connect_lazy`].
    pub async fn connect<T>(servers: T) -> Result<Self, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        Client::builder().connect(servers).await
    }
}

/// Builds a [`Client`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    id: Option<String>,
    key_prefix: String,
    clock: Clock,
    deadline: Option<Duration>,
    on_outage: OnOutage,
    access: Access,
}

impl ClientBuilder {
    /// Sets the client's id, a UUID; random by default. In the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient) a process that keeps its id across a restart keeps its
    /// budget. Two clients with the same id must not run at the same time.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the prefix of every limiter's name on the server: Redisson's name mapper. Java clients of the
    /// same limiters need the same prefix.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets the clock that dates this client's grants; the system's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how long an operation may take, on the way to the server and back, without the time that an acquire waits
    /// for permits; three seconds by default. It must be more than zero, and more than 30 years count as 30 years.
    ///
    /// One attempt of a repeatable operation takes at most a third of the deadline, so that after a lost answer there
    /// is time to ask again. An operation that must not be carried out twice, such as `release` or `set_rate`, is
    /// attempted again only if it was certainly not carried out, and may use all the remaining time.
    /// [`RateLimiter`](crate::RateLimiter#if-the-server-is-away) says how soon operations fail if the server is away.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how acquires are answered while the server is away, unless their limiter has its own policy
    /// ([`LimiterOptions::on_outage`](crate::LimiterOptions::on_outage)). By default they fail.
    ///
    /// If a client must be able to start while its server is away, use [`connect_lazy`](Self::connect_lazy).
    pub fn on_outage(mut self, policy: OnOutage) -> Self {
        self.on_outage = policy;
        self
    }

    /// Sets the user to log in as, if it is not in the URL. Needs no encoding.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.access.user = Some(user.into());
        self
    }

    /// Sets the password, if it is not in the URL. Needs no encoding, and is never shown.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.access.password = Some(password.into());
        self
    }

    /// Sets the number of the database, if it is not in the URL; 0 by default.
    pub fn database(mut self, database: u32) -> Self {
        self.access.database = Some(database);
        self
    }

    /// Sets up TLS for `rediss://` addresses. With the feature `tls`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// Adds an observer of what the client does, next to those of the features `metrics` and `tracing`. A
    /// client can have several observers, and an observer can serve several clients.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.access.observers = self.access.observers.and(observer);
        self
    }

    /// Maps addresses that servers announce to addresses that this client can reach: those of the nodes of a cluster,
    /// or of the servers that sentinels name. Redisson's `natMapper`. Pairs of `host:port`, first the announced one.
    /// Both can be hosts without a port, which then stays as it is; a pair with ports comes first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for an address that is not of that form, and
    /// for a pair of which only one has a port. Other topologies refuse an address map when they are connected to.
    pub fn address_map<'a>(
        mut self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Error> {
        self.access.address_map.add(pairs)?;
        Ok(self)
    }

    /// Connects to a server by its URL (see [`Endpoint`](crate::topology::Endpoint)), or to another
    /// [`Topology`]. It makes one attempt, which takes five seconds at most.
    ///
    /// The connection belongs to the runtime that calls this; other runtimes connect at their first call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for an invalid address or TLS setting, an
    /// id that is not a UUID, a deadline of zero, or a [`Fraction`](crate::Fraction) out of range; nothing is sent.
    /// [`ErrorKind::Tls`](crate::ErrorKind::Tls) if the TLS handshake fails; otherwise those
    /// [of the server](crate::RateLimiter#errors-of-the-server). The future may be dropped at any time.
    pub async fn connect<T>(self, servers: T) -> Result<Client, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        let client = self.connect_lazy(servers)?;
        let connected = client.0.core.connect(client.0.deadline).await;
        connected.map_err(|error| error.of(Operation::Connect, None))?;
        Ok(client)
    }

    /// Like [`connect`](Self::connect), but connects at the first call, so that a service can start before
    /// its server does.
    ///
    /// Errors are [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), as of [`connect`](Self::connect).
    pub fn connect_lazy<T>(self, servers: T) -> Result<Client, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        let topology = servers.try_into().map_err(Into::into)?;
        self.build_on(|access| Ok(Store::Redis(RedisStore::new(topology, access)?)))
    }

    /// A client of an in-process store, which needs no server. Errors are those of
    /// [`connect_lazy`](Self::connect_lazy).
    pub fn in_process(self, store: &InProcessStore) -> Result<Client, Error> {
        self.build(Store::InProcess(store.clone()))
    }

    pub(crate) fn build(self, store: Store) -> Result<Client, Error> {
        self.build_on(|_| Ok(store))
    }

    fn build_on(
        mut self,
        store: impl FnOnce(Access) -> Result<Store, Error>,
    ) -> Result<Client, Error> {
        self.access.observers = self.access.observers.with_features();
        let observers = self.access.observers.clone();
        let store = store(self.access).map_err(|error| error.of(Operation::Connect, None))?;
        let invalid = |detail| Error::invalid(Operation::Connect, detail);
        let deadline = checked_deadline(self.deadline.unwrap_or(DEADLINE), Operation::Connect)?;
        self.on_outage.check().map_err(invalid)?;
        let id = self.id.unwrap_or_else(random_uuid);
        if !is_uuid(&id) {
            return Err(invalid(format!(
                "the client id {id:?}: must be a UUID, 32 hexadecimal digits in groups of 8-4-4-4-12"
            )));
        }
        // Part of the deadline, so that a lost answer leaves time to ask again.
        let attempt = deadline / (ATTEMPTS_PER_DEADLINE as u32);
        let mut core = Core::new(store, self.clock, attempt).on_outage(self.on_outage);
        core.skew = SkewWatch::new();
        core.observers = observers;
        Ok(Client(Limiters::new(id, self.key_prefix, deadline, core)))
    }
}

pub(crate) fn is_uuid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A random (version 4) UUID, as Java writes it.
fn random_uuid() -> String {
    let random = u128::from(rt::random()) << 64 | u128::from(rt::random());
    let random = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{random:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LimiterOptions;

    #[test]
    fn a_random_uuid_has_version_4() {
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

    /// Otherwise it would use what belongs to another program.
    #[cfg(not(shuttle))]
    #[tokio::test]
    async fn whatever_a_client_names_has_its_prefix() {
        use crate::{InProcessStore, Policy};

        let store = InProcessStore::new();
        let prefixed = || Client::builder().key_prefix("shop:");
        let client = prefixed().in_process(&store).unwrap();
        let rate = crate::Rate::per_second(1);
        client.limiter("api").unwrap().try_set_rate(rate).await.unwrap();
        client.semaphore("plain").unwrap().try_set_permits(1).await.unwrap();
        client.concurrency("leased").unwrap().try_set_permits(1).await.unwrap();
        let keys: Vec<String> = store.snapshot().into_keys().collect();
        assert!(keys.len() >= 3 && keys.iter().all(|key| key.contains("shop:")), "{keys:?}");
        let (client, second) =
            (prefixed().connect_lazy("redis://host").unwrap(), Duration::from_secs(1));
        for limiter in [
            client.limiter_of("api", Policy::bucket(1, 1, second).unwrap()),
            client.limiter_of("api", Policy::redis_rate_gcra(1, 1, second).unwrap()),
            client.stored_limiter_of("api", Policy::rgcra(1, 1, second).unwrap()),
        ] {
            let limiter = limiter.unwrap();
            let keys = limiter.engine().keys.all();
            assert!(keys.iter().all(|key| key.contains("shop:api")), "{keys:?}");
        }
    }

    #[test]
    fn credentials_apart_from_the_url_are_not_shown() {
        let builder = Client::builder().user("jane").password("s%cr:t@/").database(3);
        let shown = format!("{builder:?} {:?}", builder.clone().connect_lazy("unix:///r.sock"));
        assert!(!shown.contains("jane") && !shown.contains("s%cr:t@/"), "{shown}");
        assert!(shown.contains("/r.sock"), "{shown}");
    }
}
