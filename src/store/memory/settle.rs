//! Phase 1: the value after the drop.
//!
//! `lua/part/settle.lua` is its twin.

use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::store::memory::config::StoredLimiter;
use crate::store::memory::live_log::LiveLog;

/// The value as a call leaves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewValue {
    pub(crate) v: i64,
    /// Whether to write it as a plain `SET`, even if it is unchanged.
    pub(crate) set: bool,
    /// Whether phase 1 has summed the log, or found it empty.
    pub(crate) is_summed: bool,
}

/// Whether the value must be computed anew, as the hash has other permits or another mode than the client last
/// saw there. The mode belongs to it: if OVERALL was in force for a while, the PER_CLIENT value left behind fits
/// the rate before that, even if the number of permits is the same again.
pub(crate) fn is_another(seen: Option<Rate>, limiter: &StoredLimiter<'_>) -> bool {
    let limiter = limiter.to_rate();
    seen.is_some_and(|seen| (seen.mode(), seen.permits()) != (limiter.mode(), limiter.permits()))
}

/// Phase 1: computes the value by the first rule that applies.
pub(crate) fn settle(
    seen: Option<Rate>,
    value: Option<i64>,
    live: &LiveLog<'_, '_>,
) -> Result<NewValue, Error> {
    let (limiter, dropped) = (&live.limiter, live.dropped);
    let rate = limiter.rate;
    let known =
        |v: i64| NewValue { v, set: dropped.credit > 0 || value != Some(v), is_summed: true };

    let Some(before) = value.filter(|_| !is_another(seen, limiter)) else {
        return Ok(known(rate - live.sum_log()?));
    };
    let v = before + dropped.credit;
    // Only lower it: seemingly missing permits may belong to a lost log, and so be in use.
    let exceeds = seen.is_none() && v + live.sum_log()? > rate;
    // An older Redisson's entries do not say what else was used.
    if !exceeds && dropped.credit > 0 && live.left == 0 {
        return Ok(known(rate));
    }
    if exceeds || v > rate {
        // Permits that Redisson's release gave back are still in the log. They stay given back, and are not
        // credited again when they expire. The value of a client of its own may be from a rate that is
        // unknown to this call, but nobody releases permits of its log.
        let given_back = before <= rate && (seen.is_some() || limiter.mode == Mode::Overall);
        let least = if given_back { before } else { i64::MIN };
        return Ok(known(least.max(rate - live.sum_log()?)));
    }
    Ok(NewValue { is_summed: false, ..known(v) })
}
