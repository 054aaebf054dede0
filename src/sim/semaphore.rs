//! Semaphores of both kinds: their holders, and what judges them.
//!
//! - Never more permits are held than there are. Those of a killed process are held until their leases end; those
//!   that a crash has made the server forget do not count.
//! - On the server, each permit is free or out. Once all callers have gone, all are free: at once, unless something
//!   can take permits after it was given up, and in any case when the leases have ended.
//! - A permit that is renewed is lost only after two attempts in vain, and then for good.
//! - Calls of one process are served in the order of their arrival.
//! - No call waits beside free permits for longer than the beat of a second.
//!
//! No process is killed that uses a plain semaphore, and its server forgets nothing: what is lost with them does not
//! come back. Its permits have no ids, and are never lost.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::EPOCH_MS;
use super::history::{History, Ms};
use super::random::SeededRandom;
use super::scenario::{ClientPlan, SimScenario};
use super::server::{NAME, SimServer};
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::queue::ATTEMPTS_PER_DEADLINE;
use crate::semaphore::{Permit, Semaphore, SemaphoreOptions};

/// What is known of a run's semaphore.
#[derive(Default)]
pub(super) struct SemaphoreRecords {
    held: Vec<Held>,
    pub(super) grants: usize,
    /// By client, and when its process was started.
    lines: BTreeMap<LineId, Line>,
    /// Permits that the server has forgotten, or whose lease it made shorter.
    pub(super) forgotten: HashSet<Vec<u8>>,
    /// The attempts of each client at taking and renewing permits: when they were sent, and how long they took.
    attempts: Vec<(usize, Ms, Option<Ms>)>,
}

pub(super) type LineId = (usize, Ms);

/// The calls of one process.
#[derive(Default)]
struct Line {
    /// Permits, by call.
    waiting: BTreeMap<u64, u64>,
    /// The last call that was granted permits, and when.
    last_granted: (Ms, u64),
}

/// The permits of one grant.
struct Held {
    client: usize,
    ids: Vec<Vec<u8>>,
    /// When its call began.
    begun: Ms,
    /// As long as somebody holds it.
    permit: Weak<Permit>,
    /// Its process was killed: when its lease ends.
    ends: Option<Ms>,
}

impl Held {
    fn counts(&self, now: Ms) -> bool {
        let is_held = || self.permit.upgrade().is_some_and(|permit| !permit.is_lost());
        self.ends.map_or_else(is_held, |end| now < end)
    }
}

pub(super) struct Holder {
    pub(super) line: LineId,
    pub(super) semaphore: Semaphore,
    pub(super) plan: ClientPlan,
    /// How many permits the semaphore begins with.
    pub(super) permits: u64,
    pub(super) is_calm: bool,
    pub(super) random: SeededRandom,
    pub(super) history: Arc<History>,
    pub(super) server: Arc<SimServer>,
}

pub(super) fn open(client: &Client, plan: &ClientPlan, permits: u64) -> Option<Semaphore> {
    let (lease_ms, renews) = plan.permits?;
    let (options, lease) =
        (SemaphoreOptions::new().permits(permits), Duration::from_millis(lease_ms));
    if plan.is_plain {
        return Some(client.semaphore_with(NAME, options).unwrap());
    }
    let options = if renews { options.lease(lease) } else { options.fixed_lease(lease) };
    Some(client.concurrency_with(NAME, options).unwrap())
}

impl Holder {
    /// Takes permits and gives them back until `ends_at`.
    pub(super) async fn run(mut self, ends_at: Ms) {
        loop {
            sleep(Duration::from_millis(self.random.between(0..=self.plan.think_ms))).await;
            if self.history.now() >= ends_at {
                return;
            }
            match self.random.per_mille(self.plan.sets_rates) {
                true => self.set_permits().await,
                false => self.acquire().await,
            }
        }
    }

    async fn set_permits(&mut self) {
        let begun = self.history.now();
        let result = match self.random.between(0..=2) {
            0 => self.semaphore.set_permits(self.random.between(1..=2 * self.permits)).await,
            1 => self.semaphore.add_permits(1).await,
            _ => self.semaphore.add_permits(-1).await,
        };
        self.ended("set_permits", begun, self.plan.deadline_ms, &result);
    }

