//! How a fleet shares an exhausted limiter: real queues over the in-process store, and Redisson's
//! waiters, in virtual time.
//!
//! `fair_shares_in_full` is the tool: it prints a line for each fleet and demand.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::queue::{MaxWait, Queue, Request, Step, Time};
use crate::rate::Rate;
use crate::store::memory::InProcessStore;
use crate::store::{
    AcquireCall, AcquireReply, Earlier, LimitCall, Outcome, RequestGroup, ShareTerms,
    TrySetRateCall,
};
use crate::wire::entry::{ClientTag, EntryId};
use crate::wire::keys::Keys;

mod large;
mod verdict;

const MS: Time = 1000;
const SECOND: Time = 1000 * MS;
const ROUND_TRIP: Time = 200;
/// When a client joins that comes later than the others, up to ten seconds later.
const JOINS: Time = 12 * SECOND;
/// The epoch time at which a simulation begins.
const T0: i64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Each waiting request asks for itself. A refusal names 3 ms plus the wait of the oldest
    /// entry, and asks again at the next tick of its client's timer wheel.
    Redisson(Wakeups),
    /// This crate, counting as this number of parties.
    Crate(u8),
    /// This crate, taking whatever is free.
    Greedy,
    /// This crate: one task, which asks for so many permits, and again so long after it was served.
    Large { permits: u64, pause: Time },
}

/// How late the waiters of a Redisson client wake up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wakeups {
    /// Within two milliseconds of their tick.
    Prompt,
    /// A process that has just started, or is short of processor time: a wakeup is 20 ms late on
    /// average, and once a second, on average, all of the process stops: for 70 ms in the median, for
    /// 270 ms or more one time in ten, for two seconds at most.
    Cold,
    /// Each wakeup is this much later than its tick.
    Late(Time),
    /// Prompt, but it joins the others only after [`JOINS`].
    Joining,
}

#[derive(Clone, Copy, Debug)]
enum Demand {
    /// This number of tasks a client, each asking again as soon as it is served.
    Tasks(u32),
    /// This number of Poisson arrivals a second and client, each waiting for two seconds at most.
    Arrivals(f64),
}

enum Event {
    /// A new request of this client.
    Arrive(usize),
    /// A waiting request of Redisson asks, until this time.
    Ask(usize, Time),
    /// The queue of a client has something to do.
    Step(usize),
    /// A call reaches the store.
    Decide(usize, Box<AcquireCall>),
    Reply(usize, Time, Box<AcquireReply>),
}

struct Client {
    kind: Kind,
    tag: ClientTag,
    /// When its timer wheel ticks.
    phase: Time,
    /// All of the process stops from then on, until then.
    stop: (Time, Time),
    /// It has a tenth of the rate in arrivals, whatever the others have.
    is_quiet: bool,
    queue: Queue<()>,
    /// The id of the call in flight, and that of a reservation with its date.
    in_flight: EntryId,
    reservation: Option<(EntryId, i64)>,
    /// When its first request is made, and how long after that its first grant was.
    joins: Time,
    noticed: Option<Time>,
    /// When the request of a client with large ones arrived, and how long each was not served.
    asked: Time,
    waits: Vec<Time>,
    /// The next step that is planned.
    step_at: Time,
    granted: u64,
    calls: u64,
}

struct Fleet {
    store: InProcessStore,
    keys: Keys,
    rate: Rate,
    permits: u64,
    demand: Demand,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    bodies: std::collections::HashMap<u64, Event>,
    number: u64,
    random: u64,
    now: Time,
}

struct Figures {
    /// How long the large requests waited, in intervals.
    waits: Vec<f64>,
    /// Each client's grants, relative to an equal part.
    shares: Vec<f64>,
    /// The part of the rate that was used.
    used: f64,
    calls_per_grant: f64,
    /// How long it took at most until a client that joined was granted anything, in seconds.
    noticed: f64,
}

impl Fleet {
    fn new(kinds: &[(Kind, bool)], rate: Rate, demand: Demand, seed: u64) -> Self {
        let (store, keys) = (InProcessStore::new(), Keys::new("api", "a"));
        let set = store.run(&keys, &TrySetRateCall(rate));
        assert!(set.unwrap());
        let mut fleet = Fleet {
            store,
            keys,
            rate,
            permits: 1,
            demand,
            clients: Vec::new(),
            events: BinaryHeap::new(),
            bodies: std::collections::HashMap::new(),
            number: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            now: 0,
        };
        for (index, &(kind, is_quiet)) in kinds.iter().enumerate() {
            let phase = fleet.below(100 * MS);
            let tag = (fleet.below(1 << 24) as u32) << 8 | index as u32;
            fleet.clients.push(Client {
                kind,
                tag: ClientTag(tag.to_be_bytes()),
                phase,
                stop: (0, 0),
                is_quiet,
                queue: Queue::default(),
                in_flight: EntryId([0; 16]),
                reservation: None,
                joins: 0,
                noticed: None,
                asked: 0,
                waits: Vec::new(),
                step_at: Time::MAX,
                granted: 0,
                calls: 0,
            });
        }
        fleet
    }

