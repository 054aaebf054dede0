//! Who goes next, with whom, and when to ask again: the queue of one limiter in one client.
//!
//! A state machine without I/O: events go in (a request arrives, a call is answered, a caller
//! gives up), calls and wake-ups come out, and time is an argument. At most one call is in flight.
//! Requests that arrive meanwhile go together in the next one. A waiting request that does not fit
//! blocks all behind it until the time that the server named for it; nothing is asked before that
//! time, unless a newcomer's answer depends on it.
//!
//! `W` is whatever wakes a caller; the machine only stores it.

use std::collections::VecDeque;

mod block;
mod events;
mod flight;
mod runs;
#[cfg(test)]
mod tests;

use self::block::{Block, Prospect, wait_until};
pub(crate) use self::events::*;
use self::flight::Flight;

/// Microseconds since an origin of the shell's choosing.
pub(crate) type Time = u64;

/// A request's number, in order of arrival.
pub(crate) type Ticket = u64;

/// The queue of one limiter in one client.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    next_ticket: Ticket,
    /// All that are not in flight, in order of arrival.
    backlog: VecDeque<Member<W>>,
    /// Empty: the room of the last call's members, for those who come next.
    spare: Vec<Member<W>>,
    /// How many at its front are not fresh.
    asked_before: usize,
    flight: Option<Flight<W>>,
    block: Option<Block>,
    /// Ask although the queue is blocked.
    ask_now: bool,
    /// No deadline in the backlog is earlier.
    earliest: Time,
    /// The call in flight takes long: whoever comes is dated at once, see [`Member::due`].
    slow: bool,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue {
            next_ticket: 0,
            backlog: VecDeque::new(),
            spare: Vec::new(),
            asked_before: 0,
            flight: None,
            block: None,
            ask_now: false,
            earliest: Time::MAX,
            slow: false,
        }
    }
}

/// Not dated yet.
const UNDATED: Time = Time::MAX;

#[derive(Debug)]
struct Member<W> {
    ticket: Ticket,
    request: Request,
    waker: Option<W>,
    /// When it is late, see [`Queue::overdue`]: its deadline after the call that asks for it is
    /// sent; where a call before that takes long, after that shows, or after the later arrival.
    due: Time,
    /// It cannot be served before this.
    free_at: Time,
    /// Its caller has given up, or has been told.
    gone: bool,
}

impl<W> Member<W> {
    /// Its deadline begins, unless it has.
    fn date(&mut self, now: Time) {
        if self.due == UNDATED {
            self.due = now.saturating_add(self.request.deadline);
        }
    }
}

