//! The queue: permits follow each other at a pace, and each request is granted from a time on.
//!
//! The twin of `lua/policy/queue.lua`.

use super::bucket::{Pace, Time, ceil};
use super::frame::{Mark, Record, Rules, State};
use crate::store::{Outcome, OutcomeGroup, RequestGroup};

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
    /// The parameters as one number, which a record of a call has instead of what was available then.
    pub(super) fn version(&self) -> u64 {
        let Queue { pace, max_delay, limit, slack } = self;
        let numbers = [pace.permits, pace.every, *max_delay, *limit, *slack];
        numbers.into_iter().fold(0, |version, number| (version * 1_000_003 + number) % (1 << 32))
    }

    /// The start of a request that follows so many permits, as of now.
    fn start(&self, state: &State, behind: u64, now: i64) -> i64 {
        let free = (state.x, state.y).max((now, 0));
        ceil(self.pace.plus(free, behind as i64 - self.slack as i64)).max(now)
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
                let x = (state.x - (state.z as i64 - now)).max(0);
                State { x, z: now as u64, is_behind: true, ..state }
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

    fn pace(&self) -> Option<Pace> {
        Some(self.pace)
    }

    fn change(&self, old: &dyn Rules, state: &mut State, _: i64, _: &dyn Fn(u64) -> u64) {
        if old.pace() != Some(self.pace) {
            // What was granted before took another time: its marks are those of nothing.
            (state.x, state.y) = (state.x + 1, 0);
        }
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
    ) -> Vec<OutcomeGroup> {
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
        let granted: Vec<_> = schedule
            .grants(most, from.saturating_add_unsigned(allowed))
            .into_iter()
            .flatten()
            .collect();
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
    /// The grants of so many requests, of those that start no later than this; `None` for a server's numbers that make no
    /// sense.
    pub(crate) fn grants(
        &self,
        count: u64,
        latest: i64,
    ) -> Option<impl Iterator<Item = OutcomeGroup> + use<>> {
        let &Schedule { free, from, permits, pace, slack } = self;
        if !pace.allows(permits.checked_mul(count)?) || !pace.allows(slack) {
            return None;
        }
        // Adding is a few times as fast as dividing anew for each.
        let step = pace.plus((0, 0), permits as i64);
        let later = move |(t, f): Time| match f + step.1 {
            f if f < pace.permits => (t + step.0, f),
            f => (t + step.0 + 1, f - pace.permits),
        };
        let (mut start, mut mark) = (pace.plus(free, -(slack as i64)), free);
        let grants = (0..count).map(move |_| {
            let at = ceil(start).max(from);
            (start, mark) = (later(start), later(mark));
            (at, mark)
        });
        let in_time = grants.take_while(move |(at, _)| *at <= latest);
        Some(in_time.map(|(start, mark)| OutcomeGroup {
            count: 1,
            outcome: Outcome::Scheduled { start, mark },
        }))
    }
}
