//! The store of the model: the in-process store, which is away at times and loses some answers, and a ledger.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Execution};
use crate::rate::{Mode, Rate};
use crate::rt::{self, Mutex, lock};
use crate::store::memory::InProcessStore;
use crate::store::*;
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

/// The in-process store as the engine's model sees it. It decides by its own rules; what is checked here is what the
/// engine asks for.
#[derive(Clone)]
pub(crate) struct ModelStore {
    store: InProcessStore,
    pub(super) clock: Clock,
    pub(super) rate: Rate,
    pub(super) ledger: Arc<Mutex<ModelLedger>>,
    answers: Answers,
}

/// When a store answers.
#[derive(Clone, Copy)]
pub(super) enum Answers {
    /// In the first poll, as the in-process store does.
    AtOnce,
    /// Later, as a server does.
    Later,
}

impl Answers {
    async fn pass(self) {
        if let Answers::Later = self {
            rt::yield_now().await;
        }
    }
}

#[derive(Default)]
pub(super) struct ModelLedger {
    /// The answer of every acquire, refund and charge whose number among its kind is a multiple of this is lost;
    /// 0: none.
    lose_every: usize,
    answered: HashMap<CallKind, usize>,
    under_way: HashMap<CallKind, usize>,
    /// The server is away for these of all steps: attempts, probes and charges.
    pub(super) away: Range<usize>,
    steps: usize,
    /// What each call was granted, less what was given back of it.
    granted: HashMap<EntryId, u64>,
    pub(super) charged: HashMap<EntryId, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum CallKind {
    Acquire,
    Refund,
    Charge,
    Probe,
}

impl ModelLedger {
    /// The permits that were granted and not given back.
    pub(super) fn kept(&self) -> u64 {
        self.granted.values().sum()
    }

    fn begin(&mut self, kind: CallKind) {
        let under_way = self.under_way.entry(kind).or_default();
        *under_way += 1;
        let is_alone = matches!(kind, CallKind::Acquire | CallKind::Probe);
        assert!(
            !is_alone || *under_way == 1,
            "two calls in flight, or two probes at the same time"
        );
    }

    fn end(&mut self, kind: CallKind) {
        *self.under_way.entry(kind).or_default() -= 1;
    }

    /// The failure of this step, if the server is away.
    fn step(&mut self, kind: CallKind) -> Result<(), Error> {
        if kind != CallKind::Refund {
            self.steps += 1;
        }
        match kind != CallKind::Refund && self.away.contains(&self.steps) {
            true => Err(Error::new(ErrorKind::Unavailable, Execution::NotExecuted)),
            false => Ok(()),
        }
    }

    /// Whether the next answer is lost.
    fn loses(&mut self, kind: CallKind) -> bool {
        let answered = self.answered.entry(kind).or_default();
        *answered += 1;
        kind != CallKind::Probe && self.lose_every > 0 && *answered % self.lose_every == 0
    }

    /// An attempt that is repeated is answered as before, or has expired, unused, and counts from now on.
    fn acquired(&mut self, call: &AcquireCall, reply: &AcquireReply) {
        let granted = decided(&call.limits[0].groups, &reply.outcomes)
            .filter(|(.., outcome)| *outcome == Outcome::Granted)
            .map(|(permits, count, _)| permits * count);
        self.granted.insert(call.id, granted.sum());
    }

    fn refunded(&mut self, call: &RefundCall) {
        assert!(call.returned <= call.granted, "more given back than was granted");
        let kept = self.granted.entry(call.id).or_default();
        *kept = (*kept).min(call.granted - call.returned);
    }

    fn charged(&mut self, call: &ChargeCall) {
        let known = *self.charged.entry(call.id).or_insert(call.permits);
        assert_eq!(known, call.permits, "the same charge every time");
    }
}

impl ModelStore {
    /// A store with a limiter of this rate.
    pub(super) fn new(
        permits: u64,
        interval: Duration,
        lose_every: usize,
        answers: Answers,
    ) -> Self {
        let clock = Clock::runtime_at(Duration::from_secs(1));
        let rate = Rate::from_wire(Mode::Overall, permits, interval.as_millis() as u64, 0);
        let store = InProcessStore::with_clock(clock.clone());
        store.run(&ModelStore::keys(), &TrySetRateCall(rate)).unwrap();
        let ledger = ModelLedger { lose_every, ..ModelLedger::default() };
        ModelStore { store, clock, rate, ledger: Arc::new(Mutex::new(ledger)), answers }
    }

    /// The keys of its limiter.
    pub(super) fn keys() -> Keys {
        Keys::new("m", "c")
    }

    pub(crate) fn run<C: StoreCall>(&self, keys: &Keys, call: C) -> Reply<C::Reply> {
        let (this, keys) = (self.clone(), keys.clone());
        Box::pin(async move {
            let kind = kind_of(&call);
            lock(&this.ledger).begin(kind);
            this.answers.pass().await;
            let answer = this.answer(kind, &keys, &call);
            if kind != CallKind::Probe {
                this.answers.pass().await;
            }
            lock(&this.ledger).end(kind);
            answer
        })
    }

    fn answer<C: StoreCall>(
        &self,
        kind: CallKind,
        keys: &Keys,
        call: &C,
    ) -> Result<C::Reply, Error> {
        let mut ledger = lock(&self.ledger);
        ledger.step(kind)?;
        let reply = self.store.run(keys, call)?;
        let (call, answer): (&dyn Any, &dyn Any) = (call, &reply);
        if let Some(call) = call.downcast_ref() {
            ledger.acquired(call, answer.downcast_ref().expect("it is the call's"));
        } else if let Some(call) = call.downcast_ref() {
            ledger.refunded(call);
        } else if let Some(call) = call.downcast_ref() {
            ledger.charged(call);
        }
        match ledger.loses(kind) {
            true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
            false => Ok(reply),
        }
    }
}

fn kind_of(call: &dyn Any) -> CallKind {
    let kinds = [
        (call.is::<AcquireCall>(), CallKind::Acquire),
        (call.is::<RefundCall>(), CallKind::Refund),
        (call.is::<ChargeCall>(), CallKind::Charge),
        (call.is::<ProbeCall>(), CallKind::Probe),
    ];
    let kind = kinds.into_iter().find(|(is_it, _)| *is_it);
    kind.expect("the engine does not make other calls").1
}
