//! A queue with its callers and a server, in virtual time.

use std::collections::VecDeque;

use super::*;
use crate::queue::{Abandoned, Arrival, Step, Turn};
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait};

/// Permits that are free again an interval after they were granted: nothing else.
pub(super) struct Server {
    pub(super) rate: u64,
    pub(super) interval_ms: u64,
    pub(super) left: u64,
    /// When granted permits come back, in ms.
    pub(super) log: VecDeque<(u64, u64)>,
    pub(super) granted: u64,
    pub(super) calls: u64,
}

impl Server {
    pub(super) fn new(rate: u64, interval_ms: u64) -> Self {
        Server { rate, interval_ms, left: rate, log: VecDeque::new(), granted: 0, calls: 0 }
    }

    /// When the permits behind `need` more than are left have come back.
    pub(super) fn wait(&self, mut need: u64, now_ms: u64) -> u64 {
        let mut rounds = 0;
        while need > self.rate {
            need -= self.rate;
            rounds += 1;
        }
        let mut wait = 0;
        for &(back, permits) in &self.log {
            if need == 0 {
                break;
            }
            wait = back - now_ms;
            need = need.saturating_sub(permits);
        }
        (wait + rounds * self.interval_ms).max(1)
    }

    pub(super) fn decide(&mut self, groups: &[RequestGroup], now_ms: u64) -> Vec<OutcomeGroup> {
        self.calls += 1;
        while self.log.front().is_some_and(|&(back, _)| back <= now_ms) {
            self.left += self.log.pop_front().unwrap().1;
        }
        let mut outcomes = Vec::new();
        let mut before = 0;
        for group in groups {
            for _ in 0..group.count {
                let outcome = if group.permits > self.rate {
                    Outcome::ExceedsRate
                } else if before == 0 && group.permits <= self.left {
                    self.left -= group.permits;
                    self.granted += group.permits;
                    self.log.push_back((now_ms + self.interval_ms, group.permits));
                    Outcome::Granted
                } else {
                    let need = before + group.permits - self.left;
                    let wait = Wait { ms: self.wait(need, now_ms), at_least: false };
                    if wait.ms > group.patience_ms {
                        Outcome::Refused(wait)
                    } else {
                        before += group.permits;
                        Outcome::Waiting(wait)
                    }
                };
                outcomes.push(OutcomeGroup { count: 1, outcome });
            }
        }
        outcomes
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Pending,
    Granted,
    Refused,
    Exceeds,
    Abandoned,
    Overdue,
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) request: Request,
    /// The batch of fresh ones it came with, and its place there.
    pub(super) batch: u64,
    pub(super) place: usize,
    pub(super) arrived: Time,
    pub(super) fate: Fate,
    pub(super) calls_begun_before: u64,
}

/// A queue, its callers and its server: what the shell does, step by step.
pub(super) struct World {
    pub(super) queue: Queue<Ticket>,
    pub(super) server: Server,
    pub(super) now: Time,
    pub(super) latency: Time,
    /// The answer under way: when it arrives, when it was dated, the batch it was boarded with.
    pub(super) answer: Option<(Time, Time, u64, Vec<OutcomeGroup>)>,
    pub(super) batch: u64,
    pub(super) callers: Vec<Caller>,
    pub(super) unwanted: u64,
    pub(super) calls: u64,
}

impl World {
    pub(super) fn new(server: Server, latency: Time) -> Self {
        World {
            queue: Queue::default(),
            server,
            now: 0,
            latency,
            answer: None,
            batch: 0,
            callers: Vec::new(),
            unwanted: 0,
            calls: 0,
        }
    }

    pub(super) fn arrive(&mut self, permits: u64, patience: Option<Time>) -> usize {
        let patience = match patience {
            None => Patience::Endless,
            Some(0) => Patience::None,
            Some(time) => Patience::Until(self.now + time),
        };
        let request = Request { permits, patience, deadline: DEADLINE, create: None };
        let ticket = self.queue.next_ticket;
        let (place, fate) = match self.queue.arrive(|| self.now, request, Some(ticket)) {
            Arrival::Queued { ticket: given, place } => {
                assert_eq!(given, ticket);
                (place, Fate::Pending)
            }
            Arrival::Refused(_) => {
                // It takes no ticket: keep the callers' numbers and the tickets one.
                self.queue.next_ticket += 1;
                (0, Fate::Refused)
            }
        };
        self.callers.push(Caller {
            request,
            batch: self.batch,
            place,
            arrived: self.now,
            fate,
            calls_begun_before: self.calls,
        });
        self.turn();
        ticket as usize
    }

