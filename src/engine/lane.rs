//! A limiter's queue in one runtime, and what its callers and those who make its calls share.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use super::answer::{BatchAnswer, CallResult, NoAnswer};
use super::create_rates::CreateRates;
use super::direct::DirectCall;
use super::intake::{Arrived, Gathered, Intake};
use super::reservation::Reservation;
use super::runtimes::Runtime;
use super::{Engine, closed};
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::GaugePart;
use crate::queue::{Arrival, Queue, Request, Settled, Ticket};
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{CachePadded, Mutex, MutexGuard, RuntimeId, current_id, lock};

/// The queue of one limiter in one runtime.
pub(crate) struct Lane {
    /// The runtime it belongs to, or one of the two below.
    runtime: AtomicU64,
    state: CachePadded<Mutex<LaneState>>,
    pub(super) intake: Intake,
    /// The call in flight that its own caller polls.
    pub(super) direct: DirectCall,
    /// Notified when a sleeping driver has something to look at.
    pub(super) driver_wakeup: Notify,
}

#[derive(Default)]
pub(super) struct LaneState {
    pub(super) queue: Queue<Waker, Arc<BatchAnswer>>,
    /// The answer that requests share that arrive now, if there are any. Kept no longer: an answer
    /// holds the engine, which holds its lanes.
    pub(super) open_answer: Option<Arc<BatchAnswer>>,
    /// The outcomes of requests that do not share their batch's answer.
    pub(super) out_of_band: HashMap<Ticket, OutOfBand>,
    /// The server has set permits aside for the first pending request.
    pub(super) reservation: Option<Reservation>,
    /// A driver task exists, or is about to be started.
    pub(super) has_driver: bool,
    /// It waits for a time or a wakeup.
    pub(super) driver_sleeps: bool,
    pub(super) runtime: Option<Arc<Runtime>>,
    /// Its runtime has ended.
    pub(super) has_ended: bool,
    /// The pause after the next call's first attempt, if earlier calls have failed.
    pub(super) first_pause: Duration,
    pub(super) create_rates: CreateRates,
    /// What it adds to the gauge of all queues.
    observed_length: GaugePart,
}

/// The outcome of a request that does not share its batch's answer: at this position of a call.
pub(super) type OutOfBand = Result<(Arc<BatchAnswer>, usize), NoAnswer>;

/// The lane is free for any runtime.
const FREE: u64 = 0;

/// The lane's runtime has ended, but a call of it is still to be dropped.
const ENDED: u64 = u64::MAX;

impl Lane {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Lane {
            runtime: AtomicU64::new(FREE),
            state: CachePadded::default(),
            intake: Intake::default(),
            direct: DirectCall::default(),
            driver_wakeup: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state.0)
    }

    /// The lock, as an arrival takes it: threads that meet here gather apart from now on.
    pub(super) fn lock_for_arrival(&self) -> MutexGuard<'_, LaneState> {
        self.state.0.try_lock().unwrap_or_else(|_| {
            self.intake.begin();
            self.lock()
        })
    }

    /// Has the requests join the queue that have gathered by thread; answers the callers to wake,
    /// as they are refused.
    pub(super) fn take_in(&self, state: &mut LaneState, engine: &Engine) -> Vec<Waker> {
        let mut wake = Vec::new();
        for gathered in self.intake.take() {
            state.join_gathered(engine, gathered, &mut wake);
        }
        wake
    }

    /// The same, before nobody comes to take in what gathers later.
    pub(super) fn close_intake(&self, state: &mut LaneState, engine: &Engine) -> Vec<Waker> {
        self.intake.set_open(false);
        self.take_in(state, engine)
    }

    #[inline]
    pub(super) fn belongs_to(&self, runtime: Option<RuntimeId>) -> bool {
        runtime.is_some_and(|runtime| runtime.get() == self.runtime.load(Ordering::Acquire))
    }

    pub(super) fn is_free(&self) -> bool {
        self.runtime.load(Ordering::Acquire) == FREE
    }

    /// Gives a lane that is free to a runtime.
    pub(super) fn claim(&self, runtime: &Arc<Runtime>) {
        self.lock().runtime = Some(runtime.clone());
        self.runtime.store(runtime.id.get(), Ordering::Release);
    }

    /// Its runtime has ended: pending requests begin anew elsewhere. Answers the callers to wake.
    pub(super) fn end(&self, engine: &Engine) -> Vec<Waker> {
        let mut state = self.lock();
        state.has_ended = true;
        // Its runtime may still call while it is ending: those calls go elsewhere.
        self.runtime.store(ENDED, Ordering::Release);
        let wake = self.abandon_pending(&mut state, engine);
        self.release_if_ended(&mut state);
        wake
    }

    /// Nobody makes its calls any more: pending requests begin anew elsewhere.
    pub(super) fn abandon_pending(&self, state: &mut LaneState, engine: &Engine) -> Vec<Waker> {
        let mut wake = self.close_intake(state, engine);
        wake.extend(state.tell_pending(engine, &NoAnswer::Abandoned));
        wake
    }

    /// The client has closed: fails all pending requests.
    pub(super) fn fail_pending(&self, state: &mut LaneState, engine: &Engine) -> Vec<Waker> {
        let mut wake = self.close_intake(state, engine);
        wake.extend(state.tell_pending(engine, &NoAnswer::Failed(closed())));
        wake
    }

    /// Wakes the driver; `sleeps` is what its lane's state said.
    pub(super) fn wake_driver(&self, sleeps: bool) {
        if sleeps {
            self.driver_wakeup.notify_one();
        }
    }

    /// Frees the lane of a runtime that has ended for another one, once nothing is left in it.
    pub(super) fn release_if_ended(&self, state: &mut LaneState) {
        if state.has_ended && !state.has_driver && state.queue.is_idle() {
            state.has_ended = false;
            state.runtime = None;
            self.runtime.store(FREE, Ordering::Release);
        }
    }
}

