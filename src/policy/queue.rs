//! The queue: permits follow each other at a pace, and each request is granted from a time on.
//!
//! The twin of `lua/policy/queue.lua`.

use super::bucket::{Pace, ceil};
use super::frame::{EXACT_WAITS, Mark, Record, Rules, State};
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait, push_outcome};

/// State: from the time (`x`, `y`) on nothing is reserved; the last grant was made at `z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    pub(crate) pace: Pace,
    /// In microseconds.
    pub(crate) max_delay: u64,
    /// The permits that may start at once after a pause.
    pub(crate) slack: u64,
    /// The most permits of a request: numbers stay exact, and nobody waits for a century.
    pub(crate) limit: u64,
}

impl Queue {
    /// The start of a request that follows so many permits, as of now.
    fn start(&self, state: &State, behind: u64, now: i64) -> i64 {
        ceil(self.pace.plus((state.x, state.y), behind as i64 - self.slack as i64)).max(now)
    }
}

impl Rules for Queue {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.pace.plus((0, 0), 1).0 as u64
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        match state {
            None => State { x: now, z: now as u64, ..State::default() },
            // The clock went back: delays stay what they were.
            Some(state) if now < state.z as i64 => {
                State { x: (state.x - (state.z as i64 - now)).max(0), z: now as u64, ..state }
            }
            Some(state) => state,
        }
    }

    /// A request of any size starts now or later.
    fn available(&self, state: &State, now: i64) -> u64 {
        if self.wait(state, now, 1) > 0 { 0 } else { self.limit }
    }

    fn take(&self, state: &mut State, now: i64, permits: u64) {
        let free = (state.x, state.y).max((now, 0));
        (state.x, state.y) = self.pace.plus(free, permits as i64);
        state.z = now as u64;
    }

    fn wait(&self, state: &State, now: i64, _: u64) -> i64 {
        self.start(state, 0, now) - now
    }

    /// Only the last reservation, and only before its time: later ones keep theirs. A grant can be given back once,
    /// in part or whole: otherwise a later reservation could end when the grant did, and have its mark.
    fn give(&self, state: &mut State, now: i64, mark: Mark, permits: u64) -> u64 {
        if mark != (state.x, state.y) || permits > self.limit {
            return 0;
        }
        let free = self.pace.plus(mark, -(permits as i64));
        if free.0 < now {
            return 0;
        }
        (state.x, state.y) = free;
        permits
    }

    fn ends(&self, state: &State) -> i64 {
        state.x + 1
    }

    fn change(&self, _: &dyn Rules, state: &mut State, _: i64, _: &dyn Fn(u64) -> u64) {
        (state.x, state.y) = (ceil((state.x, state.y)), 0);
    }
}

impl Queue {
    /// Decides requests in order, each of which starts behind those before it; returns the permits granted. Of a call
    /// that was decided before, what it was granted is granted again, and nothing is taken.
    pub(super) fn decide(
        &self,
        state: &mut State,
        now: i64,
        groups: &[RequestGroup],
        replay: Option<&Record>,
        outcomes: &mut Vec<OutcomeGroup>,
    ) -> u64 {
        // Of a call that was decided before, the reservations are those of that time.
        let mut then = replay.map(|record| {
            let (x, y) = self.pace.plus(record.mark, -(record.total as i64));
            State { x, y, z: record.at as u64, ..State::default() }
        });
        let (from, most) = replay.map_or((now, u64::MAX), |record| (record.at, record.total));
        let (mut granted, mut sum, mut exact, mut us) = (0, 0_u64, 0, 0);
        for &RequestGroup { permits, max_wait_ms, mut count } in groups {
            let longest = max_wait_ms.saturating_mul(1000);
            let allowed = longest.min(self.max_delay);
            if permits > self.limit {
                push_outcome(outcomes, count, Outcome::ExceedsRate);
                count = 0;
            }
            while count > 0 && sum == 0 && permits <= most - granted {
                let state = then.as_mut().unwrap_or(&mut *state);
                let start = self.start(state, 0, from);
                if (start - from) as u64 > allowed {
                    break;
                }
                self.take(state, from, permits);
                (granted, count) = (granted + permits, count - 1);
                outcomes.push(OutcomeGroup {
                    count: 1,
                    outcome: Outcome::Scheduled { start, mark: (state.x, state.y) },
                });
            }
            while count > 0 {
                let is_exact = sum == 0 || sum < self.limit && exact < EXACT_WAITS;
                if is_exact {
                    exact += u32::from(sum > 0);
                    us = (self.start(state, sum.min(self.limit), now) - now) as u64;
                }
                let at_least = !is_exact || sum > self.limit;
                let wait = |without: u64| Wait { us: us.saturating_sub(without).max(1), at_least };
                let is_granted_later = replay.is_some() && granted < most;
                if longest > self.max_delay && us <= longest && !is_granted_later {
                    let n = if sum < self.limit && exact < EXACT_WAITS { 1 } else { count };
                    sum = sum.saturating_add(n.saturating_mul(permits));
                    push_outcome(outcomes, n, Outcome::Waiting(wait(self.max_delay)));
                    count -= n;
                } else {
                    push_outcome(outcomes, count, Outcome::Refused(wait(allowed), 0));
                    count = 0;
                }
            }
        }
        granted
    }
}
