//! What is stored on the server, byte for byte: key names and log entries.
//!
//! Pure functions over bytes: no I/O, no clock, no other module of the crate.

pub(crate) mod entry;
pub(crate) mod keys;

use crate::rate::MAX_EXACT;

/// An integer as `INCRBY` takes it: no sign but a minus, no zeros in front.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let number = text.parse::<i64>().ok().filter(|n| n.unsigned_abs() <= MAX_EXACT)?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = if number == 0 { text == "0" } else { !digits.starts_with(['0', '+']) };
    canonical.then_some(number)
}
