//! An independent check of grants. It has a rate and a list of grants, and
//! knows nothing about how they were decided.

use std::fmt;

use crate::watch::Seen;

/// How much shorter than the interval a window must be, in ms, before more than
/// the rate in it counts as over-issue: calls are dated by their clients, and
/// overtake each other on the way to the server. For a machine that stalls, see
/// [`Ledger::tolerate`].
pub const TOLERANCE_MS: i64 = 20;

/// Permits that were granted at some time within a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The client that took them.
    pub who: String,
    /// How many.
    pub permits: u64,
    /// The earliest time at which they may have been granted, in ms.
    pub earliest_ms: i64,
    /// The latest.
    pub latest_ms: i64,
}

impl From<&Seen> for Grant {
    fn from(seen: &Seen) -> Grant {
        Grant {
            who: seen.key.clone(),
            permits: seen.entry.permits(),
            earliest_ms: seen.at_ms,
            latest_ms: seen.at_ms,
        }
    }
}

/// Grants that share one budget.
#[derive(Clone, Debug)]
pub struct Ledger {
    rate: u64,
    interval_ms: i64,
    tolerance_ms: i64,
    grants: Vec<Grant>,
}

/// The totals of a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// All permits.
    pub total: u64,
    /// From the first grant to the last, in ms.
    pub span_ms: i64,
    /// The permits that the rate allows in that time: rate × span / interval + rate.
    pub budget: f64,
    /// The share of the rate that was used: the interval divided by the mean
    /// time between the grant of a permit and that of the permit one full rate
    /// later. It is 1 if every permit is taken again as soon as it is free.
    pub used: f64,
    /// The start of the fullest window that is shorter than the interval by
    /// the tolerance, and the permits that were certainly granted in it.
    pub fullest: (i64, u64),
}

impl Ledger {
    /// An empty ledger for `rate` permits every `interval_ms`.
    pub fn new(rate: u64, interval_ms: u64) -> Ledger {
        Ledger {
            rate,
            interval_ms: interval_ms as i64,
            tolerance_ms: TOLERANCE_MS,
            grants: Vec::new(),
        }
    }

    /// Raises the tolerance to the duration of the longest call, if that is
    /// more: a call cannot be overtaken for longer. Dates are whole milliseconds:
    /// those of two calls that are 39.5 ms apart may differ by 40, and a window
    /// that is shorter by 40 still has both.
    pub fn tolerate(mut self, longest_call_ms: f64) -> Ledger {
        self.tolerance_ms = self.tolerance_ms.max(longest_call_ms.ceil() as i64 + 1);
        self
    }

    /// Allows 2 ms only: for grants whose times are those of the server, at which they were decided.
    pub fn strict(mut self) -> Ledger {
        self.tolerance_ms = 2;
        self
    }

    /// Adds grants.
    pub fn record(mut self, grants: impl IntoIterator<Item = impl Into<Grant>>) -> Ledger {
        self.grants.extend(grants.into_iter().map(Into::into));
        self.grants.sort_by_key(|grant| grant.earliest_ms);
        self
    }

    /// Computes the totals.
    pub fn balance(&self) -> Balance {
        let first = self.grants.first().map_or(0, |grant| grant.earliest_ms);
        let last = self.grants.iter().map(|grant| grant.latest_ms).max();
        let span_ms = last.unwrap_or(first) - first;
        let rate = self.rate as f64;
        Balance {
            total: self.grants.iter().map(|grant| grant.permits).sum(),
            span_ms,
            budget: rate * span_ms as f64 / self.interval_ms as f64 + rate,
            used: self.used(),
            fullest: self.fullest(),
        }
    }

    fn used(&self) -> f64 {
        let times = |grant: &Grant| vec![grant.latest_ms; grant.permits as usize];
        let permits: Vec<_> = self.grants.iter().flat_map(times).collect();
        let later = permits.iter().skip(self.rate as usize);
        let gaps: Vec<_> = permits.iter().zip(later).map(|(a, b)| b - a).collect();
        let sum: i64 = gaps.iter().sum();
        match sum {
            0 => 0.0,
            sum => (self.interval_ms * gaps.len() as i64) as f64 / sum as f64,
        }
    }

    fn fullest(&self) -> (i64, u64) {
        let length = self.interval_ms - self.tolerance_ms;
        let within = |start: usize| {
            let from = self.grants[start].earliest_ms;
            let permits = self.grants[start..]
                .iter()
                .take_while(|grant| grant.earliest_ms <= from + length)
                .filter(|grant| grant.latest_ms <= from + length)
                .map(|grant| grant.permits)
                .sum();
            (from, permits)
        };
        (0..self.grants.len()).map(within).max_by_key(|(_, permits)| *permits).unwrap_or((0, 0))
    }

