//! What callers do: they come again and again, wait, give up, and give back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::EPOCH_MS;
use super::history::{GrantSeen, History, KeySeen, PauseSeen};
use super::random::SeededRandom;
use super::scenario::ClientPlan;
use crate::decision::{DecidedBy, Decision, Grant};
use crate::error::{Error, ErrorKind};
use crate::group::LimitGroup;
use crate::limiter::RateLimiter;
use crate::limiter::rates::Usage;
use crate::options::Fraction;
use crate::rate::Rate;

pub(super) struct Caller {
    pub(super) client: usize,
    pub(super) limiter: RateLimiter,
    /// The limiter with a second one, of which it takes as much.
    pub(super) group: Option<LimitGroup>,
    /// What the limiter's handle leaves to others.
    pub(super) headroom: Option<Fraction>,
    pub(super) plan: ClientPlan,
    /// The rate that the limiter begins with.
    pub(super) rate: Rate,
    pub(super) is_calm: bool,
    pub(super) random: SeededRandom,
    pub(super) history: Arc<History>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Now,
    /// What there is, instead of all.
    UpTo,
    /// For this key.
    Once(u64),
    Within(u64),
    Unbounded,
}

impl Caller {
    /// Calls until `ends_at`.
    pub(super) async fn run(mut self, ends_at: u64) {
        loop {
            sleep(Duration::from_millis(self.random.between(0..=self.plan.think_ms))).await;
            if self.history.now() >= ends_at {
                return;
            }
            if self.random.per_mille(self.plan.sets_rates) {
                self.set_rate().await;
            } else if self.random.per_mille(self.plan.pauses) {
                self.pause().await;
            } else {
                self.acquire().await;
            }
        }
    }

    async fn set_rate(&mut self) {
        let permits = self.random.between(1..=2 * self.rate.permits());
        let rate = Rate::overall(permits, self.rate.interval());
        let rate = rate.unwrap_or_else(|_| unreachable!("it is in range"));
        let begun = self.history.now();
        let (result, what) = match self.random.per_mille(300) {
            true => (self.limiter.set_rate(rate).await, "set_rate"),
            false => (self.limiter.update_rate(rate, Usage::Keep).await.map(drop), "update_rate"),
        };
        let ended = self.history.now();
        self.history.event(self.client, what, "done", &(permits, result.is_ok()));
        self.history.records().resets.push((self.client, begun, ended));
        self.check_time(what, begun, self.plan.deadline_ms);
        if let Err(error) = result {
            self.check_error(&error);
        }
    }

    /// Pauses the limiter, or ends a pause.
    async fn pause(&mut self) {
        let (client, begun) = (self.client, self.history.now());
        let ms = self.random.between(1..=2 * self.rate.interval_ms());
        let (result, what) = match self.random.per_mille(700) {
            true => (self.limiter.pause_for(Duration::from_millis(ms)).await, "pause_for"),
            false => (self.limiter.resume().await, "resume"),
        };
        let told = self.history.now();
        self.history.event(client, what, "done", &(ms, result.is_ok()));
        if what == "pause_for" {
            let mut records = self.history.records();
            records.resets.push((client, begun, told));
            let pause = PauseSeen { client, begun, told, ends: begun + ms };
            records.pauses.extend(result.is_ok().then_some(pause));
        }
        // A pause that finds no limiter creates it, and is asked for again.
        let calls = if self.is_calm || what == "resume" { 1 } else { 3 };
        self.check_time(what, begun, calls * self.plan.deadline_ms);
        if let Err(error) = result {
            self.check_error(&error);
        }
    }

    /// When a caller loses interest.
    fn gives_up_after(&mut self) -> Duration {
        match self.random.per_mille(self.plan.cancels) {
            true => Duration::from_millis(self.random.between(0..=self.rate.interval_ms())),
            false => Duration::from_secs(86_400),
        }
    }

    async fn acquire(&mut self) {
        let permits = match self.random.between(0..=9) {
            0..=6 => 1,
            7..=8 => self.random.between(1..=3),
            _ => self.random.between(1..=self.rate.permits()),
        };
        let kind = match self.random.between(0..=9) {
            _ if self.random.per_mille(self.plan.keys) => Kind::Once(self.random.between(0..=2)),
            0..=2 => Kind::Now,
            3 => Kind::UpTo,
            4..=7 => Kind::Within(self.random.between(1..=2 * self.rate.interval_ms())),
            _ => Kind::Unbounded,
        };
        // Dropped after this time, if it is not answered before.
        let gives_up_after = self.gives_up_after();
        let begun = self.history.now();
        let waits = matches!(kind, Kind::Within(_) | Kind::Unbounded);
        let call = self.history.call_begins(waits.then_some((permits, self.headroom)));
        self.history.event(self.client, "call", "begins", &(call, permits, kind));
        let (limiter, group) = (self.limiter.clone(), self.group.clone());
        let answer = timeout(gives_up_after, async {
            match (kind, group) {
                (Kind::Now, None) => limiter.try_acquire_now(permits).await,
                (Kind::UpTo, None) => limiter.try_acquire_up_to(permits).await,
                (Kind::Once(key), _) => limiter.try_acquire_once([key as u8], permits).await,
                (Kind::Within(ms), None) => {
                    limiter.try_acquire(permits, Duration::from_millis(ms)).await
                }
                (Kind::Unbounded, None) => limiter.acquire(permits).await.map(Decision::Granted),
                (Kind::Now | Kind::UpTo, Some(group)) => group.try_acquire_now(permits).await,
                (Kind::Within(ms), Some(group)) => {
                    group.try_acquire(permits, Duration::from_millis(ms)).await
                }
                (Kind::Unbounded, Some(group)) => {
                    group.acquire(permits).await.map(Decision::Granted)
                }
            }
        })
        .await;
        self.history.call_ends(call);
        let Ok(answer) = answer else {
            self.history.event(self.client, "call", "given up", &call);
            return;
        };
        match kind {
            Kind::Now | Kind::UpTo | Kind::Once(_) => {
                self.check_time("a call that does not wait", begun, self.plan.deadline_ms);
            }
            Kind::Within(ms) => {
                // One attempt longer, a third of the deadline.
                let attempt_ms = self.plan.deadline_ms / 3;
                self.check_time("a call with a timeout", begun, ms + attempt_ms);
            }
            Kind::Unbounded => {}
        }
        match answer {
            Ok(Decision::Granted(grant)) => match kind {
                Kind::Once(key) => self.use_grant_of_key(call, key, grant),
                _ => self.use_grant(call, kind, grant).await,
            },
            Ok(Decision::Denied(denial)) => {
                self.history.event(self.client, "call", "denied", &denial)
            }
            Err(error) => self.check_error(&error),
        }
    }

