//! One acquire, from the queue to its outcome.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::sync::oneshot;
use tokio::task::consume_budget;

use super::answer::{Answer, Caller, Verdict};
use super::lane::Lane;
use super::{Engine, closed, driver};
use crate::observe::current_span;
use crate::options::Fraction;
use crate::queue::{Request, Ticket};

/// A request's position in its lane, and the channel on which its outcome arrives. Dropped before that, it withdraws
/// the request.
struct Place {
    lane: Arc<Lane>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Verdict>,
}

impl Engine {
    /// The outcome of one request. If the future is dropped at any point, it takes nothing, or gives back exactly
    /// what it took.
    ///
    /// The request joins the lane of the runtime that polls the future first. If that runtime ends, or if another one
    /// polls the future before its outcome is known, the request starts over, because its first lane may be parked
    /// forever.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        headroom: Option<Fraction>,
        request: Request,
    ) -> impl Future<Output = Verdict> + Send {
        let mut place: Option<Place> = None;
        poll_fn(move |cx| {
            loop {
                let is_new = place.is_none();
                let queued = match &mut place {
                    Some(queued) => queued,
                    None => match self.join(headroom, &request) {
                        Ok(Some(joined)) => place.insert(joined),
                        Ok(None) => {
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        Err(verdict) => {
                            // It does no round trip: asking in a loop would keep other tasks from running. It joins once
                            // more if it has to yield.
                            ready!(pin!(consume_budget()).poll(cx));
                            return Poll::Ready(verdict);
                        }
                    },
                };
                match Pin::new(&mut queued.outcome).poll(cx) {
                    Poll::Ready(Ok(verdict)) => return Poll::Ready(verdict),
                    Poll::Pending if is_new || !queued.lane.is_elsewhere(self) => {
                        return Poll::Pending;
                    }
                    // It starts over.
                    Poll::Ready(Err(_)) | Poll::Pending => place = None,
                }
            }
        })
    }

    /// Joins the queue of the current runtime and starts a driver if none is making its calls. `None` means that the
    /// queue is full but will have room again, or hold waiters, once its driver has run, because an in-process call
    /// takes no time.
    fn join(
        self: &Arc<Self>,
        headroom: Option<Fraction>,
        request: &Request,
    ) -> Result<Option<Place>, Verdict> {
        let lane = self.lane(headroom).map_err(Err)?;
        let (caller, outcome) = Caller::new(current_span());
        let mut state = lane.lock();
        if self.is_closed() {
            return Err(Err(closed()));
        }
        if let Some(full) = state.is_full(self) {
            let has_room_soon = self.core.store.is_in_process() && state.queue.is_asking();
            return if has_room_soon { Ok(None) } else { Err(Err(full)) };
        }
        let ticket = state.queue.arrive(|| self.core.now(), request.clone(), caller);
        let ticket = ticket.map_err(|wait| Ok(Answer::Refused(wait)))?;
        driver::start_or_wake(self, &lane, state);
        // Permits may be on their way to the server.
        self.pass_on();
        Ok(Some(Place { lane, ticket, outcome }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.outcome.is_terminated() {
            return;
        }
        // Close first: from here on, any outcome that is sent is dropped, and its permits are thereby given
        // back.
        self.outcome.close();
        let (caller, unwanted) = self
            .lane
            .change(|state| (state.queue.cancel(self.ticket), state.take_unwanted_reservation()));
        if unwanted.is_some()
            && let Some(engine) = self.lane.engine.upgrade()
        {
            engine.give_back_reservation(unwanted);
        }
        // Drop the caller without the lock: its span may close with it, and a subscriber may call the client.
        drop(caller);
    }
}
