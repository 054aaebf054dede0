//! The server: the in-process store, and what can happen to it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::EPOCH_MS;
use super::history::History;
use super::scenario::{Evicted, Lost, SimScenario};
use crate::clock::Clock;
use crate::error::Error;
use crate::limiter::RateLimiter;
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::{Content, Snapshot};
use crate::store::{
    AcquireCall, ChargeCall, Heard, PauseCall, Peek, PeekCall, PolicyPeekCall,
    SemaphoreAcquireCall, SemaphoreCounts, SemaphoreCountsCall, SemaphoreKind, SetPermits,
    SetPermitsCall, StoreCall,
};
use crate::wire::entry::{EntryId, Holder, holder, is_pause, unpack};
use crate::wire::keys::Keys;

/// The limiter of all clients.
pub(super) const NAME: &str = "api";

pub(super) struct SimServer {
    store: InProcessStore,
    clock: Clock,
    keys: Keys,
    /// With which callers create the limiter, if there is none.
    first_rate: u64,
    interval_ms: u64,
    history: Arc<History>,
    /// Nothing is lost: value and log always add up to the rate.
    keeps_state: bool,
    /// It has a semaphore of this name, not a limiter.
    is_semaphore: bool,
    is_plain: bool,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    is_away: bool,
    /// Counts crashes: an answer of before one never leaves.
    life: u64,
    frozen_until: Option<Instant>,
    saved: Option<(Snapshot, Option<i64>)>,
    /// All permits of a semaphore, by what was asked for; `None` if there is no semaphore.
    permits: Option<i64>,
}

/// It is away: the call was not carried out.
pub(super) struct Away;

/// What carrying a call out twice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: it reads, or is recognised by its id.
    Idempotent,
    /// It would count twice.
    Once,
    /// The same, and it may drop the log, or change the rate.
    Resets,
}

impl Effect {
    pub(super) fn of<C: StoreCall>() -> Self {
        match name_of::<C>() {
            "ReleaseCall" | "SetPermitsCall" => Effect::Once,
            "TrySetRateCall" | "SetRateCall" | "KeysCall" | "RenameCall" => Effect::Resets,
            _ => Effect::Idempotent,
        }
    }
}

/// The name of a call's type.
pub(super) fn name_of<C: StoreCall>() -> &'static str {
    std::any::type_name::<C>().rsplit("::").next().unwrap_or_default()
}

impl SimServer {
    pub(super) fn new(clock: Clock, scenario: &SimScenario, history: Arc<History>) -> Arc<Self> {
        Arc::new(SimServer {
            store: InProcessStore::with_clock(clock.clone()),
            clock,
            keys: match scenario.is_semaphore() {
                true => Keys::of_semaphore(NAME),
                false => Keys::new(NAME, ""),
            },
            first_rate: scenario.rate,
            interval_ms: scenario.interval_ms,
            history,
            keeps_state: scenario.keeps_state(),
            is_semaphore: scenario.is_semaphore(),
            is_plain: scenario.is_plain(),
            state: Mutex::default(),
        })
    }

    pub(super) fn is_away(&self) -> bool {
        self.state().is_away
    }

    pub(super) fn life(&self) -> u64 {
        self.state().life
    }

    /// Carries a call out, once it can.
    pub(super) async fn execute<C: StoreCall>(
        &self,
        keys: &Keys,
        call: &C,
    ) -> Result<Result<C::Reply, Error>, Away> {
        loop {
            let frozen_until = self.state().frozen_until.filter(|until| *until > Instant::now());
            match frozen_until {
                Some(until) => sleep_until(until).await,
                None => break,
            }
        }
        if self.is_away() {
            return Err(Away);
        }
        let before = (Effect::of::<C>() == Effect::Resets).then(|| self.live_permits());
        let answer = self.store.run(keys, call);
        self.history.show(|| self.content());
        if answer.is_ok() {
            self.note(keys, call);
        }
        match before {
            Some(before) => self.note_reset(&before),
            None if self.is_semaphore => self.check_permits(),
            None => self.check_debts(),
        }
        Ok(answer)
    }