    pub(super) fn abandon(&mut self, caller: usize) {
        if self.callers[caller].fate == Fate::Pending {
            let abandoned = self.queue.abandon(caller as Ticket);
            assert_ne!(abandoned, Abandoned::Settled);
            self.callers[caller].fate = Fate::Abandoned;
        }
        self.turn();
    }

    /// The call in flight takes long: those behind it whose deadline has passed are told.
    pub(super) fn slow(&mut self) {
        self.queue.call_is_slow(self.now);
        for (ticket, waker) in self.queue.overdue_behind(self.now) {
            assert_eq!(waker, Some(ticket));
            assert!(self.callers[ticket as usize].arrived + DEADLINE <= self.now);
            self.settle(ticket as usize, Fate::Overdue);
        }
        self.turn();
    }

    /// Lets the queue do what it wants to do now; answers when it wants to be called again.
    pub(super) fn turn(&mut self) -> Option<Time> {
        loop {
            let Turn { step, refused } = self.queue.step(self.now);
            for (ticket, wait, waker) in refused {
                assert_eq!(waker, Some(ticket));
                assert!(wait.ms > 0);
                self.settle(ticket as usize, Fate::Refused);
            }
            match step {
                Step::Call(call) => {
                    assert!(self.answer.is_none(), "two calls in flight");
                    self.calls += 1;
                    let outcomes = self.server.decide(&call.groups, self.now / MS);
                    let dated = self.now / MS * MS;
                    self.answer = Some((self.now + self.latency, dated, self.batch, outcomes));
                    self.batch += 1;
                }
                Step::SleepUntil(time) => {
                    assert!(time > self.now);
                    return Some(time);
                }
                Step::InFlight => return self.answer.as_ref().map(|answer| answer.0),
                Step::Idle => return None,
            }
        }
    }

    pub(super) fn land(&mut self) {
        let (_, dated, batch, outcomes) = self.answer.take().unwrap();
        let rate = (self.server.rate, self.server.interval_ms * MS);
        let settled = self.queue.replied(self.now, dated, rate, outcomes);
        self.unwanted += settled.unwanted;
        let flat: Vec<Outcome> = settled
            .outcomes
            .iter()
            .flat_map(|group| std::iter::repeat_n(group.outcome, group.count as usize))
            .collect();
        let mut told = Vec::new();
        for (ticket, place) in settled.late {
            told.push((ticket as usize, flat[place]));
        }
        for (index, caller) in self.callers.iter().enumerate() {
            if caller.batch == batch && caller.fate == Fate::Pending {
                told.extend(flat.get(settled.fresh_from + caller.place).map(|&o| (index, o)));
            }
        }
        told.sort_by_key(|(ticket, _)| *ticket);
        let mut wake = settled.wake;
        wake.sort();
        let mut woken = Vec::new();
        for (index, outcome) in told {
            let fate = match outcome {
                Outcome::Granted => Fate::Granted,
                Outcome::Refused(_) => Fate::Refused,
                Outcome::ExceedsRate => Fate::Exceeds,
                Outcome::Waiting(_) | Outcome::Undecided => continue,
            };
            self.settle(index, fate);
            woken.push(index as Ticket);
        }
        assert_eq!(wake, woken, "exactly those who are told are woken");
        self.turn();
    }

    pub(super) fn settle(&mut self, index: usize, fate: Fate) {
        assert_eq!(self.callers[index].fate, Fate::Pending, "told once");
        if fate == Fate::Granted {
            let overtaken = self.callers[..index].iter().position(|c| c.fate == Fate::Pending);
            assert_eq!(overtaken, None, "{index} was granted before one that came earlier");
        }
        let caller = &self.callers[index];
        if caller.request.patience == Patience::None {
            assert!(
                self.calls - caller.calls_begun_before <= 1,
                "a call that does not wait waited beyond its own call"
            );
        }
        if let (Fate::Refused, Patience::Until(end)) = (fate, caller.request.patience) {
            assert!(
                self.now <= end + 2 * self.latency + MS,
                "told at {} that it could not be served by {end}",
                self.now
            );
        }
        self.callers[index].fate = fate;
    }

    /// Lets time pass, with all that happens in it.
    pub(super) fn pass(&mut self, time: Time) {
        let until = self.now + time;
        loop {
            let next = self.turn();
            match next.filter(|&next| next <= until) {
                Some(next) => {
                    self.now = self.now.max(next);
                    if self.answer.as_ref().is_some_and(|answer| answer.0 <= self.now) {
                        self.land();
                    }
                }
                None => break,
            }
        }
        self.now = until;
    }

    pub(super) fn fate(&self, caller: usize) -> Fate {
        self.callers[caller].fate
    }

    pub(super) fn permits(&self, fate: Fate) -> u64 {
        self.callers.iter().filter(|c| c.fate == fate).map(|c| c.request.permits).sum()
    }
}
