//! Divergences in the value and the log.

use super::Difference;
use super::keys::keep_alive_ended;
use crate::keys::Keys;
use crate::oracle::ops::{ErrorKind, Op, Outcome};
use crate::oracle::state::{Budget, Compare, State};

/// The two sides of a difference in a budget.
struct Sides {
    rate: i64,
    before: Budget,
    /// The permits that have expired at the time of the call.
    expired: i64,
    /// The entries that have not expired.
    live: Vec<(i64, Option<u32>)>,
    theirs: Budget,
    ours: Budget,
}

impl Sides {
    fn of(d: &Difference<'_>) -> Option<Sides> {
        if !d.initialized() || !only_budget(d) {
            return None;
        }
        let before = d.budget();
        let edge = d.call.now as i64 - d.number("interval")?;
        let [theirs, ours] = d.after.map(|state| state.budget(d.name(), d.client));
        Some(Sides {
            rate: d.number("rate")?,
            expired: before.expired(edge),
            live: before.entries.iter().copied().filter(|(at, _)| *at > edge).collect(),
            before,
            theirs,
            ours,
        })
    }

    fn live_permits(&self) -> i64 {
        permits(&self.live)
    }

    /// The possible values after expired entries are dropped: the old value
    /// plus the expired permits, or the rate minus the log. In a sound state
    /// they are equal.
    fn left(&self) -> [i64; 2] {
        let counted = self.rate - self.live_permits();
        [self.before.value.map_or(counted, |value| value + self.expired), counted]
    }

    /// By how much value and log exceed the rate before the call.
    fn excess(&self) -> Option<i64> {
        self.before.value.map(|value| value + self.before.used() - self.rate)
    }

    /// The same for the crate's state after it.
    fn excess_of_ours(&self) -> Option<i64> {
        self.ours.value.map(|value| value + self.ours.used() - self.rate)
    }

    /// The crate's log has the live entries, minus what was removed oldest
    /// first, plus at most one grant and one debt, both dated now.
    fn is_log_of_acquire(&self, now: i64, granted: Option<i64>) -> bool {
        let mut ours = self.ours.entries.clone();
        if let Some(granted) = granted {
            let Some(at) = ours.iter().position(|e| *e == (now, u32::try_from(granted).ok()))
            else {
                return false;
            };
            ours.remove(at);
        }
        let mut kept = self.live.clone();
        if is_trimmed(&kept, &ours) {
            return true;
        }
        kept.sort_unstable();
        ours.sort_unstable();
        // A debt can be equal to an existing entry.
        (0..ours.len()).filter(|at| ours[*at].0 == now).any(|debt| {
            let mut rest = ours.clone();
            rest.remove(debt);
            rest == kept
        })
    }
}

/// Apart from times to live, only this budget has changed.
fn only_budget(d: &Difference<'_>) -> bool {
    let own = (d.field("type") == Some("1")).then_some(d.client);
    let keys = Keys::new(d.name());
    let changed = [keys.value(own), keys.log(own)];
    let rest = |state: &State| {
        let mut state = state.clone();
        state.0.retain(|name, _| !changed.contains(name));
        state.0.values_mut().for_each(|key| key.ttl = None);
        state
    };
    Compare::ALL.diff(&rest(d.before), &rest(d.after[1])).is_empty()
}

fn permits(entries: &[(i64, Option<u32>)]) -> i64 {
    entries.iter().filter_map(|(_, permits)| *permits).map(i64::from).sum()
}

/// Whether the second log is the first one with permits removed oldest first.
/// Entries of the same score may be in any order.
fn is_trimmed(before: &[(i64, Option<u32>)], after: &[(i64, Option<u32>)]) -> bool {
    let taken = permits(before) - permits(after);
    if taken < 0 {
        return false;
    }
    // Score by score: everything older is removed, everything newer is unchanged.
    let mut scores: Vec<i64> = before.iter().map(|(at, _)| *at).collect();
    scores.dedup();
    let at = |entries: &[(i64, Option<u32>)], score| {
        let mut at: Vec<_> = entries.iter().copied().filter(|(at, _)| *at == score).collect();
        at.sort_unstable();
        at
    };
    let mut left = taken;
    for score in scores {
        let (was, is) = (at(before, score), at(after, score));
        let gone = permits(&was) - permits(&is);
        if gone != left.min(permits(&was)) || gone == 0 && was != is {
            return false;
        }
        left -= gone;
    }
    left == 0 && after.iter().all(|(at, _)| before.iter().any(|(was, _)| was == at))
}

