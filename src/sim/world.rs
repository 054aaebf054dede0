//! One run: clients are started, faults happen, everything is repaired, and what is left is looked at.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::EPOCH_MS;
use super::callers::Caller;
use super::history::History;
use super::network::Link;
use super::policy::{self, Limits, Taker};
use super::random::SeededRandom;
use super::scenario::{ClientPlan, Fault, SimScenario};
use super::semaphore::{self, Holder};
use super::server::{NAME, SimServer};
use super::store::RemoteStore;
use crate::client::Client;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::engine::Core;
use crate::limiter::RateLimiter;
use crate::options::LimiterOptions;
use crate::rate::Rate;
use crate::store::Store;

/// How long callers may take to end once everything is repaired. They queue for permits: at the
/// lowest rate for minutes.
const ALL_ENDED_WITHIN: Duration = Duration::from_secs(300);

/// How long a call in the background goes on after its client has been closed or killed: refunds are
/// attempted for ten seconds.
const BACKGROUND_ENDED_WITHIN: Duration = Duration::from_secs(15);

/// The second limiter of groups, and how many times the rate its rate is: nobody waits for it alone.
const WIDE: &str = "wide";
const WIDE_FACTOR: u64 = 100;

pub(super) struct SimWorld {
    scenario: SimScenario,
    rate: Rate,
    clock: Clock,
    server: Arc<SimServer>,
    history: Arc<History>,
    random: SeededRandom,
    clients: Vec<RunningClient>,
    /// Of all clients that there ever were.
    cores: Vec<Weak<Core>>,
    ids: u128,
}

struct RunningClient {
    client: Client,
    link: Arc<Link>,
    callers: Vec<JoinHandle<()>>,
}

impl SimWorld {
    pub(super) fn new(scenario: SimScenario, history: Arc<History>) -> Self {
        let clock = Clock::runtime_at(Duration::from_millis(EPOCH_MS as u64));
        let rate = Rate::overall(scenario.rate, Duration::from_millis(scenario.interval_ms));
        SimWorld {
            rate: rate.unwrap_or_else(|_| unreachable!("it is in range")),
            server: SimServer::new(clock.clone(), &scenario, history.clone()),
            clock,
            history,
            random: SeededRandom::new(scenario.seed ^ 0x5eed),
            clients: Vec::new(),
            cores: Vec::new(),
            ids: 0,
            scenario,
        }
    }

    pub(super) async fn run(mut self) {
        let has_log = !self.scenario.is_semaphore() && self.scenario.policy.is_none();
        if has_log {
            self.create_limiter().await;
        }
        for number in 0..self.scenario.clients.len() {
            let client = self.start(number);
            self.clients.push(client);
        }
        let saving = tokio::spawn(save_often(self.server.clone(), self.scenario.saves_every_ms));
        let watching = match self.scenario.is_semaphore() {
            true => {
                Some(tokio::spawn(semaphore::watch(&self.scenario, &self.history, &self.server)))
            }
            false => {
                let is_watched = has_log && self.scenario.is_calm();
                is_watched.then(|| tokio::spawn(self.watch_waiting()))
            }
        };
        self.break_things().await;
        self.repair();
        self.await_callers().await;
        saving.abort();
        if let Some(watching) = watching {
            watching.abort();
        }
        if self.scenario.is_semaphore() {
            let (history, server) = (&self.history, &self.server);
            let all_ended = BACKGROUND_ENDED_WITHIN;
            semaphore::check_all_free(&self.scenario, history, server, all_ended).await;
        } else if !has_log {
            self.check_policies().await;
        } else {
            self.check_log().await;
            self.check_charges();
            self.check_all_permits_are_back().await;
        }
        self.check_nothing_is_left().await;
    }

    async fn create_limiter(&mut self) {
        let client = self.undisturbed_client();
        let limiter = client.limiter(NAME).unwrap();
        assert!(limiter.try_set_rate(self.rate).await.unwrap());
        client.close().await;
    }

    /// A client over a network without faults, for what no caller asks for.
    fn undisturbed_client(&mut self) -> Client {
        let random = self.random.fork();
        let link = Link::new(usize::MAX, &self.server, &self.history, Default::default(), random);
        self.client(&link, 1000, 0)
    }

