//! The queue: permits follow each other at a pace, and each request is granted from a time on.
//!
//! The twin of `lua/policy/queue.lua`.

use super::frame::{
    Bad, EXACT_WAITS, LONGEST_US, Mark, Record, Rules, is_permits, numbers, parameters,
};
use super::pace::{Pace, Time, ceil};
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait, push_outcome};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// The time from which on nothing is reserved.
    free: Time,
    /// The time of the last grant.
    last: i64,
}

impl Queue {
    /// The start of a request that follows so many permits, as of now.
    fn start(&self, free: Time, behind: u64, now: i64) -> i64 {
        ceil(self.pace.plus(free, behind as i64 - self.slack as i64)).max(now)
    }
}

impl Rules for Queue {
    const NAMES: &'static [&'static str] = &["t", "f", "l"];
    const IS_QUEUE: bool = true;
    type State = Reserved;

    fn text(&self) -> String {
        let Pace { permits, every } = self.pace;
        format!("q1:{permits},{every},{},{},{}", self.max_delay, self.slack, self.limit)
    }

    fn parse(text: &str) -> Option<Self> {
        let [permits, every, max_delay, slack, limit] = parameters(text, "q1:")?;
        let pace = Pace { permits, every };
        let is_valid =
            max_delay <= LONGEST_US && is_permits(limit) && slack <= limit && pace.allows(limit);
        is_valid.then_some(Queue { pace, max_delay, slack, limit })
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.pace.plus((0, 0), 1).0 as u64
    }

    fn read(&self, texts: &[&str]) -> Result<Reserved, Bad> {
        let [t, f, l] = numbers(texts)?;
        match f < self.pace.permits {
            true => Ok(Reserved { free: (t as i64, f), last: l as i64 }),
            false => Err(1),
        }
    }

    fn write(&self, state: &Reserved) -> Vec<String> {
        vec![state.free.0.to_string(), state.free.1.to_string(), state.last.to_string()]
    }

    fn roll(&self, state: Option<Reserved>, now: i64) -> Reserved {
        match state {
            None => Reserved { free: (now, 0), last: now },
            // The clock went back: delays stay what they were.
            Some(Reserved { free: (t, f), last }) if now < last => {
                Reserved { free: ((t - (last - now)).max(0), f), last: now }
            }
            Some(state) => state,
        }
    }

    /// A request of any size starts now or later.
    fn available(&self, state: &Reserved, now: i64) -> u64 {
        if self.wait(state, now, 1) > 0 { 0 } else { self.limit }
    }

    fn take(&self, state: &mut Reserved, now: i64, permits: u64) {
        state.free = self.pace.plus(state.free.max((now, 0)), permits as i64);
        state.last = now;
    }

    fn wait(&self, state: &Reserved, now: i64, _: u64) -> i64 {
        self.start(state.free, 0, now) - now
    }

    fn mark(&self, state: &Reserved) -> Mark {
        state.free
    }

    /// Only the last reservation, and only before its time: later ones keep theirs. A grant can be given back once,
    /// in part or whole: otherwise a later reservation could end when the grant did, and have its mark.
    fn give(&self, state: &mut Reserved, now: i64, mark: Mark, permits: u64) -> u64 {
        if mark != state.free || permits > self.limit {
            return 0;
        }
        let free = self.pace.plus(state.free, -(permits as i64));
        if free.0 < now {
            return 0;
        }
        state.free = free;
        permits
    }

    fn ttl(&self, state: &Reserved, now: i64) -> i64 {
        state.free.0 + 1 - now
    }

    fn change(&self, _: &Self, state: &mut Reserved, _: i64, _: &dyn Fn(u64) -> u64) {
        state.free = (ceil(state.free), 0);
    }

    /// Each request starts behind those before it.
    fn decide(
        &self,
        state: &mut Reserved,
        now: i64,
        groups: &[RequestGroup],
        replay: Option<&Record>,
        outcomes: &mut Vec<OutcomeGroup>,
    ) -> u64 {
        // Of a call that was decided before, the reservations are those of that time.
        let mut then = replay.map(|record| Reserved {
            free: self.pace.plus(record.mark, -(record.total as i64)),
            last: record.at,
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
                let start = self.start(state.free, 0, from);
                if (start - from) as u64 > allowed {
                    break;
                }
                self.take(state, from, permits);
                (granted, count) = (granted + permits, count - 1);
                outcomes.push(OutcomeGroup {
                    count: 1,
                    outcome: Outcome::Scheduled { start, mark: state.free },
                });
            }
            while count > 0 {
                let is_exact = sum == 0 || sum < self.limit && exact < EXACT_WAITS;
                if is_exact {
                    exact += u32::from(sum > 0);
                    us = (self.start(state.free, sum.min(self.limit), now) - now) as u64;
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
                    push_outcome(outcomes, count, Outcome::Refused(wait(allowed)));
                    count = 0;
                }
            }
        }
        granted
    }
}
