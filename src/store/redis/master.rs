//! A master that sentinels name, or that is found among servers; and following it when another server is promoted.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::net::lookup_host;
use tokio::time::{timeout, timeout_at};

use super::open::WATCH;
use super::*;

/// How long the other sentinels may take to answer while no server is named by most of them. A sentinel that
/// was cut off from the others still names the old master, and it may be the nearest.
const AGREEMENT: Duration = Duration::from_millis(500);

/// A master that is found through sentinels. Name several, so that one may be unavailable.
///
/// Whenever a connection is opened, all sentinels are asked, and the server named by most of them is asked
/// for its role: it is used only if it is a master. The sentinels and the server are asked again once a
/// second, and at once when the connection is lost, or the server refuses a write as a replica.
///
/// With `rediss://` addresses both the sentinels and the servers are reached over TLS. Sentinels usually name
/// servers by IP address: then the servers' certificates must be valid for that, or for the name given by
/// `Tls::server_name`.
#[derive(Clone)]
pub struct Sentinels {
    master: Arc<str>,
    /// At least one.
    pub(super) endpoints: Vec<Endpoint>,
    user: Option<String>,
    password: Option<String>,
}

impl Sentinels {
    /// The sentinels at these URLs (see [`Endpoint`]; without a database), and the name by which they know
    /// the master. The credentials in a URL belong to its sentinel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no URL, if one
    /// is invalid or has a database, or if only some use TLS.
    pub fn new<'a>(
        master_name: impl Into<String>,
        urls: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Error> {
        let endpoints = Endpoint::list("sentinel", urls)?;
        if endpoints.iter().any(|endpoint| endpoint.login.db() != 0) {
            return Err(invalid(
                "sentinels have no databases: the builder's `database` is the servers'",
            ));
        }
        let master = master_name.into().into();
        Ok(Sentinels { master, endpoints, user: None, password: None })
    }

    /// Parses the sentinels of one address: `host:port,host:port/mymaster`.
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, Error> {
        let Some((hosts, master)) = rest.split_once('/').filter(|(_, master)| !master.is_empty())
        else {
            return Err(invalid("the address of sentinels must end with the name of the master"));
        };
        // The credentials could belong to the sentinels or to the servers.
        if hosts.contains('@') {
            return Err(invalid(
                "the address of sentinels has no credentials: give them to `Sentinels` and the builder",
            ));
        }
        let urls: Vec<String> = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        Sentinels::new(master, urls.iter().map(String::as_str))
    }

    /// Sets the user to log in to the sentinels as, if it differs from the user in their URLs.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password of the sentinels, if it differs from the one in their URLs. The password of the
    /// servers is set on the builder.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The number of sentinels in a majority, which cannot all be mistaken at the same time.
    fn most(&self) -> usize {
        self.endpoints.len() / 2 + 1
    }

    pub(super) async fn open(
        &self,
        access: &Access,
        limit: Duration,
    ) -> Result<OpenConnection, Error> {
        let (user, password) = (self.user.clone(), self.password.clone());
        let mut discovery = Discovery {
            sentinels: self.clone(),
            // Not `pushes`: what a sentinel pushes, and the end of its connection, says nothing of the master's.
            access: Access { user, password, database: None, pushes: None, ..access.clone() },
            connections: self.endpoints.iter().map(|_| None).collect(),
        };
        let mut named = discovery.ask(self.most(), AGREEMENT.min(limit / 2)).await?;
        // The others are old masters, which still call themselves masters if they were cut off.
        if named[0].1 >= self.most() {
            named.truncate(1);
        }
        // If one of them hangs, time is left for the others.
        let share = limit / named.len() as u32;
        let attempt = async |(address, _)| {
            let endpoint = Endpoint { address, login: RedisConnectionInfo::default() };
            let open = OpenConnection::open(&endpoint, None, access).await?.of_master().await?;
            Ok((open, endpoint.address))
        };
        let attempts = named.into_iter().map(attempt);
        let (open, address) = first_success(attempts, share, telling, || self.unknown()).await?;
        Ok(open.watched(&access.observers, Some((discovery, address))))
    }

    fn unknown(&self) -> Error {
        let detail = format!("no sentinel knows a master of the name {:?}", self.master);
        unavailable(&detail)
    }

    /// The master's address as a sentinel has announced it; `None` if it does not know the name.
    pub(super) fn address_in(&self, answer: ServerAnswer<'_>) -> Option<Address> {
        let host = std::str::from_utf8(answer.bytes(0)?).ok()?.into();
        Some(Address::Tcp { host, port: answer.parsed(1)?, tls: self.endpoints[0].uses_tls() })
    }
}

pub(super) struct Discovery {
    sentinels: Sentinels,
    access: Access,
    connections: Vec<Option<OpenConnection>>,
}

