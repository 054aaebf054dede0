//! Requests that have gathered by thread, each thread with an answer of its own.

use std::sync::Arc;
use std::task::Waker;

use super::{LimiterOptions, World};
use crate::engine::answer::{BatchAnswer, NoAnswer};
use crate::engine::create_rates::CreateRates;
use crate::engine::intake::{Arrived, Gathered, Intake};
use crate::engine::lane::LaneState;
use crate::engine::plan::Next;
use crate::error::{Error, ErrorKind, Execution};
use crate::queue::{MaxWait, Request};
use crate::rate::Rate;

const DEADLINE: u64 = 1000;

fn request() -> Request {
    Request { permits: 1, max_wait: MaxWait::None, deadline: DEADLINE, create: None }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_out_of_band_is_known_to_the_answers_of_all_threads() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let engine = limiter.engine();
    let mut state = LaneState::default();
    let mut wake = Vec::new();
    let _ = state.arrive(engine, request(), &mut Some(Waker::noop().clone()));
    assert!(matches!(state.step(engine, &mut wake), Next::Call(_)));
    let answers: [Arc<BatchAnswer>; 2] = Default::default();
    for answer in &answers {
        let arrivals = vec![Arrived { request: request(), waker: Waker::noop().clone() }];
        let create_rates = CreateRates::default();
        let gathered = Gathered { answer: answer.clone(), arrivals, create_rates };
        state.join_gathered(engine, gathered, &mut wake);
    }
    assert!(wake.is_empty(), "none is refused");

    // The call is slow, and both time out behind it.
    let now = engine.core.now();
    state.queue.call_is_slow(now);
    let expired = state.queue.expire_behind(now + DEADLINE);
    assert_eq!(expired.len(), 2);
    let timeout = Error::new(ErrorKind::Timeout, Execution::NotExecuted);
    state.tell(expired, &NoAnswer::Failed(timeout));

    // Without the mark each would take what the batch's answer says at its position.
    for answer in &answers {
        answer.set(Err(NoAnswer::Abandoned), 0, 1);
        assert!(answer.settled_here(0).is_none());
    }
}

/// The lane's runtime has ended since the lane was found, and another one opens the shards.
#[test]
fn a_request_does_not_gather_in_a_lane_that_is_another_runtimes_by_now() {
    let intake = Intake::default();
    intake.begin();
    intake.set_open(true);
    let mut waker = Some(Waker::noop().clone());
    assert!(intake.arrive(request(), None, &mut waker, || false).is_none());
    assert!(waker.is_some() && intake.len() == 0);
    assert!(intake.arrive(request(), None, &mut waker, || true).is_some());
    assert!(waker.is_none() && intake.len() == 1);
}

/// Each thread numbers the rates of its handles by itself, and the lane those of all.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_gathered_creates_its_limiter_with_the_rate_of_its_handle() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let mut state = LaneState::default();
    let rates = [1, 2, 3].map(Rate::per_second);
    state.create_rates.number_of(rates[0]);
    let intake = Intake::default();
    intake.begin();
    intake.set_open(true);
    for rate in [&rates[2], &rates[1]] {
        let mut waker = Some(Waker::noop().clone());
        assert!(intake.arrive(request(), Some(rate), &mut waker, || true).is_some());
    }
    let mut wake = Vec::new();
    for gathered in intake.take() {
        state.join_gathered(limiter.engine(), gathered, &mut wake);
    }
    let Next::Call(plan) = state.step(limiter.engine(), &mut wake) else { panic!("no call") };
    assert_eq!(plan.create, Some(rates[2]));
}
