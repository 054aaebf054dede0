//! The operations, as errors name them.

use std::fmt;

/// Each operation: its name in errors and metrics, whether carrying it out twice has the same effect as once, and
/// which limiters have it.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident => $name:literal, $repeats:ident, $rules:ident;)+) => {
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
            const fn row(self) -> (&'static str, bool, HadBy) {
                match self {
                    $(Operation::$operation => ($name, $repeats, $rules),)+
                }
            }
        }
    };
}

const ONCE: bool = false;
const IDEMPOTENT: bool = true;

/// The limiters that have an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HadBy {
    Any,
    /// Those whose keys are this crate's or Redisson's, and not another service's.
    OfOwnKeys,
    /// Those with Redisson's rules: others have neither a rate nor a log on the server.
    OfRedissonsRules,
}

const ANY: HadBy = HadBy::Any;
const KEYS: HadBy = HadBy::OfOwnKeys;
const REDISSON: HadBy = HadBy::OfRedissonsRules;

operations! {
    /// Building a [`Rate`](crate::Rate).
    BuildRate => "rate", ONCE, ANY;
    /// Building a [`Policy`](crate::Policy).
    BuildPolicy => "policy", ONCE, ANY;
    /// Building a [`Client`](crate::Client), including connecting.
    Connect => "connect", ONCE, ANY;
    Ping => "ping", IDEMPOTENT, ANY;
    /// Naming a limiter and its options.
    Limiter => "limiter", ONCE, ANY;
    /// Setting up the limits of a web service.
    Limits => "limits", ONCE, ANY;
    /// `acquire`, `try_acquire` and all other calls that take permits.
    Acquire => "acquire", ONCE, ANY;
    Refund => "refund", ONCE, ANY;
    Settle => "settle", ONCE, ANY;
    PauseFor => "pause_for", IDEMPOTENT, REDISSON;
    Resume => "resume", IDEMPOTENT, REDISSON;
    Release => "release", ONCE, REDISSON;
    /// `update_lease`, and the renewal of permits that are held.
    Renew => "renew", ONCE, ANY;
    /// `try_set_permits`, `set_permits`, `add_permits` and `drain`.
    SetPermits => "set_permits", ONCE, ANY;
    /// `available_permits`; of a semaphore also `acquired_permits` and `permits`.
    AvailablePermits => "available_permits", IDEMPOTENT, ANY;
    Peek => "peek", IDEMPOTENT, ANY;
    Config => "config", IDEMPOTENT, REDISSON;
    TrySetRate => "try_set_rate", ONCE, REDISSON;
    SetRate => "set_rate", ONCE, REDISSON;
    UpdateRate => "update_rate", ONCE, REDISSON;
    SetPolicy => "set_policy", ONCE, ANY;
    EnsureRate => "ensure_rate", IDEMPOTENT, REDISSON;
    /// `expire` and `expire_at`.
    Expire => "expire", ONCE, KEYS;
    ClearExpire => "clear_expire", ONCE, KEYS;
    RemainingTimeToLive => "remaining_time_to_live", IDEMPOTENT, KEYS;
    Exists => "exists", IDEMPOTENT, KEYS;
    Delete => "delete", ONCE, KEYS;
    Rename => "rename", ONCE, KEYS;
    Touch => "touch", IDEMPOTENT, KEYS;
    SizeInMemory => "size_in_memory", IDEMPOTENT, KEYS;
    Inspect => "inspect", IDEMPOTENT, ANY;
    /// `repair` and `preview_repair`.
    Repair => "repair", IDEMPOTENT, REDISSON;
    RemoveUnused => "remove_unused", IDEMPOTENT, REDISSON;
    /// A step of `admin::LimiterScan`.
    Scan => "scan", IDEMPOTENT, ANY;
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn is_idempotent(self) -> bool {
        self.row().1
    }

    pub(crate) fn had_by(self) -> HadBy {
        self.row().2
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