impl<W> Queue<W> {
    /// Whether nobody is in it and no call in flight: a newcomer may go straight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_none() && self.backlog.is_empty()
    }

    /// How many stand in it that no call has asked for yet.
    pub(crate) fn fresh(&self) -> usize {
        self.backlog.len() - self.asked_before
    }

    /// A request arrives. `now` is asked for the time only where the answer depends on it.
    pub(crate) fn arrive(
        &mut self,
        now: impl Fn() -> Time,
        request: Request,
        waker: Option<W>,
    ) -> Arrival {
        if let Some(block) = &mut self.block
            && !self.ask_now
            && let now = now()
            && now < block.ask_at
        {
            block.demand = block.demand.saturating_add(request.permits);
            match block.prospect(request.patience) {
                Prospect::Hopeless => {
                    block.demand -= request.permits;
                    return Arrival::Refused(wait_until(block.tail_at, now));
                }
                Prospect::Open => self.ask_now = true,
                Prospect::Good => {}
            }
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let place = self.fresh();
        if let Patience::Until(end) = request.patience {
            self.earliest = self.earliest.min(end);
        }
        let due = if self.slow { now().saturating_add(request.deadline) } else { UNDATED };
        self.backlog.push_back(Member { ticket, request, waker, due, free_at: 0, gone: false });
        Arrival::Queued { ticket, place }
    }

    /// Decides what to do now. A [`Step::Call`] must be sent, and answered by
    /// [`replied`](Self::replied) or [`failed`](Self::failed).
    pub(crate) fn step(&mut self, now: Time) -> Turn<W> {
        let refused = self.refuse_hopeless(now);
        Turn { step: self.next(now), refused }
    }

    fn next(&mut self, now: Time) -> Step {
        if self.flight.is_some() {
            return Step::InFlight;
        }
        let mut due = Time::MAX;
        if let Some(block) = &self.block
            && !self.ask_now
            && !self.backlog.is_empty()
        {
            if now < block.ask_at {
                return Step::SleepUntil(block.ask_at.min(self.earliest.max(now + 1)));
            }
            let mut fresh = self.backlog.range(self.asked_before..);
            if now >= block.head_at && fresh.all(|m| m.request.patience.outlasts(now)) {
                due = now + 1000;
            }
        }
        match self.board(now, due) {
            Some(call) => Step::Call(call),
            None if self.backlog.is_empty() => Step::Idle,
            None => self.next(now),
        }
    }

    /// A caller gives up.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Abandoned {
        if let Some(member) = self.in_flight(ticket) {
            if member.gone {
                return Abandoned::Settled;
            }
            member.gone = true;
            member.waker = None;
            return Abandoned::InFlight;
        }
        let Some(index) = self.find(ticket) else { return Abandoned::Settled };
        if self.backlog[index].gone {
            return Abandoned::Settled;
        }
        if index < self.asked_before {
            self.backlog.remove(index);
            self.asked_before -= 1;
            if let Some(block) = &mut self.block {
                // Those behind it may be served earlier than was said.
                block.tail_at = block.head_at;
                self.ask_now |= index == 0;
            }
        } else {
            self.backlog[index].gone = true;
            self.backlog[index].waker = None;
            self.drop_gone_tail();
        }
        if self.backlog.is_empty() {
            self.block = None;
        }
        Abandoned::Unsent
    }

    /// Replaces what wakes a caller that is not settled yet.
    pub(crate) fn set_waker(&mut self, ticket: Ticket, waker: W) {
        if let Some(member) = self.in_flight(ticket) {
            member.waker = Some(waker);
        } else if let Some(index) = self.find(ticket) {
            self.backlog[index].waker = Some(waker);
        }
    }

    /// Gives a caller that is not settled yet something to be woken by, unless it has.
    pub(crate) fn leave_waker(&mut self, ticket: Ticket, waker: W) {
        if let Some(member) = self.in_flight(ticket) {
            member.waker.get_or_insert(waker);
        }
    }

    /// The call in flight takes long: the deadlines of those who stand behind it begin.
    pub(crate) fn call_is_slow(&mut self, now: Time) {
        if self.flight.is_some() && !self.slow {
            self.slow = true;
            self.backlog.iter_mut().for_each(|member| member.date(now));
        }
    }

    /// Permits may have come back, or the rate may have changed: ask at once.
    pub(crate) fn ask_again(&mut self) {
        self.ask_now |= self.block.is_some();
    }

    /// Empties the queue but for the call in flight; answers who stood in it.
    pub(crate) fn drain(&mut self) -> Vec<(Ticket, Option<W>)> {
        self.asked_before = 0;
        self.block = None;
        self.ask_now = false;
        let all = self.backlog.drain(..).filter(|member| !member.gone);
        all.map(|member| (member.ticket, member.waker)).collect()
    }

    /// Fresh members that have given up are dropped once nobody stands behind them.
    fn drop_gone_tail(&mut self) {
        while self.fresh() > 0 && self.backlog.back().is_some_and(|member| member.gone) {
            self.backlog.pop_back();
        }
    }

    fn in_flight(&mut self, ticket: Ticket) -> Option<&mut Member<W>> {
        let members = &mut self.flight.as_mut()?.members;
        let index = members.binary_search_by_key(&ticket, |member| member.ticket).ok()?;
        members.get_mut(index)
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.backlog.binary_search_by_key(&ticket, |member| member.ticket).ok()
    }
}
