//! Checks grants and denials in virtual time, from the grants alone.
//!
//! At a rate R and an interval I, a request for w permits at the time t must be
//! granted if and only if the permits granted in (t - I, t], plus w, are at
//! most R. A grant dated later than t counts as well; a grant that a client
//! with a faster clock has dropped as expired no longer counts for anybody.

use std::collections::HashMap;

use super::ops::{ErrorKind, Extra, Op, Outcome};
use super::state::State;
use super::subject::Call;
use crate::keys::Keys;

/// What has a budget: a limiter, or in PER_CLIENT a limiter and a client.
type Scope = (String, Option<usize>);

/// The grants of all limiters.
#[derive(Debug, Default)]
pub struct Checker {
    grants: HashMap<Scope, Vec<(u64, i64)>>,
    /// When the pauses end.
    pauses: HashMap<Scope, u64>,
}

/// The permits that a pause's entry has.
const ALL: i64 = u32::MAX as i64;

/// A rate in force, as the limiter's hash has it.
#[derive(Clone, Copy, Debug)]
struct InForce {
    rate: i64,
    interval: u64,
    per_client: bool,
}

impl Checker {
    /// Records a call, and checks its answer and the state that it left.
    /// `before` and `after` are the states around the call.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer, or with the state.
    pub fn check(
        &mut self,
        call: Call<'_>,
        clients: &[String],
        (before, after): (&State, &State),
        outcome: &Outcome,
    ) -> Result<(), String> {
        let in_force = in_force(before, call.name);
        match (call.op, in_force) {
            (Op::TryAcquire(permits), Some(rate)) => {
                self.acquire(call, rate, *permits, outcome)?;
            }
            (Op::AvailablePermits, Some(rate)) => {
                let left = rate.rate - self.used(call, rate);
                // After the rate was lowered Redisson returns a negative number.
                if ![left, left.max(0)].map(Outcome::Count).contains(outcome) {
                    return Err(format!("{left} permits are left, not {outcome:?}"));
                }
            }
            (Op::Extra(Extra::Settle(more)), Some(rate)) => {
                self.acquire(call, rate, 1, outcome)?;
                if *outcome == Outcome::Granted {
                    self.grants.entry(scope(call, rate)).or_default().push((call.now, *more));
                }
            }
            (Op::Extra(Extra::Pause(ms)), Some(rate)) if *outcome == Outcome::Done => {
                let ends = self.pauses.entry(scope(call, rate)).or_default();
                *ends = call.now.saturating_add_signed(*ms).max(*ends);
            }
            (Op::Extra(Extra::Resume), Some(rate)) if *outcome == Outcome::Done => {
                self.pauses.remove(&scope(call, rate));
            }
            (Op::TryAcquire(_) | Op::AvailablePermits | Op::Release(_) | Op::Extra(_), None) => {
                let said = outcome.failure();
                let none = said == Some(ErrorKind::NotInitialized);
                none.then_some(())
                    .ok_or_else(|| format!("there is no limiter, yet {outcome:?}"))?;
            }
            (_, _) if outcome.failure().is_some() => {
                return Err(format!("{:?} failed: {outcome:?}", call.op));
            }
            (Op::Release(permits), Some(rate)) => self.release(call, rate, *permits),
            // An expiry in the past removes the keys at once.
            (
                Op::SetRate(_)
                | Op::SetRateArgs(..)
                | Op::UpdateRate(..)
                | Op::Delete
                | Op::ExpireAt(..=0, _),
                _,
            ) => self.removed(clients, after),
            _ => {}
        }
        self.balanced(call, clients, after)
    }

    /// Keys have expired: forgets the grants of budgets that have no keys left.
    pub fn removed(&mut self, clients: &[String], state: &State) {
        let is_there = |(name, client): &Scope| {
            let keys = Keys::new(name.as_str());
            let own = client.map(|client| clients[client].as_str());
            [keys.value(own), keys.log(own)].iter().any(|key| state.0.contains_key(key))
        };
        self.grants.retain(|scope, _| is_there(scope));
        self.pauses.retain(|scope, _| is_there(scope));
    }

