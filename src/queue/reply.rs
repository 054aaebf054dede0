//! A call was answered or failed: the outcomes of its requests.

use super::batch::split;
use super::events::{MaxWait, Settled, Time};
use super::head_block::HeadBlock;
use super::state::{NOT_BEGUN, Queue, Waiter};
use crate::store::limits::{EXACT_WAITS, SHORT_LOG};
use crate::store::{Holders, Outcome, OutcomeGroup, Wait};

/// The longest time until a blocked queue asks again: another process may have returned permits, or raised
/// the rate.
pub(super) const ASK_EVERY: Time = 1_000_000;

impl<C> Queue<C> {
    /// The call in flight was answered. `dated` is the time at which the millisecond of the answer's date
    /// began; waits count from there. The rate is given as permits, interval and keep-alive (0 for none).
    /// `left` permits are free; `holders` hold the others, if the call was limited to a share.
    ///
    /// Returns the requests that are decided, and the permits granted to the call. All its other requests keep waiting.
    pub(crate) fn replied(
        &mut self,
        now: Time,
        dated: Time,
        (rate, interval, keep_alive): (u64, Time, Time),
        mut outcomes: Vec<OutcomeGroup>,
        left: u64,
        holders: Option<Holders>,
    ) -> (Vec<Settled<C>>, u64) {
        let calling = self.in_flight.take().unwrap_or(0);
        self.call_is_slow = false;
        let (mut settled, mut granted) = (Vec::with_capacity(calling), 0);
        let mut back = Vec::new();
        let (mut head, mut gone): (Option<(Time, u64)>, _) = (None, None);
        let mut is_any_gone = false;
        let mut reserved = None;
        let mut outcomes = &mut outcomes[..];
        for mut waiter in self.waiters.drain(..calling) {
            let Some((outcome, same)) = split(&mut outcomes, waiter.request.count()) else { break };
            let mut permits = waiter.request.fewest();
            // A request with a delay never waits here. A stored queue, whose longest delay is not known, says that it
            // would have to.
            let outcome = match (outcome, &waiter.request.max_wait) {
                (Outcome::Waiting(wait), MaxWait::Delay(_)) => Outcome::Refused(wait, 0),
                // A lease that asked again would be ahead of those who came since.
                (Outcome::Undecided, _) if waiter.request.hold_ms > 0 => {
                    Outcome::Refused(Wait::of_ms(0, true), 0)
                }
                (outcome, _) => outcome,
            };
            match outcome {
                Outcome::Waiting(wait) | Outcome::Reserved(wait) => {
                    waiter.free_at = dated.saturating_add(wait.us);
                    if self.permits_return
                        && let MaxWait::Until(end) = waiter.request.max_wait
                    {
                        // The server counted the rest of the wait from when it decided: without this the last question
                        // would come too late, by as long as the answer took.
                        waiter.free_at = waiter.free_at.min(end);
                    }
                    waiter.has_server_answer = true;
                    // Of more permits than there can be short log entries, a bound says little.
                    waiter.is_foreseen =
                        back.len() < EXACT_WAITS && (!wait.at_least || rate <= SHORT_LOG as u64);
                    let is_head = head.is_none();
                    head = head.or(Some((waiter.free_at, permits)));
                    if waiter.caller.is_none() {
                        is_any_gone = true;
                        if is_head {
                            gone = Some(permits);
                        }
                        continue;
                    }
                    if let Outcome::Reserved(_) = outcome {
                        reserved = Some(waiter.ticket);
                    }
                    back.push(waiter);
                }
                Outcome::Undecided => {
                    self.ask_now = true;
                    back.extend(waiter.caller.is_some().then_some(waiter));
                }
                Outcome::Granted
                | Outcome::Scheduled { .. }
                | Outcome::Refused(..)
                | Outcome::ExceedsRate => {
                    if outcome.is_grant() {
                        permits *= same;
                        granted += permits;
                    }
                    if waiter.caller.is_some() || outcome.is_grant() {
                        let (caller, costs) = (waiter.caller, waiter.request.costs);
                        settled.push(Settled { caller, permits, costs, outcome });
                    }
                }
            }
        }
        let (head_at, head_permits) =
            (head.map(|(at, _)| at), head.map_or(0, |(_, permits)| permits));
        back.into_iter().rev().for_each(|waiter| self.waiters.push_front(waiter));
        // The wait of a cancelled head does not apply to the next one.
        self.ask_now |= gone.is_some_and(|permits| self.may_fit_without(permits, 0));
        if head_at.is_some() {
            // Waiting for permits does not count: the deadline of an unbounded wait begins with its next
            // call. Other requests keep the deadlines that their callers were promised.
            let unbounded = |waiter: &&mut Waiter<C>| waiter.request.max_wait == MaxWait::Unbounded;
            self.waiters.iter_mut().filter(unbounded).for_each(|waiter| waiter.due = NOT_BEGUN);
        }
        let pause = self.sharing.replied(
            now,
            interval,
            (reserved.map_or(granted, |_| head_permits), left),
            head_at.is_some(),
            holders,
        );
        let head = head_at.and(self.waiters.front());
        let head = head.map(|head| (head.ticket, head.request.permits));
        let reserve_at = self.reserving.replied(now, interval, head, reserved, holders.is_some());
        if let (Some(head_at), false) = (head_at, self.waiters.is_empty()) {
            // The head fits, but its share holds it back.
            let spare = if holders.is_some() && head_permits <= left { left } else { 0 };
            let head_at = self.first_free(head_at, spare).max(now.saturating_add(pause));
            // Without the one that has gone, those behind it may be served earlier than the server said.
            let tail_at = self.waiters.iter().map(|waiter| waiter.free_at).max();
            let tail_at = tail_at.filter(|_| !is_any_gone);
            self.earliest_end = 0;
            let mut block = HeadBlock {
                head_at,
                spare,
                tail_at: tail_at.unwrap_or(0).max(head_at),
                ask_at: head_at.min(now.saturating_add(ask_within(keep_alive))).min(reserve_at),
                rate,
                interval,
                permits_return: self.permits_return,
                demand: 0,
                served: 0,
            };
            self.waiters.iter().for_each(|it| block.count(&it.request, it.is_foreseen));
            self.head_block = Some(block);
        }
        self.check();
        (settled, granted)
    }

