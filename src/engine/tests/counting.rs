//! A store that counts the permits that it grants and takes back, and can lose its answers.

use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::ready;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Execution};
use crate::policy::frame::Record;
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::Content;
use crate::store::*;
use crate::wire::entry::unpack;
use crate::wire::keys::Keys;

#[derive(Clone)]
pub(crate) struct CountingStore {
    store: InProcessStore,
    ledger: Arc<StoreLedger>,
}

#[derive(Default)]
pub(super) struct StoreLedger {
    pub(super) calls: AtomicU64,
    /// The calls that asked for an audit of a log as long as theirs.
    pub(super) audits: AtomicU64,
    /// The calls that expected entries to have expired.
    pub(super) expecting: AtomicU64,
    /// Attempts, answered or not.
    pub(super) attempts: AtomicU64,
    pub(super) probes: AtomicU64,
    pub(super) charges: AtomicU64,
    /// The server is away: no attempt is carried out.
    pub(super) away: AtomicBool,
    /// The date of each attempt by a client's clock.
    pub(super) dated: Mutex<Vec<i64>>,
    /// The most dates of earlier attempts that an attempt carried.
    pub(super) dates: AtomicUsize,
    pub(super) credited: AtomicU64,
    /// How many of the next answers to acquire calls and charges are lost.
    pub(super) lose: AtomicU64,
    /// The same of refunds.
    pub(super) lose_refunds: AtomicU64,
    /// One in this many answers to renewals is lost; 0: none.
    pub(super) lose_renewals: AtomicU64,
    renewals: AtomicU64,
    /// How long a renewal takes, in ms.
    pub(super) renewals_take: AtomicU64,
    /// How many of the next calls are carried out, and not answered within their limit.
    pub(super) time_out: AtomicU64,
    /// How many of the next refunds are not carried out.
    pub(super) refuse_refunds: AtomicU64,
    /// For this many polls an answer is not ready, and it wakes nobody when it is.
    pub(super) silent_for: AtomicU64,
    /// How long every second attempt of an acquire takes to reach the store, in ms.
    pub(super) second_takes: AtomicU64,
    /// How long a refund takes to reach the store, in ms.
    pub(super) refunds_take: AtomicU64,
    /// How long a charge takes, in ms.
    pub(super) charges_take: AtomicU64,
    /// How long the answer to a semaphore's acquire takes, in ms.
    pub(super) semaphores_take: AtomicU64,
    /// A call with a request for this many permits is never answered; 0: all are.
    pub(super) unanswered: AtomicU64,
    /// The permits granted to each call, by its id: a later attempt can be granted less, if the
    /// store has taken the rest back itself.
    granted: Mutex<HashMap<[u8; 16], u64>>,
}

impl CountingStore {
    pub(crate) fn new(clock: Clock) -> Self {
        CountingStore { store: InProcessStore::with_clock(clock), ledger: Arc::default() }
    }

    pub(super) fn ledger(&self) -> &StoreLedger {
        &self.ledger
    }

    /// Has refunds take this long to reach the store, in ms.
    #[cfg(feature = "axum")]
    pub(crate) fn slow_refunds(&self, ms: u64) {
        self.ledger.refunds_take.store(ms, Ordering::SeqCst);
    }

    /// The permits that were granted and have not come back.
    pub(crate) fn outstanding(&self) -> u64 {
        let granted: u64 = self.ledger.granted.lock().unwrap().values().sum();
        granted - self.ledger.credited.load(Ordering::SeqCst)
    }

    /// The failure of every call while the server is away.
    fn away(&self) -> Option<Error> {
        let is_away = self.ledger.away.load(Ordering::SeqCst);
        is_away.then(|| Error::new(ErrorKind::Unavailable, Execution::NotExecuted))
    }

    /// Takes permits out of the value, as if they had leaked.
    pub(super) fn lose_permits(&self, keys: &Keys, permits: i64) {
        let value: i64 = self.store.raw_get(&keys.value).unwrap().parse().unwrap();
        self.store.raw_set(&keys.value, &(value - permits).to_string());
    }

