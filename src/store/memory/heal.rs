//! Phase 2: value and log together, if they are not the rate.
//!
//! `lua/part/heal.lua` is its twin.

use crate::error::Error;
use crate::store::SeenRate;
use crate::store::limits::MAX_DEBT_PARTS;
use crate::store::memory::config::Config;
use crate::store::memory::grant::parts;
use crate::store::memory::live_log::LiveLog;
use crate::store::memory::log::Log;
use crate::store::memory::settle::Value;
use crate::store::memory::trim::trim;
use crate::wire::entry::{EntryId, MAX_ENTRY_PERMITS, pack};

/// The longest log that a call sums in any case, if it asks for this. A client's first call sums any: what
/// it finds may have been left there under a rate that it has forgotten.
pub(crate) fn audit_limit(seen: Option<SeenRate>, limit: u64) -> u64 {
    if seen.is_some() { limit } else { u64::MAX }
}

/// What value and log together lack of the rate: negative for an excess; 0 also if this call does
/// not look, which it does on a log of up to `audit_limit` entries, and for a refusal on a short one.
pub(crate) fn find_deficit(
    config: &Config,
    value: &Value,
    live: &LiveLog<'_>,
    refuses: bool,
    audit_limit: u64,
) -> Result<i64, Error> {
    if value.is_summed || live.len as u64 <= audit_limit || (refuses && live.is_short()) {
        Ok(config.rate - value.v - live.sum_log()?)
    } else {
        Ok(0)
    }
}

/// A deficit becomes a debt in the log, which comes back when it expires. An excess is taken out of
/// the log, and out of the value if the log does not hold that much; what was taken too much is a debt.
pub(crate) fn heal(
    log: &mut Log,
    value: &mut Value,
    mut deficit: i64,
    (t, cutoff): (i64, i64),
    id: EntryId,
) -> Result<(), Error> {
    if deficit < 0 {
        deficit += trim(log, cutoff, -deficit)?;
        value.v += deficit.min(0);
        value.set |= deficit < 0;
    }
    for (number, part) in parts(deficit).take(MAX_DEBT_PARTS.into()).enumerate() {
        log.add(t, pack(id.debt(number as u16), part));
    }
    Ok(())
}

/// The most permits of one debt.
pub(crate) fn most_debt() -> i64 {
    i64::from(MAX_DEBT_PARTS) * MAX_ENTRY_PERMITS as i64
}
