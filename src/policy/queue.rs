//! The queue: permits follow each other at a pace, and each request is granted from a time on.
//!
//! The twin of `lua/policy/queue.lua`.

use super::bucket::{Pace, Time, ceil};
use super::frame::{Mark, Record, Rules, State};
use crate::store::{Outcome, RequestGroup};

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
        if self.wait(state, now, 0) > 0 { 0 } else { self.limit }
    }

    fn take(&self, state: &mut State, now: i64, permits: u64) {
        let free = (state.x, state.y).max((now, 0));
        (state.x, state.y) = self.pace.plus(free, permits as i64);
        state.z = now as u64;
    }

    fn wait(&self, state: &State, now: i64, behind: u64) -> i64 {
        self.start(state, behind, now) - now
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
    /// Grants as many of equal requests as start no later than allowed, one behind the other. What a call that was decided
    /// before was granted is granted again, as of that time: `replay` has its record, and how many of its permits are
    /// left.
    pub(super) fn schedule(
        &self,
        state: &mut State,
        now: i64,
        replay: Option<(&Record, &mut u64)>,
        RequestGroup { permits, count, .. }: RequestGroup,
        allowed: u64,
    ) -> Vec<Outcome> {
        let (free, from, count) = match &replay {
            None => ((state.x, state.y).max((now, 0)), now, count),
            Some((record, rest)) => {
                let free = self.pace.plus(record.mark, -(**rest as i64));
                (free, record.at, count.min(**rest / permits))
            }
        };
        let schedule = Schedule { free, from, permits, pace: self.pace, slack: self.slack };
        // Of more than the limit at once, times would not be exact on a server.
        let most = count.min(self.limit / permits);
        let in_time = |it: &u64| (schedule.start(*it) - from) as u64 <= allowed;
        let granted: Vec<_> =
            (0..most).take_while(in_time).map(|it| schedule.outcome(it)).collect();
        let taken = granted.len() as u64 * permits;
        match replay {
            Some((_, rest)) => *rest -= taken,
            None if taken > 0 => self.take(state, now, taken),
            None => {}
        }
        granted
    }
}

/// Requests that a queue has granted, one behind the other.
pub(crate) struct Schedule {
    /// The time from which on nothing was reserved.
    pub(crate) free: Time,
    /// The time of the decision.
    pub(crate) from: i64,
    /// Of each request.
    pub(crate) permits: u64,
    pub(crate) pace: Pace,
    pub(crate) slack: u64,
}

impl Schedule {
    /// Whether so many requests have times that can be told.
    pub(crate) fn allows(&self, count: u64) -> bool {
        let all = self.permits.checked_mul(count);
        all.is_some_and(|all| self.pace.allows(all)) && self.pace.allows(self.slack)
    }

    fn start(&self, index: u64) -> i64 {
        let before = (index * self.permits) as i64 - self.slack as i64;
        ceil(self.pace.plus(self.free, before)).max(self.from)
    }

    pub(crate) fn outcome(&self, index: u64) -> Outcome {
        let mark = self.pace.plus(self.free, ((index + 1) * self.permits) as i64);
        Outcome::Scheduled { start: self.start(index), mark }
    }
}
