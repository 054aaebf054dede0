//! A limiter's queue in one runtime, and who is to drive it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use super::answer::{BatchAnswer, CallResult, Verdict};
use super::direct::DirectCall;
use super::intake::{Arrived, Gathered, Intake};
use super::knowledge::Knowledge;
use super::opt_ins::lease::LeaseRequest;
use super::plan::Plan;
use super::retry::FIRST_PAUSE;
use super::runtimes::Runtime;
use super::{Engine, closed};
use crate::error::Error;
use crate::queue::{
    ATTEMPTS_PER_DEADLINE, Arrival, Call, Queue, Request, Settled, Step, Ticket, Turn,
};
use crate::rate::Rate;
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{self, CachePadded, Mutex, MutexGuard, RuntimeId, lock};
use crate::store::Wait;

/// The queue of one limiter in one runtime.
pub(crate) struct Lane {
    /// The runtime it belongs to, or one of the two below.
    runtime: AtomicU64,
    state: CachePadded<Mutex<LaneState>>,
    pub(super) intake: Intake,
    /// The call in flight that its own caller polls.
    pub(super) direct: Mutex<DirectCall>,
    /// Notified when a sleeping driver has something to look at.
    pub(super) driver_wakeup: Notify,
}

#[derive(Default)]
pub(super) struct LaneState {
    pub(super) queue: Queue<Waker, Arc<BatchAnswer>>,
    /// The answer that requests share that arrive now, if there are any. Kept no longer: an answer
    /// holds the engine, which holds its lanes.
    open_answer: Option<Arc<BatchAnswer>>,
    /// The outcomes of requests that do not share their batch's answer.
    pub(super) out_of_band: HashMap<Ticket, OutOfBand>,
    /// A driver task exists, or is about to be started.
    pub(super) has_driver: bool,
    /// It waits for a time or a wakeup.
    pub(super) driver_sleeps: bool,
    pub(super) runtime: Option<Arc<Runtime>>,
    /// Its runtime has ended.
    pub(super) has_ended: bool,
    /// The pause after the next call's first attempt, unless that is [`FIRST_PAUSE`].
    pub(super) first_pause: Duration,
    /// The rates that handles create limiters with.
    create_rates: Vec<Rate>,
}

/// The outcome of a request that does not share its batch's answer.
pub(super) enum OutOfBand {
    /// At this position of a call.
    Settled(Arc<BatchAnswer>, usize),
    Refused(Wait),
    Failed(Error),
    /// The lane's runtime has ended: the request begins anew where its caller is.
    LaneEnded,
}

/// What to do next.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each call")]
pub(super) enum Next {
    Call(Plan),
    SleepUntil(crate::queue::Time),
    InFlight,
    Idle,
}

/// The lane is free for any runtime.
const FREE: u64 = 0;

/// The lane's runtime has ended, but a call of it is still to be dropped.
const ENDED: u64 = u64::MAX;

