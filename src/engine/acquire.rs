//! The future of one acquire.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::answer::{Caller, NoAnswer, Verdict};
use super::lane::Lane;
use super::{Engine, closed, driver};
use crate::queue::{Request, Ticket};
use crate::rt;

/// Resolves to the outcome of one request. If the future is dropped at any point, it takes nothing, or
/// gives back exactly what it took.
///
/// The request joins the lane of the runtime that polls the future first. If that runtime ends, or if
/// another one polls the future before its outcome is known, the request starts over, because its first
/// lane may be parked forever.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Request,
    stage: Stage,
}

enum Stage {
    New,
    Queued(Place),
    Done,
}

/// A request's position in its lane, and the channel on which its outcome arrives.
struct Place {
    lane: Arc<Lane>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Verdict>,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, request: &'a Request) -> Self {
        Acquire { engine, request, stage: Stage::New }
    }
}

impl Place {
    /// Joins the queue of the current runtime and starts a driver if none is making its calls. `Pending`
    /// means that the queue is full but will have room again, or hold waiters, once its driver has run,
    /// because an in-process call takes no time.
    fn join(engine: &Arc<Engine>, request: Request) -> Poll<Result<Place, NoAnswer>> {
        loop {
            let lane = engine.lane().map_err(NoAnswer::Failed)?;
            let (caller, outcome) = Caller::new();
            let mut state = lane.lock();
            if engine.is_closed() {
                return Poll::Ready(Err(NoAnswer::Failed(closed())));
            }
            if state.has_ended {
                // The lane's runtime ended after the lane was found.
                continue;
            }
            if let Some(full) = state.is_full(engine) {
                if engine.core.store.is_in_process() && state.queue.is_asking() {
                    return Poll::Pending;
                }
                return Poll::Ready(Err(NoAnswer::Failed(full)));
            }
            let now = || engine.core.now();
            let ticket = state.queue.arrive(now, request, caller).map_err(NoAnswer::Refused)?;
            let (needs_driver, driver_sleeps) = (!state.has_driver, state.driver_sleeps);
            state.has_driver = true;
            drop(state);
            if needs_driver {
                driver::start(engine, &lane);
            } else {
                lane.wake_driver(driver_sleeps);
            }
            return Poll::Ready(Ok(Place { lane, ticket, outcome }));
        }
    }

    /// Whether the future is being polled outside its lane's runtime, which may then be parked forever. The
    /// client's own thread never is, so its lane is exempt.
    fn is_elsewhere(&self, engine: &Engine) -> bool {
        let home = Some(self.lane.runtime.id);
        rt::current_id() != home && engine.core.own_runtime_id() != home
    }

    /// Withdraws the request: the caller no longer wants an answer.
    fn leave(&mut self) {
        // Close first: from here on, any outcome that is sent is dropped, and its permits are thereby given
        // back.
        self.outcome.close();
        let driver_sleeps = {
            let mut state = self.lane.lock();
            state.queue.cancel(self.ticket);
            state.driver_sleeps
        };
        self.lane.wake_driver(driver_sleeps);
    }
}

impl Future for Acquire<'_> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let this = self.get_mut();
        loop {
            let verdict = match &mut this.stage {
                Stage::New => match Place::join(this.engine, this.request.clone()) {
                    Poll::Ready(Ok(mut place)) => {
                        let polled = Pin::new(&mut place.outcome).poll(cx);
                        this.stage = Stage::Queued(place);
                        ready!(polled)
                    }
                    Poll::Ready(Err(reason)) => Ok(Err(reason)),
                    Poll::Pending => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                },
                Stage::Queued(place) => match Pin::new(&mut place.outcome).poll(cx) {
                    Poll::Pending if place.is_elsewhere(this.engine) => {
                        place.leave();
                        this.stage = Stage::New;
                        continue;
                    }
                    polled => ready!(polled),
                },
                Stage::Done => panic!("polled after it was ready"),
            };
            this.stage = Stage::New;
            if let Ok(verdict) = verdict {
                this.stage = Stage::Done;
                return Poll::Ready(verdict);
            }
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Stage::Queued(place) = &mut self.stage {
            place.leave();
        }
    }
}