    /// Keeps what the judges must know of a call that was carried out.
    fn note(&self, keys: &Keys, call: &dyn Any) {
        if let Some(acquire) = call.downcast_ref::<AcquireCall>() {
            self.history.decided(acquire.id);
        }
        if keys.hash != self.keys.hash {
            return;
        }
        if let Some(charge) = call.downcast_ref::<ChargeCall>() {
            let date = charge.date.saturating_sub(EPOCH_MS) as u64;
            self.history.charged(charge.id, date, charge.permits);
        }
        let mut state = self.state();
        let permits = &mut state.permits;
        // A call that only gives back what its lane has abandoned sets nothing up.
        if let Some(acquire) = call.downcast_ref::<SemaphoreAcquireCall>()
            && !acquire.groups.is_empty()
        {
            *permits = permits.or(acquire.terms.create.map(|permits| permits as i64));
        } else if let Some(set) = call.downcast_ref::<SetPermitsCall>() {
            let out = || self.live_permits().entries.len() as i64;
            *permits = match set.rule {
                SetPermits::Add => Some(permits.unwrap_or_else(out) + set.permits),
                SetPermits::Try => permits.or(Some(set.permits)),
                SetPermits::Set => Some(set.permits),
                SetPermits::Drain => unreachable!("of plain semaphores"),
            };
        }
        drop(state);
        if call.downcast_ref::<PauseCall>().is_some_and(|call| call.ms == 0) {
            self.history.unpaused();
        }
    }

    /// The rate, and the permits that can be taken now by the server's own clock.
    pub(super) fn peek(&self) -> Option<Peek> {
        let call = PeekCall { now: self.clock.own_ms(), permits: 0, seen: None };
        self.store.run(&self.keys, &call).ok()
    }

    pub(super) fn freeze(&self, ms: u64) {
        self.state().frozen_until = Some(Instant::now() + Duration::from_millis(ms));
    }

    pub(super) fn save(&self) {
        let saved = self.store.snapshot();
        let mut state = self.state();
        state.saved = Some((saved, state.permits));
    }

    pub(super) fn crash(&self, lost: Lost) {
        let before = self.live_permits();
        {
            let mut state = self.state();
            state.is_away = true;
            state.life += 1;
            let saved = state.saved.as_ref().filter(|_| lost == Lost::SinceSaved);
            match (lost, saved) {
                (Lost::Nothing, _) => {}
                (_, Some((saved, permits))) => {
                    self.store.restore(saved);
                    state.permits = *permits;
                }
                (_, None) => {
                    self.store.flush();
                    state.permits = None;
                }
            }
        }
        self.note_reset(&before);
    }

    pub(super) fn come_back(&self) {
        let mut state = self.state();
        state.is_away = false;
        state.frozen_until = None;
    }

    pub(super) fn evict(&self, what: Evicted) {
        let (value, log) = self.value_and_log();
        let before = self.live_permits();
        let mut state = self.state();
        let key = match what {
            Evicted::Value => {
                state.permits = None;
                value
            }
            Evicted::Log => {
                state.permits = state.permits.map(|permits| permits - before.entries.len() as i64);
                log
            }
        };
        drop(state);
        self.store.raw_put(key, None);
        self.note_reset(&before);
    }

    /// The limiter may be another one: writes down which rate is in force, and how many live permits
    /// the log has lost since `before`.
    fn note_reset(&self, before: &Live) {
        let now = self.live_permits();
        if self.is_semaphore {
            let is_worse = |(id, (end, _)): &(&Vec<u8>, &(i64, u64))| {
                now.entries.get(*id).is_none_or(|(now, _)| now < end)
            };
            let worse = before.entries.iter().filter(is_worse);
            self.history.records().semaphore.forgotten.extend(worse.map(|(id, _)| id.clone()));
            return self.check_permits();
        }
        self.history.rate_in_force(now.rate.unwrap_or(self.first_rate));
        // An entry that was moved since it was saved expires earlier than its permits, which were used at
        // the later date.
        let lost = |(id, (date, permits)): (&Vec<u8>, &(i64, u64))| match now.entries.get(id) {
            Some((now, left)) if now >= date => permits.saturating_sub(*left),
            _ => *permits,
        };
        self.history.log_forgotten(before.entries.iter().map(lost).sum());
        if now.paused_from < before.paused_from {
            self.history.unpaused();
        }
    }

    /// As long as nothing is lost, value and log add up to the rate, and no permit needs healing.
    fn check_debts(&self) {
        if self.keeps_state && self.live_permits().debts > 0 {
            self.history.violation("a debt was written, although nothing was lost".to_owned());
        }
    }