    fn client(&mut self, link: &Arc<Link>, deadline_ms: u64, skew_ms: u64) -> Client {
        self.ids += 1;
        let clock = match self.scenario.uses_server_clock {
            true => Clock::server(),
            false => {
                let epoch = Duration::from_micros(self.clock.local_us().unsigned_abs());
                Clock::runtime_at(epoch + Duration::from_millis(skew_ms))
            }
        };
        let id = uuid_like(self.ids);
        let builder = Client::builder().id(id).clock(clock);
        let builder = builder.deadline(Duration::from_millis(deadline_ms));
        let client = builder.build(Store::Remote(RemoteStore(link.clone()))).unwrap();
        self.cores.push(Arc::downgrade(&client.limiter(NAME).unwrap().limiters().core));
        client
    }

    /// Starts a client's process, with all its callers.
    fn start(&mut self, number: usize) -> RunningClient {
        let plan = self.scenario.clients[number].clone();
        let link = Link::new(number, &self.server, &self.history, plan.weather, self.random.fork());
        let client = self.client(&link, plan.deadline_ms, plan.skew_ms);
        let callers = self.start_callers(number, &client, plan);
        RunningClient { client, link, callers }
    }

    fn start_callers(
        &mut self,
        number: usize,
        client: &Client,
        plan: ClientPlan,
    ) -> Vec<JoinHandle<()>> {
        let ends_at = self.scenario.lasts_ms;
        if let Some(semaphore) = semaphore::open(client, &plan, self.scenario.rate) {
            let holders = (0..plan.callers).map(|_| Holder {
                line: (number, self.history.now()),
                semaphore: semaphore.clone(),
                plan: plan.clone(),
                permits: self.scenario.rate,
                is_calm: self.scenario.is_calm(),
                random: self.random.fork(),
                history: self.history.clone(),
                server: self.server.clone(),
            });
            return holders.map(|holder| tokio::spawn(holder.run(ends_at))).collect();
        }
        if let Some(limits) = Limits::open(client, &self.scenario) {
            let takers = (0..plan.callers).map(|_| Taker {
                client: number,
                limits: limits.clone(),
                plan: plan.clone(),
                scenario: self.scenario.clone(),
                random: self.random.fork(),
                history: self.history.clone(),
                server: self.server.clone(),
            });
            return takers.map(|taker| tokio::spawn(taker.run(ends_at))).collect();
        }
        let mut options = LimiterOptions::new();
        if let Some((permits, hold_ms)) = plan.lease {
            options = options.lease(permits, Duration::from_millis(hold_ms));
        }
        if plan.is_greedy {
            options = options.greedy();
        }
        if let Some(ms) = plan.denial_memory_ms {
            options = options.denial_memory(Duration::from_millis(ms));
        }
        let limiter = client.limiter_with(NAME, options).unwrap().with_rate(self.rate);
        let wide = client.limiter(WIDE).unwrap().with_rate(self.wide_rate());
        let group = self.scenario.uses_group.then(|| client.all_of([&limiter, &wide]).unwrap());
        let callers = (0..plan.callers).map(|at| {
            let headroom = self.scenario.headroom.filter(|_| at % 2 == 1);
            let caller = Caller {
                client: number,
                limiter: match headroom {
                    Some(part) => limiter.clone().with_headroom(part).unwrap(),
                    None => limiter.clone(),
                },
                group: group.clone().filter(|_| headroom.is_none()),
                headroom,
                plan: plan.clone(),
                rate: self.rate,
                is_calm: self.scenario.is_calm(),
                random: self.random.fork(),
                history: self.history.clone(),
            };
            tokio::spawn(caller.run(ends_at))
        });
        callers.collect()
    }

