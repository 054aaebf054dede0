//! The queue driven in virtual time against a small server of the tests' own.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: Time = 1000;
const DEADLINE: Time = 3_000_000;

/// Permits that are free again an interval after they were granted: nothing else.
struct Server {
    rate: u64,
    interval_ms: u64,
    left: u64,
    /// When granted permits come back, in ms.
    log: VecDeque<(u64, u64)>,
    granted: u64,
    calls: u64,
}

impl Server {
    fn new(rate: u64, interval_ms: u64) -> Self {
        Server { rate, interval_ms, left: rate, log: VecDeque::new(), granted: 0, calls: 0 }
    }

    /// When the permits behind `need` more than are left have come back.
    fn wait(&self, mut need: u64, now_ms: u64) -> u64 {
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

    fn decide(&mut self, runs: &[Run], now_ms: u64) -> Vec<OutcomeRun> {
        self.calls += 1;
        while self.log.front().is_some_and(|&(back, _)| back <= now_ms) {
            self.left += self.log.pop_front().unwrap().1;
        }
        let mut outcomes = Vec::new();
        let mut before = 0;
        for run in runs {
            for _ in 0..run.count {
                let outcome = if run.permits > self.rate {
                    Outcome::ExceedsRate
                } else if before == 0 && run.permits <= self.left {
                    self.left -= run.permits;
                    self.granted += run.permits;
                    self.log.push_back((now_ms + self.interval_ms, run.permits));
                    Outcome::Granted
                } else {
                    let need = before + run.permits - self.left;
                    let wait = Wait { ms: self.wait(need, now_ms), at_least: false };
                    if wait.ms > run.patience_ms {
                        Outcome::Refused(wait)
                    } else {
                        before += run.permits;
                        Outcome::Waiting(wait)
                    }
                };
                outcomes.push(OutcomeRun { count: 1, outcome });
            }
        }
        outcomes
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Pending,
    Granted,
    Refused,
    Exceeds,
    Abandoned,
}

#[derive(Debug)]
struct Caller {
    request: Request,
    /// The batch of fresh ones it came with, and its place there.
    batch: u64,
    place: usize,
    arrived: Time,
    fate: Fate,
    calls_begun_before: u64,
}

/// A queue, its callers and its server: what the shell does, step by step.
struct World {
    queue: Queue<Ticket>,
    server: Server,
    now: Time,
    latency: Time,
    /// The answer under way: when it arrives, when it was dated, the batch it was boarded with.
    answer: Option<(Time, Time, u64, Vec<OutcomeRun>)>,
    batch: u64,
    callers: Vec<Caller>,
    unwanted: u64,
    calls: u64,
}

impl World {
    fn new(server: Server, latency: Time) -> Self {
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

    fn arrive(&mut self, permits: u64, patience: Option<Time>) -> usize {
        let patience = match patience {
            None => Patience::Endless,
            Some(0) => Patience::None,
            Some(time) => Patience::Until(self.now + time),
        };
        let request = Request { permits, patience, deadline: DEADLINE, create: None };
        let ticket = self.queue.next_ticket;
        let (place, fate) = match self.queue.arrive(self.now, request, Some(ticket)) {
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

    fn abandon(&mut self, caller: usize) {
        if self.callers[caller].fate == Fate::Pending {
            let abandoned = self.queue.abandon(caller as Ticket);
            assert_ne!(abandoned, Abandoned::Settled);
            self.callers[caller].fate = Fate::Abandoned;
        }
        self.turn();
    }

    /// Lets the queue do what it wants to do now; answers when it wants to be called again.
    fn turn(&mut self) -> Option<Time> {
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
                    let outcomes = self.server.decide(&call.runs, self.now / MS);
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

    fn land(&mut self) {
        let (_, dated, batch, outcomes) = self.answer.take().unwrap();
        let rate = (self.server.rate, self.server.interval_ms * MS);
        let settled = self.queue.replied(self.now, dated, rate, outcomes);
        self.unwanted += settled.unwanted;
        let flat: Vec<Outcome> = settled
            .outcomes
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.outcome, run.count as usize))
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

    fn settle(&mut self, index: usize, fate: Fate) {
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
    fn pass(&mut self, time: Time) {
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

    fn fate(&self, caller: usize) -> Fate {
        self.callers[caller].fate
    }

    fn permits(&self, fate: Fate) -> u64 {
        self.callers.iter().filter(|c| c.fate == fate).map(|c| c.request.permits).sum()
    }
}

#[test]
fn those_who_come_during_a_call_share_the_next() {
    let mut world = World::new(Server::new(100, 1000), 10 * MS);
    for _ in 0..50 {
        world.arrive(1, Some(0));
    }
    world.pass(20 * MS);
    assert_eq!(world.calls, 2);
    assert_eq!(world.permits(Fate::Granted), 50);
}

#[test]
fn a_big_request_is_served_in_its_turn_and_blocks_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(10, Some(0));
    world.pass(500 * MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.pass(0);
    let hasty = world.arrive(1, Some(0));
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.pass(499 * MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Pending, Fate::Pending));
    world.pass(MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Granted, Fate::Pending));
    world.pass(1000 * MS);
    assert_eq!(world.fate(small), Fate::Granted);
}

#[test]
fn a_wait_that_cannot_succeed_is_answered_at_once_and_blocks_nobody() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(5, Some(0));
    world.pass(500 * MS);
    let hasty = world.arrive(6, Some(400 * MS));
    assert_eq!(world.fate(hasty), Fate::Pending);
    world.pass(0);
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.arrive(5, Some(0));
    world.pass(0);
    assert_eq!(world.permits(Fate::Granted), 10);
}

#[test]
fn a_wait_that_ends_with_the_permits_is_granted() {
    let mut world = World::new(Server::new(1, 1000), 0);
    world.arrive(1, Some(0));
    let exact = world.arrive(1, Some(1000 * MS));
    world.pass(1000 * MS);
    assert_eq!(world.fate(exact), Fate::Granted);
}

#[test]
fn waiters_at_a_steady_rate_take_a_call_a_grant_or_less() {
    let mut world = World::new(Server::new(10, 1000), MS);
    for _ in 0..200 {
        world.arrive(1, None);
    }
    world.pass(20_000 * MS);
    assert_eq!(world.permits(Fate::Granted), 200);
    assert!(world.calls <= 200 * 12 / 10, "{} calls for 200 grants", world.calls);
}

#[test]
fn a_blocked_queue_asks_every_second() {
    let mut world = World::new(Server::new(1, 60_000), 0);
    world.arrive(1, Some(0));
    let waiter = world.arrive(1, None);
    world.pass(100 * MS);
    // Another process gives its permit back.
    world.server.left = 1;
    world.server.log.clear();
    world.pass(1000 * MS);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn permits_known_to_be_back_are_asked_for_at_once() {
    let mut world = World::new(Server::new(1, 60_000), 0);
    world.arrive(1, Some(0));
    let waiter = world.arrive(1, None);
    world.pass(100 * MS);
    world.server.left = 1;
    world.server.log.clear();
    world.queue.ask_again();
    world.pass(0);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn a_waiter_that_leaves_makes_room_for_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(9, Some(0));
    world.pass(MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.pass(MS);
    assert_eq!(world.fate(small), Fate::Pending);
    world.abandon(big);
    world.pass(0);
    assert_eq!(world.fate(small), Fate::Granted);
}

#[test]
fn one_that_leaves_unsent_is_never_sent() {
    let mut world = World::new(Server::new(10, 1000), 10 * MS);
    world.arrive(1, Some(0));
    let left = world.arrive(5, Some(0));
    let last = world.arrive(2, Some(0));
    world.abandon(left);
    world.pass(30 * MS);
    assert_eq!(world.fate(last), Fate::Granted);
    assert_eq!(world.server.granted, 3);
    assert_eq!(world.unwanted, 0);
}

#[test]
fn what_is_granted_to_one_that_left_in_flight_is_unwanted() {
    let mut world = World::new(Server::new(10, 1000), 10 * MS);
    let left = world.arrive(4, Some(0));
    world.abandon(left);
    world.pass(30 * MS);
    assert_eq!(world.unwanted, 4);
}

#[test]
fn a_failed_call_fails_those_it_asked_for_and_no_others() {
    let mut queue: Queue<u32> = Queue::default();
    let request =
        Request { permits: 1, patience: Patience::None, deadline: DEADLINE, create: None };
    queue.arrive(0, request, Some(0));
    assert!(matches!(queue.step(0).step, Step::Call(_)));
    queue.arrive(1, request, Some(1));
    let settled = queue.failed();
    assert_eq!((settled.wake, settled.fresh), (vec![0], 1));
    assert!(matches!(queue.step(2).step, Step::Call(_)));
}

#[test]
fn overdue_requests_are_told_and_their_grants_unwanted() {
    let mut queue: Queue<u32> = Queue::default();
    let request = Request { permits: 3, patience: Patience::None, deadline: 10, create: None };
    queue.arrive(0, request, Some(0));
    queue.arrive(5, Request { deadline: 100, ..request }, Some(1));
    assert!(matches!(queue.step(5).step, Step::Call(_)));
    assert_eq!(queue.overdue(9), (vec![], Some(10)));
    assert_eq!(queue.overdue(10), (vec![(0, Some(0))], Some(105)));
    let outcomes = vec![OutcomeRun { count: 2, outcome: Outcome::Granted }];
    let settled = queue.replied(11, 5, (10, 1_000_000), outcomes);
    assert_eq!((settled.wake, settled.granted, settled.unwanted), (vec![1], 6, 3));
}

#[test]
fn those_before_the_first_that_creates_find_no_limiter() {
    let mut queue: Queue<u32> = Queue::default();
    let plain = Request { permits: 1, patience: Patience::None, deadline: DEADLINE, create: None };
    for (caller, create) in [(0, None), (1, None), (2, Some(7)), (3, None), (4, Some(8))] {
        queue.arrive(0, Request { create, ..plain }, Some(caller));
    }
    let Step::Call(call) = queue.step(0).step else { panic!("no call") };
    assert_eq!((call.create, call.runs[0].count), (None, 5));
    let settled = queue.uninitialized();
    assert_eq!((settled.wake, settled.fresh, settled.late), (vec![0, 1], 2, vec![]));
    let Step::Call(call) = queue.step(1).step else { panic!("no call") };
    assert_eq!((call.create, call.runs[0].count), (Some(7), 3));
    let settled = queue.uninitialized();
    assert_eq!(settled.wake, [2, 3, 4], "it was to be created: nobody asks for ever");
    assert!(queue.is_idle());
}

#[test]
fn outcomes_are_aligned_around_those_left_out() {
    let granted = |count| OutcomeRun { count, outcome: Outcome::Granted };
    let gap = OutcomeRun { count: 1, outcome: Outcome::ExceedsRate };
    let mut outcomes = vec![granted(3), granted(2)];
    align(&mut outcomes, &[0, 2, 5, 7]);
    assert_eq!(outcomes, [gap, granted(1), gap, granted(2), gap, granted(1), gap, granted(1)]);
}

#[derive(Clone, Debug)]
enum Event {
    Arrive(u64, Option<Time>),
    Abandon(usize),
    Pass(Time),
    Free(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..6u64, prop_oneof![
            2 => Just(Some(0)),
            3 => (1..400u64).prop_map(|ms| Some(ms * MS)),
            2 => Just(None),
        ]).prop_map(|(permits, patience)| Event::Arrive(permits, patience)),
        2 => (0..100usize).prop_map(Event::Abandon),
        3 => (0..30_000u64).prop_map(Event::Pass),
        1 => (50_000..300_000u64).prop_map(Event::Pass),
        1 => (1..4u64).prop_map(Event::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever happens when: everybody is told once and in order, what is granted is either told
    /// or unwanted, and nobody is left standing.
    #[test]
    fn nothing_is_lost(
        events in prop::collection::vec(event(), 1..80),
        latency in prop_oneof![Just(0), 1..20_000u64],
        rate in 1..8u64,
    ) {
        let mut world = World::new(Server::new(rate, 100), latency);
        for event in events {
            match event {
                Event::Arrive(permits, patience) => { world.arrive(permits, patience); }
                Event::Abandon(nth) if !world.callers.is_empty() => {
                    world.abandon(nth % world.callers.len());
                }
                Event::Abandon(_) => {}
                Event::Pass(time) => world.pass(time),
                // Another process gives permits back before their time.
                Event::Free(permits) => {
                    if let Some((_, front)) = world.server.log.front_mut() {
                        let freed = permits.min(*front);
                        *front -= freed;
                        world.server.left += freed;
                        world.server.log.retain(|(_, permits)| *permits > 0);
                    }
                }
            }
        }
        world.pass(60_000_000);
        prop_assert!(world.queue.is_idle());
        prop_assert_eq!(world.permits(Fate::Pending), 0);
        prop_assert_eq!(world.server.granted, world.permits(Fate::Granted) + world.unwanted);
        let latest = world.callers.iter().map(|c| c.arrived).max().unwrap_or(0);
        prop_assert!(latest <= world.now);
    }
}
