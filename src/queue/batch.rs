//! Which requests go into the next call, and how its reply is split among them: [`combine`] and
//! [`split`] belong together.

use std::sync::Arc;

use super::events::{Call, MaxWait, MemberCosts, Request, Time};
use super::state::{Queue, Waiter};
use crate::rate::MAX_EXACT;
use crate::store::limits::MOST_AT_ONCE;
use crate::store::{Outcome, OutcomeGroup, RequestGroup};

/// The most requests in one call.
pub(super) const MAX_REQUESTS: usize = 8192;

/// The most requests in one call of a semaphore that has no permits left for those that wait.
const MAX_EXHAUSTED: usize = 64;

/// The most groups in one call: the server's time grows with the number of groups, not of requests.
pub(super) const MAX_GROUPS: usize = 256;

/// Combines equal neighbours into groups, in order, up to what one call has room for. Also returns the number
/// of requests in the groups.
fn combine<'a>(
    requests: impl Iterator<Item = (RequestGroup, Option<&'a Arc<MemberCosts>>)>,
) -> (Vec<RequestGroup>, Vec<Arc<MemberCosts>>, usize) {
    let (mut groups, mut all_costs, mut taken): (Vec<RequestGroup>, Vec<_>, usize) =
        (Vec::new(), Vec::new(), 0);
    for (next, costs) in requests.take(MAX_REQUESTS) {
        let is_full = groups.len() == MAX_GROUPS;
        match groups.last_mut() {
            Some(last)
                if (last.permits, last.max_wait_ms) == (next.permits, next.max_wait_ms)
                    && all_costs.last() == costs =>
            {
                last.count += next.count;
            }
            _ if is_full => break,
            _ => {
                groups.push(next);
                all_costs.extend(costs.cloned());
            }
        }
        taken += 1;
    }
    (groups, all_costs, taken)
}

/// Splits the outcomes of a call among its requests: takes those of a request that is in the call so many times from
/// the ones that are left. Returns the first of them, and how many are the same; `None` if there are no more.
pub(super) fn split(outcomes: &mut &mut [OutcomeGroup], count: u64) -> Option<(Outcome, u64)> {
    let outcome = outcomes.first()?.outcome;
    let (mut left, mut same) = (count, 0);
    while left > 0
        && let Some(group) = outcomes.first_mut()
    {
        let taken = group.count.min(left);
        left -= taken;
        group.count -= taken;
        same += if group.outcome == outcome { taken } else { 0 };
        if group.count == 0 {
            outcomes.split_off_first_mut();
        }
    }
    Some((outcome, same))
}

impl<C> Queue<C> {
    /// Moves the front of the queue into a call: the requests that can be served by `served_by`, and the one
    /// after them, whose answer tells when to ask next.
    pub(super) fn take_batch(&mut self, now: Time, served_by: Time) -> Call {
        let reserve = self.reserves(now);
        let permits_return = self.permits_return;
        let most = match reserve {
            true => 1,
            // What comes back serves a few of those that wait, and each message brings another call.
            false if self.permits_return && self.is_exhausted() => MAX_EXHAUSTED,
            false => usize::MAX,
        };
        let (mut include_next, mut permits) = (true, 0_u64);
        let requests = self.waiters.iter().take(most).map_while(|waiter| {
            let is_included = std::mem::replace(&mut include_next, waiter.free_at <= served_by);
            permits = permits.saturating_add(waiter.request.permits);
            // Each permit of a semaphore is an entry on the server.
            let is_too_much = permits_return && permits > MOST_AT_ONCE;
            let is_included = is_included && (!is_too_much || permits == waiter.request.permits);
            is_included.then(|| (waiter.group(now), waiter.request.costs.as_ref()))
        });
        let (groups, costs, taken) = combine(requests);
        let (mut due, mut shortest_deadline, mut hold_ms) = (Time::MAX, Time::MAX, 0);
        for waiter in self.waiters.range_mut(..taken) {
            waiter.begin_deadline(now);
            due = due.min(waiter.due);
            shortest_deadline = shortest_deadline.min(waiter.request.deadline);
            hold_ms = hold_ms.max(waiter.request.hold_ms);
        }
        self.head_block = None;
        self.ask_now = false;
        let can_wait = groups.iter().any(|group| group.max_wait_ms > 0);
        let share = self.sharing.terms(now, self.has_waited(), can_wait);
        // A request that exceeds its own rate creates nothing, by itself either.
        let mut asked = self.waiters.iter().take(taken).map(|waiter| &waiter.request);
        let first = asked.clone().next().filter(|it| it.create.is_some());
        let fits =
            |it: &&Request| it.create.as_ref().is_some_and(|rate| it.fewest() <= rate.permits());
        let creates = first.map(|first| asked.find(fits).unwrap_or(first));
        let create = creates.and_then(|it| it.create.as_deref().copied());
        self.in_flight = Some(taken);
        let requests = taken as u64;
        Call { groups, requests, costs, create, share, reserve, due, shortest_deadline, hold_ms }
    }