    async fn acquire(&mut self) {
        let permits = match self.random.between(0..=9) {
            0..=6 => 1,
            _ => self.random.between(1..=self.permits),
        };
        let wait_ms = self.random.one_of(&[Some(0), Some(300), Some(2500), None]);
        let wait_ms = wait_ms.map(|ms| self.random.between(0..=ms));
        let gives_up_after = match self.random.per_mille(self.plan.cancels) {
            true => Duration::from_millis(self.random.between(0..=300)),
            false => Duration::from_secs(86_400),
        };
        let begun = self.history.now();
        let call = self.history.call_begins(None);
        self.history.event(self.line.0, "call", "begins", &(call, permits, wait_ms));
        self.in_line(|line| line.waiting.insert(call, permits));
        let semaphore = self.semaphore.clone();
        let answer = timeout(gives_up_after, async {
            match wait_ms {
                Some(0) => semaphore.try_acquire_now(permits).await,
                Some(ms) => semaphore.try_acquire(permits, Duration::from_millis(ms)).await,
                None => semaphore.acquire(permits).await.map(Ok),
            }
        })
        .await;
        self.in_line(|line| line.waiting.remove(&call));
        let Ok(answer) = answer else {
            return self.history.event(self.line.0, "call", "given up", &call);
        };
        let limit_ms = match wait_ms {
            Some(0) => self.plan.deadline_ms,
            Some(ms) => ms + self.plan.deadline_ms / ATTEMPTS_PER_DEADLINE,
            None => Ms::MAX / 2,
        };
        self.ended("an acquire", begun, limit_ms, &answer);
        if let Ok(Ok(permit)) = answer {
            self.hold(call, begun, permit).await;
        }
    }

    async fn hold(&mut self, call: u64, begun: Ms, permit: Permit) {
        let granted = (self.history.now(), call);
        let (at, last) = self.in_line(|line| std::mem::replace(&mut line.last_granted, granted));
        // In one moment, whoever is told first may run last.
        if call < last && granted.0 > at {
            self.history.violation(format!("call {last} was served before {call}"));
        }
        let ids = match self.plan.is_plain {
            true => vec![Vec::new(); permit.permits() as usize],
            false => permit.unseen_ids().iter().map(|id| id.0.to_vec()).collect(),
        };
        let (permit, client) = (Arc::new(permit), self.line.0);
        let held = Held { client, ids, begun, permit: Arc::downgrade(&permit), ends: None };
        let ids = held.ids.clone();
        self.history.holds(held, &self.server);
        let (lease_ms, renews) = self.plan.permits.unwrap_or_default();
        let hold_ms = self.random.one_of(&[10, 100, (2 * lease_ms).min(4000)]);
        let hold = Duration::from_millis(self.random.between(0..=hold_ms));
        if timeout(hold, permit.lost()).await.is_ok() {
            self.history.event(client, "permits", "lost", &call);
            if self.plan.is_plain
                || renews && !self.history.may_lose(client, &ids, lease_ms, &self.server)
            {
                self.history.violation(format!("client {client} loses what call {call} took"));
            }
            sleep(Duration::from_millis(self.random.between(0..=200))).await;
            if !permit.is_lost() {
                self.history.violation(format!("call {call} has its lost permits again"));
            }
        }
        let was_lost = permit.is_lost();
        let Some(permit) = Arc::into_inner(permit).filter(|_| self.random.per_mille(500)) else {
            return self.history.event(client, "permits", "dropped", &call);
        };
        let begun = self.history.now();
        let released = permit.release().await;
        self.ended("a release", begun, self.plan.deadline_ms, &released);
        if self.is_calm && !was_lost && renews && !matches!(released, Ok(true)) {
            self.history.violation(format!("what call {call} took is {released:?} at its release"));
        }
    }

    fn in_line<T>(&self, act: impl FnOnce(&mut Line) -> T) -> T {
        act(self.history.records().semaphore.lines.entry(self.line).or_default())
    }

    fn ended<T: std::fmt::Debug>(
        &self,
        what: &str,
        begun: Ms,
        limit: Ms,
        result: &Result<T, Error>,
    ) {
        self.history.event(self.line.0, what, "ended", result);
        self.history.check_time(self.line.0, what, begun, limit);
        let Err(error) = result else { return };
        let is_expected = match error.kind() {
            // More than there are by now.
            ErrorKind::InvalidArgument => !self.is_calm || self.plan.sets_rates > 0,
            ErrorKind::Unavailable | ErrorKind::Timeout => !self.is_calm,
            _ => false,
        };
        if !is_expected {
            self.history.violation(format!("client {}: unexpected: {error}", self.line.0));
        }
    }
}

impl History {
    pub(super) fn attempt_begins(&self, client: usize, call: &str) -> Option<usize> {
        let matters = ["SemaphoreAcquireCall", "RenewCall"].contains(&call);
        let (now, mut records) = (self.now(), self.records());
        records.semaphore.attempts.extend(matters.then_some((client, now, None)));
        matters.then(|| records.semaphore.attempts.len() - 1)
    }

    pub(super) fn attempt_ends(&self, attempt: Option<usize>, is_answered: bool) {
        let now = self.now();
        if let Some(attempt) = attempt.filter(|_| is_answered) {
            let (_, sent, took) = &mut self.records().semaphore.attempts[attempt];
            *took = Some(now - *sent);
        }
    }