    /// What the log has that has not expired.
    fn live_permits(&self) -> Live {
        let snapshot = self.store.snapshot();
        let content = |key: &str| snapshot.get(key).map(|key| &key.content);
        let rate = match content(&self.keys.hash) {
            Some(Content::Hash(fields)) => fields.get("rate").and_then(|rate| rate.parse().ok()),
            _ => None,
        };
        let mut live = Live { rate, ..Live::default() };
        let now = self.clock.own_ms().expect("the server has a clock of its own");
        if let Some(Content::Log(members)) = content(self.value_and_log().1) {
            for (date, member) in members {
                if self.is_semaphore {
                    live.entries.insert(member.clone(), (*date, 1));
                    continue;
                }
                let Some((id, permits)) = unpack(member) else { continue };
                if is_pause(member) {
                    live.paused_from = live.paused_from.max(*date);
                } else if holder(id) == Holder::Debt {
                    live.debts += permits;
                } else if date + self.interval_ms as i64 > now {
                    live.entries.insert(id.to_vec(), (*date, permits));
                }
            }
        }
        live
    }

    /// The value, and the log by date.
    fn content(&self) -> String {
        let snapshot = self.store.snapshot();
        let content = |key: &str| snapshot.get(key).map(|key| &key.content);
        let (value, log) = self.value_and_log();
        let log = match content(log) {
            Some(Content::Log(members)) => members.as_slice(),
            _ => &[],
        };
        let entry = |(date, member): &(i64, Vec<u8>)| match unpack(member) {
            Some((id, permits)) => {
                let debt = if holder(id) == Holder::Debt { " debt" } else { "" };
                let short = u16::from_le_bytes([id[8], id[9]]);
                format!("{}:{permits} ({short:04x}{debt})", date - EPOCH_MS)
            }
            other => format!("{other:?}"),
        };
        let log: Vec<_> = log.iter().map(entry).collect();
        format!("value {:?}, log {}", content(value), log.join(" "))
    }

    /// The names of the key with the permits that are free, and of the one with those that are not.
    fn value_and_log(&self) -> (&str, &str) {
        match self.is_semaphore {
            true => (&self.keys.hash, &self.keys.value),
            false => (&self.keys.value, &self.keys.permits),
        }
    }

    /// All permits of a semaphore, by what was asked for.
    pub(super) fn permits(&self) -> Option<i64> {
        self.state().permits
    }

    /// Of a semaphore: each permit is free or out, always. Those that are out of a plain one are counted by nobody.
    fn check_permits(&self) {
        let (counts, permits) = (self.counts(), self.permits());
        let is_right = |all| all == counts.total || self.is_plain && all >= counts.total;
        if permits.is_some() != counts.exists || !permits.is_none_or(is_right) {
            self.history.violation(format!("there are {permits:?} permits, and {counts:?}"));
        }
        if let Some(permits) = permits {
            self.history.rate_in_force(permits.max(0) as u64);
        }
    }

    pub(super) fn counts(&self) -> SemaphoreCounts {
        let call = SemaphoreCountsCall { kind: SemaphoreKind::Expirable, at: None };
        self.store.run(&self.keys, &call).unwrap()
    }

    /// The permits that a limiter with a policy has now.
    pub(super) fn free(&self, limiter: &RateLimiter) -> u64 {
        let Some(policy) = limiter.engine().rules.policy() else { unreachable!("it has one") };
        let of = policy.rules.clone().into();
        let call = PolicyPeekCall { of, at: None, permits: 0 };
        self.store.run(&limiter.engine().keys, &call).unwrap().available
    }

    /// When the lease of a permit ends that is out.
    pub(super) fn lease_end(&self, permit: &[u8]) -> Option<i64> {
        self.live_permits().entries.get(permit).map(|(end, _)| *end)
    }

    pub(super) async fn listen(&self, channel: &Arc<str>, heard: &Heard) {
        self.store.listen(channel, heard).await;
    }

    /// The permits in the log that are dated from this time on, apart from those of keys, which nobody may know of.
    pub(super) fn in_log(&self, from: i64) -> u64 {
        let live = self.live_permits().entries;
        let is_of_key = |id: &[u8]| id.try_into().is_ok_and(|id| EntryId(id).is_of_key());
        let live = live.iter().filter(|(id, (date, _))| *date >= from && !is_of_key(id));
        live.map(|(_, (_, permits))| permits).sum()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ServerState> {
        self.state.lock().unwrap()
    }
}

#[derive(Default)]
struct Live {
    rate: Option<u64>,
    /// Date and permits, by id.
    entries: HashMap<Vec<u8>, (i64, u64)>,
    debts: u64,
    /// The date of a pause's entry; 0 for none.
    paused_from: i64,
}