    async fn break_things(&mut self) {
        let began = Instant::now() - Duration::from_millis(self.history.now());
        for (at, fault) in self.scenario.faults.clone() {
            sleep_until(began + Duration::from_millis(at)).await;
            self.history.event(0, "fault", "happens", &fault);
            match fault {
                Fault::Freeze { ms } => self.server.freeze(ms),
                Fault::Crash { away_ms, lost } => {
                    self.server.crash(lost);
                    let server = self.server.clone();
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(away_ms)).await;
                        server.come_back();
                    });
                }
                Fault::Evict(what) => self.server.evict(what),
                Fault::CutOff { client, ms } => self.clients[client].link.cut_for(ms),
                Fault::Kill { client } => {
                    self.history.killed(client, &self.server);
                    let new = self.start(client);
                    std::mem::replace(&mut self.clients[client], new).kill();
                }
            }
        }
        sleep_until(began + Duration::from_millis(self.scenario.lasts_ms)).await;
    }

    fn repair(&self) {
        self.server.come_back();
        for client in &self.clients {
            client.link.repair();
        }
        self.history.event(0, "everything", "repaired", &());
    }

    async fn await_callers(&mut self) {
        let until = Instant::now() + ALL_ENDED_WITHIN;
        for (number, client) in self.clients.iter_mut().enumerate() {
            for caller in &mut client.callers {
                let left = until.saturating_duration_since(Instant::now());
                match timeout(left, &mut *caller).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => {
                        self.history.violation(format!("client {number}: a caller panicked"))
                    }
                    Err(_) => {
                        self.history
                            .violation(format!("client {number}: a caller was never answered"));
                        caller.abort();
                    }
                }
            }
        }
    }

    /// While nothing goes wrong, permits that the first waiting caller of a class needs are not left lying.
    fn watch_waiting(&self) -> impl Future<Output = ()> + 'static {
        const LOOK_EVERY: u64 = 5;
        let (server, history) = (self.server.clone(), self.history.clone());
        let clients = &self.scenario.clients;
        let round_trip = clients.iter().map(|client| client.weather.round_trip_ms()).max();
        // What is left for others is so for 125 ms, a part of it for an interval of up to a second;
        // what they give back is noticed within a second.
        let others = match clients.as_slice() {
            [one] if one.is_greedy => 0,
            _ => 1000 + 2 * 125,
        };
        let limit = 4 * round_trip.unwrap_or(0) + 10 + others;
        let mut classes = vec![(None, None)];
        classes.extend(self.scenario.headroom.map(|part| (Some(part), None)));
        async move {
            loop {
                sleep(Duration::from_millis(LOOK_EVERY)).await;
                let Some(peek) = server.peek() else { continue };
                for (class, idle) in &mut classes {
                    let left = class.map_or(0, |part| part.headroom(peek.rate.permits()));
                    let records = history.records();
                    let first = records.waiting.iter().find(|(_, (_, of))| of == class);
                    let first = first.filter(|(_, (permits, _))| peek.available >= permits + left);
                    let first = first.map(|(call, _)| *call);
                    drop(records);
                    *idle = first.map(|call| match *idle {
                        Some((same, ms)) if same == call => (call, ms + LOOK_EVERY),
                        _ => (call, 0),
                    });
                    if let Some((call, ms)) = *idle
                        && ms > limit
                    {
                        history.violation(format!(
                            "call {call} waits, and its permits are free for {ms} ms"
                        ));
                        return;
                    }
                }
            }
        }
    }

    /// While nothing goes wrong, what the log has is what callers have kept.
    async fn check_log(&self) {
        let round_trips = self.scenario.clients.iter().map(|client| client.weather.round_trip_ms());
        sleep(Duration::from_millis(2 * round_trips.max().unwrap_or(0) + 5)).await;
        let records = self.history.records();
        let is_exact = self.scenario.is_calm()
            && !self.scenario.leases()
            && self.scenario.skew_ms() == 0
            && records.forgotten.is_empty();
        if !is_exact {
            return;
        }
        // The clocks of all clients may be ahead by the same time.
        let ahead = match self.scenario.uses_server_clock {
            true => 0,
            false => self.scenario.clients[0].skew_ms,
        };
        let from = (self.history.now() + ahead + 1).saturating_sub(self.scenario.interval_ms);
        let live =
            records.grants.iter().filter(|grant| grant.date.is_some_and(|date| date >= from));
        let kept: u64 = live.filter(|grant| !grant.is_of_key).map(|grant| grant.kept).sum();
        let charges = records.charges.values().filter(|charge| charge.date >= from);
        let kept = kept + charges.map(|charge| charge.permits).sum::<u64>();
        drop(records);
        // A server whose clock is behind would count entries that have expired by the others.
        let in_log = self.server.in_log(EPOCH_MS + from as i64);
        if in_log != kept {
            self.history
                .violation(format!("callers have kept {kept} permits, the log has {in_log}"));
        }
    }

    /// What nobody knew of is given back by then.
    async fn check_policies(&self) {
        sleep(BACKGROUND_ENDED_WITHIN).await;
        let client = self.clients.last();
        if let Some(limits) = client.and_then(|it| Limits::open(&it.client, &self.scenario)) {
            policy::check_all_counted(&self.scenario, &self.history, &self.server, &limits);
        }
    }

    /// What settled grants lacked is written once each, and while nothing goes wrong, all of it.
    fn check_charges(&self) {
        let records = self.history.records();
        let mut written: Vec<u64> = records.charges.values().map(|it| it.permits).collect();
        let mut settled = records.lacked.clone();
        drop(records);
        written.sort_unstable();
        settled.sort_unstable();
        let mut left = settled.iter();
        let is_once = written.iter().all(|permits| left.any(|settled| settled == permits));
        if !is_once || self.scenario.is_calm() && written.len() < settled.len() {
            self.history.violation(format!("charges of {settled:?} are written as {written:?}"));
        }
    }

    /// An interval after the last use, all permits are there.
    async fn check_all_permits_are_back(&mut self) {
        let interval = self.scenario.interval_ms;
        let all_expired = interval + self.scenario.longest_hold_ms() + self.scenario.skew_ms();
        sleep(BACKGROUND_ENDED_WITHIN + Duration::from_millis(all_expired)).await;
        let client = self.undisturbed_client();
        let limiter = client.limiter(NAME).unwrap().with_rate(self.rate);
        if !self.scenario.keeps_state() {
            // What was lost comes back an interval after the first look.
            let _ = limiter.try_acquire_now(1).await;
            let wide = client.limiter(WIDE).unwrap().with_rate(self.wide_rate());
            let _ = wide.try_acquire_now(1).await;
            sleep(Duration::from_millis(all_expired + 1)).await;
        }
        self.check_takes_all(&limiter).await;
        let wide = client.limiter(WIDE).unwrap().with_rate(self.wide_rate());
        self.check_takes_all(&wide).await;
        client.close().await;
    }

    fn wide_rate(&self) -> Rate {
        let permits = WIDE_FACTOR * self.scenario.rate;
        let rate = Rate::overall(permits, self.rate.interval());
        rate.unwrap_or_else(|_| unreachable!("it is in range"))
    }

    async fn check_takes_all(&self, limiter: &RateLimiter) {
        let rate = match limiter.config().await {
            Ok(Some(rate)) => rate.permits(),
            _ if limiter.name() == WIDE => self.wide_rate().permits(),
            _ => self.rate.permits(),
        };
        match limiter.try_acquire_now(rate).await {
            Ok(Decision::Granted(_)) => {}
            other => {
                self.history.violation(format!("at the end the whole rate, {rate}: {other:?}"))
            }
        }
    }

    /// Closed or dropped clients leave nothing behind: no task, and nothing in memory.
    async fn check_nothing_is_left(mut self) {
        for client in self.clients.drain(..) {
            client.client.close().await;
        }
        sleep(BACKGROUND_ENDED_WITHIN).await;
        let tasks = Handle::current().metrics().num_alive_tasks();
        let cores = self.cores.iter().filter(|core| core.strong_count() > 0).count();
        if tasks + cores > 0 {
            self.history.violation(format!("{tasks} tasks and {cores} clients are left"));
        }
    }
}

impl RunningClient {
    /// Its process is gone: nothing of it is sent or received any more.
    fn kill(self) {
        self.link.kill();
        for caller in self.callers {
            caller.abort();
        }
    }
}

async fn save_often(server: Arc<SimServer>, every_ms: u64) {
    loop {
        server.save();
        sleep(Duration::from_millis(every_ms)).await;
    }
}

fn uuid_like(number: u128) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}
