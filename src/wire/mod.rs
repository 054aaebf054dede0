//! The bytes stored on the server: names of keys and fields, log entries, numbers.
//!
//! Pure functions over bytes: no I/O, no clock, no other module of the crate.

pub(crate) mod entry;
pub(crate) mod keys;

use crate::rate::{MAX_EXACT, Mode, Rate};

// Fields of the hash.
pub(crate) const RATE: &str = "rate";
pub(crate) const INTERVAL: &str = "interval";
pub(crate) const TYPE: &str = "type";
pub(crate) const KEEP_ALIVE: &str = "keepAliveTime";
pub(crate) const FIELDS: [&str; 4] = [RATE, INTERVAL, TYPE, KEEP_ALIVE];

/// The field [`TYPE`] of this mode.
pub(crate) fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

/// The texts of the [`FIELDS`] for this rate.
pub(crate) fn texts(rate: &Rate) -> [String; 4] {
    let numbers = [rate.permits(), rate.interval_ms(), rate.keep_alive_ms()];
    let [permits, interval, keep_alive] = numbers.map(|number| number.to_string());
    [permits, interval, mode_text(rate.mode()).to_owned(), keep_alive]
}

/// Parses an integer as `INCRBY` does: no sign except a minus, no leading zeros.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let number = text.parse::<i64>().ok().filter(|n| n.unsigned_abs() <= MAX_EXACT)?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = if number == 0 { text == "0" } else { !digits.starts_with(['0', '+']) };
    canonical.then_some(number)
}
