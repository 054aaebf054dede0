//! The engine under a model checker: callers that arrive, wait and give up in many orders.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib model_tests`

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

use super::answer::Answer;
use super::lane::LaneState;
use super::{Core, Engine, ResetOutcome};
use crate::error::ErrorKind;
use crate::options::LimiterOptions;
use crate::queue::{MaxWait, Request};
use crate::rt;
use crate::store::Store;

mod outage;
pub(crate) mod runtime;
mod store;

use store::Answers;
pub(crate) use store::ModelStore;

/// How many schedules each scheduler explores of a scenario, with each kind of store.
const SCHEDULES: usize = 500;

const SECOND: Duration = Duration::from_secs(1);

/// The interval of the rate: a second is a thousand readings of the model's clock.
const INTERVAL: Duration = SECOND;

/// How a caller behaves.
#[derive(Clone, Copy)]
enum Habit {
    Now(u64),
    /// The same this many times: a call of one caller ends while that of another one begins.
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
        kept += match engine.leases().take(&engine, permits) {
            Some((entry, _)) => {
                rt::yield_now().await;
                let back = match habit {
                    Habit::GivesBack(_) => match engine.leases().put_back(&entry, permits) {
                        true => Ok(permits),
                        false => engine.refund(&entry, permits, SECOND).await,
                    },
                    _ => Ok(0),
                };
                permits - back.unwrap()
            }
            None => acquire_once(engine.clone(), habit).await,
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
    let request = Request { permits, max_wait, deadline: 1_000_000_000, ..Request::ONE };
    let mut acquire = Box::pin(engine.acquire(None, request));
    let verdict = match habit {
        Habit::GivesUp(_, polls) => {
            let mut polls = polls;
            let verdict = poll_fn(|cx| match acquire.as_mut().poll(cx) {
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
            let early = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
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
            let early = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match early {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => acquire.await,
            }
        }
        _ => acquire.await,
    };
    match verdict {
        Ok(Answer::Granted(granted)) => {
            let decided = granted.take();
            if matches!(habit, Habit::GivesBack(_)) {
                let entry = &decided.entry;
                let first = engine.refund(entry, 1, SECOND).await.unwrap();
                let rest = engine.refund(entry, permits - 1, SECOND).await.unwrap();
                assert_eq!((first, rest), (1, permits - 1), "all permits come back");
                return 0;
            }
            permits
        }
        Ok(Answer::Denied { .. } | Answer::Refused(_)) => {
            assert_eq!(max_wait, MaxWait::None, "a wait without end was refused");
            0
        }
        Err(error) if matches!(error.kind(), ErrorKind::ExceedsRate { .. }) => {
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
        let store = move || ModelStore::new(rate, INTERVAL, lose_every, answers);
        check_store(store, options, habits);
    }
}

fn check_store(
    new_store: impl Fn() -> ModelStore + Copy + Send + Sync + 'static,
    options: LimiterOptions,
    habits: &'static [Habit],
) {
    explore(move || run_callers(new_store(), options, habits), SCHEDULES);
}

/// Runs a scenario in this many orders of each scheduler.
fn explore(scenario: impl Fn() + Clone + Send + Sync + 'static, schedules: usize) {
    let mut config = Config::new();
    // The default is too little for the in-process store in a debug build.
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scenario.clone());
    // Preempts a task at a few points only, and then lets the others run on for long: the random
    // one hardly ever stops a task between two steps until everything else is done.
    Runner::new(PctScheduler::new(3, schedules), config).run(scenario);
}

fn run_callers(store: ModelStore, options: LimiterOptions, habits: &'static [Habit]) {
    let clock = store.clock.clone();
    let core = Arc::new(Core::new(Store::Model(store.clone()), clock, SECOND));
    let engine = Arc::new(Engine::new(
        "m".into(),
        crate::engine::Rules::Redisson,
        ModelStore::keys(),
        core.clone(),
        None,
    ));
    engine.set_options(&options).unwrap();
    engine.begin_reset().end(ResetOutcome::HasRate(store.rate));
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
        core.tasks.drained(|_| false).await;
        closed.close();
        core.tasks.drained(|_| false).await;
        kept
    });
    let is_idle = |state: &LaneState| state.queue.is_idle() && !state.has_driver;
    assert!(engine.lanes().iter().all(|lane| is_idle(&lane.lock())));
    let ledger = store.ledger.lock().unwrap();
    assert_eq!(ledger.kept(), kept, "granted = kept + given back");
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
fn callers_whose_leases_size_themselves() {
    let options = LimiterOptions::new().adaptive_lease(Duration::from_millis(40));
    let habits = &[Habit::Leased(1, 4), Habit::Leased(1, 3), Habit::Now(1), Habit::GivesBack(1)];
    check_with(9, 0, options, habits);
    check_with(5, 3, options, habits);
    check_with(5, 0, options, &[Habit::Leased(1, 4), Habit::Wait(3), Habit::GivesUp(2, 3)]);
}

#[test]
fn callers_that_wait_while_others_lease() {
    let habits = &[Habit::Leased(1, 3), Habit::Wait(3), Habit::GivesBack(1), Habit::GivesUp(2, 3)];
    check_with(3, 0, lease(), habits);
}