impl Discovery {
    /// The servers that sentinels name as the master, with their number of votes, most votes first; an error
    /// if no sentinel names one. Stops waiting once `enough` sentinels name the same server, or `patience`
    /// after the first one has been named.
    async fn ask(
        &mut self,
        enough: usize,
        patience: Duration,
    ) -> Result<Vec<(Address, usize)>, Error> {
        let Discovery { sentinels, access, connections } = self;
        let mut answers: FuturesUnordered<_> = sentinels
            .endpoints
            .iter()
            .zip(connections)
            .map(|(endpoint, connection)| ask_one(sentinels, endpoint, access, connection))
            .collect();
        let mut named: Vec<(Address, usize)> = Vec::new();
        let mut failure = None;
        let until = Instant::now() + patience;
        while named.iter().all(|(_, votes)| *votes < enough) {
            let answer = match named.is_empty() {
                true => answers.next().await,
                false => timeout_at(until, answers.next()).await.unwrap_or(None),
            };
            match answer {
                None => break,
                Some(Ok(None)) => {}
                Some(Ok(Some(address))) => match named.iter_mut().find(|it| it.0 == address) {
                    Some((_, votes)) => *votes += 1,
                    None => named.push((address, 1)),
                },
                Some(Err(error)) => failure = Some(telling(failure, error)),
            }
        }
        // The sort is stable: of servers with equal votes, the one named first comes first.
        named.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        match named.is_empty() {
            true => Err(failure.unwrap_or_else(|| sentinels.unknown())),
            false => Ok(named),
        }
    }

    /// Whether most of the sentinels name another server: fewer cannot have promoted it.
    pub(super) async fn name_another(&mut self, address: &Address) -> bool {
        let (all, most) = (self.sentinels.endpoints.len(), self.sentinels.most());
        // Wait for all: a sentinel that was not heard would need a new connection each time.
        match timeout(WATCH, self.ask(all, AGREEMENT)).await {
            Ok(Ok(named)) => named.iter().any(|(named, votes)| named != address && *votes >= most),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// Asks one sentinel, over its connection or a new one. This future is dropped if the sentinel hangs: then
/// its connection is not kept.
async fn ask_one(
    sentinels: &Sentinels,
    endpoint: &Endpoint,
    access: &Access,
    connection: &mut Option<OpenConnection>,
) -> Result<Option<Address>, Error> {
    let asked = async {
        let open = match connection.take() {
            Some(open) if !open.is_closed() => open,
            _ => OpenConnection::open(endpoint, None, access).await?,
        };
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*sentinels.master);
        let answer = open.connection.clone().send_packed_command(&question).await;
        let answer = reply::accepted(answer.map_err(reply::not_sent)?)?;
        *connection = Some(open);
        Ok(sentinels
            .address_in(ServerAnswer::of(&answer))
            .map(|announced| access.address_map.reachable(announced)))
    };
    asked.await.map_err(|error: Error| {
        let error = error.with_execution(Execution::NotExecuted);
        let error = error.with_server(Some(endpoint.address.to_string().into()));
        match error.kind() {
            ErrorKind::Auth => error.with_detail("a sentinel, which has credentials of its own"),
            _ => error,
        }
    })
}

/// Shows no user and no password.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("master", &self.master)
            .field("sentinels", &self.endpoints)
            .field("has_password", &self.password.is_some())
            .finish_non_exhaustive()
    }
}

/// Shows the master's name and the addresses of the sentinels.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (by sentinels", self.master)?;
        for endpoint in &self.endpoints {
            write!(f, " {}", endpoint.address)?;
        }
        f.write_str(")")
    }
}

/// A master and its replicas without sentinels: the master is chosen by a cloud provider or an operator.
///
/// Whenever a connection is opened, each name is resolved anew and all of its addresses are asked for their
/// role: a primary endpoint that moves in DNS can be the only address. A connection is dropped when its
/// server refuses a write as a replica, or reports that it has become one when asked once a second.
///
/// If two servers call themselves masters, one of them is used: whoever promotes a server must first have
/// demoted or stopped the old master.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// At least one.
    pub(super) endpoints: Vec<Endpoint>,
}

impl Replicated {
    /// The servers at these URLs: see [`Endpoint`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no URL, if one is
    /// invalid, or if only some use TLS.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Ok(Replicated { endpoints: Endpoint::list("replicated server", urls)? })
    }

    /// A connection to the first server that reports being the master.
    pub(super) async fn open(&self, access: &Access) -> Result<OpenConnection, Error> {
        let attempts = self.endpoints.iter().map(|endpoint| masters_of(endpoint, access));
        let attempts: Vec<_> = attempts.collect();
        let open = first_success(attempts, Duration::ZERO, telling, no_address).await?;
        Ok(open.watched(&access.observers, None))
    }
}

/// A connection to the first address of this name that belongs to a master.
async fn masters_of(endpoint: &Endpoint, access: &Access) -> Result<OpenConnection, Error> {
    let addresses = match &endpoint.address {
        Address::Unix(_) => vec![None],
        Address::Tcp { host, port, .. } => match lookup_host((&**host, *port)).await {
            Ok(found) => found.map(Some).collect(),
            Err(error) => {
                let server = endpoint.address.to_string().into();
                return Err(reply::no_stream(error).with_server(Some(server)));
            }
        },
    };
    let attempt =
        async |address| OpenConnection::open(endpoint, address, access).await?.of_master().await;
    let attempts = addresses.into_iter().map(attempt);
    first_success(attempts, Duration::ZERO, telling, no_address).await
}

fn no_address() -> Error {
    unavailable("its name has no address")
}

/// The more telling of two failures: one that does not pass by itself, or else the first.
fn telling(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first) if !first.may_be_retried() || second.may_be_retried() => first,
        _ => second,
    }
}

impl fmt::Display for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, endpoint) in self.endpoints.iter().enumerate() {
            let separator = if nth == 0 { "" } else { " or " };
            write!(f, "{separator}{}", endpoint.address)?;
        }
        Ok(())
    }
}
