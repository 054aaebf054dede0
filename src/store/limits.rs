//! The limits of the rules, for both stores. `lua/part/limits.lua` has the same names and numbers.

/// A log of no more entries than this is *short*: it is summed and scanned whenever that helps.
pub(crate) const SHORT_LOG: usize = 64;

/// This many expired entries are dropped between two checks of whether that is enough.
pub(crate) const DROP_STEP: usize = 500;

/// The most expired entries that one call drops; a call that needs more says so and is repeated
/// (see [`Outcome::Undecided`](crate::store::Outcome::Undecided)).
pub(crate) const DROP_LIMIT: usize = 2000;

/// The waits of this many queued requests are exact; those behind them get the last one as a lower
/// bound.
pub(crate) const EXACT_WAITS: usize = 16;

/// A debt is written in no more parts than this; the rest follows with the next audit.
pub(crate) const MAX_DEBT_PARTS: u16 = 64;

/// Ten years: a time to live that means none, if other clients' keys are out of reach.
pub(crate) const FAR_TTL_MS: i64 = 315_360_000_000;

/// Over five years: reported as no time to live.
pub(crate) const ENDLESS_TTL_MS: i64 = 157_680_000_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rate::MAX_EXACT;
    use crate::wire::entry::MAX_ENTRY_PERMITS;

    /// `local NAME = NUMBER`, whatever follows.
    fn lua_constants() -> BTreeMap<&'static str, i64> {
        let lines = include_str!("../../lua/part/limits.lua").lines();
        let constants = lines.filter_map(|line| line.strip_prefix("local "));
        constants
            .map(|constant| {
                let (name, rest) = constant.split_once(" = ").expect("one constant a line");
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
                (name, digits.parse().expect("a number"))
            })
            .collect()
    }

    #[test]
    fn the_scripts_have_the_same_limits() {
        let rust = [
            ("SHORT_LOG", SHORT_LOG as i64),
            ("DROP_STEP", DROP_STEP as i64),
            ("DROP_LIMIT", DROP_LIMIT as i64),
            ("EXACT_WAITS", EXACT_WAITS as i64),
            ("MAX_DEBT_PARTS", i64::from(MAX_DEBT_PARTS)),
            ("FAR_TTL_MS", FAR_TTL_MS),
            ("ENDLESS_TTL_MS", ENDLESS_TTL_MS),
            ("MAX_ENTRY_PERMITS", MAX_ENTRY_PERMITS as i64),
            ("MAX_EXACT", MAX_EXACT as i64),
        ];
        assert_eq!(lua_constants(), rust.into_iter().collect());
    }
}
