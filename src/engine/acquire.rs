//! The future of one acquire: straight to the store, or through the queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;

use super::cell::Cell;
use super::{Engine, Late, Next, State, Verdict, call, closed, driver};
use crate::error::Error;
use crate::queue::{Arrival, Request, Ticket};
use crate::rate::Rate;
use crate::store::{Outcome, Wait};

/// Resolves to what became of one request. Dropped at any time, it takes nothing, or gives back
/// exactly what it took.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    request: Request,
    create: Option<&'a Rate>,
    stage: Stage,
}

enum Stage {
    New,
    /// This caller polls its call itself, unless a driver has taken it over.
    Direct(Place),
    Queued(Place),
    Done,
}

struct Place {
    ticket: Ticket,
    place: usize,
    cell: Arc<Cell>,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, request: Request, create: Option<&'a Rate>) -> Self {
        Acquire { engine, request, create, stage: Stage::New }
    }

    /// Joins the queue, or goes straight.
    fn arrive(&mut self, waker: &Waker) -> Option<Verdict> {
        let engine = self.engine;
        let mut guard = engine.lock();
        let state = &mut *guard;
        if state.closed {
            return Some(Verdict::Failed(closed()));
        }
        self.request.create = self.create.map(|rate| state.carried(*rate));
        let straight = state.queue.is_idle() && !state.driving;
        let waker = (!straight).then(|| waker.clone());
        let (ticket, place) = match state.queue.arrive(|| engine.core.now(), self.request, waker) {
            Arrival::Queued { ticket, place } => (ticket, place),
            Arrival::Refused(wait) => return Some(refused(wait, state)),
        };
        let cell = state.open.clone();
        if straight {
            let place = Place { ticket, place, cell };
            let mut nobody = Vec::new();
            match state.step(engine, &mut nobody) {
                Next::Call(plan) => {
                    let call = Box::pin(call::run(engine.clone(), plan));
                    place.cell.direct().call = Some(call);
                    state.direct = Some((place.ticket, place.cell.clone()));
                    self.stage = Stage::Direct(place);
                }
                _ => unreachable!("a queue of one has a call to send"),
            }
            return None;
        }
        self.stage = Stage::Queued(Place { ticket, place, cell });
        if state.driving {
            let asleep = state.asleep;
            drop(guard);
            if asleep {
                engine.bell.notify_one();
            }
        } else if driver::is_needed(state) {
            // Whoever went straight may not be polled for long: the driver takes its call over.
            let direct = state.direct.take();
            drop(guard);
            let call = direct.and_then(|(ticket, cell)| take_over(engine, ticket, &cell));
            driver::spawn(engine.clone(), call);
        }
        None
    }

    /// What became of it, where that is known. If not, it is woken when it may be; one that has
    /// just `arrived` left its waker with its place.
    fn look(&mut self, cx: &mut Context<'_>, arrived: bool) -> Option<Told> {
        let (place, direct) = match &self.stage {
            Stage::Direct(place) => (place, true),
            Stage::Queued(place) => (place, false),
            Stage::New | Stage::Done => panic!("polled after it was ready"),
        };
        if let told @ Some(_) = place.settled() {
            return told;
        }
        if direct && !place.cell.is_answered() {
            let mut slot = place.cell.direct();
            if let Some(call) = &mut slot.call {
                if call.as_mut().poll(cx).is_pending() {
                    slot.waker = Some(cx.waker().clone());
                    return None;
                }
                slot.call = None;
            }
            drop(slot);
            if let told @ Some(_) = place.settled() {
                return told;
            }
        }
        if arrived && !direct {
            return None;
        }
        let mut state = self.engine.lock();
        let told = place.settled_now(&mut state);
        if told.is_none() {
            state.queue.set_waker(place.ticket, cx.waker().clone());
        }
        told
    }

    fn end(&mut self, told: Told) -> Verdict {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Direct(place) | Stage::Queued(place) => told.verdict(place.cell),
            Stage::New | Stage::Done => unreachable!("only one that stands in the queue is told"),
        }
    }
}