    fn uniform(&mut self) -> f64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, time: Time) -> Time {
        (self.uniform() * time as f64) as Time
    }

    fn exponential(&mut self, mean: f64) -> Time {
        (-(1.0 - self.uniform()).ln() * mean) as Time
    }

    fn at(&mut self, time: Time, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number)));
        self.bodies.insert(self.number, event);
    }

    fn run(mut self, seconds: u64) -> Figures {
        for client in 0..self.clients.len() {
            let joins = match self.clients[client].kind {
                Kind::Redisson(Wakeups::Joining) => JOINS + self.below(10 * SECOND),
                _ => 0,
            };
            self.clients[client].joins = joins;
            match self.demand_of(client) {
                _ if let Kind::Large { .. } = self.clients[client].kind => {
                    let begin = self.below(SECOND) + SECOND;
                    self.at(begin, Event::Arrive(client));
                }
                Demand::Tasks(tasks) => {
                    for _ in 0..tasks {
                        let begin = joins + self.below(50 * MS);
                        self.at(begin, Event::Arrive(client));
                    }
                }
                Demand::Arrivals(rate) => {
                    let begin = joins + self.exponential(1e6 / rate);
                    self.at(begin, Event::Arrive(client));
                }
            }
        }
        // The first interval is a burst of twice the rate.
        let warm_up = self.rate.interval_ms() * MS;
        let (end, mut burst) = (warm_up + seconds * SECOND, None);
        while let Some(Reverse((time, number))) = self.events.pop()
            && time < end
        {
            if time >= warm_up && burst.is_none() {
                burst = Some(self.clients.iter().map(|client| client.granted).collect::<Vec<_>>());
            }
            self.now = time;
            let event = self.bodies.remove(&number).unwrap();
            self.happen(event);
        }
        let burst = burst.unwrap();
        let granted = |(client, burst): (&Client, &u64)| (client.granted - burst) as f64;
        let granted: Vec<f64> = self.clients.iter().zip(&burst).map(granted).collect();
        let total: f64 = granted.iter().sum();
        let calls: u64 = self.clients.iter().map(|client| client.calls).sum();
        let intervals = (seconds * 1000) as f64 / self.rate.interval_ms() as f64;
        let mut waits = Vec::new();
        for client in &self.clients {
            let last = if client.asked > 0 { Some(end - client.asked) } else { None };
            let all = client.waits.iter().copied().chain(last);
            waits.extend(all.map(|wait| wait as f64 / warm_up as f64));
        }
        let joined = self.clients.iter().filter(|client| client.joins > 0);
        let noticed = joined.map(|client| match client.noticed {
            Some(time) => time as f64 / 1e6,
            None => f64::INFINITY,
        });
        Figures {
            noticed: noticed.fold(0.0, f64::max),
            waits,
            shares: granted.iter().map(|part| part / total * granted.len() as f64).collect(),
            used: total / (self.rate.permits() as f64 * intervals),
            calls_per_grant: calls as f64
                / self.clients.iter().map(|client| client.granted).sum::<u64>() as f64
                * self.permits as f64,
        }
    }

    fn demand_of(&self, client: usize) -> Demand {
        let per_second = self.rate.permits() as f64 * 1000.0 / self.rate.interval_ms() as f64;
        match self.clients[client].is_quiet {
            true => Demand::Arrivals(per_second / 10.0),
            false => self.demand,
        }
    }

    /// When a waiter of Redisson wakes up that should at this time.
    fn wakes_up(&mut self, client: usize, wake: Time, wakeups: Wakeups) -> Time {
        match wakeups {
            Wakeups::Prompt | Wakeups::Joining => wake + self.below(2 * MS),
            Wakeups::Late(late) => wake + late,
            Wakeups::Cold => {
                let wake = wake + self.exponential(20e3);
                while self.clients[client].stop.1 < wake {
                    let begin = self.clients[client].stop.1 + self.exponential(1e6);
                    let tail = (1.0 - self.uniform()).powf(-1.0 / 1.2);
                    let end = begin + ((40e3 * tail) as Time).min(2 * SECOND);
                    self.clients[client].stop = (begin, end);
                }
                let (begin, end) = self.clients[client].stop;
                if (begin..end).contains(&wake) { end } else { wake }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(client) => {
                let mut end = Time::MAX;
                if let Kind::Large { .. } = self.clients[client].kind {
                    self.clients[client].asked = self.now;
                } else if let Demand::Arrivals(rate) = self.demand_of(client) {
                    end = self.now + 2 * SECOND;
                    let next = self.now + self.exponential(1e6 / rate);
                    self.at(next, Event::Arrive(client));
                }
                match self.clients[client].kind {
                    Kind::Redisson(_) => self.ask(client, end),
                    _ => self.enqueue(client, end),
                }
            }
            Event::Ask(client, end) => self.ask(client, end),
            Event::Step(client) if self.clients[client].step_at == self.now => self.step(client),
            Event::Step(_) => {}
            Event::Decide(client, call) => {
                let dated = self.now / MS * MS;
                let reply = self.decide(*call);
                self.at(self.now + ROUND_TRIP / 2, Event::Reply(client, dated, Box::new(reply)));
            }
            Event::Reply(client, dated, reply) => self.reply(client, dated, *reply),
        }
    }

    fn decide(&mut self, mut call: AcquireCall) -> AcquireReply {
        call.now = Some(T0 + (self.now / MS) as i64);
        self.store.run(&self.keys, &call).unwrap()
    }

    fn call(
        &self,
        id: EntryId,
        share: Option<ShareTerms>,
        groups: Vec<RequestGroup>,
    ) -> AcquireCall {
        let (keys, seen) = (self.keys.clone(), Some(self.rate));
        let limit = LimitCall { keys, seen, create: None, groups };
        AcquireCall { share, ..AcquireCall::usual(Some(0), id, limit) }
    }

    /// Redisson: one attempt of one waiting request.
    fn ask(&mut self, client: usize, end: Time) {
        if self.now >= end {
            return;
        }
        let mut id = [0; 16];
        for byte in &mut id {
            *byte = (self.uniform() * 256.0) as u8;
        }
        let group = RequestGroup { permits: self.permits, max_wait_ms: 0, count: 1 };
        let reply = self.decide(self.call(EntryId(id), None, vec![group]));
        self.clients[client].calls += 1;
        match reply.outcomes[0].outcome {
            Outcome::Granted => {
                self.clients[client].granted += self.permits;
                self.served(client);
            }
            Outcome::Refused(wait, _) => {
                let (told, phase) = (self.now + (wait.ms() + 3) * MS, self.clients[client].phase);
                let ticks = (told - phase.min(told)).div_ceil(100 * MS);
                let Kind::Redisson(wakeups) = self.clients[client].kind else { unreachable!() };
                let wake = self.wakes_up(client, phase + ticks * 100 * MS, wakeups);
                if wake < end {
                    self.at(wake, Event::Ask(client, end));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn served(&mut self, client: usize) {
        let since = self.now.saturating_sub(self.clients[client].joins);
        self.clients[client].noticed.get_or_insert(since);
        if let Kind::Large { pause, .. } = self.clients[client].kind {
            let Client { asked, waits, .. } = &mut self.clients[client];
            waits.push(self.now - std::mem::take(asked));
            self.at(self.now + pause, Event::Arrive(client));
        } else if let Demand::Tasks(_) = self.demand_of(client) {
            let next = self.now + ROUND_TRIP + self.exponential(200.0);
            self.at(next, Event::Arrive(client));
        }
    }

    fn enqueue(&mut self, client: usize, end: Time) {
        let max_wait = if end == Time::MAX { MaxWait::Unbounded } else { MaxWait::Until(end) };
        let permits = match self.clients[client].kind {
            Kind::Large { permits, .. } => permits,
            _ => self.permits,
        };
        let request = Request { permits, max_wait, deadline: SECOND, ..Request::ONE };
        let now = self.now;
        let queue = &mut self.clients[client].queue;
        // One that is refused has gone.
        let _ = queue.arrive(|| now, request.clone(), ());
        self.step(client);
    }

    fn step(&mut self, client: usize) {
        let (step, _) = self.clients[client].queue.step(self.now);
        match step {
            Step::Call(call) => {
                let Client { kind, tag, .. } = self.clients[client];
                let (weight, share) = match kind {
                    Kind::Crate(weight) => (weight, call.share),
                    Kind::Large { .. } => (1, call.share),
                    _ => (1, None),
                };
                let reserve = call.reserve;
                let id = EntryId::random(tag, weight);
                let mut call = AcquireCall { reserve, ..self.call(id, share, call.groups) };
                let reservation = &mut self.clients[client].reservation;
                if let Some((id, date)) = reservation.take_if(|_| reserve) {
                    let since = date - 2 * self.rate.interval_ms() as i64;
                    (call.id, call.earlier) = (id, Earlier::reserved(since, date));
                }
                self.clients[client].in_flight = call.id;
                self.clients[client].calls += 1;
                self.at(self.now + ROUND_TRIP / 2, Event::Decide(client, call.into()));
            }
            Step::SleepUntil(time) => {
                self.clients[client].step_at = time;
                self.at(time, Event::Step(client));
            }
            Step::Idle => {}
        }
    }

    fn reply(&mut self, client: usize, dated: Time, reply: AcquireReply) {
        let (left, rate) =
            (reply.left.max(0) as u64, (self.rate.permits(), self.rate.interval_ms() * MS, 0));
        if let Some(Outcome::Reserved(wait)) = reply.outcomes.first().map(|group| group.outcome) {
            let client = &mut self.clients[client];
            client.reservation = Some((client.in_flight, reply.now + wait.ms() as i64));
        }
        let queue = &mut self.clients[client].queue;
        let (outcomes, holders) = (reply.outcomes, reply.holders);
        let (settled, granted) = queue.replied(self.now, dated, rate, outcomes, left, holders);
        self.clients[client].granted += granted;
        for _ in settled.iter().filter(|it| it.caller.is_some()) {
            self.served(client);
        }
        self.step(client);
    }
}

/// `j` Redisson, `c` a cold one, `l` one that is 200 ms late, `d` one that joins later, `q` one with little
/// demand; `s` this crate, `t` with little demand, `e` with `greedy`, a digit: with that weight.
fn kinds(fleet: &str) -> Vec<(Kind, bool)> {
    let kind = |letter| match letter {
        'j' => (Kind::Redisson(Wakeups::Prompt), false),
        'q' => (Kind::Redisson(Wakeups::Prompt), true),
        'c' => (Kind::Redisson(Wakeups::Cold), false),
        'd' => (Kind::Redisson(Wakeups::Joining), false),
        'l' => (Kind::Redisson(Wakeups::Late(200 * MS)), false),
        's' => (Kind::Crate(1), false),
        't' => (Kind::Crate(1), true),
        'e' => (Kind::Greedy, false),
        digit => (Kind::Crate(digit.to_digit(10).unwrap() as u8), false),
    };
    fleet.chars().map(kind).collect()
}

fn simulate(fleet: &str, rate: Rate, demand: Demand, seconds: u64, seeds: u64) -> Vec<Figures> {
    (0..seeds).map(|seed| Fleet::new(&kinds(fleet), rate, demand, seed).run(seconds)).collect()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn per_second(permits: u64) -> Rate {
    Rate::per_second(permits)
}

/// The least share of any client over some seeds, and the least use of the rate.
fn least(fleet: &str, rate: u64, demand: Demand) -> (f64, f64) {
    let runs = simulate(fleet, per_second(rate), demand, 20, 3);
    let shares = runs.iter().flat_map(|run| &run.shares).copied();
    let used = runs.iter().map(|run| run.used).fold(f64::MAX, f64::min);
    (shares.fold(f64::MAX, f64::min), used)
}

#[test]
fn a_fleet_of_two_shares_an_exhausted_limiter() {
    for fleet in ["sj", "ss"] {
        for (rate, demand) in
            [(10, Demand::Tasks(8)), (100, Demand::Tasks(8)), (100, Demand::Arrivals(80.0))]
        {
            let (share, used) = least(fleet, rate, demand);
            assert!(share >= 0.9 && used >= 0.95, "{fleet} {rate} {demand:?}: {share} {used}");
        }
    }
}

/// What the rule is for: without it, or with permits that are free for all at once, Redisson starves.
#[test]
fn redisson_starves_beside_a_greedy_client() {
    let (share, _) = least("ej", 100, Demand::Tasks(8));
    assert!(share < 0.05, "{share}");
}

#[test]
fn all_redisson_clients_together_are_one_party_and_weights_count() {
    for (fleet, first) in [("sjjj", 0.5), ("ssjj", 1.0 / 3.0), ("3s", 0.75), ("3j", 0.75)] {
        for run in simulate(fleet, per_second(100), Demand::Tasks(8), 20, 3) {
            let share = run.shares[0] / fleet.len() as f64;
            assert!((share / first - 1.0).abs() < 0.1, "{fleet}: {share}");
            assert!(run.used >= 0.95, "{fleet}: {}", run.used);
        }
    }
}

/// Shares that are no whole numbers are rounded up and down in turn.
#[test]
fn few_permits_are_shared_by_four() {
    for demand in [Demand::Tasks(8), Demand::Tasks(200)] {
        let runs = simulate("ssss", per_second(10), demand, 60, 3);
        let share = runs.iter().flat_map(|run| &run.shares).copied().fold(f64::MAX, f64::min);
        assert!(share >= 0.9, "{demand:?}: {share}");
    }
}

/// Wherever it wakes up late, a Redisson finds what was left for it.
#[test]
fn a_cold_redisson_is_noticed_and_keeps_its_share() {
    for (fleet, redisson, least) in [("sc", 1, 0.8), ("cs", 0, 0.8), ("sl", 1, 0.25)] {
        for rate in [10, 100] {
            for run in simulate(fleet, per_second(rate), Demand::Tasks(8), 30, 5) {
                let share = run.shares[redisson];
                assert!(share >= least && run.used >= 0.95, "{fleet} {rate}: {share} {}", run.used);
            }
        }
    }
}

/// Alone, a client finds out that nobody is there, and loses next to nothing by that. What it had left
/// for others comes back apart from the rest, which costs a few calls.
#[test]
fn a_client_that_is_alone_uses_all_of_the_rate() {
    for (rate, demand) in
        [(10, Demand::Tasks(200)), (10, Demand::Tasks(8)), (100, Demand::Tasks(8))]
    {
        let run = |fleet| simulate(fleet, per_second(rate), demand, 30, 1).remove(0);
        let (shared, greedy) = (run("s"), run("e"));
        assert!(shared.used >= 0.985, "{rate} {demand:?}: {}", shared.used);
        let calls = (shared.calls_per_grant, greedy.calls_per_grant);
        assert!(calls.0 <= calls.1 * 1.6, "{rate} {demand:?}: {calls:?}");
    }
}

/// Below the rate nobody waits, and no call is held back.
#[test]
fn a_limiter_that_is_not_exhausted_is_used_as_ever() {
    for fleet in ["sj", "ss", "s"] {
        let arrivals = Demand::Arrivals(50.0 / fleet.len() as f64);
        let calls = simulate(fleet, per_second(100), arrivals, 30, 1).remove(0).calls_per_grant;
        assert!((0.99..1.01).contains(&calls), "{fleet}: {calls}");
    }
}

/// One that joins, and finds nothing free, is found when permits are next left for it.
#[test]
fn a_redisson_that_joins_later_is_noticed_within_ten_seconds() {
    for fleet in ["sd", "ssd"] {
        for run in simulate(fleet, per_second(10), Demand::Tasks(8), 35, 3) {
            assert!(run.noticed <= 10.0, "{fleet}: {}", run.noticed);
        }
    }
}

/// The fleets and demands of the table in `docs/semantics.md`; `FLEETS` names others.
#[test]
#[ignore = "the tool: prints a table"]
fn fair_shares_in_full() {
    let fleets = std::env::var("FLEETS");
    let fleets =
        fleets.as_deref().unwrap_or("jj ej ejjj e s ss sj sjjj ssjj ssss 3s 2sj sc cs sl sq st");
    for fleet in fleets.split_whitespace() {
        let clients = fleet.len() as f64;
        for (rate, demand) in [
            (10, Demand::Tasks(8)),
            (100, Demand::Tasks(8)),
            (1000, Demand::Tasks(32)),
            (100, Demand::Arrivals(160.0 / clients)),
            (1000, Demand::Arrivals(1600.0 / clients)),
            (100, Demand::Arrivals(70.0 / clients)),
            (1000, Demand::Arrivals(700.0 / clients)),
            (10, Demand::Tasks(200)),
        ] {
            let runs = simulate(fleet, per_second(rate), demand, 30, 5);
            let shares = (0..fleet.len()).map(|client| {
                let all: Vec<f64> = runs.iter().map(|run| run.shares[client]).collect();
                let least = all.iter().copied().fold(f64::MAX, f64::min);
                format!("{:.2} ({least:.2})", median(all))
            });
            let shares: Vec<String> = shares.collect();
            println!(
                "{fleet:5} {rate:5}/s {:15} shares {}  used {:.3}  calls per grant {:.2}",
                format!("{demand:?}"),
                shares.join("  "),
                median(runs.iter().map(|run| run.used).collect()),
                median(runs.iter().map(|run| run.calls_per_grant).collect()),
            );
        }
    }
}
