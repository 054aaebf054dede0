//! The operations, as errors name them.

use std::fmt;

/// An operation of a limiter, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Building a [`Rate`](crate::Rate).
    BuildRate,
    /// Building a [`Client`](crate::Client), connecting included.
    Connect,
    /// `ping`.
    Ping,
    /// Naming a limiter and its options.
    Limiter,
    /// `try_acquire`, `try_acquire_now` and `acquire`.
    Acquire,
    /// `refund`.
    Refund,
    /// `release`.
    Release,
    /// `available_permits`.
    AvailablePermits,
    /// `peek`.
    Peek,
    /// `config`.
    Config,
    /// `try_set_rate`.
    TrySetRate,
    /// `set_rate`.
    SetRate,
    /// `update_rate`.
    UpdateRate,
    /// `ensure_rate`.
    EnsureRate,
    /// `expire` and `expire_at`.
    Expire,
    /// `clear_expire`.
    ClearExpire,
    /// `remaining_time_to_live`.
    RemainingTimeToLive,
    /// `exists`.
    Exists,
    /// `delete`.
    Delete,
    /// `rename`.
    Rename,
    /// `touch`.
    Touch,
    /// `size_in_memory`.
    SizeInMemory,
    /// `inspect`.
    Inspect,
    /// `repair` and `preview_repair`.
    Repair,
    /// `remove_unused`.
    RemoveUnused,
    /// A step of `admin::LimiterScan`.
    Scan,
    /// Setting up the limits of a web service.
    Limits,
}

impl Operation {
    /// Whether carrying it out twice is the same as once.
    pub(crate) fn is_idempotent(self) -> bool {
        let may_write =
            matches!(self, Operation::EnsureRate | Operation::Repair | Operation::RemoveUnused);
        may_write || self.only_reads()
    }

    /// Whether it changes nothing that a limiter decides by.
    pub(crate) fn only_reads(self) -> bool {
        matches!(
            self,
            Operation::AvailablePermits
                | Operation::Peek
                | Operation::Config
                | Operation::Ping
                | Operation::RemainingTimeToLive
                | Operation::Exists
                | Operation::Touch
                | Operation::SizeInMemory
                | Operation::Inspect
                | Operation::Scan
        )
    }

    /// As errors and metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::BuildRate => "rate",
            Operation::Connect => "connect",
            Operation::Ping => "ping",
            Operation::Limiter => "limiter",
            Operation::Limits => "limits",
            Operation::Acquire => "acquire",
            Operation::Refund => "refund",
            Operation::Release => "release",
            Operation::AvailablePermits => "available_permits",
            Operation::Peek => "peek",
            Operation::Config => "config",
            Operation::TrySetRate => "try_set_rate",
            Operation::SetRate => "set_rate",
            Operation::UpdateRate => "update_rate",
            Operation::EnsureRate => "ensure_rate",
            Operation::Expire => "expire",
            Operation::ClearExpire => "clear_expire",
            Operation::RemainingTimeToLive => "remaining_time_to_live",
            Operation::Exists => "exists",
            Operation::Delete => "delete",
            Operation::Rename => "rename",
            Operation::Touch => "touch",
            Operation::SizeInMemory => "size_in_memory",
            Operation::Inspect => "inspect",
            Operation::Repair => "repair",
            Operation::RemoveUnused => "remove_unused",
            Operation::Scan => "scan",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
