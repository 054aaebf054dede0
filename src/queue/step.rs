//! What to do next: send a call, sleep, or wait for an answer; and who is refused before it.

use super::batch::MAX_GROUPS;
use super::events::{MaxWait, Step, Ticket, Time, Turn};
use super::head_block::{Feasibility, wait_until};
use super::state::Queue;
use crate::store::Wait;

impl<W, A> Queue<W, A> {
    /// Decides what to do now. A [`Step::Call`] must be sent, and answered by
    /// [`replied`](Self::replied) or [`failed`](Self::failed).
    pub(crate) fn step(&mut self, now: Time) -> Turn<W> {
        let refused = self.refuse_too_late(now);
        let step = self.next(now);
        self.check();
        Turn { step, refused }
    }

    fn next(&mut self, now: Time) -> Step {
        if self.in_flight.is_some() {
            return Step::InFlight;
        }
        // Those that can be served by then go into the call.
        let mut served_by = Time::MAX;
        if let Some(block) = &self.head_block
            && !self.ask_now
            && !self.pending.is_empty()
        {
            if now < block.ask_at {
                return Step::SleepUntil(block.ask_at.min(self.earliest_end.max(now + 1)));
            }
            // A head that is held back is asked for together with those behind it that are due:
            // alone, it would be asked for again and again.
            let is_head_due = self.pending.front().is_some_and(|head| head.free_at <= now + 1000);
            let mut unanswered = self.pending.iter().filter(|waiter| !waiter.has_server_answer);
            if now >= block.head_at
                && is_head_due
                && unanswered.all(|w| w.request.max_wait.lasts_beyond(now))
            {
                served_by = now + 1000;
            }
        }
        match self.take_batch(now, served_by) {
            Some(call) => Step::Call(call),
            None if self.pending.is_empty() => Step::Idle,
            None => self.next(now),
        }
    }

    /// Takes out those that cannot be served in time behind a blocked head.
    fn refuse_too_late(&mut self, now: Time) -> Vec<(Ticket, Wait, Option<W>)> {
        let mut refused = Vec::new();
        let Some(block) = &self.head_block else { return refused };
        let nothing_to_decide = self.feasibility_known && now < self.earliest_end;
        if self.ask_now || now >= block.ask_at || nothing_to_decide {
            return refused;
        }
        self.feasibility_known = true;
        self.earliest_end = Time::MAX;
        let first_new = self.first_new();
        let is_reachable = self.pending.len() <= MAX_GROUPS && !self.has_reservation();
        for (index, waiter) in self.pending.iter_mut().enumerate() {
            let too_late = match waiter.request.max_wait {
                _ if waiter.cancelled => false,
                _ if !waiter.has_server_answer => match block.feasibility(waiter.request) {
                    Feasibility::TooLate => true,
                    Feasibility::Unknown if is_reachable => {
                        self.ask_now = true;
                        false
                    }
                    // Kept any longer it would have the queue look again and again.
                    Feasibility::Unknown => !waiter.request.max_wait.lasts_beyond(now),
                    Feasibility::InTime => false,
                },
                // The server said that it can be served in time.
                MaxWait::None => true,
                MaxWait::Until(end) => end <= now && end < block.head_at,
                MaxWait::Unbounded => false,
            };
            if too_late {
                let wait = wait_until(waiter.free_at.max(block.head_at), now);
                refused.push((waiter.ticket, wait, waiter.cancel()));
                self.ask_now |= index == 0;
            } else if let MaxWait::Until(end) = waiter.request.max_wait {
                self.earliest_end = self.earliest_end.min(end);
            }
        }
        if !refused.is_empty() {
            self.remove_cancelled_before(first_new);
            self.drop_cancelled_tail();
            self.unblock_if_empty();
        }
        refused
    }

    /// Permits may have come back, or the rate may have changed: ask at once.
    pub(crate) fn ask_now(&mut self) {
        self.ask_now |= self.head_block.is_some();
    }
}
