//! Other things reported to an [`Observer`](super::Observer): numbers that change, and rare events.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::ClockSkew;
use crate::error::{Error, Operation};
use crate::rate::Rate;

/// A number that rises and falls, or only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Count {
    /// Requests in a queue or in flight, as of the last call.
    QueuedRequests,
    /// Leased permits that are not used yet.
    LeasePermits,
    /// Permits leased; only rises.
    Leased,
    /// Leased permits given back unused; only rises.
    LeaseReturned,
    /// Permits granted while the server was away that expired before they could be logged; only rises.
    ChargesExpired,
    /// Repeated calls of limiters with a policy that got the answer of an earlier attempt; only rises.
    Replays,
    /// Permits taken back from calls of limiters with a policy whose answers were lost; only rises.
    AbandonedPermits,
    /// Changes of a policy's parameters, by calls that bring other ones and by
    /// [`set_policy`](crate::RateLimiter::set_policy); only rises.
    PolicyChanges,
    /// Calls that found the store's clock behind the time of their queue's last grant; only rises.
    ClockReturns,
    /// Circuit breakers of the client that are open.
    OpenCircuits,
    /// Circuit breakers of the client that are probing the server.
    HalfOpenCircuits,
}

/// A rare event.
#[derive(Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are, or their event does")]
pub enum Event<'a> {
    /// An operation failed, and its caller was told. Acquires report
    /// [`AcquireOutcome::Failed`](super::AcquireOutcome).
    #[non_exhaustive]
    Failed { operation: Operation, error: &'a Error },
    /// The server repaired a limiter that lacked `deficit` permits of its rate; if negative, it had too many.
    #[non_exhaustive]
    Repaired { deficit: i64 },
    /// Permits of a semaphore that this client held are lost: their lease has ended, or the semaphore is gone.
    #[non_exhaustive]
    PermitsLost { permits: u64 },
    /// This client has changed the limiter's rate. `from` is the rate that it last saw.
    #[non_exhaustive]
    RateChanged { from: Option<Rate>, to: Rate, operation: Operation, client: &'a str },
    /// Permits granted while the server was away have been logged, or never will be.
    #[non_exhaustive]
    Charged { permits: u64, is_written: bool },
    /// This client's part of the rate is less than one permit, so its calls are denied while the server is
    /// away.
    #[non_exhaustive]
    PartIsNothing { rate: Rate },
    /// The limit on limiters decided without the server is reached: calls of this one, and of others beyond it, are
    /// denied.
    #[non_exhaustive]
    TooManyWithoutServer { most: usize },
    /// The server does not take calls, so policies decide.
    #[non_exhaustive]
    CircuitOpened { cause: &'a Error },
    /// A probe found the server still away.
    #[non_exhaustive]
    ProbeFailed { error: &'a Error },
    /// The server is back. `cause` is why it was away.
    #[non_exhaustive]
    CircuitClosed { cause: &'a Error },
    /// A connection was opened after this many failures; `before` is the server of the previous connection.
    #[non_exhaustive]
    Connected { server: &'a str, before: Option<&'a str>, failures: u32 },
    /// An attempt to connect has failed; `failures` in a row so far.
    #[non_exhaustive]
    ConnectFailed { error: &'a Error, failures: u32 },
    /// A connection failed, was found closed, or leads to a replica.
    #[non_exhaustive]
    ConnectionLost { server: &'a str, why: &'static str },
    /// The server is no longer the master, so its connection is closed.
    #[non_exhaustive]
    MasterChanged { server: &'a str },
    /// A node of a cluster has named another owner of a slot.
    #[non_exhaustive]
    SlotMoved { node: fmt::Arguments<'a>, owner: fmt::Arguments<'a> },
    /// The client's clock was compared with the server's.
    #[non_exhaustive]
    ClockCompared { skew: ClockSkew },
    /// There is a problem with requests to a limit of a web service. `limit` is empty if unknown.
    #[non_exhaustive]
    LimitTrouble { text: &'static str, limit: &'a str, why: fmt::Arguments<'a>, is_first: bool },
    /// The server that an HTTP client talks to asked for a pause of this length.
    #[non_exhaustive]
    HeldBack { status: u16, hold: Duration },
    /// A service is served at this address.
    #[non_exhaustive]
    Serving { address: SocketAddr },
    /// A service begins to shut down.
    #[non_exhaustive]
    ShuttingDown { cause: &'static str },
    /// A service that is shutting down has waited this long for requests in flight, and cuts them off.
    #[non_exhaustive]
    DrainEnded { waited: Duration },
    /// A second signal has cut the shutdown of a service short: it does not wait for requests in flight.
    #[non_exhaustive]
    ShutdownCut { cause: &'static str },
    /// A service has shut down: its client is closed.
    ShutDown,
}
