//! In what two subjects may differ: the numbered list of divergences, each with
//! the situation in which it applies, and what must hold then.

mod budget;
mod keys;
mod releases;
mod wait;

use super::ops::{ErrorKind, Op, Outcome};
use super::state::{Budget, Compare, State};
use super::subject::Call;

pub use releases::of_releases;

/// A step after which two subjects differ.
#[derive(Debug)]
pub struct Difference<'a> {
    /// The call.
    pub call: Call<'a>,
    /// The id of its client.
    pub client: &'a str,
    /// The state before: that of the second, which the first's was equal to.
    pub before: &'a State,
    /// The answers of both.
    pub outcomes: [&'a Outcome; 2],
    /// The states of both afterwards.
    pub after: [&'a State; 2],
    /// The differences of the states, a line each.
    pub lines: &'a [String],
}

/// Whether a divergence explains a difference.
type Rule = fn(&Difference<'_>) -> bool;

/// Excuses no difference.
pub fn none(_: &Difference<'_>) -> Option<&'static str> {
    None
}

/// The divergence that explains how this crate (second) differs from the newest
/// Redisson (first), if any. The numbers are those of the list in the docs. Each
/// rule checks what the crate must have done instead.
pub fn of_this_crate(difference: &Difference<'_>) -> Option<&'static str> {
    let rules: [(&str, Rule); 14] = [
        ("12, 19", wait::is_exact),
        ("11", no_permits),
        ("7", budget::available_is_read),
        ("5", budget::release_is_taken_out),
        ("6", budget::kept_state_is_not_clamped),
        ("6 (a rate seen for the first time)", budget::other_rate_is_applied),
        ("2", budget::missing_value_is_counted),
        ("1, 3", budget::unsound_is_healed),
        ("8", keys::keep_alive_ends),
        ("8, 17", keys::far_is_endless),
        ("9", keys::refused_rate_writes_nothing),
        ("10", keys::all_keys_move),
        ("17", keys::expiry_is_far),
        ("18, 21", unreadable_hash),
    ];
    let rule = rules.iter().find(|(_, applies)| applies(difference));
    rule.map(|(number, _)| *number)
}

/// The same for an older release, including what has changed since then.
pub fn of_this_crate_and(
    release: &str,
    newest: &str,
) -> impl Fn(&Difference<'_>) -> Option<&'static str> {
    let changes = of_releases(release, newest);
    move |difference| of_this_crate(difference).or_else(|| changes(difference))
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

    fn number(&self, field: &str) -> Option<i64> {
        self.before.number(self.name(), field)
    }

    fn initialized(&self) -> bool {
        ["rate", "interval", "type"].iter().all(|f| self.field(f).is_some())
    }

    /// The crate has written nothing.
    fn nothing_written(&self) -> bool {
        Compare::ALL.diff(self.before, self.after[1]).is_empty()
    }

    /// Only times to live differ between the two.
    fn only_lifetimes(&self) -> bool {
        self.lines.iter().all(|line| line.contains(": ttl "))
    }
}

fn no_permits(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TryAcquire(n) if *n <= 0)
        && d.outcomes[1].failure() == Some(ErrorKind::InvalidArgument)
        && d.nothing_written()
}

fn unreadable_hash(d: &Difference<'_>) -> bool {
    let positive = |field| d.number(field).is_some_and(|n| n > 0);
    d.field("type").is_some()
        && (!positive("rate") || !positive("interval"))
        && d.outcomes[1].failure() == Some(ErrorKind::CorruptState)
        && d.nothing_written()
}
