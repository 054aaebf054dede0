//! Phase 2: repairing value and log if together they are not the rate.
//!
//! `lua/part/heal.lua` is its twin.

use crate::error::Error;
use crate::rate::Rate;
use crate::store::limits::MAX_DEBT_PARTS;
use crate::store::memory::live_log::LiveLog;
use crate::store::memory::settle::NewValue;
use crate::store::memory::trim::trim;
use crate::wire::entry::MAX_ENTRY_PERMITS;

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
        debt += trim(live, -deficit)?;
        value.v += debt.min(0);
        value.set |= debt < 0;
    }
    let most_debt = i64::from(MAX_DEBT_PARTS) * MAX_ENTRY_PERMITS as i64;
    live.debt = debt.clamp(0, most_debt);
    Ok(deficit)
}