impl Lane {
    fn new() -> Arc<Self> {
        Arc::new(Lane {
            runtime: AtomicU64::new(FREE),
            state: CachePadded::default(),
            intake: Intake::default(),
            direct: Mutex::new(DirectCall::None),
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

/// The lanes of one limiter: the first without a detour, as most programs have one runtime.
pub(super) struct Lanes {
    lane: Arc<Lane>,
    next: OnceLock<Box<Lanes>>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Lanes { lane: Lane::new(), next: OnceLock::new() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        std::iter::successors(Some(self), |lanes| lanes.next.get().map(Box::as_ref))
            .map(|lanes| &lanes.lane)
    }

    #[inline]
    pub(super) fn find(&self, runtime: RuntimeId) -> Option<&Arc<Lane>> {
        self.iter().find(|lane| lane.belongs_to(Some(runtime)))
    }
}

impl Engine {
    /// The lane of the current runtime, or of the client's own thread, and which of them it is.
    #[inline]
    pub(super) fn lane(self: &Arc<Self>) -> Result<(&Arc<Lane>, RuntimeId), Error> {
        if let Some(runtime) = rt::current_id()
            && let Some(lane) = self.lanes.find(runtime)
        {
            return Ok((lane, runtime));
        }
        self.open_lane()
    }

    /// Most likely the lane of the current runtime, which this may be the wrong one for.
    #[inline]
    pub(super) fn likely_lane(&self, waker: &Waker) -> Option<(&Arc<Lane>, RuntimeId)> {
        let runtime = rt::likely_id(waker)?;
        Some((self.lanes.find(runtime)?, runtime))
    }

    #[cold]
    fn open_lane(self: &Arc<Self>) -> Result<(&Arc<Lane>, RuntimeId), Error> {
        loop {
            let runtime = self.core.runtime()?;
            let lane = self.claim_lane(&runtime);
            // Only now, as otherwise a runtime that ends between the two would leave its lane open.
            if runtime.register(self) {
                return Ok((lane, runtime.id));
            }
            self.end_lane(runtime.id);
        }
    }

    fn claim_lane(&self, runtime: &Arc<Runtime>) -> &Arc<Lane> {
        // Two callers of one runtime must not open two lanes.
        let _opening = lock(&self.opening);
        if let Some(lane) = self.lanes.find(runtime.id) {
            return lane;
        }
        let mut lanes = &self.lanes;
        while lanes.lane.runtime.load(Ordering::Acquire) != FREE {
            lanes = lanes.next.get_or_init(|| Box::new(Lanes::new()));
        }
        lanes.lane.lock().runtime = Some(runtime.clone());
        lanes.lane.runtime.store(runtime.id.get(), Ordering::Release);
        &lanes.lane
    }

    /// The runtime of a lane has ended: its callers elsewhere begin anew.
    pub(super) fn end_lane(&self, runtime: RuntimeId) {
        let wake = {
            // Otherwise a lane that is being opened would be missed, and kept for ever.
            let _opening = lock(&self.opening);
            let Some(lane) = self.lanes.find(runtime) else { return };
            let mut state = lane.lock();
            state.has_ended = true;
            // Its runtime may still call while it is ending: those calls go elsewhere.
            lane.runtime.store(ENDED, Ordering::Release);
            let mut wake = lane.close_intake(&mut state, self);
            wake.extend(state.tell_pending(|| OutOfBand::LaneEnded));
            lane.release_if_ended(&mut state);
            wake
        };
        rt::wake_all(wake);
    }

    /// Fails all pending requests of a lane of a closed client.
    pub(super) fn fail_pending(&self, lane: &Lane, state: &mut LaneState) -> Vec<Waker> {
        let mut wake = lane.close_intake(state, self);
        wake.extend(state.tell_pending(|| OutOfBand::Failed(closed())));
        wake
    }
}

impl LaneState {
    /// A request may join, whose runtime was guessed. A guess is good enough while the lane's driver
    /// is awake, as its runtime has just run it. Otherwise that runtime may be parked, or all its
    /// workers wait for the caller, who drives another one.
    pub(super) fn may_be_joined_on_a_guess(&self, runtime: RuntimeId) -> bool {
        self.has_driver && !self.driver_sleeps || rt::current_id() == Some(runtime)
    }

    /// A request joins the queue; its position is in the answer that comes with it.
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
        let Gathered { answer, arrivals } = gathered;
        // Those that arrive at the lane itself from now on share another answer.
        self.open_answer = None;
        self.queue.share_answer(answer.clone());
        answer.joined(self.queue.next_ticket());
        for Arrived { mut request, create, waker } in arrivals {
            request.create = create.map(|rate| self.create_rate(rate));
            let mut waker = Some(waker);
            let ticket = self.queue.next_ticket();
            if let Arrival::Refused(wait) =
                self.queue.arrive(|| engine.core.now(), request, &mut waker)
            {
                self.queue.keep_position(request);
                self.out_of_band.insert(ticket, OutOfBand::Refused(wait));
                answer.mark_out_of_band();
            }
            wake.extend(waker);
        }
        self.queue.all_have_arrived();
    }

    /// Decides what to do next. The caller wakes `wake`, once the lock is free.
    pub(super) fn step(&mut self, engine: &Engine, wake: &mut Vec<Waker>) -> Next {
        let Turn { step, refused } = self.queue.step(engine.core.now());
        if !refused.is_empty() {
            // Which of them share an answer is not worth finding out.
            self.queue.shared_answers().for_each(|answer| answer.mark_out_of_band());
        }
        for (ticket, wait, waker) in refused {
            self.out_of_band.insert(ticket, OutOfBand::Refused(wait));
            wake.extend(waker);
        }
        match step {
            Step::Call(call) => {
                let mut knowledge = engine.knowledge();
                // Once somebody has waited, nothing may be taken ahead of the queue, nor of other
                // clients' waiters.
                let lease = match self.queue.has_waited_in_flight() || self.queue.is_exhausted() {
                    true => None,
                    false => engine.lease_request(&mut knowledge),
                };
                Next::Call(self.plan(engine, &knowledge, call, lease))
            }
            Step::SleepUntil(time) => Next::SleepUntil(time),
            Step::InFlight => Next::InFlight,
            Step::Idle if engine.wants_call() => {
                let mut knowledge = engine.knowledge();
                match engine.lease_request(&mut knowledge) {
                    Some(lease) => {
                        let call = self.queue.call_without_callers();
                        Next::Call(self.plan(engine, &knowledge, call, Some(lease)))
                    }
                    None => Next::Idle,
                }
            }
            Step::Idle => Next::Idle,
        }
    }

    fn plan(
        &mut self,
        engine: &Engine,
        knowledge: &Knowledge,
        call: Call,
        lease: Option<LeaseRequest>,
    ) -> Plan {
        self.open_answer = None;
        let mut groups = call.groups;
        groups.extend(lease.iter().map(|lease| lease.group()));
        Plan {
            groups,
            lease,
            create: call.create.map(|index| self.create_rates[usize::from(index)]),
            share: call.share.filter(|_| !engine.opt_ins.is_greedy()),
            due: call.due,
            attempt: Duration::from_micros(call.shortest_deadline / ATTEMPTS_PER_DEADLINE),
            seen: knowledge.seen,
            audit: knowledge.audited.zip(knowledge.rate),
            generation: knowledge.generation,
            resets: knowledge.resets,
            first_pause: self.first_pause.max(FIRST_PAUSE),
        }
    }

    /// The number of a rate that a handle creates limiters with.
    pub(super) fn create_rate(&mut self, rate: Rate) -> u16 {
        let known = self.create_rates.iter().position(|known| *known == rate);
        let index = known.unwrap_or_else(|| {
            // Handles do not carry thousands of rates for one limiter; if so, the last ones share
            // a number.
            if self.create_rates.len() > usize::from(u16::MAX) {
                self.create_rates.pop();
            }
            self.create_rates.push(rate);
            self.create_rates.len() - 1
        });
        index as u16
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
                self.out_of_band.insert(ticket, OutOfBand::Settled(answer.clone(), position));
            }
        }
        for span in settled.spans {
            span.answer.set(result.clone(), span.first, span.count);
        }
        settled.wake
    }

    /// Gives all pending requests an outcome of their own, and returns the callers to wake.
    pub(super) fn tell_pending(&mut self, outcome: impl Fn() -> OutOfBand) -> Vec<Waker> {
        let pending = self.queue.drain();
        let wake = self.tell(pending, outcome);
        self.open_answer = None;
        wake
    }

    /// Gives these requests an outcome of their own, and returns the callers to wake.
    pub(super) fn tell(
        &mut self,
        requests: Vec<(Ticket, Option<Waker>)>,
        outcome: impl Fn() -> OutOfBand,
    ) -> Vec<Waker> {
        if !requests.is_empty() {
            // Which of them share an answer is not worth finding out.
            self.queue.shared_answers().for_each(|answer| answer.mark_out_of_band());
        }
        let mut wake = Vec::with_capacity(requests.len());
        for (ticket, waker) in requests {
            self.out_of_band.insert(ticket, outcome());
            wake.extend(waker);
        }
        wake
    }
}

/// The verdict on a request that is refused without a call.
pub(super) fn refused(wait: Wait, engine: &Engine) -> Verdict {
    Verdict::Queue(Box::new((wait, engine.rate())))
}