    /// The caller of the call in flight, if there is exactly one.
    pub(crate) fn only_caller(&self) -> Option<&C> {
        self.waiters.front().filter(|_| self.in_flight == Some(1))?.caller.as_ref()
    }
}

impl<C> Waiter<C> {
    /// What the request asks for in a call that is sent now.
    fn group(&self, now: Time) -> RequestGroup {
        let (permits, count) = (self.request.fewest(), self.request.count());
        RequestGroup { permits, max_wait_ms: self.max_wait_ms(now), count }
    }

    /// How long the request may still wait for permits, in ms.
    fn max_wait_ms(&self, now: Time) -> u64 {
        match self.request.max_wait {
            MaxWait::None => 0,
            MaxWait::Delay(ms) => ms,
            MaxWait::Until(end) => end.saturating_sub(now) / 1000,
            MaxWait::Unbounded => MAX_EXACT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Wait;

    fn one<'a>(permits: u64, max_wait_ms: u64) -> (RequestGroup, Option<&'a Arc<MemberCosts>>) {
        (RequestGroup { permits, max_wait_ms, count: 1 }, None)
    }

    #[test]
    fn equal_neighbours_are_one_group_and_each_gets_its_own_outcome() {
        let requests = [(1, 0), (1, 0), (2, 0), (2, 5), (1, 0)];
        let requests = requests.into_iter().map(|(permits, max_wait_ms)| one(permits, max_wait_ms));
        let (groups, _, taken) = combine(requests);
        let counts: Vec<_> =
            groups.iter().map(|it| (it.permits, it.max_wait_ms, it.count)).collect();
        assert_eq!(counts, [(1, 0, 2), (2, 0, 1), (2, 5, 1), (1, 0, 1)]);
        assert_eq!(taken, 5);
        let refused = Outcome::Refused(Wait::of_ms(3, false), 0);
        let outcomes = [(1, Outcome::Granted), (3, refused), (1, Outcome::Granted)]
            .map(|(count, outcome)| OutcomeGroup { count, outcome });
        let each = |counts: &[u64]| {
            let mut outcomes = outcomes;
            let mut left = &mut outcomes[..];
            counts.iter().map_while(|count| split(&mut left, *count)).collect::<Vec<_>>()
        };
        let granted = (Outcome::Granted, 1);
        assert_eq!(each(&[1; 6]), [granted, (refused, 1), (refused, 1), (refused, 1), granted]);
        // A request that is in the call several times takes as many outcomes.
        assert_eq!(each(&[3, 2]), [granted, (refused, 1)]);
        assert_eq!(each(&[1, 3, 1]), [granted, (refused, 3), granted]);
    }

    #[test]
    fn a_call_has_room_for_so_many_groups_and_requests() {
        let (groups, _, taken) = combine((0..1000).map(|permits| one(permits, 0)));
        assert_eq!((groups.len(), taken), (MAX_GROUPS, MAX_GROUPS));
        let (groups, _, taken) = combine((0..10_000).map(|_| one(1, 0)));
        assert_eq!((groups.len(), taken), (1, MAX_REQUESTS));
    }
}