    fn acquire(
        &mut self,
        call: Call<'_>,
        rate: InForce,
        permits: i64,
        outcome: &Outcome,
    ) -> Result<(), String> {
        if permits > rate.rate {
            return match outcome.failure() {
                Some(ErrorKind::ExceedsRate) => Ok(()),
                _ => Err(format!("{permits} of {} answered {outcome:?}", rate.rate)),
            };
        }
        let used = self.used(call, rate);
        let fits = used + permits <= rate.rate;
        match outcome {
            Outcome::Granted if fits => {
                let scope = scope(call, rate);
                self.grants.entry(scope).or_default().push((call.now, permits));
                Ok(())
            }
            Outcome::Denied(_) if !fits => Ok(()),
            Outcome::Granted => Err(format!(
                "over-issue: {used} + {permits} of {} within {} ms",
                rate.rate, rate.interval
            )),
            Outcome::Denied(_) => {
                Err(format!("lost permits: {permits} refused with {used} of {} in use", rate.rate))
            }
            other => Err(format!("an acquire answered {other:?}")),
        }
    }

    /// Takes the released permits out of the grants, oldest first.
    fn release(&mut self, call: Call<'_>, rate: InForce, permits: i64) {
        self.used(call, rate);
        let mut left = permits;
        for (_, granted) in self.grants.entry(scope(call, rate)).or_default() {
            let taken = left.min(*granted);
            *granted -= taken;
            left -= taken;
        }
    }

    /// The permits in use. Expired grants are dropped for good.
    fn used(&mut self, call: Call<'_>, rate: InForce) -> i64 {
        let grants = self.grants.entry(scope(call, rate)).or_default();
        grants.retain(|(at, _)| at + rate.interval > call.now);
        let is_paused = self.pauses.get(&scope(call, rate)).is_some_and(|ends| *ends > call.now);
        let paused = if is_paused { ALL } else { 0 };
        grants.iter().map(|(_, permits)| permits).sum::<i64>() + paused
    }

    /// Value and log must add up to the rate.
    fn balanced(&self, call: Call<'_>, clients: &[String], after: &State) -> Result<(), String> {
        let budget = after.budget(call.name, &clients[call.client]);
        match (in_force(after, call.name), budget.value) {
            (Some(rate), Some(value)) if value + budget.used() != rate.rate => Err(format!(
                "a value of {value} and {} in the log are not {}",
                budget.used(),
                rate.rate
            )),
            _ => Ok(()),
        }
    }
}

fn scope(call: Call<'_>, rate: InForce) -> Scope {
    (call.name.to_owned(), rate.per_client.then_some(call.client))
}

fn in_force(state: &State, name: &str) -> Option<InForce> {
    Some(InForce {
        rate: state.number(name, "rate")?,
        interval: state.number(name, "interval")? as u64,
        per_client: state.field(name, "type")? == "1",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::oracle::state::{Content, Key};

    fn limiter(rate: i64) -> State {
        let fields =
            [("rate", rate.to_string()), ("interval", "1000".into()), ("type", "0".into())];
        let fields: BTreeMap<_, _> = fields.map(|(f, v)| (f.to_owned(), v)).into();
        let content = Content::Hash(fields);
        State([("api".to_owned(), Key { content, ttl: None })].into())
    }

    fn acquire(
        checker: &mut Checker,
        now: u64,
        permits: i64,
        outcome: Outcome,
    ) -> Result<(), String> {
        let op = Op::TryAcquire(permits);
        let (client, name) = (0, "api");
        let call = Call { client, name, op: &op, now };
        let state = limiter(5);
        checker.check(call, &["id".into()], (&state, &state), &outcome)
    }

    #[test]
    fn a_grant_expires_exactly_one_interval_later() {
        let mut checker = Checker::default();
        acquire(&mut checker, 5_000, 3, Outcome::Granted).unwrap();
        acquire(&mut checker, 5_999, 3, Outcome::Denied(1)).unwrap();
        acquire(&mut checker, 6_000, 5, Outcome::Granted).unwrap();
    }

    #[test]
    fn over_issue_and_lost_permits_are_detected() {
        let mut checker = Checker::default();
        acquire(&mut checker, 5_000, 3, Outcome::Granted).unwrap();
        let over = acquire(&mut checker, 5_999, 3, Outcome::Granted).unwrap_err();
        assert!(over.contains("over-issue: 3 + 3 of 5"), "{over}");
        let lost = acquire(&mut checker, 5_999, 2, Outcome::Denied(1)).unwrap_err();
        assert!(lost.contains("lost permits"), "{lost}");
    }
}