    /// When to ask again for a head that waits until `head_at`. Requests that cannot wait as long as a head
    /// held back by its share are not held back themselves, and may be served before it.
    fn first_free(&self, head_at: Time, spare: u64) -> Time {
        let before = |waiter: &&Waiter<C>| {
            spare > 0 && waiter.has_server_answer && !waiter.request.max_wait.lasts_beyond(head_at)
        };
        let earlier = self.waiters.iter().filter(before).map(|waiter| waiter.free_at);
        earlier.min().map_or(head_at, |free_at| free_at.min(head_at))
    }

    /// The call in flight failed for good, for all of its requests; returns their callers.
    pub(crate) fn failed(&mut self) -> Vec<C> {
        let calling = self.in_flight.take().unwrap_or(0);
        self.call_is_slow = false;
        self.reserving.forget();
        let callers = self.waiters.drain(..calling).filter_map(|waiter| waiter.caller).collect();
        self.check();
        callers
    }

    /// The call in flight found no limiter, and its first request creates none. The requests before the first
    /// one that creates it fail, as they would have on their own; the others ask again.
    pub(crate) fn uninitialized(&mut self) -> Vec<C> {
        let creates =
            |waiter: &Waiter<C>| waiter.caller.is_some() && waiter.request.create.is_some();
        let calling = self.calling();
        let first = self.waiters.range(..calling).position(creates).filter(|first| *first > 0);
        let failed = first.unwrap_or(calling);
        let mut index = 0;
        self.waiters.retain(|waiter| {
            index += 1;
            index <= failed || index > calling || waiter.caller.is_some()
        });
        self.in_flight = Some(failed);
        self.failed()
    }
}

/// The longest time until a blocked queue asks again. Each call renews the keep-alive, so that a limiter
/// whose callers wait does not expire: a call at the end of the keep-alive would come too late.
fn ask_within(keep_alive: Time) -> Time {
    match keep_alive {
        0 => ASK_EVERY,
        keep_alive => ASK_EVERY.min(keep_alive / 2),
    }
}