impl LaneState {
    /// A request may join, whose runtime was guessed. A guess is good enough while the lane's driver
    /// is awake, as its runtime has just run it. Otherwise that runtime may be parked, or all its
    /// workers wait for the caller, who drives another one.
    pub(super) fn may_be_joined_on_a_guess(&self, runtime: RuntimeId) -> bool {
        self.has_driver && !self.driver_sleeps || current_id() == Some(runtime)
    }

    /// Why no further request may join the queue; `None`: it may.
    #[inline]
    pub(super) fn is_full(&self, engine: &Engine) -> Option<NoAnswer> {
        let limit = engine.opt_ins.max_waiters()?;
        let is_full = self.queue.len() >= limit as usize;
        is_full.then(|| {
            let kind = ErrorKind::QueueFull { limit };
            NoAnswer::Failed(Error::new(kind, Execution::NotExecuted))
        })
    }

    /// A request joins the queue; its position is in the answer that comes with it.
    #[inline]
    pub(super) fn arrive(
        &mut self,
        engine: &Engine,
        request: Request,
        waker: &mut Option<Waker>,
    ) -> (Arrival, Arc<BatchAnswer>) {
        if !self.queue.has_shared_answer() {
            self.open_answer = None;
        }
        let answer = self.open_answer.get_or_insert_with(|| {
            let answer: Arc<BatchAnswer> = Arc::default();
            self.queue.share_answer(answer.clone());
            answer
        });
        (self.queue.arrive(|| engine.core.now(), request, waker), answer.clone())
    }

    /// Requests that have gathered in a shard join the queue.
    pub(super) fn join_gathered(
        &mut self,
        engine: &Engine,
        gathered: Gathered,
        wake: &mut Vec<Waker>,
    ) {
        let Gathered { answer, arrivals, create_rates } = gathered;
        let numbers: Vec<_> =
            create_rates.rates().map(|rate| self.create_rates.number_of(rate)).collect();
        // Those that arrive at the lane itself from now on share another answer.
        self.open_answer = None;
        self.queue.share_answer(answer.clone());
        answer.joined(self.queue.next_ticket());
        for Arrived { mut request, waker } in arrivals {
            request.create = request.create.map(|number| numbers[usize::from(number)]);
            let mut waker = Some(waker);
            let ticket = self.queue.next_ticket();
            let refused = match self.is_full(engine) {
                Some(full) => Some(full),
                None => match self.queue.arrive(|| engine.core.now(), request, &mut waker) {
                    Arrival::Refused(wait) => Some(NoAnswer::Refused(wait)),
                    Arrival::Queued { .. } => None,
                },
            };
            if let Some(reason) = refused {
                self.queue.keep_position(request);
                self.out_of_band.insert(ticket, Err(reason));
                answer.mark_out_of_band();
            }
            wake.extend(waker);
        }
        self.queue.all_have_arrived();
    }

    /// Writes down what a call settled, and returns the callers to wake.
    pub(super) fn settle(
        &mut self,
        settled: Settled<Waker, Arc<BatchAnswer>>,
        result: &CallResult,
    ) -> Vec<Waker> {
        if !settled.out_of_band.is_empty() {
            let answer = BatchAnswer::for_out_of_band(result.clone());
            for (ticket, position) in settled.out_of_band {
                self.out_of_band.insert(ticket, Ok((answer.clone(), position)));
            }
        }
        for span in settled.spans {
            span.answer.set(result.clone(), span.first, span.count);
        }
        settled.wake
    }

    /// The queue has grown, or shrunk. At each call, and not for each request.
    #[inline]
    pub(super) fn observe(&mut self, engine: &Engine) {
        engine.observer.queue_is(|| self.queue.len(), &mut self.observed_length);
    }

    /// Tells all pending requests that they have no answer, and returns the callers to wake.
    fn tell_pending(&mut self, engine: &Engine, reason: &NoAnswer) -> Vec<Waker> {
        let pending = self.queue.drain();
        let wake = self.tell(pending, reason);
        self.open_answer = None;
        self.observe(engine);
        wake
    }

    /// Tells these requests that they have no answer, and returns the callers to wake.
    pub(super) fn tell(
        &mut self,
        requests: Vec<(Ticket, Option<Waker>)>,
        reason: &NoAnswer,
    ) -> Vec<Waker> {
        if !requests.is_empty() {
            // Which of them share an answer is not worth finding out.
            self.queue.shared_answers().for_each(|answer| answer.mark_out_of_band());
        }
        let mut wake = Vec::with_capacity(requests.len());
        for (ticket, waker) in requests {
            self.out_of_band.insert(ticket, Err(reason.clone()));
            wake.extend(waker);
        }
        wake
    }
}
