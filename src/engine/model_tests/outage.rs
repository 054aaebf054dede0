//! Outages under the model checker: the server goes away and comes back in the midst of calls.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::store::{Answers, ModelStore};
use super::{SECOND, explore};
use crate::decision::{DecidedBy, Decision};
use crate::engine::outage::CircuitState;
use crate::engine::{Core, ResetOutcome};
use crate::limiters::Limiters;
use crate::options::{Fraction, LimiterOptions, OnOutage};
use crate::rt;
use crate::store::Store;
use crate::{Error, RateLimiter};

/// How many schedules each scheduler explores of a scenario, with each kind of store: fewer than
/// elsewhere, as pauses of the prober are many steps.
const SCHEDULES: usize = 150;

/// The interval of the rate: nothing expires, so that everything granted without the server must be written.
const INTERVAL: Duration = Duration::from_secs(1_000_000);

/// How long callers wait.
const WAIT: Duration = Duration::from_millis(400);

/// How a caller behaves.
#[derive(Clone, Copy)]
enum Habit {
    /// Asks for a permit this many times, and does not wait.
    Now(usize),
    /// Waits for a permit for a while.
    Wait,
    /// The same, but gives up after this many polls.
    GivesUp(usize),
}

/// The permits that a caller has kept: granted by the server, and without it.
type Kept = (u64, u64);

async fn run_caller(limiter: RateLimiter, habit: Habit) -> Kept {
    let mut kept = (0, 0);
    let mut keep = |answer: Result<Decision, Error>| match answer.unwrap().into_grant() {
        Some(grant) if grant.decided_by() == DecidedBy::Outage => kept.1 += grant.permits(),
        Some(grant) => kept.0 += grant.permits(),
        None => {}
    };
    match habit {
        Habit::Now(times) => {
            for _ in 0..times {
                keep(limiter.try_acquire_now(1).await);
                rt::yield_now().await;
            }
        }
        Habit::Wait => keep(limiter.try_acquire(1, WAIT).await),
        Habit::GivesUp(polls) => {
            let mut polls = polls;
            let mut call = pin!(limiter.try_acquire(1, WAIT));
            let answer = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if polls == 0 => Poll::Ready(None),
                Poll::Pending => {
                    polls -= 1;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            });
            if let Some(answer) = answer.await {
                keep(answer);
            }
        }
    }
    kept
}

fn run(store: ModelStore, away: Range<usize>, habits: &'static [Habit]) {
    store.ledger.lock().unwrap().away = away;
    let core = Core::new(Store::Model(store.clone()), store.clock.clone(), SECOND);
    let limiters = Limiters::new("c".into(), String::new(), SECOND * 3, core);
    let engine = limiters.limiter("m", crate::engine::Rules::Redisson).unwrap();
    let limiter = RateLimiter::new(&limiters, engine);
    let policy = OnOutage::Local(Fraction::ALL);
    limiter.set_options(&LimiterOptions::new().on_outage(policy)).unwrap();
    let engine = limiter.engine().clone();
    engine.begin_reset().end(ResetOutcome::HasRate(store.rate));
    let callers: Vec<_> = habits
        .iter()
        .map(|habit| shuttle::future::spawn(run_caller(limiter.clone(), *habit)))
        .collect();
    let core = limiters.core.clone();
    let (kept, report) = shuttle::future::block_on(async move {
        let mut kept = (0, 0);
        for caller in callers {
            let (server, local) = caller.await.unwrap();
            kept = (kept.0 + server, kept.1 + local);
        }
        core.tasks.drained(|_| false).await;
        // The server comes back by itself.
        for _ in 0..100_000 {
            let is_closed = core.outage_report().circuit == CircuitState::Closed;
            if is_closed && !engine.has_stand_in() {
                break;
            }
            rt::yield_now().await;
        }
        engine.close();
        core.outages.close();
        core.tasks.drained(|_| false).await;
        assert!(!engine.has_stand_in(), "what was granted without the server was not written");
        (kept, core.outage_report())
    });
    let ledger = store.ledger.lock().unwrap();
    let charged: u64 = ledger.charged.values().sum();
    assert_eq!(ledger.kept(), kept.0, "granted = kept + given back");
    assert_eq!((report.written, report.not_written), (charged, 0), "each charge counts once");
    // What a caller is granted that gives up at the same moment may be written before it is given back.
    let given_up = habits.iter().filter(|habit| matches!(habit, Habit::GivesUp(_))).count() as u64;
    let is_explained = kept.1 <= charged && charged <= report.granted + given_up;
    assert!(is_explained, "{kept:?}, {charged}, {report:?}");
}

fn check(rate: u64, lose_every: usize, away: Range<usize>, habits: &'static [Habit]) {
    for answers in [Answers::AtOnce, Answers::Later] {
        let away = away.clone();
        let store = move || ModelStore::new(rate, INTERVAL, lose_every, answers);
        explore(move || run(store(), away.clone(), habits), SCHEDULES);
    }
}

#[test]
fn a_server_that_goes_away_and_comes_back() {
    check(4, 0, 2..5, &[Habit::Now(4), Habit::Now(4)]);
    check(4, 0, 1..4, &[Habit::Now(3), Habit::Wait, Habit::GivesUp(4)]);
}

#[test]
fn charges_whose_answers_are_lost_count_once() {
    check(4, 2, 1..4, &[Habit::Now(3), Habit::Now(3), Habit::GivesUp(2)]);
}

#[test]
fn a_server_that_goes_away_for_a_moment_in_which_it_is_written_to() {
    check(3, 0, 3..4, &[Habit::Now(4), Habit::Wait]);
    check(3, 3, 2..6, &[Habit::Now(5), Habit::Now(5)]);
}
