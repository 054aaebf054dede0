//! The calls and the replies of those operations that look at what is stored, and put it right.

use std::sync::Arc;

use crate::clock::Now;
use crate::rate::Rate;
use crate::wire::entry::EntryId;

/// What is stored of a limiter, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InspectReply {
    /// The store's own clock, in µs since 1970; `None` if the user may not ask for it.
    pub(crate) store_us: Option<i64>,
    /// Rate, interval, type and keep-alive.
    pub(crate) hash: Stored<[Option<Vec<u8>>; 4]>,
    /// The value and the log of the mode OVERALL, and those of the client in the mode PER_CLIENT.
    pub(crate) budgets: [StoredBudget; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredBudget {
    pub(crate) value: Stored<Vec<u8>>,
    pub(crate) log: Stored<StoredEntries>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored<T> {
    Missing,
    WrongType,
    Present {
        /// `None` for ever.
        ttl_ms: Option<u64>,
        content: T,
    },
}

/// The oldest members of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntries {
    /// How many the log has.
    pub(crate) len: u64,
    pub(crate) members: Vec<(i64, Vec<u8>)>,
}

/// Fits value and log to the rate. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairCall {
    pub(crate) now: Now,
    /// Debts get theirs from it.
    pub(crate) id: EntryId,
    /// Say what would be done, and write nothing.
    pub(crate) only_look: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairReply {
    pub(crate) rate: Rate,
    /// The value that was found; `None` if there was none, or no integer.
    pub(crate) before: Option<i64>,
    pub(crate) after: i64,
    /// The permits that had expired, which belong to the value.
    pub(crate) expired: u64,
    /// The permits of the debt.
    pub(crate) debt: u64,
    /// How many keys get a time to live.
    pub(crate) endless: u64,
    /// The permits taken out of the log, which have been given back already.
    pub(crate) excess: u64,
    /// How many entries are dated too far ahead.
    pub(crate) ahead: u64,
}

/// One step of a walk over all keys.
#[derive(Clone, Debug)]
pub(crate) struct ScanCall {
    /// The server, as [`Store::scan_parts`](crate::store::Store::scan_parts) names it.
    pub(crate) part: Arc<str>,
    /// 0 to begin.
    pub(crate) cursor: u64,
    /// How many keys the step is to look at, about.
    pub(crate) count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanReply {
    /// Of the next step; 0 at the end.
    pub(crate) cursor: u64,
    pub(crate) keys: Vec<Vec<u8>>,
}