    /// Somebody else waits for this semaphore's permits, as long as the future is kept.
    pub(super) fn waits_elsewhere(&self, keys: &Keys) -> impl Future<Output = ()> + use<> {
        self.clone().listen(keys.permits.clone(), Arc::new(|_| ()))
    }

    pub(crate) async fn listen(self, channel: Arc<str>, heard: Heard) {
        self.store.listen(&channel, &heard).await;
    }

    /// Somebody else gives a permit back, and takes it again before anybody hears of it.
    pub(super) fn is_given_back_elsewhere(&self, keys: &Keys) {
        for permits in [1, -1] {
            let (kind, rule) = (SemaphoreKind::Expirable, SetPermits::Add);
            self.store.run(keys, &SetPermitsCall { kind, rule, permits }).unwrap();
        }
    }

    fn entries(&self, keys: &Keys) -> u64 {
        self.store.raw_log(&keys.permits).len() as u64
    }

    /// The reservations in the log: dates and permits.
    pub(super) fn reserved(&self, keys: &Keys) -> Vec<(i64, u64)> {
        let log = self.store.raw_log(&keys.permits);
        let entries = log.iter().filter_map(|(date, member)| match unpack(member) {
            Some((id, permits)) if crate::wire::entry::is_reserved(id) => Some((*date, permits)),
            _ => None,
        });
        entries.collect()
    }

    /// The permits in the value and in the log.
    pub(super) fn whole(&self, keys: &Keys) -> i64 {
        let value: i64 = self.store.raw_get(&keys.value).unwrap().parse().unwrap();
        let permits = |member: &[u8]| match unpack(member) {
            Some((_, permits)) => permits as i64,
            _ => 0,
        };
        let log = self.store.raw_log(&keys.permits);
        value + log.iter().map(|(_, member)| permits(member)).sum::<i64>()
    }

    /// The highest number that a limiter's records of lanes have.
    pub(super) fn last_number(&self, keys: &Keys) -> Option<u64> {
        let Content::Hash(fields) = self.store.snapshot().remove(&*keys.hash)?.content else {
            return None;
        };
        let records = fields.iter().filter(|(name, _)| name.starts_with('@'));
        records.filter_map(|(_, text)| Some(Record::parse(text, false)?.number)).max()
    }

    /// The calls of acquires that were answered.
    pub(crate) fn calls(&self) -> u64 {
        self.ledger.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.ledger.away.store(away, Ordering::SeqCst);
    }
}

/// Whether one of this many answers is lost.
fn loses_one(lose: &AtomicU64) -> bool {
    lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

/// The answer, unless it is one of this many that are lost.
fn unless_lost<T>(answer: Result<T, Error>, lose: &AtomicU64) -> Result<T, Error> {
    match answer.is_ok() && loses_one(lose) {
        true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
        false => answer,
    }
}

/// Waits for this many ms, if there are any.
async fn takes(time: &AtomicU64) {
    match time.load(Ordering::SeqCst) {
        0 => {}
        time => tokio::time::sleep(super::ms(time)).await,
    }
}

/// What is reserved counts as granted, as it has to be given back if nobody wants it.
fn granted(groups: &[RequestGroup], outcomes: &[OutcomeGroup]) -> u64 {
    let mut outcomes = outcomes.iter().flat_map(|group| (0..group.count).map(|_| group.outcome));
    let requests = groups.iter().flat_map(|group| (0..group.count).map(|_| group.permits));
    let is_granted = |outcome| matches!(outcome, Some(Outcome::Granted | Outcome::Reserved(_)));
    requests.filter(|_| is_granted(outcomes.next())).sum()
}

/// The answer of a test's store to a call whose type the store has found out.
fn answer_to<C: StoreCall, T: 'static + Send>(reply: Reply<T>) -> Reply<C::Reply> {
    let same = |reply: T| (Box::new(reply) as Box<dyn Any>).downcast::<C::Reply>();
    reply
        .map(move |reply| reply.map(|reply| *same(reply).expect("the reply is the call's")))
        .boxed()
}

