//! Limiters with policies: their callers, and what judges them.
//!
//! - The permits that callers have, and those that are free, are never more than the limit, where nothing comes back
//!   with time.
//! - Once all have gone, what callers have kept is what the limiter has granted: nothing counted twice, and nothing is
//!   lost, unless a process was killed or a refund failed.
//! - Every call is answered by its deadline; of one client, those that wait without end in the order of their arrival.
//!
//! No server forgets anything here: a policy's state has no entries that say what was lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::EPOCH_MS;
use super::history::{History, Ms};
use super::random::SeededRandom;
use super::scenario::{ClientPlan, Fault, SimScenario};
use super::server::{NAME, SimServer};
use crate::client::Client;
use crate::decision::{Decision, Grant};
use crate::error::{Error, ErrorKind};
use crate::group::LimitGroup;
use crate::limiter::RateLimiter;
use crate::policy::Policy;

/// The second limiter of groups.
const SECOND: &str = "second";

/// What is known of a run's permits.
#[derive(Default)]
pub(super) struct PolicyRecords {
    /// What callers have that they have not given back.
    kept: u64,
    /// Given back in vain, or not for sure.
    lost: u64,
    /// By client: the last call that was served of those that wait without end.
    last_served: BTreeMap<usize, u64>,
    pub(super) grants: usize,
}

/// The policies of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    kind: u64,
    /// Permits come back within a second; otherwise nothing comes back with time.
    pub(super) is_fast: bool,
    /// Callers take from two limiters in one decision.
    uses_group: bool,
}

impl Plan {
    pub(super) fn draw(random: &mut SeededRandom) -> Self {
        let is_fast = random.per_mille(300);
        Plan {
            kind: random.between(0..=if is_fast { 6 } else { 5 }),
            is_fast,
            uses_group: random.per_mille(300),
        }
    }

    fn policy(&self, limit: u64, interval_ms: u64) -> Policy {
        const YEAR: Duration = Duration::from_secs(31_536_000);
        let width = if self.is_fast { Duration::from_millis(interval_ms) } else { YEAR };
        let since_1970 = Duration::from_millis(EPOCH_MS as u64).as_micros() % width.as_micros();
        let policy = match self.kind {
            0 => Policy::bucket(limit, if self.is_fast { limit } else { 1 }, width),
            1 => Policy::fixed_window(limit, width)
                .and_then(|policy| policy.with_offset(Duration::from_micros(since_1970 as u64))),
            2 => Policy::anchored_window(limit, width),
            3 => Policy::sliding_counter(limit, width),
            4 => Policy::rolling_window(limit, width),
            5 => Policy::interval_bucket(limit, limit, width),
            _ => Policy::queue(limit, width, Duration::ZERO),
        };
        policy.unwrap()
    }

    /// What a refund credits may be less than was granted, so that nobody gets more than without the grant.
    fn is_exact(&self) -> bool {
        !matches!(self.kind, 0 | 5)
    }
}

/// What a client's callers take from.
#[derive(Clone)]
pub(super) struct Limits {
    limiter: RateLimiter,
    second: RateLimiter,
    group: Option<LimitGroup>,
}

impl Limits {
    pub(super) fn open(client: &Client, scenario: &SimScenario) -> Option<Limits> {
        let plan = scenario.policy?;
        let policy = |factor| plan.policy(factor * scenario.rate, scenario.interval_ms);
        let limiter = client.limiter_of(NAME, policy(1)).unwrap();
        let second = client.limiter_of(SECOND, policy(2)).unwrap();
        let group = plan.uses_group.then(|| client.all_of([&limiter, &second]).unwrap());
        Some(Limits { limiter, second, group })
    }

    async fn now(&self, permits: u64) -> Result<Decision, Error> {
        match &self.group {
            None => self.limiter.try_acquire_now(permits).await,
            Some(group) => group.try_acquire_now(permits).await,
        }
    }

    async fn within(&self, permits: u64, time: Duration) -> Result<Decision, Error> {
        match &self.group {
            None => self.limiter.try_acquire(permits, time).await,
            Some(group) => group.try_acquire(permits, time).await,
        }
    }

    async fn unbounded(&self, permits: u64) -> Result<Grant, Error> {
        match &self.group {
            None => self.limiter.acquire(permits).await,
            Some(group) => group.acquire(permits).await,
        }
    }
}

pub(super) struct Taker {
    pub(super) client: usize,
    pub(super) limits: Limits,
    pub(super) plan: ClientPlan,
    pub(super) scenario: SimScenario,
    pub(super) random: SeededRandom,
    pub(super) history: Arc<History>,
    pub(super) server: Arc<SimServer>,
}

impl Taker {
    /// Takes permits, and gives most of them back, until `ends_at`.
    pub(super) async fn run(mut self, ends_at: Ms) {
        loop {
            sleep(Duration::from_millis(self.random.between(0..=self.plan.think_ms))).await;
            if self.history.now() >= ends_at {
                return;
            }
            self.acquire().await;
        }
    }

