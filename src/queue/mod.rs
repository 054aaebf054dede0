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

use crate::rate::MAX_EXACT;
use crate::store::{Outcome, OutcomeRun, Run, Wait};

#[cfg(test)]
mod tests;

/// Microseconds since an origin of the shell's choosing.
pub(crate) type Time = u64;

/// A request's number, in order of arrival.
pub(crate) type Ticket = u64;

/// The most requests in one call.
const MAX_REQUESTS: usize = 8192;

/// The most runs in one call: what a call costs the server grows with its runs, not its requests.
const MAX_RUNS: usize = 256;

/// A blocked queue asks again after so long at the latest: permits may have come back, or the rate
/// may have been raised, by another process.
const ASK_EVERY: Time = 1_000_000;

/// How long a request can wait for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Patience {
    None,
    Until(Time),
    Endless,
}

/// A request of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) permits: u64,
    pub(crate) patience: Patience,
    /// How long a call may take in which this request is asked, in microseconds.
    pub(crate) deadline: Time,
    /// It creates the limiter where there is none: which of the rates that the shell knows.
    pub(crate) create: Option<u16>,
}

/// What became of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It stands in the queue. `place` is its place among the fresh ones: see [`Settled::fresh`].
    Queued { ticket: Ticket, place: usize },
    /// It cannot be served in time: a request that waits stands before it.
    Refused(Wait),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these runs; the call is in flight from now on.
    Call(Call),
    /// Nothing before this time, unless something happens.
    SleepUntil(Time),
    /// A call is in flight.
    InFlight,
    /// Nobody stands in the queue.
    Idle,
}

/// A call to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) runs: Vec<Run>,
    /// What its first request creates where there is no limiter. Had they been asked one by one,
    /// those before the first that creates would have failed: see [`Queue::uninitialized`].
    pub(crate) create: Option<u16>,
    /// The first of the callers' deadlines.
    pub(crate) due: Time,
}

/// What to do next, and who is refused before it.
#[derive(Debug)]
pub(crate) struct Turn<W> {
    pub(crate) step: Step,
    /// Behind a head that is known not to fit they can no longer be served in time.
    pub(crate) refused: Vec<(Ticket, Wait, Option<W>)>,
}

/// What a call's answer settles.
#[derive(Debug)]
pub(crate) struct Settled<W> {
    /// The callers to wake.
    pub(crate) wake: Vec<W>,
    /// The call's outcomes, aligned to its members: first those that had been asked before, then,
    /// from `fresh_from` on, the fresh ones by their places. A fresh one past the end, or with
    /// `Waiting` or `Undecided`, still stands in the queue and is settled late.
    pub(crate) outcomes: Vec<OutcomeRun>,
    pub(crate) fresh_from: usize,
    /// How many fresh ones the call asked for.
    pub(crate) fresh: usize,
    /// Requests that are settled now, but are not fresh: ticket, and place in `outcomes`.
    pub(crate) late: Vec<(Ticket, usize)>,
    /// The permits that the call was granted in all.
    pub(crate) granted: u64,
    /// Those of them that were granted to callers that have given up.
    pub(crate) unwanted: u64,
}

/// What a caller that gives up leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// It was never sent and never will be.
    Unsent,
    /// It is in flight: what it is granted counts as unwanted.
    InFlight,
    /// It is settled already.
    Settled,
}

#[derive(Debug)]
struct Member<W> {
    ticket: Ticket,
    request: Request,
    waker: Option<W>,
    /// When the call that asks for it is late, see [`Queue::overdue`].
    due: Time,
    /// It cannot be served before this.
    free_at: Time,
    /// Its caller has given up, or has been told.
    gone: bool,
}

#[derive(Debug)]
struct Flight<W> {
    members: Vec<Member<W>>,
    /// How many of them are not fresh.
    asked_before: usize,
    /// Places of members that gave up before the call was sent, and were left out of it.
    left_out: Vec<usize>,
}

/// The head of the queue is known not to fit yet.
#[derive(Debug)]
struct Block {
    /// When the head can be served.
    head_at: Time,
    /// Whoever comes now cannot be served before this.
    tail_at: Time,
    /// The next question: `head_at`, or earlier to notice what others changed.
    ask_at: Time,
    /// Permits an interval.
    rate: u64,
    /// In microseconds.
    interval: Time,
    /// The permits that stand in the queue.
    demand: u64,
}

