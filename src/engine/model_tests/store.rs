//! The store of the model: it loses some answers, and keeps a ledger.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Execution};
use crate::rate::{Mode, Rate};
use crate::rt::{self, Mutex};
use crate::store::*;
use crate::wire::entry::EntryId;

/// A store that loses some answers, and keeps a ledger.
#[derive(Clone)]
pub(crate) struct ModelStore {
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

pub(super) struct ModelLedger {
    pub(super) rate: u64,
    interval: u64,
    left: u64,
    /// Each entry's expiry, id and permits.
    log: VecDeque<(u64, EntryId, u64)>,
    in_flight: usize,
    pub(super) granted: u64,
    granted_to: HashMap<EntryId, u64>,
    refunded: HashMap<EntryId, u64>,
    /// The answer of every attempt whose number is a multiple of this is lost; 0: none.
    lose_every: usize,
    attempts: usize,
    refunds: usize,
    ticks: u64,
    /// The server is away for these of all steps: attempts, probes and charges.
    pub(super) away: Range<usize>,
    steps: usize,
    probes_under_way: usize,
    charges_answered: usize,
    pub(super) charged: HashMap<EntryId, u64>,
}

impl ModelLedger {
    /// The failure of this step, if the server is away.
    fn step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        match self.away.contains(&self.steps) {
            true => Err(Error::new(ErrorKind::Unavailable, Execution::NotExecuted)),
            false => Ok(()),
        }
    }

    pub(super) fn refunded(&self) -> u64 {
        self.refunded.values().sum()
    }

    fn decide(&mut self, call: &AcquireCall) -> AcquireReply {
        self.ticks += 1;
        while self.log.front().is_some_and(|entry| entry.0 <= self.ticks) {
            self.left += self.log.pop_front().unwrap().2;
        }
        let mut budget = self.left;
        let found = self.log.iter().find(|entry| entry.1 == call.id).map(|entry| entry.2);
        if call.earlier != Earlier::None
            && let Some(found) = found
        {
            budget = found;
        }
        if call.earlier != Earlier::None {
            match found {
                // A confirmed grant is dated now.
                Some(_) => {
                    let index = self.log.iter().position(|entry| entry.1 == call.id).unwrap();
                    let (_, id, permits) = self.log.remove(index).unwrap();
                    self.log.push_back((self.ticks + self.interval, id, permits));
                }
                // It has expired, and nobody has used it: this attempt counts as the first.
                None => self.granted -= self.granted_to.remove(&call.id).unwrap_or(0),
            }
        }
        let mut blocked = false;
        let mut granted = 0;
        let mut outcomes = Vec::new();
        for group in &call.groups {
            for _ in 0..group.count {
                let wait = Wait::of_ms(3, true);
                let outcome = if group.permits > self.rate {
                    Outcome::ExceedsRate
                } else if !blocked && granted + group.permits <= budget {
                    granted += group.permits;
                    Outcome::Granted
                } else if group.max_wait_ms < wait.ms() {
                    Outcome::Refused(wait)
                } else {
                    blocked = true;
                    Outcome::Waiting(wait)
                };
                outcomes.push(OutcomeGroup { count: 1, outcome });
            }
        }
        match found {
            Some(found) => assert_eq!(granted, found, "a repeated attempt gets the same answer"),
            None if granted > 0 => {
                self.left -= granted;
                self.granted += granted;
                self.granted_to.insert(call.id, granted);
                self.log.push_back((self.ticks + self.interval, call.id, granted));
            }
            None => {}
        }
        let rate = Rate::from_wire(Mode::Overall, self.rate, self.interval, 0);
        AcquireReply::new(0, rate, self.left as i64, outcomes)
    }

    /// The answer, and whether it is lost.
    fn refund(&mut self, call: &RefundCall) -> (RefundReply, bool) {
        assert!(call.returned <= call.granted, "more given back than was granted");
        let granted = self.granted_to.get(&call.id).copied().unwrap_or(0);
        let returned = self.refunded.entry(call.id).or_default();
        let left = granted - *returned;
        let credited = left - left.min(call.granted - call.returned);
        *returned += credited;
        self.refunds += 1;
        if let Some(entry) = self.log.iter_mut().find(|entry| entry.1 == call.id) {
            entry.2 -= credited;
            self.left += credited;
        }
        let lost = self.lose_every > 0 && self.refunds.is_multiple_of(self.lose_every);
        (RefundReply { credited, left: left - credited }, lost)
    }
}

