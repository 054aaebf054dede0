//! The call in flight: what becomes of those that it asks for.

use super::block::Block;
use super::runs::align;
use super::{Call, Member, Patience, Queue, Settled, Ticket, Time, UNDATED};
use crate::store::{Outcome, OutcomeGroup};

/// A blocked queue asks again after so long at the latest: permits may have come back, or the rate
/// may have been raised, by another process.
const ASK_EVERY: Time = 1_000_000;

#[derive(Debug)]
pub(super) struct Flight<W> {
    pub(super) members: Vec<Member<W>>,
    /// How many of them are not fresh.
    pub(super) asked_before: usize,
    /// Places of members that gave up before the call was sent, and were left out of it.
    pub(super) left_out: Vec<usize>,
}

impl<W> Queue<W> {
    /// Whether the call in flight asks for somebody who has waited already.
    pub(crate) fn asks_again(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.asked_before > 0)
    }

    /// A call that asks for nobody in the queue is sent, while nobody stands in it. It is answered
    /// as any other, with no outcomes.
    pub(crate) fn call_for_nobody(&mut self) -> Call {
        debug_assert!(self.is_idle());
        self.flight = Some(Flight { members: Vec::new(), asked_before: 0, left_out: Vec::new() });
        Call { groups: Vec::new(), create: None, due: Time::MAX }
    }

    /// The call in flight was answered. `dated` is the time at which the millisecond of the
    /// answer's date began; waits count from there.
    pub(crate) fn replied(
        &mut self,
        now: Time,
        dated: Time,
        rate: (u64, Time),
        mut outcomes: Vec<OutcomeGroup>,
    ) -> Settled<W> {
        let Some(Flight { members, asked_before, left_out }) = self.flight.take() else {
            return Settled::nothing();
        };
        self.slow = false;
        align(&mut outcomes, &left_out);
        let mut settled = Settled {
            wake: Vec::with_capacity(members.len()),
            outcomes: Vec::new(),
            fresh_from: asked_before,
            fresh: members.len() - asked_before,
            late: Vec::new(),
            granted: 0,
            unwanted: 0,
        };
        let mut back = Vec::new();
        let mut head_at = None;
        let mut waits = false;
        let mut room = members;
        let mut members = room.drain(..);
        let mut place = 0;
        for group in &outcomes {
            for mut member in members.by_ref().take(group.count as usize) {
                match group.outcome {
                    Outcome::Waiting(wait) => {
                        member.free_at = dated.saturating_add(wait.ms.saturating_mul(1000));
                        // What was learnt of a head that is gone says nothing of the next.
                        self.ask_now |= head_at.is_none() && member.gone;
                        head_at.get_or_insert(member.free_at);
                        if !member.gone {
                            waits = true;
                            back.push(member);
                        }
                    }
                    Outcome::Undecided => {
                        self.ask_now = true;
                        if !member.gone {
                            back.push(member);
                        }
                    }
                    Outcome::Granted if member.gone => {
                        settled.granted += member.request.permits;
                        settled.unwanted += member.request.permits;
                    }
                    outcome => {
                        if outcome == Outcome::Granted {
                            settled.granted += member.request.permits;
                        }
                        if place < asked_before && !member.gone {
                            settled.late.push((member.ticket, place));
                        }
                        settled.wake.extend(member.waker);
                    }
                }
                place += 1;
            }
        }
        drop(members);
        self.keep_room(room, place);
        settled.outcomes = outcomes;
        self.requeue(back, waits);
        if let (Some(head_at), false) = (head_at, self.backlog.is_empty()) {
            let waiting = self.backlog.iter().filter(|member| !member.gone);
            self.block = Some(Block {
                head_at,
                tail_at: waiting
                    .clone()
                    .map(|member| member.free_at)
                    .max()
                    .unwrap_or(0)
                    .max(head_at),
                ask_at: head_at.min(now.saturating_add(ASK_EVERY)),
                rate: rate.0,
                interval: rate.1,
                demand: waiting.map(|member| member.request.permits).sum(),
            });
        }
        settled
    }

    /// The call in flight failed for good: all that it asked for fail with it.
    pub(crate) fn failed(&mut self) -> Settled<W> {
        let Some(Flight { members, asked_before, .. }) = self.flight.take() else {
            return Settled::nothing();
        };
        self.slow = false;
        self.block = None;
        Settled {
            late: members[..asked_before]
                .iter()
                .enumerate()
                .filter(|(_, member)| !member.gone)
                .map(|(place, member)| (member.ticket, place))
                .collect(),
            outcomes: Vec::new(),
            fresh_from: asked_before,
            fresh: members.len() - asked_before,
            wake: members.into_iter().filter_map(|member| member.waker).collect(),
            granted: 0,
            unwanted: 0,
        }
    }

    /// The call in flight found no limiter, and its first request creates none: those before the
    /// first that does fail, as they would have had they come alone, and the others ask again.
    pub(crate) fn uninitialized(&mut self) -> Settled<W> {
        let Some(flight) = &mut self.flight else { return Settled::nothing() };
        let creates = |member: &Member<W>| !member.gone && member.request.create.is_some();
        let first = flight.members.iter().position(creates).filter(|first| *first > 0);
        let mut back = flight.members.split_off(first.unwrap_or(flight.members.len()));
        flight.asked_before = flight.asked_before.min(flight.members.len());
        back.retain(|member| !member.gone);
        let settled = self.failed();
        self.requeue(back, false);
        settled
    }

    /// Gives up on those in flight whose own deadline has passed, and answers who they are and
    /// when the next one's passes; never, where nobody is left who wants the answer.
    pub(crate) fn overdue(&mut self, now: Time) -> (Vec<(Ticket, Option<W>)>, Option<Time>) {
        let mut overdue = Vec::new();
        let mut next = None;
        for member in self.flight.iter_mut().flat_map(|flight| &mut flight.members) {
            if member.gone {
                continue;
            }
            if member.due <= now {
                member.gone = true;
                overdue.push((member.ticket, member.waker.take()));
            } else {
                next = Some(next.map_or(member.due, |next: Time| next.min(member.due)));
            }
        }
        (overdue, next)
    }

    /// Keeps the room of a call's members, unless it is much larger than what was needed.
    fn keep_room(&mut self, room: Vec<Member<W>>, needed: usize) {
        const SMALL: usize = 64;
        if room.capacity() <= SMALL.max(4 * needed) {
            self.spare = room;
        }
    }

    /// Gives up on those behind the call in flight whose own deadline has passed, and answers who
    /// they are.
    pub(crate) fn overdue_behind(&mut self, now: Time) -> Vec<(Ticket, Option<W>)> {
        let mut overdue = Vec::new();
        let mut index = 0;
        let asked = self.asked_before;
        let asked_before = &mut self.asked_before;
        self.backlog.retain_mut(|member| {
            let fresh = index >= asked;
            index += 1;
            if member.gone || now < member.due {
                return true;
            }
            member.gone = true;
            overdue.push((member.ticket, member.waker.take()));
            // A fresh one keeps its place for the sake of those behind it.
            if !fresh {
                *asked_before -= 1;
            }
            fresh
        });
        self.drop_gone_tail();
        overdue
    }

    fn requeue(&mut self, back: Vec<Member<W>>, waits: bool) {
        self.asked_before += back.len();
        for member in back.into_iter().rev() {
            self.backlog.push_front(member);
        }
        if waits {
            // A wait for permits does not count: the deadlines begin with the next call.
            self.backlog.iter_mut().for_each(|member| member.due = UNDATED);
        }
        self.earliest = Time::MAX;
        for member in &self.backlog {
            if let Patience::Until(end) = member.request.patience {
                self.earliest = self.earliest.min(end);
            }
        }
    }
}
