//! Faults of servers, networks and clients, and measurements of what callers see of them.

use std::fmt;
use std::time::Duration;

mod book;
mod figures;
mod footprint;
mod stage;
mod strike;

pub use book::{Balance, Book};
pub use figures::{Call, Figures, NO_ANSWER, Noise, PATIENCE, Pace, at_pace};
pub use footprint::Footprint;
pub use stage::Stage;
pub use strike::{Struck, Targets};

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is killed, and restarted from its append-only file.
    KillAndRestart,
    /// The server is killed, and restarted empty.
    KillWithoutFile,
    /// The master is killed, and its replica takes over, which lags behind.
    Failover,
    /// The server's process is frozen.
    Stop,
    /// The same, and it goes on before the first attempt of a call has ended.
    StopBriefly,
    /// `CLIENT PAUSE … ALL`: the server processes no commands.
    PauseAll,
    /// `CLIENT PAUSE … WRITE`: it processes no writes.
    PauseWrites,
    /// More replicas are required than there are: it refuses writes.
    TooFewReplicas,
    /// It becomes a replica: it refuses writes.
    ReadOnly,
    /// `SCRIPT FLUSH`, again and again.
    ScriptFlushes,
    /// `CLIENT KILL` of all connections, again and again.
    ClientKills,
    /// Its memory is full: it refuses writes.
    OutOfMemory,
    /// Its memory is full, and it evicts keys at random, those of limiters among them.
    Eviction,
    /// All connections are closed, and new ones refused, as there are too many clients.
    MaxClients,
    /// The clients' right to call scripts is withdrawn.
    RightsWithdrawn,
    /// The password changes, and connections are closed.
    PasswordChanged,
    /// The disk of the append-only file is full.
    FullDisk,
    /// A network that delays, splits, cuts, repeats, overtakes and swallows.
    Network,
    /// A network that changes bytes.
    Bytes,
    /// A client is killed in the middle of its calls.
    ClientKilled,
    /// Clients are frozen.
    ClientStopped,
    /// A client's clock is stepped a second ahead, then a second behind, and back.
    ClockStepped,
    /// One after the other of those of servers and networks that lose nothing, at random.
    AnyAtRandom,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 23] = [
        Fault::KillAndRestart,
        Fault::KillWithoutFile,
        Fault::Failover,
        Fault::Stop,
        Fault::StopBriefly,
        Fault::PauseAll,
        Fault::PauseWrites,
        Fault::TooFewReplicas,
        Fault::ReadOnly,
        Fault::ScriptFlushes,
        Fault::ClientKills,
        Fault::OutOfMemory,
        Fault::Eviction,
        Fault::MaxClients,
        Fault::RightsWithdrawn,
        Fault::PasswordChanged,
        Fault::FullDisk,
        Fault::Network,
        Fault::Bytes,
        Fault::ClientKilled,
        Fault::ClientStopped,
        Fault::ClockStepped,
        Fault::AnyAtRandom,
    ];

    /// Those that [`Fault::AnyAtRandom`] is made of.
    const AT_RANDOM: [Fault; 13] = [
        Fault::KillAndRestart,
        Fault::Stop,
        Fault::PauseAll,
        Fault::PauseWrites,
        Fault::TooFewReplicas,
        Fault::ReadOnly,
        Fault::ScriptFlushes,
        Fault::ClientKills,
        Fault::OutOfMemory,
        Fault::MaxClients,
        Fault::RightsWithdrawn,
        Fault::PasswordChanged,
        Fault::Network,
    ];

    /// How long it lasts.
    pub fn lasts(self) -> Duration {
        match self {
            Fault::StopBriefly => Duration::from_millis(800),
            Fault::AnyAtRandom => Duration::from_secs(8),
            _ => Duration::from_secs(2),
        }
    }

    /// Whether data of limiters is lost, which was used all the same.
    pub fn loses_data(self) -> bool {
        matches!(self, Fault::KillWithoutFile | Fault::Failover | Fault::Eviction)
    }

    /// Whether clients reach the server through a proxy.
    pub fn needs_proxy(self) -> bool {
        matches!(self, Fault::Failover | Fault::Network | Fault::Bytes | Fault::AnyAtRandom)
    }

    /// Whether refused credentials are among what callers see.
    pub fn refuses_credentials(self) -> bool {
        matches!(self, Fault::RightsWithdrawn | Fault::PasswordChanged | Fault::AnyAtRandom)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::KillAndRestart => "kill -9, append-only file",
            Fault::KillWithoutFile => "kill -9, no file",
            Fault::Failover => "failover, writes lost",
            Fault::Stop => "SIGSTOP",
            Fault::StopBriefly => "SIGSTOP for 0.8 s",
            Fault::PauseAll => "CLIENT PAUSE ALL",
            Fault::PauseWrites => "CLIENT PAUSE WRITE",
            Fault::TooFewReplicas => "min-replicas-to-write",
            Fault::ReadOnly => "read-only replica",
            Fault::ScriptFlushes => "SCRIPT FLUSH storm",
            Fault::ClientKills => "CLIENT KILL storm",
            Fault::OutOfMemory => "out of memory, no eviction",
            Fault::Eviction => "out of memory, eviction",
            Fault::MaxClients => "too many clients",
            Fault::RightsWithdrawn => "rights withdrawn",
            Fault::PasswordChanged => "password changed",
            Fault::FullDisk => "disk full",
            Fault::Network => "bad network",
            Fault::Bytes => "bytes changed",
            Fault::ClientKilled => "client killed",
            Fault::ClientStopped => "clients frozen",
            Fault::ClockStepped => "clock stepped",
            Fault::AnyAtRandom => "any, at random",
        })
    }
}