    /// At no time more permits are held than there are, apart from those that the server has forgotten.
    fn holds(&self, held: Held, server: &SimServer) {
        let now = self.now();
        self.event(held.client, "permits", "held", &held.ids.len());
        let mut records = self.records();
        records.semaphore.held.retain(|held| held.counts(now));
        records.semaphore.held.push(held);
        records.semaphore.grants += 1;
        let SemaphoreRecords { held, forgotten, .. } = &records.semaphore;
        let is_known = |id: &&Vec<u8>| !forgotten.contains(*id) || server.lease_end(id).is_some();
        let permits = held.iter().flat_map(|held| &held.ids).filter(is_known).count() as u64;
        let from = held.iter().map(|held| held.begun).min().unwrap_or(now);
        let most = records.highest_rate(from, now);
        drop(records);
        if permits > most {
            self.violation(format!("{permits} permits of {most} are held"));
        }
    }

    /// Whether the server has forgotten the permits, or the client tried in vain to renew them.
    fn may_lose(&self, client: usize, ids: &[Vec<u8>], lease_ms: Ms, server: &SimServer) -> bool {
        let from = self.now().saturating_sub(lease_ms);
        let records = self.records();
        let SemaphoreRecords { forgotten, attempts, .. } = &records.semaphore;
        let in_vain = |(of, sent, took): &&(usize, Ms, Option<Ms>)| {
            *of == client && *sent >= from && took.is_none_or(|took| took > lease_ms / 4)
        };
        attempts.iter().filter(in_vain).count() >= 2
            || ids.iter().any(|id| forgotten.contains(id) && server.lease_end(id).is_none())
    }

    /// The client's process is killed: its permits come back when their leases end.
    pub(super) fn killed(&self, client: usize, server: &SimServer) {
        let (now, mut records) = (self.now(), self.records());
        let records = &mut records.semaphore;
        records.lines.retain(|(of, _), _| *of != client);
        records.held.retain(|held| held.counts(now));
        let is_killed = |held: &&mut Held| held.client == client && held.ends.is_none();
        for held in records.held.iter_mut().filter(is_killed) {
            let end = held.ids.iter().map(|id| server.lease_end(id).unwrap_or(0)).min();
            let end = end.map_or(0, |end| end.saturating_sub(EPOCH_MS).max(0) as Ms);
            held.ends = Some(end);
        }
    }
}

/// The first call of each process takes permits that are free, within the beat of a second.
pub(super) fn watch(
    scenario: &SimScenario,
    history: &Arc<History>,
    server: &Arc<SimServer>,
) -> impl Future<Output = ()> + 'static {
    const LOOK_EVERY: Ms = 5;
    let round_trip = scenario.clients.iter().map(|client| client.weather.round_trip_ms()).max();
    let (from, trouble) = match scenario.is_calm() {
        true => (0, 0),
        // An attempt that is under way when everything is repaired, and the pause after it.
        false => (scenario.lasts_ms, 1000),
    };
    let limit = 1000 + 4 * round_trip.unwrap_or(0) + 10 + trouble;
    let (history, server) = (history.clone(), server.clone());
    async move {
        sleep(Duration::from_millis(from)).await;
        // Since when each line's first call could have been served.
        let mut free = BTreeMap::new();
        loop {
            sleep(Duration::from_millis(LOOK_EVERY)).await;
            let (now, available) = (history.now(), server.counts().available);
            let records = history.records();
            let firsts = records.semaphore.lines.iter().filter_map(|(line, calls)| {
                let (call, permits) = calls.waiting.first_key_value()?;
                (available >= *permits as i64).then_some((*line, *call))
            });
            free = firsts.map(|first| (first, *free.get(&first).unwrap_or(&now))).collect();
            drop(records);
            if let Some(((_, call), since)) = free.iter().find(|(_, since)| now > **since + limit) {
                let what = format!("call {call} waits, and its permits are free since {since} ms");
                return history.violation(what);
            }
        }
    }
}

/// Once all have gone, all permits are free: at once if nobody was killed, and in any case when the leases have ended.
pub(super) async fn check_all_free(
    scenario: &SimScenario,
    history: &History,
    server: &SimServer,
    all_ended: Duration,
) {
    const BACK_WITHIN: Duration = Duration::from_secs(3);
    if scenario.gives_back_at_once() {
        sleep(BACK_WITHIN).await;
        check_free(history, server);
    }
    let leases = scenario.clients.iter().filter_map(|client| client.permits);
    let longest = leases.map(|(ms, _)| ms).max().unwrap_or(0);
    sleep(all_ended + Duration::from_millis(longest)).await;
    check_free(history, server);
}

fn check_free(history: &History, server: &SimServer) {
    let (counts, permits) = (server.counts(), server.permits());
    if counts.available != counts.total || permits.is_some_and(|all| all != counts.total) {
        history
            .violation(format!("all have gone, and of {permits:?} permits there are {counts:?}"));
    }
}
