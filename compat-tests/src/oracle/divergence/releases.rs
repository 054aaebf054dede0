//! What changed between releases of Redisson.

use super::{Difference, Rule};
use crate::oracle::lockstep::number;
use crate::oracle::ops::{Mode, Op};
use crate::oracle::record::Edge;

/// Explains a difference by a change between two releases.
pub fn of_releases(a: &str, b: &str) -> impl Fn(&Difference<'_>) -> Option<&'static str> {
    let changes: [(&str, Rule); 3] = [
        ("3.22.1", clears_own_keys),
        ("3.35.0", recounts_permits),
        ("3.46.0", refuses_short_keep_alive),
    ];
    let releases = [number(a), number(b)];
    let lies_between = |change: &str| {
        let change = number(change);
        releases.iter().any(|r| *r < change) && releases.iter().any(|r| *r >= change)
    };
    let changes = changes.map(|(since, applies)| (since, lies_between(since), applies));
    move |difference| {
        let change = changes.iter().find(|(_, between, applies)| *between && applies(difference));
        change.map(|(since, ..)| *since)
    }
}

/// Since 3.22.1 `setRate` for PER_CLIENT clears the caller's keys instead of
/// those of OVERALL.
fn clears_own_keys(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::SetRate(rate) if rate.mode == Mode::PerClient)
        && d.outcomes[0] == d.outcomes[1]
}

/// Since 3.35.0 a value that would exceed the rate becomes the rate minus the
/// permits in the log; before, the rate minus the number of entries.
fn recounts_permits(d: &Difference<'_>) -> bool {
    let budget = d.budget();
    let (Op::TryAcquire(_), Some(rate), Some(interval), Some(value)) =
        (d.call.op, d.number("rate"), d.number("interval"), budget.value)
    else {
        return false;
    };
    let released = budget.expired(d.call.now as i64 - interval);
    released > 0 && value + released > rate
}

/// Since 3.46.0 `setRate` refuses a keep-alive shorter than the interval.
fn refuses_short_keep_alive(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::SetRate(_)) && Edge::of(d.call.op) == Some(Edge::ShortKeepAlive)
}
