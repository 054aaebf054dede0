//! Value and log in full, whatever the length of the log.
//!
//! `lua/part/audit.lua` is its twin.

use crate::error::Error;
use crate::store::memory::config::Config;
use crate::store::memory::heal::find_deficit;
use crate::store::memory::live_log::{Dropped, LiveLog};
use crate::store::memory::settle::{Value, settle};

/// Settles the value as for a client that has seen nothing; returns it, and what value and log together
/// lack of the rate, negative for an excess.
pub(crate) fn audit(
    config: &Config,
    value: Option<i64>,
    dropped: Dropped,
    live: &LiveLog<'_>,
) -> Result<(Value, i64), Error> {
    let value = settle(config, None, value, dropped, live)?;
    let deficit = find_deficit(config, &value, live, false, u64::MAX)?;
    Ok((value, deficit))
}
