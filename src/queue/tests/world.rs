//! A queue with its callers and a server, in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::queue::{Expired, Settled, Step};
use crate::rate::Rate;
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
                    let wait = Wait::of_ms(self.wait(need, now_ms), false);
                    if wait.ms() > group.max_wait_ms {
                        Outcome::Refused(wait, 0)
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
    ExceedsRate,
    Cancelled,
    TimedOut,
    Failed,
}

/// How the call in flight will end.
pub(super) enum Reply {
    Decided(Vec<OutcomeGroup>),
    Failed,
    Uninitialized,
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) request: Request,
    pub(super) arrived: Time,
    pub(super) fate: Fate,
    pub(super) calls_before: u64,
    pub(super) calls_that_left_some_before: u64,
}

/// A queue, its callers and its server: what the shell does, step by step.
pub(super) struct World {
    pub(super) queue: Queue<Ticket>,
    pub(super) server: Server,
    pub(super) now: Time,
    pub(super) latency: Time,
    /// The reply under way: when it arrives, and when it was dated.
    pub(super) reply: Option<(Time, Time, Reply)>,
    /// What the server has granted to the call in flight.
    pub(super) granted_in_flight: u64,
    /// There is a limiter, until it is deleted.
    pub(super) has_limiter: bool,
    /// How many calls had no room for all requests, or found no limiter.
    pub(super) calls_that_left_some: u64,
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
            reply: None,
            granted_in_flight: 0,
            has_limiter: true,
            calls_that_left_some: 0,
            callers: Vec::new(),
            unwanted: 0,
            calls: 0,
        }
    }

    pub(super) fn arrive(&mut self, permits: u64, max_wait: Option<Time>) -> usize {
        self.arrive_with(permits, max_wait, None)
    }

    pub(super) fn arrive_with(
        &mut self,
        permits: u64,
        max_wait: Option<Time>,
        create: Option<Rate>,
    ) -> usize {
        let max_wait = match max_wait {
            None => MaxWait::Unbounded,
            Some(0) => MaxWait::None,
            Some(time) => MaxWait::Until(self.now + time),
        };
        let create = create.map(Arc::new);
        let request = Request { permits, max_wait, deadline: DEADLINE, create, ..Request::ONE };
        let ticket = self.queue.next_ticket;
        let fate = match self.queue.arrive(|| self.now, request.clone(), ticket) {
            Ok(given) => {
                assert_eq!(given, ticket);
                Fate::Pending
            }
            Err(_) => {
                // It takes no ticket: keep the callers' numbers and the tickets one.
                self.queue.next_ticket += 1;
                Fate::Refused
            }
        };
        self.callers.push(Caller {
            request,
            arrived: self.now,
            fate,
            calls_before: self.calls,
            calls_that_left_some_before: self.calls_that_left_some,
        });
        self.run_queue();
        ticket as usize
    }

    pub(super) fn cancel(&mut self, caller: usize) {
        if self.callers[caller].fate == Fate::Pending {
            // It is dropped once no lock is held, and not in the queue.
            assert!(self.queue.cancel(caller as Ticket).is_some());
            self.callers[caller].fate = Fate::Cancelled;
        }
        self.run_queue();
    }

    /// The call in flight takes long: those whose deadline has passed are told.
    pub(super) fn call_is_slow(&mut self) {
        let Expired { in_flight, behind, .. } = self.queue.expire(self.now, false);
        for ticket in in_flight.into_iter().chain(behind) {
            let Caller { request, arrived, .. } = &self.callers[ticket as usize];
            assert!(request.due(*arrived) <= self.now);
            self.end(ticket as usize, Fate::TimedOut);
        }
        self.run_queue();
    }

    /// Lets the queue do what it wants to do now; returns when it wants to be called again.
    pub(super) fn run_queue(&mut self) -> Option<Time> {
        loop {
            let (step, refused) = self.queue.step(self.now);
            for (ticket, wait) in refused {
                assert!(wait.ms() > 0);
                self.end(ticket as usize, Fate::Refused);
            }
            match step {
                Step::Call(call) => {
                    assert!(self.reply.is_none(), "two calls in flight");
                    self.calls += 1;
                    self.has_limiter |= call.create.is_some();
                    let before = self.server.granted;
                    let reply = match self.has_limiter {
                        true => Reply::Decided(self.server.decide(&call.groups, self.now / MS)),
                        false => Reply::Uninitialized,
                    };
                    self.granted_in_flight = self.server.granted - before;
                    let left_some = self.queue.pending() > 0;
                    self.calls_that_left_some += u64::from(left_some || !self.has_limiter);
                    let dated = self.now / MS * MS;
                    self.reply = Some((self.now + self.latency, dated, reply));
                }
                Step::SleepUntil(time) => {
                    assert!(time > self.now);
                    return Some(time);
                }
                Step::Idle => return self.reply.as_ref().map(|reply| reply.0),
            }
        }
    }

    pub(super) fn deliver_reply(&mut self) {
        let (_, dated, reply) = self.reply.take().unwrap();
        let rate = (self.server.rate, self.server.interval_ms * MS, 0);
        let failed = match reply {
            Reply::Decided(outcomes) => {
                let (settled, _) = self.queue.replied(self.now, dated, rate, outcomes, 0, None);
                return self.settle(settled);
            }
            Reply::Failed => self.queue.failed(),
            Reply::Uninitialized => self.queue.uninitialized(),
        };
        failed.into_iter().for_each(|ticket| self.end(ticket as usize, Fate::Failed));
        self.run_queue();
    }

    fn settle(&mut self, settled: Vec<Settled<Ticket>>) {
        for Settled { caller, permits, outcome, .. } in settled {
            let Some(ticket) = caller else {
                self.unwanted += permits;
                continue;
            };
            assert_eq!(permits, self.callers[ticket as usize].request.permits);
            let fate = match outcome {
                Outcome::Granted | Outcome::Scheduled { .. } => Fate::Granted,
                Outcome::Refused(..) => Fate::Refused,
                Outcome::ExceedsRate => Fate::ExceedsRate,
                Outcome::Waiting(_) | Outcome::Reserved(_) | Outcome::Undecided => {
                    panic!("{outcome:?} decides nothing")
                }
            };
            self.end(ticket as usize, fate);
        }
        self.run_queue();
    }

    /// The call in flight fails; what it was granted is given back, as its id is known.
    pub(super) fn fail_call(&mut self) {
        if let Some((_, _, reply @ Reply::Decided(_))) = &mut self.reply {
            *reply = Reply::Failed;
            self.server.granted -= std::mem::take(&mut self.granted_in_flight);
        }
    }

    pub(super) fn end(&mut self, index: usize, fate: Fate) {
        assert_eq!(self.callers[index].fate, Fate::Pending, "told once");
        if fate == Fate::Granted {
            let overtaken = self.callers[..index].iter().position(|c| c.fate == Fate::Pending);
            assert_eq!(overtaken, None, "{index} was granted before one that came earlier");
        }
        let caller = &self.callers[index];
        let left_out = self.calls_that_left_some - caller.calls_that_left_some_before;
        if caller.request.max_wait == MaxWait::None {
            assert!(
                self.calls - caller.calls_before <= 1 + left_out,
                "a call that does not wait waited beyond its own call"
            );
        }
        if let (Fate::Refused, MaxWait::Until(end)) = (fate, caller.request.max_wait) {
            assert!(
                self.now <= end + (2 + left_out) * self.latency + MS,
                "told at {} that it could not be served by {end}",
                self.now
            );
        }
        self.callers[index].fate = fate;
    }

    /// Lets time pass, with all that happens in it.
    pub(super) fn advance(&mut self, time: Time) {
        let until = self.now + time;
        loop {
            let next = self.run_queue();
            match next.filter(|&next| next <= until) {
                Some(next) => {
                    self.now = self.now.max(next);
                    if self.reply.as_ref().is_some_and(|reply| reply.0 <= self.now) {
                        self.deliver_reply();
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
