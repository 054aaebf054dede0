//! The engine under a model checker: callers that arrive, wait and give up in many orders.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib model_tests`

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::acquire::Acquire;
use super::answer::NoAnswer;
use super::opt_ins::LocalAnswer;
use super::opt_ins::busy_poll::BusyPoll;
use super::opt_ins::pool::Pool;
use super::{Core, Engine};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Execution};
use crate::options::LimiterOptions;
use crate::queue::{MaxWait, Request};
use crate::rate::{Mode, Rate};
use crate::rt::{self, Mutex};
use crate::store::*;
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

/// How many schedules each scheduler explores of a scenario, with each kind of store.
const SCHEDULES: usize = 500;

const SECOND: Duration = Duration::from_secs(1);

/// A store that loses some answers, and keeps a ledger.
#[derive(Clone)]
struct ModelStore {
    ledger: Arc<Mutex<ModelLedger>>,
    answers: Answers,
}

/// When a store answers.
#[derive(Clone, Copy)]
enum Answers {
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

struct ModelLedger {
    rate: u64,
    interval: u64,
    left: u64,
    /// Each entry's expiry, id and permits.
    log: VecDeque<(u64, EntryId, u64)>,
    in_flight: usize,
    granted: u64,
    granted_to: HashMap<EntryId, u64>,
    refunded: HashMap<EntryId, u64>,
    /// The answer of every attempt whose number is a multiple of this is lost; 0: none.
    lose_every: usize,
    attempts: usize,
    refunds: usize,
    ticks: u64,
}

impl ModelLedger {
    fn refunded(&self) -> u64 {
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
                let wait = Wait { ms: 3, at_least: true };
                let outcome = if group.permits > self.rate {
                    Outcome::ExceedsRate
                } else if !blocked && granted + group.permits <= budget {
                    granted += group.permits;
                    Outcome::Granted
                } else if group.max_wait_ms < wait.ms {
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
        AcquireReply { now: 0, rate, entry_date: 0, left: self.left as i64, outcomes }
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
    fn new(rate: u64, lose_every: usize, answers: Answers) -> Self {
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
        };
        ModelStore { ledger: Arc::new(Mutex::new(ledger)), answers }
    }
}

fn not_called<T>() -> Reply<T> {
    unreachable!("the engine does not call this")
}

impl Store for ModelStore {
    fn acquire(&self, _: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
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

    fn refund(&self, _: &Keys, call: RefundCall) -> Reply<RefundReply> {
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

    fn release(&self, _: &Keys, _: ReleaseCall) -> Reply<ReleaseReply> {
        not_called()
    }
    fn peek(&self, _: &Keys, _: PeekCall) -> Reply<PeekReply> {
        not_called()
    }
    fn try_set_rate(&self, _: &Keys, _: Rate) -> Reply<bool> {
        not_called()
    }
    fn set_rate(&self, _: &Keys, _: SetRate) -> Reply<bool> {
        not_called()
    }
    fn config(&self, _: &Keys) -> Reply<Option<Rate>> {
        not_called()
    }
    fn expire(&self, _: &Keys, _: Lifetime, _: Option<ExpireCondition>) -> Reply<bool> {
        not_called()
    }
    fn clear_expire(&self, _: &Keys) -> Reply<bool> {
        not_called()
    }
    fn time_to_live(&self, _: &Keys) -> Reply<TimeToLive> {
        not_called()
    }
    fn exists(&self, _: &Keys) -> Reply<bool> {
        not_called()
    }
    fn delete(&self, _: &Keys) -> Reply<bool> {
        not_called()
    }
    fn rename(&self, _: &Keys, _: &Keys) -> Reply<()> {
        not_called()
    }
    fn touch(&self, _: &Keys) -> Reply<bool> {
        not_called()
    }
    fn size_in_memory(&self, _: &Keys) -> Reply<u64> {
        not_called()
    }
    fn server_time(&self) -> Reply<i64> {
        not_called()
    }
    fn within(&self, _: Duration) -> Box<dyn Store> {
        Box::new(self.clone())
    }
}

/// How a caller behaves.
#[derive(Clone, Copy)]
enum Habit {
    Now(u64),
    /// The same so many times: a call of one caller ends while that of another one begins.
    Again(u64, usize),
    Wait(u64),
    /// Waits without end, but gives up after this many polls.
    GivesUp(u64, usize),
    /// This many times, takes permits from the lease if it has enough, and otherwise as `Now`.
    Leased(u64, usize),
    /// The same once, and then gives them back, all of which must be credited.
    GivesBack(u64),
    /// Is polled once, and not again for a long time.
    Sluggish(u64),
    /// Is polled once with a waker that wakes nobody, and then awaited.
    Moves(u64),
}

/// Runs one caller, and returns how many permits it has kept.
async fn run_caller(engine: Arc<Engine>, habit: Habit) -> u64 {
    let (permits, times) = match habit {
        Habit::Leased(permits, times) | Habit::Again(permits, times) => (permits, times),
        Habit::GivesBack(permits) => (permits, 1),
        _ => return acquire_once(engine, habit).await,
    };
    let mut kept = 0;
    for _ in 0..times {
        kept += match engine.answer_locally(permits, MaxWait::None) {
            Some(LocalAnswer::Leased(taken)) => {
                rt::yield_now().await;
                let back = match habit {
                    Habit::GivesBack(_) => engine.refund_leased(taken.lease, permits, SECOND).await,
                    _ => Ok(0),
                };
                permits - back.unwrap()
            }
            _ => acquire_once(engine.clone(), habit).await,
        };
    }
    kept
}

async fn acquire_once(engine: Arc<Engine>, habit: Habit) -> u64 {
    let (permits, max_wait) = match habit {
        Habit::Now(permits)
        | Habit::Again(permits, _)
        | Habit::Leased(permits, _)
        | Habit::GivesBack(permits) => (permits, MaxWait::None),
        Habit::Wait(permits)
        | Habit::GivesUp(permits, _)
        | Habit::Sluggish(permits)
        | Habit::Moves(permits) => (permits, MaxWait::Unbounded),
    };
    let request = Request { permits, max_wait, deadline: 1_000_000_000, create: None };
    let mut acquire = Acquire::new(&engine, request, None);
    let verdict = match habit {
        Habit::GivesUp(_, polls) => {
            let mut polls = polls;
            let verdict = poll_fn(|cx| match Pin::new(&mut acquire).poll(cx) {
                Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
                Poll::Pending if polls == 0 => Poll::Ready(None),
                Poll::Pending => {
                    polls -= 1;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            drop(acquire);
            let Some(verdict) = verdict else { return 0 };
            verdict
        }
        Habit::Sluggish(_) => {
            let early = poll_fn(|cx| Poll::Ready(Pin::new(&mut acquire).poll(cx))).await;
            match early {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => {
                    for _ in 0..20 {
                        rt::yield_now().await;
                    }
                    acquire.await
                }
            }
        }
        Habit::Moves(_) => {
            let early = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()));
            match early {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => acquire.await,
            }
        }
        _ => acquire.await,
    };
    match verdict {
        Ok((answer, Outcome::Granted)) => {
            if matches!(habit, Habit::GivesBack(_)) {
                let entry = &answer.decided().unwrap().entry;
                let first = engine.refund(entry, 1, SECOND).await.unwrap();
                let rest = engine.refund(entry, permits - 1, SECOND).await.unwrap();
                assert_eq!((first, rest), (1, permits - 1), "all permits come back");
                return 0;
            }
            permits
        }
        Ok((_, Outcome::Refused(_))) | Err(NoAnswer::Refused(_)) => {
            assert_eq!(max_wait, MaxWait::None, "a wait without end was refused");
            0
        }
        Ok((_, Outcome::ExceedsRate)) => {
            let rate = engine.rate().expect("a call has named it").permits();
            assert!(permits > rate, "{permits} of {rate}: the answer of another request");
            0
        }
        other => panic!("{other:?}"),
    }
}

fn check(rate: u64, lose_every: usize, habits: &'static [Habit]) {
    check_with(rate, lose_every, LimiterOptions::new(), habits);
}

fn check_with(rate: u64, lose_every: usize, options: LimiterOptions, habits: &'static [Habit]) {
    for answers in [Answers::AtOnce, Answers::Later] {
        check_store(move || ModelStore::new(rate, lose_every, answers), options, habits);
    }
}

fn check_store(
    new_store: impl Fn() -> ModelStore + Copy + Send + Sync + 'static,
    options: LimiterOptions,
    habits: &'static [Habit],
) {
    let run = move || run_callers(new_store(), options, habits);
    shuttle::check_random(run, SCHEDULES);
    // Preempts a task at a few points only, and then lets the others run on for long: the random
    // one hardly ever stops a task between two steps until everything else is done.
    shuttle::check_pct(run, SCHEDULES, 3);
}

fn run_callers(store: ModelStore, options: LimiterOptions, habits: &'static [Habit]) {
    let rate = store.ledger.lock().unwrap().rate;
    let clock = Clock::manual(0).0;
    let core = Arc::new(Core::new(Arc::new(store.clone()), clock, SECOND, BusyPoll::default()));
    let engine = Arc::new(Engine::new("m".into(), Keys::new("m", "c"), core.clone(), None));
    engine.set_options(&options).unwrap();
    engine.begin_reset().end_with_rate(Rate::from_wire(Mode::Overall, rate, 8, 0));
    let callers: Vec<_> = habits
        .iter()
        .map(|habit| shuttle::future::spawn(run_caller(engine.clone(), *habit)))
        .collect();
    let closed = engine.clone();
    let kept: u64 = shuttle::future::block_on(async move {
        let mut kept = 0;
        for caller in callers {
            kept += caller.await.unwrap();
        }
        core.tasks.drained(&[]).await;
        closed.close();
        core.tasks.drained(&[]).await;
        kept
    });
    assert!(engine.is_idle());
    let ledger = store.ledger.lock().unwrap();
    assert_eq!(ledger.granted, kept + ledger.refunded(), "granted = kept + given back");
}

#[test]
fn callers_that_do_not_wait() {
    check(3, 0, &[Habit::Now(1), Habit::Now(1), Habit::Now(2), Habit::Now(4)]);
}

#[test]
fn callers_that_come_again() {
    check(3, 0, &[Habit::Again(1, 4), Habit::Again(1, 4)]);
    check(3, 3, &[Habit::Again(1, 4), Habit::Again(1, 4), Habit::GivesUp(1, 2)]);
}

#[test]
fn callers_that_wait() {
    check(2, 0, &[Habit::Wait(2), Habit::Wait(1), Habit::Wait(1), Habit::Now(1)]);
}

#[test]
fn callers_that_do_not_wait_behind_callers_that_do() {
    check(2, 0, &[Habit::Wait(2), Habit::Again(1, 4), Habit::Wait(2), Habit::Again(1, 4)]);
    check(2, 0, &[Habit::Again(1, 3), Habit::Wait(1), Habit::Again(1, 3), Habit::GivesUp(2, 2)]);
}

#[test]
fn callers_that_give_up() {
    check(
        2,
        0,
        &[Habit::GivesUp(1, 0), Habit::GivesUp(2, 2), Habit::GivesUp(1, 5), Habit::Wait(1)],
    );
}

#[test]
fn a_caller_that_is_not_polled_delays_nobody() {
    check(2, 0, &[Habit::Sluggish(1), Habit::Wait(2), Habit::Now(1), Habit::GivesUp(1, 1)]);
}

#[test]
fn a_caller_is_woken_by_its_last_waker() {
    check(3, 0, &[Habit::Moves(1), Habit::Now(1), Habit::Moves(1)]);
}

#[test]
fn lost_answers_count_once() {
    check(2, 3, &[Habit::Wait(1), Habit::Wait(2), Habit::GivesUp(1, 3), Habit::Now(1)]);
}

#[test]
fn refunds_that_share_calls_credit_what_each_requested() {
    let habits =
        &[Habit::GivesBack(2), Habit::GivesBack(3), Habit::GivesUp(1, 3), Habit::GivesBack(1)];
    check(9, 0, habits);
    check(9, 2, habits);
    check(9, 3, habits);
}

fn lease() -> LimiterOptions {
    LimiterOptions::new().lease(2, Duration::from_millis(40))
}

#[test]
fn callers_that_lease() {
    let habits = &[Habit::Leased(1, 4), Habit::Leased(1, 3), Habit::Now(1), Habit::GivesBack(1)];
    check_with(5, 0, lease(), habits);
    check_with(5, 3, lease(), habits);
}

#[test]
fn callers_that_wait_while_others_lease() {
    let habits = &[Habit::Leased(1, 3), Habit::Wait(3), Habit::GivesBack(1), Habit::GivesUp(2, 3)];
    check_with(3, 0, lease(), habits);
}

#[test]
fn the_pool_grants_each_permit_once() {
    shuttle::check_random(
        || {
            let pool = Arc::new(Pool::new(1));
            let first = pool.publish(3, 10);
            let takers: Vec<_> = (0..2_u64)
                .map(|taker| {
                    let pool = pool.clone();
                    shuttle::thread::spawn(move || {
                        let mut taken = 0;
                        for _ in 0..3 {
                            let Some(permit) = pool.take(1, || 9 + taker) else { continue };
                            // For the second taker the first lease has ended.
                            assert!(
                                taker == 0 || permit.lease != first,
                                "taken after the end of the lease"
                            );
                            taken += 1;
                            if taken == 2 && pool.put_back(permit.lease, 1) {
                                taken -= 1;
                            }
                        }
                        taken
                    })
                })
                .collect();
            let mut left = pool.retire();
            pool.publish(2, 20);
            let taken: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
            left += pool.retire();
            assert_eq!(taken + left, 5);
        },
        SCHEDULES * 20,
    );
}