impl ModelStore {
    pub(super) fn new(rate: u64, lose_every: usize, answers: Answers) -> Self {
        let ledger = ModelLedger {
            rate,
            interval: 8,
            left: rate,
            log: VecDeque::new(),
            in_flight: 0,
            granted: 0,
            granted_to: HashMap::new(),
            refunded: HashMap::new(),
            lose_every,
            attempts: 0,
            refunds: 0,
            ticks: 0,
            away: 0..0,
            steps: 0,
            probes_under_way: 0,
            charges_answered: 0,
            charged: HashMap::new(),
        };
        ModelStore { ledger: Arc::new(Mutex::new(ledger)), answers }
    }
}

impl ModelStore {
    pub(crate) fn run<C: StoreCall>(&self, call: C) -> Reply<C::Reply> {
        let call: &dyn Any = &call;
        if let Some(call) = call.downcast_ref::<AcquireCall>() {
            answer_to::<C, _>(self.acquire(call.clone()))
        } else if let Some(call) = call.downcast_ref::<RefundCall>() {
            answer_to::<C, _>(self.refund(*call))
        } else if let Some(call) = call.downcast_ref::<ChargeCall>() {
            answer_to::<C, _>(self.charge(*call))
        } else if call.is::<ProbeCall>() {
            answer_to::<C, _>(self.probe())
        } else {
            unreachable!("the engine does not make this call")
        }
    }

    fn acquire(&self, call: AcquireCall) -> Reply<AcquireReply> {
        let ModelStore { ledger, answers } = self.clone();
        Box::pin(async move {
            {
                let mut ledger = ledger.lock().unwrap();
                ledger.in_flight += 1;
                assert_eq!(ledger.in_flight, 1, "two calls in flight");
            }
            answers.pass().await;
            let (reply, lost) = {
                let mut ledger = ledger.lock().unwrap();
                if let Err(error) = ledger.step() {
                    ledger.in_flight -= 1;
                    return Err(error);
                }
                ledger.attempts += 1;
                let lost = ledger.lose_every > 0 && ledger.attempts % ledger.lose_every == 0;
                (ledger.decide(&call), lost)
            };
            answers.pass().await;
            ledger.lock().unwrap().in_flight -= 1;
            if lost {
                return Err(Error::new(ErrorKind::Unavailable, Execution::Unknown));
            }
            Ok(reply)
        })
    }

    fn refund(&self, call: RefundCall) -> Reply<RefundReply> {
        let ModelStore { ledger, answers } = self.clone();
        Box::pin(async move {
            answers.pass().await;
            let (reply, lost) = ledger.lock().unwrap().refund(&call);
            answers.pass().await;
            if lost {
                return Err(Error::new(ErrorKind::Unavailable, Execution::Unknown));
            }
            Ok(reply)
        })
    }

    fn charge(&self, call: ChargeCall) -> Reply<ChargeReply> {
        let ModelStore { ledger, answers } = self.clone();
        Box::pin(async move {
            answers.pass().await;
            let (rate, lost) = {
                let mut ledger = ledger.lock().unwrap();
                ledger.step()?;
                let known = *ledger.charged.entry(call.id).or_insert(call.permits);
                assert_eq!(known, call.permits, "the same charge every time");
                ledger.charges_answered += 1;
                let lost =
                    ledger.lose_every > 0 && ledger.charges_answered % ledger.lose_every == 0;
                (Rate::from_wire(Mode::Overall, ledger.rate, ledger.interval, 0), lost)
            };
            answers.pass().await;
            match lost {
                true => Err(Error::new(ErrorKind::Unavailable, Execution::Unknown)),
                false => Ok(ChargeReply { counts: true, left: 0, rate }),
            }
        })
    }

    fn probe(&self) -> Reply<()> {
        let ModelStore { ledger, answers } = self.clone();
        Box::pin(async move {
            {
                let mut ledger = ledger.lock().unwrap();
                ledger.probes_under_way += 1;
                assert_eq!(ledger.probes_under_way, 1, "two probes at the same time");
            }
            answers.pass().await;
            let mut ledger = ledger.lock().unwrap();
            ledger.probes_under_way -= 1;
            ledger.step()
        })
    }
}
