//! Callers that come at the worst moment, and runtimes that end at one.

use std::sync::Mutex;
use std::task::{Context, Wake, Waker};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::engine::acquire::Acquire;
use crate::engine::driver;
use crate::engine::opt_ins::busy_poll::BusyPoll;
use crate::engine::plan::Next;
use crate::engine::{Core, Engine};
use crate::queue::{MaxWait, Request};
use crate::store::Outcome;
use crate::wire::keys::Keys;

fn engine(world: &World) -> Arc<Engine> {
    let store = Arc::new(world.store.clone());
    let core = Core::new(store, world.clock.clone(), ms(1000), BusyPoll::default());
    Arc::new(Engine::new("api".into(), Keys::new("api", "client"), Arc::new(core), None))
}

fn request(max_wait: MaxWait) -> Request {
    Request { permits: 1, max_wait, deadline: 3_000_000, create: None }
}

async fn is_granted(engine: Arc<Engine>) -> bool {
    let verdict = Acquire::new(&engine, request(MaxWait::None), Some(&rate(100))).await;
    matches!(verdict, Ok((_, Outcome::Granted)))
}

/// A waker that polls a future, once, where it is woken.
#[derive(Default)]
struct PollsInline(Mutex<Option<BoxFuture<'static, bool>>>);

impl Wake for PollsInline {
    fn wake(self: Arc<Self>) {
        let mut future = self.0.lock().unwrap();
        if let Some(future) = &mut *future {
            let answer = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(answer.is_pending());
        }
    }
}

/// The next caller begins its own call when the first one's has ended, but the poll in which it did
/// has not.
#[tokio::test(start_paused = true)]
async fn a_call_that_begins_as_another_one_ends_is_carried_out() {
    let world = World::new();
    let engine = engine(&world);
    let mut first = Box::pin(is_granted(engine.clone()));
    assert!(first.as_mut().now_or_never().is_none());
    let second = Arc::new(PollsInline(Mutex::new(Some(is_granted(engine.clone()).boxed()))));
    let mut drained = Box::pin(engine.core.tasks.drained(&[]));
    let waker = Waker::from(second.clone());
    assert!(drained.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // The end of its call wakes those that wait for the end of everything under way.
    assert!(first.await);
    let attempts = || world.store.ledger().attempts.load(Ordering::SeqCst);
    assert_eq!(attempts(), 2, "the second call has begun");
    let second = second.0.lock().unwrap().take().unwrap();
    assert!(second.await);
    assert_eq!(attempts(), 2, "it was dropped and made again");
}

/// A runtime that is ending may drop a call before its first poll.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_first_poll_is_abandoned() {
    let engine = engine(&World::new());
    let (lane, _) = engine.lane().unwrap();
    let plan = {
        let mut state = lane.lock();
        state.arrive(&engine, request(MaxWait::None), &mut None);
        match state.step(&engine, &mut Vec::new()) {
            Next::Call(plan) => plan,
            _ => panic!("no call"),
        }
    };
    drop(driver::call(&engine, lane, plan));
    assert!(lane.lock().queue.is_idle());
}