/// What a blocked queue means for a request that has not been asked for.
enum Prospect {
    /// It cannot be served in time.
    Hopeless,
    /// Only the server can tell.
    Open,
    /// Nobody else drawing, it is served in time.
    Good,
}

impl Block {
    fn prospect(&self, patience: Patience) -> Prospect {
        let end = match patience {
            Patience::None => return Prospect::Hopeless,
            Patience::Until(end) => end,
            Patience::Endless => return Prospect::Good,
        };
        let rounds = self.demand / self.rate.max(1) + 1;
        if end < self.tail_at {
            Prospect::Hopeless
        } else if end < self.tail_at.saturating_add(rounds.saturating_mul(self.interval)) {
            Prospect::Open
        } else {
            Prospect::Good
        }
    }
}

/// The queue of one limiter in one client.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    next_ticket: Ticket,
    /// All that are not in flight, in order of arrival.
    backlog: VecDeque<Member<W>>,
    /// How many at its front are not fresh.
    asked_before: usize,
    flight: Option<Flight<W>>,
    block: Option<Block>,
    /// Ask although the queue is blocked.
    ask_now: bool,
    /// No deadline in the backlog is earlier.
    earliest: Time,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue {
            next_ticket: 0,
            backlog: VecDeque::new(),
            asked_before: 0,
            flight: None,
            block: None,
            ask_now: false,
            earliest: Time::MAX,
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

    /// A request arrives.
    pub(crate) fn arrive(&mut self, now: Time, request: Request, waker: Option<W>) -> Arrival {
        if let Some(block) = &mut self.block
            && !self.ask_now
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
        let due = now.saturating_add(request.deadline);
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
            if now >= block.head_at && fresh.all(|m| m.request.patience != Patience::None) {
                due = now + 1000;
            }
        }
        match self.board(now, due) {
            Some(call) => Step::Call(call),
            None if self.backlog.is_empty() => Step::Idle,
            None => self.next(now),
        }
    }

    /// Takes out those who, behind a head that is known not to fit, cannot be served in time.
    fn refuse_hopeless(&mut self, now: Time) -> Vec<(Ticket, Wait, Option<W>)> {
        let mut refused = Vec::new();
        let Some(block) = &self.block else { return refused };
        let nothing_to_judge = self.fresh() == 0 && now < self.earliest;
        if self.ask_now || now >= block.ask_at || nothing_to_judge {
            return refused;
        }
        self.earliest = Time::MAX;
        let mut index = 0;
        while index < self.backlog.len() {
            let asked = index < self.asked_before;
            let member = &mut self.backlog[index];
            let hopeless = match block.prospect(member.request.patience) {
                _ if member.gone => false,
                Prospect::Hopeless if !asked => true,
                Prospect::Open if !asked => {
                    self.ask_now = true;
                    false
                }
                // Those who were asked for were told that they can be served in time.
                _ => match member.request.patience {
                    Patience::None => true,
                    Patience::Until(end) => end <= now && end < block.head_at,
                    Patience::Endless => false,
                },
            };
            if hopeless {
                let wait = wait_until(member.free_at.max(block.head_at), now);
                refused.push((member.ticket, wait, member.waker.take()));
                // A fresh one keeps its place for the sake of those behind it.
                member.gone = true;
                self.ask_now |= index == 0;
            } else if let Patience::Until(end) = member.request.patience {
                self.earliest = self.earliest.min(end);
            }
            if asked && member.gone {
                self.backlog.remove(index);
                self.asked_before -= 1;
            } else {
                index += 1;
            }
        }
        self.drop_gone_tail();
        if self.backlog.is_empty() {
            self.block = None;
        }
        refused
    }

    /// Whether the call in flight asks for somebody who has waited already.
    pub(crate) fn asks_again(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.asked_before > 0)
    }

    /// A call that asks for nobody in the queue is sent, while nobody stands in it. It is answered
    /// as any other, with no outcomes.
    pub(crate) fn call_for_nobody(&mut self) -> Call {
        debug_assert!(self.is_idle());
        self.flight = Some(Flight { members: Vec::new(), asked_before: 0, left_out: Vec::new() });
        Call { runs: Vec::new(), create: None, due: Time::MAX }
    }

    /// The call in flight was answered. `dated` is the time at which the millisecond of the
    /// answer's date began; waits count from there.
    pub(crate) fn replied(
        &mut self,
        now: Time,
        dated: Time,
        rate: (u64, Time),
        mut outcomes: Vec<OutcomeRun>,
    ) -> Settled<W> {
        let Some(Flight { members, asked_before, left_out }) = self.flight.take() else {
            return Settled::nothing();
        };
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
        let mut members = members.into_iter();
        let mut place = 0;
        for run in &outcomes {
            for mut member in members.by_ref().take(run.count as usize) {
                match run.outcome {
                    Outcome::Waiting(wait) => {
                        member.free_at = dated.saturating_add(wait.ms.saturating_mul(1000));
                        // What was learnt of a head that is gone says nothing of the next.
                        self.ask_now |= head_at.is_none() && member.gone;
                        head_at.get_or_insert(member.free_at);
                        if !member.gone {
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
        settled.outcomes = outcomes;
        self.requeue(back);
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
        self.requeue(back);
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

    /// Moves the front of the backlog into a call: those who can be served by `due`, and one more
    /// who tells when to ask next. `None`: only callers that have given up stood there.
    fn board(&mut self, now: Time, due: Time) -> Option<Call> {
        let mut runs: Vec<Run> = Vec::new();
        let mut left_out = Vec::new();
        let (mut boarded, mut requests) = (0, 0);
        let mut one_more = false;
        let mut create = None;
        let mut first_due = Time::MAX;
        for member in &self.backlog {
            if boarded == MAX_REQUESTS || one_more {
                break;
            }
            if member.gone {
                left_out.push(boarded);
                boarded += 1;
                continue;
            }
            one_more = member.free_at > due;
            let permits = member.request.permits;
            let patience_ms = match member.request.patience {
                Patience::None => 0,
                Patience::Until(end) => end.saturating_sub(now) / 1000,
                Patience::Endless => MAX_EXACT,
            };
            let full = runs.len() == MAX_RUNS;
            match runs.last_mut() {
                Some(run) if run.permits == permits && run.patience_ms == patience_ms => {
                    run.count += 1;
                }
                _ if full => break,
                _ => runs.push(Run { permits, patience_ms, count: 1 }),
            }
            if requests == 0 {
                create = member.request.create;
            }
            requests += 1;
            boarded += 1;
        }
        let asked_before = boarded.min(self.asked_before);
        let mut members: Vec<_> = self.backlog.drain(..boarded).collect();
        for member in &mut members[..asked_before] {
            member.due = now.saturating_add(member.request.deadline);
        }
        for member in members.iter().filter(|member| !member.gone) {
            first_due = first_due.min(member.due);
        }
        // Whoever found no room is no longer fresh: the next fresh ones have places of their own.
        self.asked_before = self.backlog.len();
        self.block = None;
        self.ask_now = false;
        if runs.is_empty() {
            return None;
        }
        self.flight = Some(Flight { members, asked_before, left_out });
        Some(Call { runs, create, due: first_due })
    }

    fn requeue(&mut self, back: Vec<Member<W>>) {
        self.asked_before += back.len();
        for member in back.into_iter().rev() {
            self.backlog.push_front(member);
        }
        self.earliest = Time::MAX;
        for member in &self.backlog {
            if let Patience::Until(end) = member.request.patience {
                self.earliest = self.earliest.min(end);
            }
        }
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

impl<W> Settled<W> {
    fn nothing() -> Self {
        Settled {
            wake: Vec::new(),
            outcomes: Vec::new(),
            fresh_from: 0,
            fresh: 0,
            late: Vec::new(),
            granted: 0,
            unwanted: 0,
        }
    }
}

/// At least so long until `then`, in whole milliseconds.
fn wait_until(then: Time, now: Time) -> Wait {
    Wait { ms: then.saturating_sub(now).div_ceil(1000).max(1), at_least: true }
}

/// Makes room in the outcomes for members that were left out of the call. Their own outcome is
/// never read.
fn align(outcomes: &mut Vec<OutcomeRun>, left_out: &[usize]) {
    let gap = OutcomeRun { count: 1, outcome: Outcome::ExceedsRate };
    let mut from = 0;
    let mut run = 0;
    for &place in left_out {
        while run < outcomes.len() && from + outcomes[run].count as usize <= place {
            from += outcomes[run].count as usize;
            run += 1;
        }
        let before = (place - from) as u64;
        if before > 0 {
            let rest = OutcomeRun { count: outcomes[run].count - before, ..outcomes[run] };
            outcomes[run].count = before;
            outcomes.insert(run + 1, rest);
            from += before as usize;
            run += 1;
        }
        outcomes.insert(run, gap);
        from += 1;
        run += 1;
    }
}
