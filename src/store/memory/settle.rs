//! Phase 1: the value after the drop.
//!
//! `lua/part/settle.lua` is its twin.

use crate::error::Error;
use crate::store::SeenRate;
use crate::store::memory::config::Config;
use crate::store::memory::live_log::{Dropped, LiveLog};

/// The value within a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) v: i64,
    /// It is to be written as a plain `SET`, even if it is the same.
    pub(super) set: bool,
    /// Phase 1 knew nothing better than to add what expired: value and log may have parted.
    pub(super) unsure: bool,
}

/// Whether rate or mode in the hash are not those that the client last saw there.
pub(super) fn is_another(seen: Option<SeenRate>, config: &Config) -> bool {
    seen.is_some_and(|seen| seen.is_another(config.to_rate()))
}

/// Phase 1: the value, by the first line that applies.
pub(super) fn settle(
    config: &Config,
    seen: Option<SeenRate>,
    value: Option<i64>,
    dropped: Dropped,
    live: &LiveLog<'_>,
) -> Result<Value, Error> {
    let rate = config.rate;
    let known = |v: i64| Value { v, set: dropped.credit > 0 || value != Some(v), unsure: false };
    let exact = || Ok(known(rate - live.sum_log()?));

    let Some(v) = value.filter(|_| !is_another(seen, config)) else { return exact() };
    let v = v + dropped.credit;
    // Downwards only: what seems to be missing may be a log that was lost, and then it was used.
    if seen.is_none() && v + live.sum_log()? > rate {
        return exact();
    }
    // What an older Redisson logged says nothing of what else was used.
    if dropped.credit > 0 && live.len == 0 {
        return Ok(known(rate));
    }
    if dropped.credit > 0 && v > rate {
        return exact();
    }
    Ok(Value { unsure: true, ..known(v) })
}