impl CountingStore {
    pub(crate) fn run_within<C: StoreCall>(
        &self,
        keys: &Keys,
        call: C,
        limit: Duration,
    ) -> Reply<C::Reply> {
        let answer = self.run(keys, call);
        if !loses_one(&self.ledger.time_out) {
            return answer;
        }
        async move {
            answer.await?;
            tokio::time::sleep(limit).await;
            Err(Error::new(ErrorKind::Timeout, Execution::Unknown))
        }
        .boxed()
    }

    fn run<C: StoreCall>(&self, keys: &Keys, call: C) -> Reply<C::Reply> {
        let any: &dyn Any = &call;
        if let Some(call) = any.downcast_ref::<AcquireCall>() {
            answer_to::<C, _>(match call.limits.len() {
                1 => self.acquire(keys, call.clone()),
                _ => self.acquire_all(keys, call),
            })
        } else if let Some(call) = any.downcast_ref::<RefundCall>() {
            answer_to::<C, _>(self.refund(keys, *call))
        } else if let Some(call) = any.downcast_ref::<ChargeCall>() {
            answer_to::<C, _>(self.charge(keys, *call))
        } else if any.is::<ProbeCall>() {
            answer_to::<C, _>(self.probe())
        } else if any.is::<SemaphoreAcquireCall>() {
            self.ledger.attempts.fetch_add(1, Ordering::SeqCst);
            let answer = self.away().map_or_else(|| self.store.run(keys, &call), Err);
            let (answer, ledger) = (self.unless_lost(answer), self.ledger.clone());
            async move {
                takes(&ledger.semaphores_take).await;
                answer
            }
            .boxed()
        } else if any.is::<SemaphoreReleaseCall>() {
            self.ledger.attempts.fetch_add(1, Ordering::SeqCst);
            let answer = self.away().map_or_else(|| self.store.run(keys, &call), Err);
            ready(unless_lost(answer, &self.ledger.lose_refunds)).boxed()
        } else if any.is::<PolicyRefundCall>() {
            let refused = loses_one(&self.ledger.refuse_refunds);
            let refused =
                refused.then(|| Error::new(ErrorKind::Unavailable, Execution::NotExecuted));
            ready(refused.map_or_else(|| self.store.run(keys, &call), Err)).boxed()
        } else if any.is::<RenewCall>() {
            let answer = self.away().map_or_else(|| self.store.run(keys, &call), Err);
            let ledger = self.ledger.clone();
            let number = ledger.renewals.fetch_add(1, Ordering::SeqCst) + 1;
            let lost = number.checked_rem(ledger.lose_renewals.load(Ordering::SeqCst)) == Some(0);
            let answer = unless_lost(answer, &AtomicU64::new(lost.into()));
            async move {
                takes(&ledger.renewals_take).await;
                answer
            }
            .boxed()
        } else {
            let is_acquire = any.is::<PolicyCall>();
            if is_acquire && let Some(failure) = self.away() {
                return ready(Err(failure)).boxed();
            }
            self.ledger.calls.fetch_add(is_acquire.into(), Ordering::SeqCst);
            let answer = self.store.run(keys, &call);
            let may_lose = is_acquire || any.is::<SetPermitsCall>();
            ready(if may_lose { self.unless_lost(answer) } else { answer }).boxed()
        }
    }

