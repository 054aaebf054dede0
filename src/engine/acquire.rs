//! The future of one acquire.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::answer::{BatchAnswer, NoAnswer, Verdict};
use super::lane::{Lane, LaneState};
use super::plan::Next;
use super::{Engine, closed, driver};
use crate::queue::{Arrival, Request, Ticket};
use crate::rate::Rate;
use crate::rt;
use crate::store::Outcome;

/// Resolves to what became of one request. Dropped at any time, it takes nothing, or gives back
/// exactly what it took.
///
/// It joins the lane of the runtime that polls it first. Polled in another runtime before it has
/// its outcome, it begins anew there: its first lane may be parked for ever.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    request: Request,
    create: Option<&'a Rate>,
    stage: Stage<'a>,
    begins_anew: bool,
}

enum Stage<'a> {
    New,
    Queued(Place<'a>),
    Done,
}

/// Where a request is.
struct Place<'a> {
    lane: &'a Arc<Lane>,
    /// `None`: it has gathered by thread, and gets its ticket when it joins the queue.
    ticket: Option<Ticket>,
    position: usize,
    answer: Arc<BatchAnswer>,
    /// It was alone when it arrived: it polls its call itself, until a driver does.
    polls_call: bool,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, request: Request, create: Option<&'a Rate>) -> Self {
        Acquire { engine, request, create, stage: Stage::New, begins_anew: false }
    }

    /// Joins the queue; the first one polls its own call.
    fn arrive(&mut self, waker: &Waker) -> Option<NoAnswer> {
        if self.engine.is_closed() {
            return Some(NoAnswer::Failed(closed()));
        }
        // A guess that was wrong once would be so again.
        let mut guess = match self.begins_anew {
            false => self.engine.likely_lane(waker),
            true => None,
        };
        loop {
            let guess = guess.take();
            let is_guess = guess.is_some();
            let (lane, runtime) = match guess.map_or_else(|| self.engine.lane(), Ok) {
                Ok(found) => found,
                Err(failure) => return Some(NoAnswer::Failed(failure)),
            };
            // Before the lock: a waker's code is not ours.
            let mut waker = Some(waker.clone());
            let is_right = || lane.belongs_to(Some(runtime));
            let gathered = lane.intake.arrive(self.request, self.create, &mut waker, is_right);
            if let Some((answer, position)) = gathered {
                let polls_call = false;
                self.stage =
                    Stage::Queued(Place { lane, ticket: None, position, answer, polls_call });
                return None;
            }
            let state = lane.lock_for_arrival();
            if is_guess && !state.may_be_joined_on_a_guess(runtime) {
                rt::stop_guessing();
                continue;
            }
            // Its runtime may have ended between the two, and the lane may be another's.
            if !state.has_ended && state.runtime.as_ref().is_some_and(|found| found.id == runtime) {
                return self.join(lane, state, waker);
            }
        }
    }

    fn join(
        &mut self,
        lane: &'a Arc<Lane>,
        mut guard: rt::MutexGuard<'a, LaneState>,
        mut waker: Option<Waker>,
    ) -> Option<NoAnswer> {
        let engine = self.engine;
        let state = &mut *guard;
        if engine.is_closed() {
            return Some(NoAnswer::Failed(closed()));
        }
        if let full @ Some(_) = state.is_full(engine) {
            return full;
        }
        self.request.create = self.create.map(|rate| state.create_rates.number_of(*rate));
        let polls_call =
            state.queue.is_idle() && !state.has_driver && lane.belongs_to(rt::current_id());
        // A caller that polls its own call is woken by what it polls.
        let mut no_waker = None;
        let left = if polls_call { &mut no_waker } else { &mut waker };
        let (arrival, answer) = state.arrive(engine, self.request, left);
        let (ticket, position) = match arrival {
            Arrival::Queued { ticket, position } => (ticket, position),
            Arrival::Refused(wait) => return Some(NoAnswer::Refused(wait)),
        };
        let place = Place { lane, ticket: Some(ticket), position, answer, polls_call };
        self.stage = Stage::Queued(place);
        if polls_call {
            let mut nobody = Vec::new();
            let Next::Call(plan) = state.step(engine, &mut nobody) else {
                unreachable!("a queue of one has a call to send")
            };
            let call = Box::pin(driver::call(engine, lane, plan));
            // Before the lock is free: otherwise the next caller could find no call to hand to a driver.
            lane.direct.set(ticket, call);
        } else if state.has_driver {
            let sleeps = state.driver_sleeps;
            drop(guard);
            lane.wake_driver(sleeps);
        } else if driver::is_needed(state, engine) {
            // The caller that polls the call in flight may not be polled for long.
            drop(guard);
            driver::hand_over(engine, lane);
        }
        None
    }

    /// Leaves the queue, and gives back what it was granted.
    #[cold]
    fn leave(&mut self) {
        let Stage::Queued(mut place) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return;
        };
        let (engine, lane) = (self.engine, place.lane);
        let own = place.ticket.filter(|_| place.polls_call);
        let call = own.and_then(|ticket| lane.direct.take(ticket));
        let (outcome, _waker, refused, driver_sleeps, needs_driver) = {
            let mut state = lane.lock();
            let refused = lane.take_in(&mut state, engine);
            let outcome = place.look_with_lock(&mut state);
            let waker = match (&outcome, place.ticket()) {
                (None, Some(ticket)) => state.queue.cancel(ticket).1,
                _ => None,
            };
            let needs_driver = call.is_some() && driver::is_needed(&mut state, engine);
            lane.release_if_ended(&mut state);
            (outcome, waker, refused, state.driver_sleeps, needs_driver)
        };
        rt::wake_all(refused);
        match call {
            Some(call) if needs_driver => driver::start(engine, lane, Some(call)),
            Some(call) => driver::start_call(engine, lane, call),
            None => lane.wake_driver(driver_sleeps),
        }
        if let Some(Ok(Outcome::Granted)) = outcome
            && let Some(decided) = place.answer.decided()
        {
            engine.give_back(&decided.entry, self.request.permits);
        }
    }
}

