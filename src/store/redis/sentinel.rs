//! A master named by sentinels, and following it when they promote another server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::RedisConnectionInfo;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, ErrorKind, Execution};
use crate::store::redis::access::Credentials;
use crate::store::redis::endpoint::{Address, Endpoint, invalid};
use crate::store::redis::open::OpenConnection;
use crate::store::redis::race::first_success;
use crate::store::redis::replicated::telling;
use crate::store::redis::reply::{self, ServerAnswer};
use crate::store::redis::role;

/// How long the other sentinels may take to answer while no server is named by most of them. A sentinel that
/// was cut off from the others still names the old master, and it may be the nearest.
const AGREEMENT: Duration = Duration::from_millis(500);

/// A master that is found through sentinels, several of which make up for one that is away.
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

    /// Opens a connection to the master.
    pub(super) async fn open(
        &self,
        credentials: &Arc<Credentials>,
        limit: Duration,
    ) -> Result<OpenConnection, Error> {
        let mut discovery = Discovery::new(self.clone(), credentials);
        let named = discovery.ask(self.most(), AGREEMENT.min(limit / 2)).await?;
        // If one of them hangs, time is left for the others.
        let share = limit / named.len() as u32;
        let attempt = async |(address, _)| {
            self.open_master(&address, credentials).await.map(|open| (open, address))
        };
        match first_success(named.into_iter().map(attempt), share, telling).await {
            Ok((open, address)) => {
                Ok(open.watched(credentials.observers(), Some((discovery, address))))
            }
            Err(failure) => Err(failure.unwrap_or_else(|| self.unknown())),
        }
    }

    async fn open_master(
        &self,
        address: &Address,
        credentials: &Credentials,
    ) -> Result<OpenConnection, Error> {
        let login = RedisConnectionInfo::default();
        let endpoint = Endpoint { address: address.clone(), login };
        role::of_master(OpenConnection::open(&endpoint, None, credentials).await?).await
    }

    fn unknown(&self) -> Error {
        let detail = format!("no sentinel knows a master of the name {:?}", self.master);
        reply::unavailable(&detail)
    }

    /// The master's address as a sentinel has announced it; `None` if it does not know the name.
    pub(super) fn address_in(&self, answer: ServerAnswer<'_>) -> Option<Address> {
        let host = std::str::from_utf8(answer.bytes(0)?).ok()?.into();
        Some(Address::Tcp { host, port: answer.parsed(1)?, tls: self.endpoints[0].uses_tls() })
    }
}

/// The sentinels, and the connections to them.
pub(super) struct Discovery {
    sentinels: Sentinels,
    credentials: Credentials,
    connections: Vec<Option<OpenConnection>>,
}

impl Discovery {
    fn new(sentinels: Sentinels, of_servers: &Credentials) -> Self {
        let credentials =
            of_servers.with_others(sentinels.user.clone(), sentinels.password.clone());
        let connections = sentinels.endpoints.iter().map(|_| None).collect();
        Discovery { sentinels, credentials, connections }
    }

    /// The servers that sentinels name as the master, with their number of votes, most votes first; an error
    /// if no sentinel names one. Stops waiting once `enough` sentinels name the same server, or `patience`
    /// after the first one has been named.
    async fn ask(
        &mut self,
        enough: usize,
        patience: Duration,
    ) -> Result<Vec<(Address, usize)>, Error> {
        let Discovery { sentinels, credentials, connections } = self;
        let mut answers: FuturesUnordered<_> = sentinels
            .endpoints
            .iter()
            .zip(connections)
            .map(|(endpoint, connection)| ask_one(sentinels, endpoint, credentials, connection))
            .collect();
        let mut named: Vec<(Address, usize)> = Vec::new();
        let mut failure = None;
        let until = Instant::now() + patience;
        loop {
            let answer = match named.is_empty() {
                true => answers.next().await,
                false => timeout_at(until, answers.next()).await.unwrap_or(None),
            };
            let address = match answer {
                None => break,
                Some(Ok(None)) => continue,
                Some(Ok(Some(address))) => address,
                Some(Err(error)) => {
                    failure = Some(telling(failure, error));
                    continue;
                }
            };
            match named.iter_mut().find(|(known, _)| *known == address) {
                Some((_, votes)) => *votes += 1,
                None => named.push((address, 1)),
            }
            if named.iter().any(|(_, votes)| *votes >= enough) {
                break;
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
        match timeout(role::WATCH, self.ask(all, AGREEMENT)).await {
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
    credentials: &Credentials,
    connection: &mut Option<OpenConnection>,
) -> Result<Option<Address>, Error> {
    let asked = async {
        let open = match connection.take() {
            Some(open) if !open.is_closed() => open,
            _ => OpenConnection::open(endpoint, None, credentials).await?,
        };
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*sentinels.master);
        let answer = open.connection.clone().send_packed_command(&question).await;
        let answer = reply::accepted(answer.map_err(reply::not_sent)?)?;
        *connection = Some(open);
        Ok(sentinels
            .address_in(ServerAnswer::of(&answer))
            .map(|announced| credentials.reachable(announced)))
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