    fn unless_lost<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        unless_lost(answer, &self.ledger.lose)
    }

    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
        let (groups, id) = (call.limits[0].groups.clone(), call.id.0);
        let was_reserved = call.earlier.reserved.is_some();
        let attempt = self.ledger.attempts.fetch_add(1, Ordering::SeqCst);
        if let Some(at) = call.now {
            self.ledger.dated.lock().unwrap().push(at);
        }
        self.ledger.dates.fetch_max(call.earlier.dates.len(), Ordering::SeqCst);
        if let Some(failure) = self.away() {
            return ready(Err(failure)).boxed();
        }
        if call.expects_expired {
            self.ledger.expecting.fetch_add(1, Ordering::SeqCst);
        }
        if call.audit_limit > 0 && self.entries(keys) <= call.audit_limit {
            self.ledger.audits.fetch_add(1, Ordering::SeqCst);
        }
        let is_slow = attempt % 2 == 1 && self.ledger.second_takes.load(Ordering::SeqCst) > 0;
        let reply = match is_slow {
            false => ready(self.store.run(keys, &call)).boxed(),
            true => {
                let (this, keys) = (self.clone(), keys.clone());
                async move {
                    takes(&this.ledger.second_takes).await;
                    this.store.run(&keys, &call)
                }
                .boxed()
            }
        };
        let ledger = self.ledger.clone();
        async move {
            // As if over a network.
            tokio::task::yield_now().await;
            let unanswered = ledger.unanswered.load(Ordering::SeqCst);
            if unanswered > 0 && groups.iter().any(|group| group.permits == unanswered) {
                std::future::pending::<()>().await;
            }
            let mut silent = ledger.silent_for.load(Ordering::SeqCst);
            poll_fn(|_| {
                silent = silent.saturating_sub(1);
                if silent > 0 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            let reply = reply.await?;
            ledger.calls.fetch_add(1, Ordering::SeqCst);
            let granted = granted(&groups, &reply.outcomes);
            // A request that exceeds the rate by now leaves what was reserved for it as it was.
            let exceeds =
                reply.outcomes.first().map(|group| group.outcome) == Some(Outcome::ExceedsRate);
            if !(was_reserved && exceeds) {
                ledger.granted.lock().unwrap().insert(id, granted);
            }
            if loses_one(&ledger.lose) {
                return Err(Error::new(ErrorKind::Unavailable, Execution::Unknown));
            }
            Ok(reply)
        }
        .boxed()
    }

    fn acquire_all(&self, keys: &Keys, call: &AcquireCall) -> Reply<AcquireReply> {
        self.ledger.attempts.fetch_add(1, Ordering::SeqCst);
        let reply = self.away().map_or_else(|| self.store.run(keys, call), Err);
        let reply = self.unless_lost(reply);
        let ledger = self.ledger.clone();
        async move {
            tokio::task::yield_now().await;
            if reply.is_ok() {
                ledger.calls.fetch_add(1, Ordering::SeqCst);
            }
            match loses_one(&ledger.lose) {
                true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
                false => reply,
            }
        }
        .boxed()
    }

    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply> {
        assert!(call.returned <= call.granted, "more given back than was granted");
        let (store, ledger, keys) = (self.store.clone(), self.ledger.clone(), keys.clone());
        async move {
            tokio::task::yield_now().await;
            takes(&ledger.refunds_take).await;
            if loses_one(&ledger.refuse_refunds) {
                return Err(Error::new(ErrorKind::Unavailable, Execution::NotExecuted));
            }
            let reply = store.run(&keys, &call)?;
            ledger.credited.fetch_add(reply.credited, Ordering::SeqCst);
            match loses_one(&ledger.lose_refunds) {
                true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
                false => Ok(reply),
            }
        }
        .boxed()
    }

    fn charge(&self, keys: &Keys, call: ChargeCall) -> Reply<ChargeReply> {
        self.ledger.charges.fetch_add(1, Ordering::SeqCst);
        if let Some(failure) = self.away() {
            return ready(Err(failure)).boxed();
        }
        let (reply, ledger) = (self.store.run(keys, &call), self.ledger.clone());
        async move {
            tokio::task::yield_now().await;
            takes(&ledger.charges_take).await;
            match loses_one(&ledger.lose) {
                true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
                false => reply,
            }
        }
        .boxed()
    }

    fn probe(&self) -> Reply<()> {
        self.ledger.probes.fetch_add(1, Ordering::SeqCst);
        let answer = self.away().map_or(Ok(()), Err);
        ready(answer).boxed()
    }
}
