//! The operations, as errors name them.

use std::fmt;

/// Each operation, and its name in errors and metrics.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident => $name:literal,)+) => {
        /// An operation of a limiter, as errors name it. Its number as an integer may change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $(
                #[doc = concat!("`", $name, "`.")]
                $(#[$doc])*
                $operation,
            )+
        }

        impl Operation {
            /// The name in errors and metrics.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Operation::$operation => $name,)+
                }
            }
        }
    };
}

operations! {
    /// Building a [`Rate`](crate::Rate).
    BuildRate => "rate",
    /// Building a [`Policy`](crate::Policy).
    BuildPolicy => "policy",
    /// Building a [`Client`](crate::Client), including connecting.
    Connect => "connect",
    Ping => "ping",
    /// Naming a limiter and its options.
    Limiter => "limiter",
    /// Setting up the limits of a web service.
    Limits => "limits",
    /// `try_acquire`, `try_acquire_now` and `acquire`.
    Acquire => "acquire",
    Refund => "refund",
    Settle => "settle",
    PauseFor => "pause_for",
    Resume => "resume",
    Release => "release",
    /// `update_lease`, and the renewal of permits that are held.
    Renew => "renew",
    /// `try_set_permits`, `set_permits`, `add_permits` and `drain`.
    SetPermits => "set_permits",
    AvailablePermits => "available_permits",
    Peek => "peek",
    Config => "config",
    TrySetRate => "try_set_rate",
    SetRate => "set_rate",
    UpdateRate => "update_rate",
    SetPolicy => "set_policy",
    EnsureRate => "ensure_rate",
    /// `expire` and `expire_at`.
    Expire => "expire",
    ClearExpire => "clear_expire",
    RemainingTimeToLive => "remaining_time_to_live",
    Exists => "exists",
    Delete => "delete",
    Rename => "rename",
    Touch => "touch",
    SizeInMemory => "size_in_memory",
    Inspect => "inspect",
    /// `repair` and `preview_repair`.
    Repair => "repair",
    RemoveUnused => "remove_unused",
    /// A step of `admin::LimiterScan`.
    Scan => "scan",
}

impl Operation {
    /// Whether carrying out the operation twice has the same effect as once.
    pub(crate) fn is_idempotent(self) -> bool {
        let may_write = matches!(
            self,
            Operation::EnsureRate
                | Operation::PauseFor
                | Operation::Resume
                | Operation::Repair
                | Operation::RemoveUnused
        );
        may_write || self.only_reads()
    }

    /// Whether only a limiter of Redisson's rules has the operation.
    pub(crate) fn is_redissons(self) -> bool {
        matches!(
            self,
            Operation::Release
                | Operation::Config
                | Operation::TrySetRate
                | Operation::SetRate
                | Operation::UpdateRate
                | Operation::EnsureRate
                | Operation::PauseFor
                | Operation::Resume
                | Operation::Repair
                | Operation::RemoveUnused
        )
    }

    /// Whether the operation changes nothing that a limiter's decisions depend on.
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
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