/// 7: a pure read. The answer lies within the rate.
pub fn available_is_read(d: &Difference<'_>) -> bool {
    let (Op::AvailablePermits, Outcome::Count(count)) = (d.call.op, d.outcomes[1]) else {
        return false;
    };
    Sides::of(d).is_some_and(|sides| {
        d.nothing_written() && sides.left().map(|v| v.clamp(0, sides.rate)).contains(count)
    })
}

/// 5: exactly the released permits are removed from the log, oldest first.
pub fn release_is_taken_out(d: &Difference<'_>) -> bool {
    let Op::Release(wanted) = d.call.op else { return false };
    let Some(sides) = Sides::of(d) else { return false };
    if d.outcomes != [&Outcome::Done; 2] || *wanted <= 0 {
        return false;
    }
    let taken = sides.live_permits().min(*wanted);
    // An excess from before must not grow.
    let most = sides.rate - sides.ours.used();
    let values = sides.left().map(|left| left.max(most.min(left + taken)));
    sides.live_permits() - sides.ours.used() == taken
        && is_trimmed(&sides.live, &sides.ours.entries)
        && sides.ours.value.is_some_and(|value| values.contains(&value))
}

/// 6: a negative value, and Redisson writes 0; 8 can occur in the same call.
pub fn kept_state_is_not_clamped(d: &Difference<'_>) -> bool {
    let (Op::SetRateArgs(rate, true) | Op::UpdateRate(rate, true)) = d.call.op else {
        return false;
    };
    let [theirs, ours] = d.after.map(|state| state.budget(d.name(), d.client));
    let left = rate.rate - ours.used();
    d.outcomes[0] == d.outcomes[1]
        && (d.lines.len() == 1 || keep_alive_ended(d))
        && d.lines.iter().filter(|line| !line.contains(": ttl ")).count() == 1
        && theirs.used() == ours.used()
        && (theirs.value, ours.value) == (Some(0), Some(left))
        && left < 0
}

/// 6: a request above the rate fails, and the rate then counts as known, so the
/// change of the rate is applied to the value.
pub fn other_rate_is_applied(d: &Difference<'_>) -> bool {
    let Some(sides) = Sides::of(d) else { return false };
    let exceeds = |outcome: &Outcome| outcome.failure() == Some(ErrorKind::ExceedsRate);
    matches!(d.call.op, Op::TryAcquire(_))
        && d.outcomes.iter().all(|outcome| exceeds(outcome))
        && sides.ours.used() == sides.before.used()
        && sides.theirs.value == sides.before.value
        && sides.excess() != Some(0)
        && sides.excess_of_ours() == Some(0)
}

/// 2: a missing value becomes the rate minus the log.
pub fn missing_value_is_counted(d: &Difference<'_>) -> bool {
    Sides::of(d).is_some_and(|sides| {
        sides.before.value.is_none()
            && !sides.before.entries.is_empty()
            && sides.excess_of_ours() == Some(0)
            && decided(d, &sides)
    })
}

/// 1, 3: a state in which value and log do not add up to the rate is healed; it
/// may be left as it is if the request fits and no expired entry reveals it.
pub fn unsound_is_healed(d: &Difference<'_>) -> bool {
    Sides::of(d).is_some_and(|sides| {
        let after = sides.excess_of_ours();
        let fits = *d.outcomes[1] == Outcome::Granted;
        let above = sides.before.value.is_some_and(|v| v + sides.expired > sides.rate);
        let is_counted = sides.expired > 0 && (above || sides.live.is_empty());
        sides.excess().is_some_and(|excess| excess != 0)
            && (after == Some(0) || fits && !is_counted && after == sides.excess())
            && decided(d, &sides)
    })
}

/// The request is granted if it fits and denied if not, and the log agrees.
fn decided(d: &Difference<'_>, sides: &Sides) -> bool {
    let (Op::TryAcquire(permits), Some(value)) = (d.call.op, sides.ours.value) else {
        return false;
    };
    let now = d.call.now as i64;
    match d.outcomes[1] {
        Outcome::Granted => value >= 0 && sides.is_log_of_acquire(now, Some(*permits)),
        Outcome::Denied(_) => value < *permits && sides.is_log_of_acquire(now, None),
        _ => false,
    }
}
