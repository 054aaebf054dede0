//! Phase 1: the value after the drop; and phase 2: repairing value and log if together they are not the rate.
//!
//! `lua/part/settle.lua` and `lua/part/heal.lua` are its twins.

use super::*;

/// The value as a call leaves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewValue {
    pub(crate) v: i64,
    /// Whether to write it as a plain `SET`, even if it is unchanged.
    pub(crate) set: bool,
    /// Whether phase 1 has summed the log, or found it empty.
    pub(crate) is_summed: bool,
}

/// Phase 1: computes the value by the first rule that applies.
pub(crate) fn settle(
    seen: Option<Rate>,
    value: Option<i64>,
    live: &LiveLog<'_, '_>,
) -> Result<NewValue, Error> {
    let limiter = &live.limiter;
    let rate = limiter.rate;
    let known = |v: i64| NewValue { v, set: live.credit > 0 || value != Some(v), is_summed: true };

    // If the hash has other permits or another mode than the client last saw there, the value must be computed anew. The
    // mode belongs to it: if OVERALL was in force for a while, the PER_CLIENT value left behind fits the rate before
    // that, even if the number of permits is the same again.
    let is_another = |seen: Rate| (seen.mode(), seen.permits() as i64) != (limiter.mode, rate);
    let Some(before) = value.filter(|_| !seen.is_some_and(is_another)) else {
        return Ok(known(rate - live.sum_log()?));
    };
    let v = before + live.credit;
    // Only lower it: seemingly missing permits may belong to a lost log, and so be in use.
    let exceeds = seen.is_none() && v + live.sum_log()? > rate;
    // An older Redisson's entries do not say what else was used. (More than the rate is a pause's, which may be younger
    // than what is still used of a lost log.)
    if !exceeds && (1..=rate).contains(&live.credit) && live.left == 0 {
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

/// The longest log that the call always sums, given the `limit` that it asks for. A client's first call sums
/// any log: what it finds may be left over from a rate that it has forgotten.
pub(crate) fn audit_limit(seen: Option<Rate>, limit: u64) -> u64 {
    if seen.is_some() { limit } else { u64::MAX }
}

/// Returns the permits missing from the rate, value and log together: negative for an excess; 0 also if this call does
/// not look.
///
/// It looks only if the log has been summed, or has no more than `audit_limit` entries, or is short and a
/// request is refused. A deficit becomes a debt in the log, which comes back when it expires. An excess is
/// taken out of the log, and out of the value if the log holds less; permits taken beyond the excess become a
/// debt.
pub(crate) fn heal(
    value: &mut NewValue,
    live: &mut LiveLog<'_, '_>,
    refuses: bool,
    audit_limit: u64,
) -> Result<i64, Error> {
    if !(value.is_summed || live.left as u64 <= audit_limit || refuses && live.is_short()) {
        return Ok(0);
    }
    let deficit = live.limiter.rate - value.v - live.sum_log()?;
    let mut debt = deficit;
    if deficit < 0 {
        debt += live.trim(-deficit)?;
        value.v += debt.min(0);
        value.set |= debt < 0;
    }
    let most_debt = i64::from(MAX_DEBT_PARTS) * MAX_ENTRY_PERMITS as i64;
    live.changes.debt = debt.clamp(0, most_debt);
    Ok(deficit)
}