    /// Explains the over-issue, if there is any.
    pub fn over_issue(&self) -> Option<String> {
        let balance = self.balance();
        if balance.total as f64 > balance.budget {
            return Some(format!("more than the budget was granted: {self}"));
        }
        if balance.fullest.1 > self.rate {
            return Some(format!("a window holds more than the rate: {self}"));
        }
        None
    }

    /// Panics if more was granted than the rate allows.
    pub fn assert_sound(&self) {
        if let Some(reason) = self.over_issue() {
            panic!("{reason}");
        }
    }

    /// Panics if less than this share of the budget was used.
    pub fn assert_used(&self, part: f64) {
        let used = self.balance().used;
        assert!(used >= part, "only {used:.4} was used: {self}");
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.balance();
        write!(
            f,
            "{} per {} ms; {} grants, {} permits in {} ms, budget {:.1} ({:.2} % used), \
             fullest window of {} ms: {} from {}",
            self.rate,
            self.interval_ms,
            self.grants.len(),
            b.total,
            b.span_ms,
            b.budget,
            100.0 * b.used,
            self.interval_ms - self.tolerance_ms,
            b.fullest.1,
            b.fullest.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64, permits: u64) -> Grant {
        within(ms, ms, permits)
    }

    fn within(earliest_ms: i64, latest_ms: i64, permits: u64) -> Grant {
        Grant { who: "x".into(), permits, earliest_ms, latest_ms }
    }

    fn ledger(grants: impl IntoIterator<Item = Grant>) -> Ledger {
        Ledger::new(10, 100).record(grants)
    }

    #[test]
    fn the_full_rate_each_interval_is_sound_and_fully_used() {
        let ledger = ledger((0..10).map(|i| at(1000 + i * 100, 10)));
        ledger.assert_sound();
        ledger.assert_used(1.0);
    }

    #[test]
    fn one_permit_too_many_in_a_window_is_detected() {
        let mut grants: Vec<_> = (0..10).map(|i| at(1000 + i * 150, 10)).collect();
        ledger(grants.clone()).assert_sound();
        grants.push(at(1379, 1));
        let reason = ledger(grants).over_issue().unwrap();
        assert!(reason.contains("a window holds more"), "{reason}");
    }

    #[test]
    fn a_grant_just_before_the_edge_is_tolerated() {
        ledger([at(1000, 10), at(1081, 1), at(1200, 9)]).assert_sound();
        assert!(ledger([at(1000, 10), at(1080, 1), at(1200, 9)]).over_issue().is_some());
    }

    #[test]
    fn a_stalled_call_is_tolerated_for_as_long_as_it_took() {
        let grants = [at(1000, 10), at(1060, 1), at(1200, 9)];
        assert!(ledger(grants.clone()).tolerate(5.0).over_issue().is_some());
        assert!(ledger(grants.clone()).tolerate(38.9).over_issue().is_some());
        ledger(grants).tolerate(39.5).assert_sound();
    }

    #[test]
    fn creeping_over_issue_is_detected_by_its_sum() {
        // Each window is sound within the tolerance, but the total is not.
        let grants = (0..50).map(|i| at(1000 + i * 85, 10));
        let reason = ledger(grants).over_issue().unwrap();
        assert!(reason.contains("more than the budget"), "{reason}");
    }

    #[test]
    fn a_grant_that_may_be_outside_the_window_is_not_counted() {
        ledger([at(1000, 10), within(1070, 1120, 1)]).assert_sound();
        assert!(ledger([at(1000, 10), within(1010, 1060, 1)]).over_issue().is_some());
    }

    #[test]
    fn ending_within_an_interval_wastes_nothing() {
        ledger([at(1000, 10), at(1100, 10), at(1200, 10), at(1299, 1)]).assert_used(0.99);
    }

    #[test]
    fn permits_that_are_always_late_reduce_the_share() {
        let late = ledger((0..10).map(|i| at(1000 + i * 110, 10))).balance();
        assert!((0.9..0.92).contains(&late.used), "{late:?}");
    }

    #[test]
    #[should_panic(expected = "only 0.5")]
    fn an_idle_limiter_has_a_low_share() {
        ledger([at(1000, 5), at(1100, 5), at(1200, 5)]).assert_used(0.99);
    }
}
