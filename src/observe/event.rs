//! What else is told to an [`Observer`](super::Observer): numbers that change, and what happens rarely.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::ClockSkew;
use crate::error::{Error, Operation};
use crate::rate::Rate;

/// A number that rises and falls, or that only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Count {
    /// Requests in a queue or in flight, as of the last call.
    QueuedRequests,
    /// Permits that were taken ahead and are not used.
    LeasePermits,
    /// Permits that were taken ahead; it only rises.
    Leased,
    /// Permits that were taken ahead and are given back unused; it only rises.
    LeaseReturned,
    /// Permits granted while the server was away that expired before its log had them; it only rises.
    ChargesExpired,
    /// Circuit breakers of the client that are open.
    OpenCircuits,
    /// Circuit breakers of the client that look for the server at this moment.
    HalfOpenCircuits,
}

/// Something that happens rarely.
#[derive(Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are, or their event does")]
pub enum Event<'a> {
    /// A caller was told that its operation failed. Acquires have [`AcquireOutcome::Failed`](super::AcquireOutcome).
    #[non_exhaustive]
    Failed { operation: Operation, error: &'a Error },
    /// The server has repaired a limiter that lacked `deficit` permits of its rate, or had too many if negative.
    #[non_exhaustive]
    Repaired { deficit: i64 },
    /// This client has changed the limiter's rate. `from` is the rate that it saw last.
    #[non_exhaustive]
    RateChanged { from: Option<Rate>, to: Rate, operation: Operation, client: &'a str },
    /// What was granted while the server was away is in its log now, or never will be.
    #[non_exhaustive]
    Charged { permits: u64, is_written: bool },
    /// This client's part of the rate is less than one permit: its calls are denied while the server is away.
    #[non_exhaustive]
    PartIsNothing { rate: Rate },
    /// As many limiters as may be are decided without the server: calls of this one, and of others, are denied.
    #[non_exhaustive]
    TooManyWithoutServer { most: usize },
    /// The server does not take calls: policies decide.
    #[non_exhaustive]
    CircuitOpened { cause: &'a Error },
    /// The server was looked for, and is still away.
    #[non_exhaustive]
    ProbeFailed { error: &'a Error },
    /// The server is back. `cause` is why it was away.
    #[non_exhaustive]
    CircuitClosed { cause: &'a Error },
    /// A connection was opened after so many failures; `before` is the server of the one before it.
    #[non_exhaustive]
    Connected { server: &'a str, before: Option<&'a str>, failures: u32 },
    /// An attempt to connect has failed, which makes so many in a row.
    #[non_exhaustive]
    ConnectFailed { error: &'a Error, failures: u32 },
    /// A connection has failed, was found closed, or leads to a replica.
    #[non_exhaustive]
    ConnectionLost { server: &'a str, why: &'static str },
    /// The server is no longer the master: its connection is closed.
    #[non_exhaustive]
    MasterChanged { server: &'a str },
    /// A node of a cluster has named another owner of a slot.
    #[non_exhaustive]
    SlotMoved { node: fmt::Arguments<'a>, owner: fmt::Arguments<'a> },
    /// The client's clock was compared with the server's. `threshold` is that of
    /// [`on_clock_skew`](crate::ClientBuilder::on_clock_skew).
    #[non_exhaustive]
    ClockCompared { skew: ClockSkew, threshold: Option<Duration> },
    /// Something is wrong with requests to a limit of a web service. `limit` is empty if it is not known.
    #[non_exhaustive]
    LimitTrouble { text: &'static str, limit: &'a str, why: fmt::Arguments<'a>, is_first: bool },
    /// The other side of an HTTP client wants no requests for this long.
    #[non_exhaustive]
    HeldBack { status: u16, hold: Duration },
    /// A service is served at this address.
    #[non_exhaustive]
    Serving { address: SocketAddr },
    /// A service begins to shut down.
    #[non_exhaustive]
    ShuttingDown { cause: &'static str },
    /// A service that shuts down has waited this long for requests in flight, and cuts them off.
    #[non_exhaustive]
    DrainEnded { waited: Duration },
    /// A second signal has ended the shutdown of a service: requests in flight are not waited for.
    #[non_exhaustive]
    ShutdownCut { cause: &'static str },
    /// A service has shut down: its client is closed.
    ShutDown,
}