    fn seen(&self, call: u64, kind: Kind, grant: &Grant) -> GrantSeen {
        GrantSeen {
            client: self.client,
            headroom: self.headroom,
            is_of_key: matches!(kind, Kind::Once(_)),
            call,
            is_unbounded: matches!(kind, Kind::Unbounded),
            is_leased: grant.decided_by() == DecidedBy::Lease,
            at: self.history.now(),
            date: grant.entry().map(|entry| entry.date.saturating_sub(EPOCH_MS) as u64),
            decided_after: self.history.decided_after(grant),
            allowed_ms: self.limiter.limiters().core.longest_on_time_ms(self.rate.interval_ms()),
            kept: grant.permits(),
        }
    }

    /// The same grant counts once, whoever gets it.
    fn use_grant_of_key(&self, call: u64, key: u64, grant: Grant) {
        let seen = self.seen(call, Kind::Once(key), &grant);
        let date = seen.date.unwrap_or_default();
        let answer = KeySeen { key, date, permits: grant.permits(), told: seen.at };
        self.history.event(self.client, "key", "granted", &answer);
        let is_same = |other: &KeySeen| (other.key, other.date) == (key, date);
        let is_known = self.history.records().of_keys.iter().any(is_same);
        self.history.records().of_keys.push(answer);
        if !is_known {
            self.history.granted(seen);
        }
    }

    async fn use_grant(&mut self, call: u64, kind: Kind, mut grant: Grant) {
        let number = self.history.granted(self.seen(call, kind, &grant));
        if self.random.per_mille(self.plan.settles) {
            self.settle(call, number, &mut grant).await;
        }
        if grant.permits() > 0 && self.random.per_mille(self.plan.refunds) {
            self.refund(call, number, grant).await;
        }
    }

    async fn refund(&mut self, call: u64, number: usize, mut grant: Grant) {
        sleep(Duration::from_millis(self.random.between(0..=self.rate.interval_ms() / 2))).await;
        let permits = self.random.between(1..=grant.permits());
        // From now on its caller does not use them.
        let kept = self.history.records().grants[number].kept.checked_sub(permits);
        let Some(kept) = kept else {
            return self.history.violation(format!("call {call} holds more than it had acquired"));
        };
        self.history.records().grants[number].kept = kept;
        let begun = self.history.now();
        let refund = grant.refund(permits).await;
        self.history.event(self.client, "refund", "done", &(call, permits, refund.is_ok()));
        self.check_time("a refund", begun, self.plan.deadline_ms);
        match refund {
            Ok(credited) if credited > permits => {
                self.history.violation(format!("a refund of {permits} credits {credited}"));
            }
            Ok(_) => {}
            Err(error) => self.check_error(&error),
        }
    }

    /// Settles a grant with fewer permits than were acquired, or with more.
    async fn settle(&mut self, call: u64, number: usize, grant: &mut Grant) {
        sleep(Duration::from_millis(self.random.between(0..=self.rate.interval_ms() / 2))).await;
        let held = grant.permits();
        let actual = self.random.between(0..=2 * held);
        let gives_up_after = self.gives_up_after();
        let begun = self.history.now();
        {
            let mut records = self.history.records();
            records.grants[number].kept -= held.saturating_sub(actual);
            records.lacked.extend(actual.checked_sub(held).filter(|permits| *permits > 0));
        }
        let settled = timeout(gives_up_after, grant.settle(actual)).await;
        self.history.event(self.client, "settle", "done", &(call, held, actual, &settled));
        self.check_time("a settlement", begun, self.plan.deadline_ms);
        // Given up, it goes on.
        if let Ok(Err(error)) = settled {
            return self.check_error(&error);
        }
        if grant.settle(actual).await.is_ok() {
            self.history.violation(format!("call {call} is settled twice"));
        }
    }

    fn check_time(&self, what: &str, begun: u64, limit_ms: u64) {
        self.history.check_time(self.client, what, begun, limit_ms);
    }

    fn check_error(&self, error: &Error) {
        self.history.event(self.client, "call", "failed", &error.kind());
        let is_expected = match error.kind() {
            ErrorKind::ExceedsRate { .. } => true,
            ErrorKind::Unavailable | ErrorKind::Timeout => !self.is_calm,
            // Operations that do not create the limiter, after a crash that has lost it.
            ErrorKind::NotInitialized => !self.is_calm,
            _ => false,
        };
        if !is_expected {
            self.history.violation(format!("client {}: unexpected: {error}", self.client));
        }
    }
}