/// Takes the call of a caller that went straight; from now on that caller is woken as any other.
///
/// The state must not be locked: whoever polls the call locks it in turn.
fn take_over(engine: &Engine, ticket: Ticket, cell: &Cell) -> Option<BoxFuture<'static, ()>> {
    let mut slot = cell.direct();
    let call = slot.call.take()?;
    if let Some(waker) = slot.waker.take() {
        engine.lock().queue.leave_waker(ticket, waker);
    }
    Some(call)
}

impl Place {
    /// What became of it, where that is known. `state` is there to look up what the cell does not
    /// tell.
    fn settled_late(&self, state: &mut State) -> Option<Verdict> {
        match state.late.remove(&self.ticket)? {
            Late::Settled(cell, place) => {
                let outcome = cell.late(place)?;
                Some(verdict(cell, outcome))
            }
            Late::Refused(wait) => Some(refused(wait, state)),
            Late::Failed(failure) => Some(Verdict::Failed(failure)),
        }
    }

    fn settled(&self) -> Option<Told> {
        // In this order: who is told otherwise is told so before the cell is answered. Looked for
        // first, that may not be there yet when the answer, which then is not this one's, already is.
        let outcome = self.cell.fresh(self.place)?;
        (!self.cell.some_late()).then_some(Told::Here(outcome))
    }

    /// With the state locked nothing can change: late verdicts come first.
    fn settled_now(&self, state: &mut State) -> Option<Told> {
        match self.settled_late(state) {
            Some(verdict) => Some(Told::Late(verdict)),
            None => self.cell.fresh(self.place).map(Told::Here),
        }
    }
}

/// What became of a request, and where that is told.
enum Told {
    /// In the cell that it holds.
    Here(Result<Outcome, Error>),
    Late(Verdict),
}

impl Told {
    /// The verdict of the request that holds this cell.
    fn verdict(self, cell: Arc<Cell>) -> Verdict {
        match self {
            Told::Here(outcome) => verdict(cell, outcome),
            Told::Late(verdict) => verdict,
        }
    }
}

fn refused(wait: Wait, state: &State) -> Verdict {
    Verdict::Queue(Box::new((wait, state.rate)))
}

fn verdict(cell: Arc<Cell>, outcome: Result<Outcome, Error>) -> Verdict {
    match outcome {
        Ok(outcome) => Verdict::Call(cell, outcome),
        Err(failure) => Verdict::Failed(failure),
    }
}

impl Future for Acquire<'_> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let this = self.get_mut();
        let arrived = matches!(this.stage, Stage::New);
        if arrived && let Some(verdict) = this.arrive(cx.waker()) {
            this.stage = Stage::Done;
            return Poll::Ready(verdict);
        }
        match this.look(cx, arrived) {
            Some(told) => Poll::Ready(this.end(told)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let (place, direct) = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Direct(place) => (place, true),
            Stage::Queued(place) => (place, false),
            Stage::New | Stage::Done => return,
        };
        let engine = self.engine;
        let call = if direct { place.cell.direct().call.take() } else { None };
        let mut state = engine.lock();
        let settled = place.settled_now(&mut state);
        if settled.is_none() {
            state.queue.abandon(place.ticket);
        }
        let asleep = state.asleep;
        let drive = call.is_some() && driver::is_needed(&mut state);
        drop(state);
        match call {
            Some(call) if drive => driver::spawn(engine.clone(), Some(call)),
            Some(call) => driver::spawn_call(engine, call),
            None if asleep => engine.bell.notify_one(),
            None => {}
        }
        if let Some(Verdict::Call(cell, Outcome::Granted)) =
            settled.map(|told| told.verdict(place.cell))
            && let Some(decided) = cell.decided()
        {
            engine.give_back(&decided.entry, self.request.permits);
        }
    }
}