impl Place<'_> {
    /// What became of it, if that is known. If not, its caller is woken when it may be.
    fn look(
        &mut self,
        engine: &Arc<Engine>,
        cx: &mut Context<'_>,
    ) -> Option<Result<Outcome, NoAnswer>> {
        if let outcome @ Some(_) = self.answer.settled_here(self.position) {
            return outcome;
        }
        if self.polls_call && !self.answer.is_answered() {
            if !self.lane.belongs_to(rt::current_id()) {
                return Some(Err(NoAnswer::Abandoned));
            }
            if let Some(ticket) = self.ticket
                && self.poll_call(engine, ticket, cx)
            {
                return None;
            }
            if let outcome @ Some(_) = self.answer.settled_here(self.position) {
                return outcome;
            }
        }
        // Neither is to be dropped under the lock.
        let waker = cx.waker().clone();
        let (outcome, _replaced, refused) = {
            let mut state = self.lane.lock();
            let refused = self.lane.take_in(&mut state, engine);
            let (outcome, replaced) = match (self.look_with_lock(&mut state), self.ticket()) {
                // Polled outside of the lane's runtime, which may be parked for ever; only the
                // client's own thread never is.
                (None, _) if self.is_elsewhere(engine) => {
                    (Some(Err(NoAnswer::Abandoned)), Some(waker))
                }
                (None, Some(ticket)) => (None, state.queue.set_waker(ticket, waker)),
                (outcome, _) => (outcome, Some(waker)),
            };
            (outcome, replaced, refused)
        };
        rt::wake_all(refused);
        outcome
    }

    fn poll_call(&self, engine: &Arc<Engine>, ticket: Ticket, cx: &mut Context<'_>) -> bool {
        let to_driver = |call| driver::start_with_direct(engine, self.lane, call);
        self.lane.direct.poll(ticket, cx, to_driver)
    }

    /// Its ticket, once it has joined the queue.
    fn ticket(&self) -> Option<Ticket> {
        let gathered = || Some(self.answer.first_ticket()? + self.position as Ticket);
        self.ticket.or_else(gathered)
    }

    fn is_elsewhere(&self, engine: &Engine) -> bool {
        !self.lane.belongs_to(rt::current_id())
            && !engine.core.own_runtime_id().is_some_and(|own| self.lane.belongs_to(Some(own)))
    }

    /// With the lane locked nothing can change; outcomes out of band come first. One in a call has
    /// an answer of its own, which takes the place of the shared one.
    fn look_with_lock(&mut self, state: &mut LaneState) -> Option<Result<Outcome, NoAnswer>> {
        let ticket = self.ticket();
        match ticket.and_then(|ticket| state.out_of_band.remove(&ticket)) {
            Some(Ok((answer, position))) => {
                (self.ticket, self.answer, self.position) = (ticket, answer, position);
            }
            Some(Err(reason)) => return Some(Err(reason)),
            None => {}
        }
        self.answer.settled(self.position)
    }
}

impl Acquire<'_> {
    /// Its first poll, and those that find no answer to read.
    #[inline(never)]
    fn poll_unanswered(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            if matches!(self.stage, Stage::New) {
                if let Some(reason) = self.arrive(cx.waker()) {
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(reason));
                }
                // One that polls its own call has left no waker, even if a driver has taken that call
                // over and finished it since: nobody would wake it.
                if matches!(&self.stage, Stage::Queued(place) if !place.polls_call) {
                    return Poll::Pending;
                }
            }
            let Stage::Queued(place) = &mut self.stage else { panic!("polled after it was ready") };
            match place.look(self.engine, cx) {
                None => return Poll::Pending,
                Some(Err(NoAnswer::Abandoned)) => {
                    self.leave();
                    self.stage = Stage::New;
                    self.begins_anew = true;
                }
                Some(outcome) => return self.finish(outcome),
            }
        }
    }

    #[inline]
    fn finish(&mut self, outcome: Result<Outcome, NoAnswer>) -> Poll<Verdict> {
        let Stage::Queued(place) = std::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("it was in the queue")
        };
        Poll::Ready(outcome.map(|outcome| (place.answer, outcome)))
    }
}

impl Future for Acquire<'_> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let this = self.get_mut();
        // Most requests are polled twice: when they arrive, and when they can read their outcome.
        if let Stage::Queued(place) = &this.stage
            && let Some(outcome) = place.answer.decided_here(place.position)
        {
            return this.finish(Ok(outcome));
        }
        this.poll_unanswered(cx)
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Queued(_)) {
            self.leave();
        }
    }
}