    fn is_fast(&self) -> bool {
        self.scenario.policy.is_some_and(|plan| plan.is_fast)
    }

    async fn acquire(&mut self) {
        let permits = match self.random.between(0..=9) {
            0..=6 => 1,
            _ => self.random.between(1..=self.scenario.rate),
        };
        let longest = 2 * self.scenario.interval_ms;
        let wait_ms = match self.random.between(0..=9) {
            0..=3 => Some(0),
            // What does not come back with time is waited for no longer than a caller cares.
            9 if self.is_fast() => None,
            _ => Some(self.random.between(1..=longest)),
        };
        let gives_up_after = match self.random.per_mille(self.plan.cancels) {
            true => Duration::from_millis(self.random.between(0..=longest / 2)),
            false => Duration::from_secs(86_400),
        };
        let begun = self.history.now();
        let call = self.history.call_begins(None);
        self.history.event(self.client, "call", "begins", &(call, permits, wait_ms));
        let limits = self.limits.clone();
        let answer = timeout(gives_up_after, async {
            match wait_ms {
                Some(0) => limits.now(permits).await,
                Some(ms) => limits.within(permits, Duration::from_millis(ms)).await,
                None => limits.unbounded(permits).await.map(Decision::Granted),
            }
        })
        .await;
        let Ok(answer) = answer else {
            return self.history.event(self.client, "call", "given up", &call);
        };
        let limit_ms = match wait_ms {
            Some(0) => self.plan.deadline_ms,
            Some(ms) => ms + self.plan.deadline_ms / 3,
            None => Ms::MAX / 2,
        };
        self.ended("a call", begun, limit_ms, &answer);
        if let Ok(Decision::Granted(grant)) = answer {
            self.hold(call, wait_ms.is_none(), grant).await;
        }
    }

    async fn hold(&mut self, call: u64, is_unbounded: bool, mut grant: Grant) {
        let (client, permits) = (self.client, grant.permits());
        let last = {
            let mut records = self.history.records();
            let records = &mut records.policy;
            records.kept += permits;
            records.grants += 1;
            let last = records.last_served.entry(client).or_default();
            if is_unbounded { std::mem::replace(last, call.max(*last)) } else { 0 }
        };
        if call < last {
            self.history.violation(format!("call {last} was served before {call}"));
        }
        self.check_not_too_many();
        if !self.random.per_mille(800) {
            return;
        }
        let longest = self.scenario.interval_ms / 2;
        sleep(Duration::from_millis(self.random.between(0..=longest))).await;
        // From now on its caller does not use them.
        let back = self.random.between(1..=permits);
        self.history.records().policy.kept -= back;
        let begun = self.history.now();
        let refund = grant.refund(back).await;
        self.ended("a refund", begun, self.plan.deadline_ms, &refund);
        match refund {
            Ok(credited) if credited > back => {
                self.history.violation(format!("a refund of {back} credits {credited}"));
            }
            Ok(credited) => self.history.records().policy.lost += back - credited,
            Err(_) => self.history.records().policy.lost += back,
        }
    }

    fn check_not_too_many(&self) {
        if !self.is_fast() {
            let free = self.server.free(&self.limits.limiter);
            let kept = self.history.records().policy.kept;
            if kept + free > self.scenario.rate {
                let limit = self.scenario.rate;
                let what = format!("callers have {kept} permits of {limit}, and {free} are free");
                self.history.violation(what);
            }
        }
    }

    fn ended<T: std::fmt::Debug>(
        &self,
        what: &str,
        begun: Ms,
        limit: Ms,
        result: &Result<T, Error>,
    ) {
        self.history.event(self.client, what, "ended", result);
        self.history.check_time(self.client, what, begun, limit);
        let Err(error) = result else { return };
        let is_expected = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout => !self.scenario.is_calm(),
            _ => false,
        };
        if !is_expected {
            self.history.violation(format!("client {}: unexpected: {error}", self.client));
        }
    }
}

/// Once all have gone, what is not free is what callers have kept, in both limiters of a group.
pub(super) fn check_all_counted(
    scenario: &SimScenario,
    history: &History,
    server: &SimServer,
    limits: &Limits,
) {
    let Some(plan) = scenario.policy.filter(|plan| !plan.is_fast) else { return };
    let (kept, lost) = {
        let records = &history.records().policy;
        (records.kept, records.lost)
    };
    let is_killed = |(_, fault): &(u64, Fault)| matches!(fault, Fault::Kill { .. });
    let is_exact = plan.is_exact() && !scenario.faults.iter().any(is_killed);
    let second = plan.uses_group.then_some((&limits.second, 2 * scenario.rate));
    for (limiter, limit) in [(&limits.limiter, scenario.rate)].into_iter().chain(second) {
        let taken = limit - server.free(limiter);
        if taken < kept || is_exact && taken > kept + lost {
            let name = limiter.name();
            history.violation(format!(
                "{taken} permits of {name} are taken, where callers have {kept} and {lost} may be lost"
            ));
        }
    }
}
