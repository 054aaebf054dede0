//! Clients, network and server in virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::client::{Effects, FleetClient, Sent, epoch_ms};
use super::demand::{Random, demand};
use super::server::{ONE_WAY_US, Server};
use super::{Figures, Scenario};
use crate::queue::Time;
use crate::rate::Rate;
use crate::store::{AcquireReply, RefundCall};

/// The first interval is a burst of twice the rate.
const WARM_UP: Time = 2_000_000;

enum Event {
    Arrive,
    /// The queue has something to do.
    Step,
    /// The leases are looked at.
    Look,
    /// A call reaches the server.
    Acquire(Box<Sent>),
    Refund(RefundCall),
    Answer(Box<(Sent, AcquireReply)>),
}

struct Scheduled {
    at: Time,
    number: u64,
    client: usize,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    clients: Vec<FleetClient>,
    server: Server,
    events: BinaryHeap<Scheduled>,
    number: u64,
    random: Random,
    now: Time,
    is_measured: bool,
    latencies: Vec<u32>,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let rate = Rate::per_second(scenario.rate);
        let clients = (0..scenario.clients).map(|number| {
            let demand = demand(number, scenario.clients, scenario.demand, scenario.uneven);
            let limiter = number % scenario.limiters;
            FleetClient::new(number, limiter, demand, rate, scenario.seed).with_options(scenario)
        });
        World {
            clients: clients.collect(),
            server: Server::new(scenario.limiters, rate, scenario.clients, scenario.costs),
            scenario,
            events: BinaryHeap::new(),
            number: 0,
            random: Random::new(scenario.seed),
            now: 0,
            is_measured: false,
            latencies: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Figures {
        for client in 0..self.clients.len() {
            self.next_arrival(client);
        }
        let end = WARM_UP + self.scenario.seconds * 1_000_000;
        let mut backlog = 0;
        while let Some(Scheduled { at, client, event, .. }) = self.events.pop()
            && at < end
        {
            if at >= WARM_UP && !self.is_measured {
                self.is_measured = true;
                self.server.measure_from_now();
                backlog = self.server.backlog(WARM_UP);
            }
            self.now = at;
            self.happen(client, event);
        }
        let taken_in = backlog + self.server.busy;
        let busy = taken_in.saturating_sub(self.server.backlog(end));
        self.figures(busy, taken_in)
    }

    fn figures(mut self, busy: u64, taken_in: u64) -> Figures {
        let seconds = self.scenario.seconds as f64;
        // Of the work that came in, the server has done this part.
        let done = busy as f64 / taken_in.max(1) as f64;
        let requests: u64 = self.clients.iter().map(|client| client.requests).sum();
        let granted: u64 = self.clients.iter().map(|client| client.granted).sum();
        let mean = granted as f64 / requests.max(1) as f64;
        let share = |client: &FleetClient| {
            client.granted as f64 / (client.requests.max(1) as f64) / mean.max(f64::MIN_POSITIVE)
        };
        let mut shares: Vec<f64> = self.clients.iter().map(share).collect();
        shares.sort_by(f64::total_cmp);
        self.latencies.sort_unstable();
        let latency = |part: f64| {
            let index = (self.latencies.len() as f64 * part) as usize;
            self.latencies.get(index).copied().unwrap_or(0)
        };
        let all = self.scenario.rate as f64 * self.scenario.limiters as f64;
        Figures {
            requests: self.latencies.len() as f64 / seconds,
            granted: granted as f64 / seconds,
            calls: self.server.calls as f64 * done / seconds,
            utilisation: busy as f64 / 1e9 / seconds,
            auditing: self.server.auditing as f64 / self.server.busy.max(1) as f64,
            audits: self.server.audits as f64 * done / seconds,
            p50_us: latency(0.5),
            p99_us: latency(0.99),
            used: granted as f64 / seconds / all,
            low_share: shares[shares.len() / 10],
        }
    }

    fn at(&mut self, at: Time, client: usize, event: Event) {
        self.number += 1;
        self.events.push(Scheduled { at, number: self.number, client, event });
    }

    fn next_arrival(&mut self, client: usize) {
        let at = self.now + self.random.until_next(self.clients[client].demand);
        self.at(at, client, Event::Arrive);
    }

    /// The way to the server or back.
    fn way(&mut self) -> Time {
        ONE_WAY_US + self.random.until_next(1e6 / (0.1 * ONE_WAY_US as f64))
    }

    fn happen(&mut self, client: usize, event: Event) {
        let now = self.now;
        let effects = match event {
            Event::Arrive => {
                self.next_arrival(client);
                let client = &mut self.clients[client];
                client.requests += u64::from(self.is_measured);
                client.arrive(now, self.scenario.max_wait_ms * 1000)
            }
            Event::Step if self.clients[client].step_at == now => {
                let mut effects = Effects::default();
                self.clients[client].step(now, &mut effects);
                effects
            }
            Event::Step => return,
            Event::Look => self.clients[client].look(now),
            Event::Acquire(sent) => {
                let limiter = self.clients[client].limiter;
                let (reply, leaves) =
                    self.server.acquire(now, limiter, sent.call.clone(), epoch_ms(now));
                let at = leaves + self.way();
                self.at(at, client, Event::Answer((*sent, reply).into()));
                return;
            }
            Event::Refund(call) => {
                self.server.refund(now, self.clients[client].limiter, call);
                return;
            }
            Event::Answer(answer) => {
                let (sent, reply) = *answer;
                self.clients[client].answered(now, &sent, reply)
            }
        };
        self.carry_out(client, effects);
    }

    fn carry_out(&mut self, client: usize, effects: Effects) {
        if self.is_measured {
            self.clients[client].granted += effects.granted;
            let now = self.now;
            let latencies = effects.answered.iter().map(|arrived| (now - arrived) as u32);
            self.latencies.extend(latencies);
        }
        if let Some(call) = effects.call {
            let at = self.now + self.way();
            self.at(at, client, Event::Acquire(call.into()));
        }
        for refund in effects.refunds {
            let at = self.now + self.way();
            self.at(at, client, Event::Refund(refund));
        }
        if let Some(at) = effects.step_at {
            self.at(at, client, Event::Step);
        }
        if let Some(at) = effects.look_at {
            self.at(at, client, Event::Look);
        }
    }
}
