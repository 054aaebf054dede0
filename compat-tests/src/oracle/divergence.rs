//! Where two subjects may differ: the numbered list of divergences, each with
//! the situation it stands for.

use super::lockstep::number;
use super::ops::{ErrorKind, Mode, Op, Outcome};
use super::record::Edge;
use super::state::{Budget, State};
use super::subject::Call;

/// A step after which two subjects differ.
#[derive(Debug)]
pub struct Difference<'a> {
    /// The call.
    pub call: Call<'a>,
    /// The id of its client.
    pub client: &'a str,
    /// The state before, which was the same on both sides.
    pub before: &'a State,
    /// What each answered.
    pub outcomes: [&'a Outcome; 2],
    /// The state of each afterwards.
    pub after: [&'a State; 2],
    /// How the states differ, a line each.
    pub lines: &'a [String],
}

/// Whether a divergence explains a difference.
type Rule = fn(&Difference<'_>) -> bool;

/// The difference of two releases: none is allowed.
pub fn none(_: &Difference<'_>) -> Option<&'static str> {
    None
}

/// What changed between two releases, as far as it explains a difference.
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

/// The divergence that explains how this crate (second) differs from Redisson
/// (first), if there is one. The numbers are those of the list in the docs.
pub fn of_this_crate(difference: &Difference<'_>) -> Option<&'static str> {
    let rules: [(&str, Rule); 12] = [
        ("5", released),
        ("6", kept_state_of_a_lower_rate),
        ("7", available_wrote),
        ("8", keep_alive_removed),
        ("9", refused_rate_wrote),
        ("10", key_operation),
        ("11", no_permits),
        ("17", cleared_expiry),
        ("18", incomplete_hash),
        ("21", unreadable_hash),
        ("2", value_missing),
        ("1, 3", unsound_budget),
    ];
    let rule = rules.iter().find(|(_, applies)| applies(difference));
    rule.map(|(number, _)| *number)
}

impl Difference<'_> {
    fn name(&self) -> &str {
        self.call.name
    }

    fn budget(&self) -> Budget {
        self.before.budget(self.name(), self.client)
    }

    fn field(&self, field: &str) -> Option<&str> {
        self.before.field(self.name(), field)
    }

    fn initialized(&self) -> bool {
        ["rate", "interval", "type"].iter().all(|f| self.field(f).is_some())
    }
}

fn released(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::Release(n) if *n > 0)
        && d.initialized()
        && d.outcomes[1].failure().is_none()
}

fn kept_state_of_a_lower_rate(d: &Difference<'_>) -> bool {
    let (Op::SetRateArgs(_, true) | Op::UpdateRate(_, true)) = d.call.op else {
        return false;
    };
    let [theirs, ours] = d.after.map(|state| state.budget(d.name(), d.client));
    d.outcomes[0] == d.outcomes[1]
        && theirs.entries.len() == ours.entries.len()
        && (ours.value < Some(0) || d.field("type").is_some() && ours.value != theirs.value)
}

fn available_wrote(d: &Difference<'_>) -> bool {
    if *d.call.op != Op::AvailablePermits || d.after[1] != d.before {
        return false;
    }
    match (d.outcomes[0], d.outcomes[1]) {
        (Outcome::Count(theirs), Outcome::Count(ours)) => {
            let rate = d.before.number(d.name(), "rate").unwrap_or(0);
            theirs == ours || (0..=rate).contains(ours)
        }
        _ => false,
    }
}

fn keep_alive_removed(d: &Difference<'_>) -> bool {
    let had = d.before.number(d.name(), "keepAliveTime").is_some_and(|ms| ms > 0);
    let sets = matches!(d.call.op, Op::SetRate(_) | Op::SetRateArgs(..) | Op::UpdateRate(..));
    let removes = d.call.op.rate().is_some_and(|rate| rate.keep_alive_ms.is_none());
    had && sets && removes && only_lifetimes(d)
}

fn refused_rate_wrote(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TrySetRate(_))
        && d.field("type").is_some()
        && d.field("keepAliveTime").is_none()
        && d.outcomes == [&Outcome::Flag(false); 2]
}

fn key_operation(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::Rename(_) | Op::Touch)
}

fn no_permits(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TryAcquire(n) if *n <= 0)
        && d.outcomes[1].failure() == Some(ErrorKind::InvalidArgument)
        && d.after[1] == d.before
}

fn cleared_expiry(d: &Difference<'_>) -> bool {
    *d.call.op == Op::ClearExpire && d.field("type") == Some("1") && only_lifetimes(d)
}

fn incomplete_hash(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TrySetRate(_))
        && d.field("type").is_some()
        && !d.initialized()
        && d.after[1] == d.before
}

fn unreadable_hash(d: &Difference<'_>) -> bool {
    let positive = |field| d.before.number(d.name(), field).is_some_and(|n| n > 0);
    d.initialized()
        && (!positive("rate") || !positive("interval"))
        && d.outcomes[1].failure() == Some(ErrorKind::CorruptState)
}

fn value_missing(d: &Difference<'_>) -> bool {
    let budget = d.budget();
    matters(d) && budget.value.is_none() && !budget.entries.is_empty()
}

/// Value and log do not add up to the rate: the crate heals that, Redisson
/// does not (1, 3, 5 and 6 are ways to get there).
fn unsound_budget(d: &Difference<'_>) -> bool {
    let budget = d.budget();
    let rate = d.before.number(d.name(), "rate");
    matters(d) && budget.value.is_some_and(|value| Some(value + budget.used()) != rate)
}

fn matters(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TryAcquire(_) | Op::AvailablePermits) && d.initialized()
}

fn only_lifetimes(d: &Difference<'_>) -> bool {
    d.outcomes[0] == d.outcomes[1] && d.lines.iter().all(|line| line.contains(": ttl "))
}

/// Since 3.22.1 `setRate` for PER_CLIENT clears the caller's keys, and not
/// those of OVERALL.
fn clears_own_keys(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::SetRate(rate) if rate.mode == Mode::PerClient)
        && d.outcomes[0] == d.outcomes[1]
}

/// Since 3.35.0 a value that would exceed the rate becomes the rate less the
/// permits in the log, and not less the number of entries.
fn recounts_permits(d: &Difference<'_>) -> bool {
    let budget = d.budget();
    let number = |field| d.before.number(d.name(), field);
    let (Op::TryAcquire(_), Some(rate), Some(interval), Some(value)) =
        (d.call.op, number("rate"), number("interval"), budget.value)
    else {
        return false;
    };
    let edge = d.call.now as i64 - interval;
    let expired = budget.entries.iter().filter(|(at, _)| *at <= edge);
    let released: i64 = expired.filter_map(|(_, permits)| permits.map(i64::from)).sum();
    released > 0 && value + released > rate
}

/// Since 3.46.0 `setRate` refuses a keep-alive shorter than the interval.
fn refuses_short_keep_alive(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::SetRate(_)) && Edge::of(d.call.op) == Some(Edge::ShortKeepAlive)
}
