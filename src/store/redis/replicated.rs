//! A master and its replicas without sentinels: asks the servers which is the master.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::store::redis::access::Credentials;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::open::OpenConnection;
use crate::store::redis::race::first_success;
use crate::store::redis::{reply, role};

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
    pub(super) async fn open(
        &self,
        credentials: &Arc<Credentials>,
    ) -> Result<OpenConnection, Error> {
        let attempts = self.endpoints.iter().map(|endpoint| masters_of(endpoint, credentials));
        let attempts: Vec<_> = attempts.collect();
        match first_success(attempts, Duration::ZERO, telling).await {
            Ok(open) => Ok(open.watched(credentials.observers(), None)),
            Err(failure) => {
                Err(failure.unwrap_or_else(|| unreachable!("there is at least one server")))
            }
        }
    }
}

/// A connection to the first address of this name that belongs to a master.
async fn masters_of(
    endpoint: &Endpoint,
    credentials: &Credentials,
) -> Result<OpenConnection, Error> {
    let addresses = endpoint.resolve().await?;
    let attempt = async |address| {
        role::of_master(OpenConnection::open(endpoint, address, credentials).await?).await
    };
    let unresolved = || reply::unavailable("its name has no address");
    let master = first_success(addresses.into_iter().map(attempt), Duration::ZERO, telling).await;
    master.map_err(|failure| failure.unwrap_or_else(unresolved))
}

/// The more telling of two failures: one that does not pass by itself, or else the first.
pub(super) fn telling(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first) if !first.may_be_retried() || second.may_be_retried() => first,
        _ => second,
    }
}

/// Shows the addresses.
impl fmt::Display for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, endpoint) in self.endpoints.iter().enumerate() {
            let separator = if nth == 0 { "" } else { " or " };
            write!(f, "{separator}{}", endpoint.address)?;
        }
        Ok(())
    }
}
