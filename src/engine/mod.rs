//! The async shell around the queue: one engine per limiter and client.
//!
//! A caller that finds nobody before it sends its own call ([`acquire`]). Whoever comes meanwhile
//! stands in the queue, and a driver task ([`driver`]) exists for as long as somebody does. What a
//! call settles is written once into the [`cell::Cell`] that its callers share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::error::{Execution, Failure, FailureKind};
use crate::options::LimiterOptions;
use crate::queue::{Patience, Queue, Settled, Step, Ticket, Time, Turn};
use crate::rate::Rate;
use crate::store::{Outcome, Store, Wait};
use crate::wire::keys::Keys;

pub(crate) mod acquire;
mod call;
pub(crate) mod cell;
mod denials;
mod driver;
#[cfg(all(test, shuttle))]
mod model_tests;
mod refund;
mod rt;

use call::Plan;
use cell::{Answer, Cell};
use denials::Denials;
use rt::{Mutex, MutexGuard};

/// The pauses between attempts of a call that failed for now: each twice the one before.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What all limiters of one client share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    /// The origin of the queues' time.
    pub(crate) origin: Instant,
    /// The last time seen of the store's own clock, epoch ms; 0 for none.
    pub(crate) server_time: AtomicI64,
    /// Calls and refunds under way in the background.
    pub(crate) tasks: Tasks,
}

/// The queue of one limiter in one client, and what drives it.
pub(crate) struct Engine {
    pub(crate) name: Arc<str>,
    pub(crate) keys: Keys,
    pub(crate) core: Arc<Core>,
    /// Denials that are remembered, where its user wants them to be.
    denials: OnceLock<Denials>,
    state: Mutex<State>,
    /// Rung when a sleeping driver has something to look at.
    bell: Notify,
}

struct State {
    queue: Queue<Waker>,
    /// The cell of those who arrive now.
    open: Arc<Cell>,
    /// What became of those who are not settled by the cell they hold.
    late: HashMap<Ticket, Late>,
    /// A driver task exists.
    driving: bool,
    /// It waits for a time or for the bell.
    asleep: bool,
    /// The call in flight of a caller that went straight, until a driver takes it over.
    direct: Option<(Ticket, Arc<Cell>)>,
    closed: bool,
    /// The rate this client last saw.
    seen_rate: Option<u64>,
    /// The rate in force at the last answer.
    rate: Option<Rate>,
    /// The date of the last audit, or of the first answer; epoch ms.
    audited: Option<i64>,
    /// What the handles that carry a rate create.
    create: Option<Rate>,
    /// Goes up when permits may have come back: what was decided before says nothing any more.
    changes: u64,
}

enum Late {
    Settled(Arc<Cell>, usize),
    Refused(Wait),
    Failed(Failure),
}

impl Core {
    /// The time of the queues.
    pub(crate) fn now(&self) -> Time {
        micros(rt::now().saturating_duration_since(self.origin))
    }

    fn instant_of(&self, time: Time) -> Instant {
        // Tokio's own "far future" is 30 years; a bound of one day is as good as none here.
        let ahead = Duration::from_micros(time.saturating_sub(self.now()));
        rt::now() + ahead.min(Duration::from_secs(86_400))
    }

    pub(crate) fn saw_server_time(&self, epoch_ms: i64) {
        self.server_time.fetch_max(epoch_ms, Ordering::Relaxed);
    }
}

/// A duration in the queues' microseconds.
pub(crate) fn micros(duration: Duration) -> Time {
    Time::try_from(duration.as_micros()).unwrap_or(Time::MAX)
}

impl Engine {
    pub(crate) fn new(name: Arc<str>, keys: Keys, core: Arc<Core>) -> Self {
        Engine {
            name,
            keys,
            core,
            denials: OnceLock::new(),
            state: Mutex::new(State {
                queue: Queue::default(),
                open: Arc::default(),
                late: HashMap::new(),
                driving: false,
                asleep: false,
                direct: None,
                closed: false,
                seen_rate: None,
                rate: None,
                audited: None,
                create: None,
                changes: 0,
            }),
            bell: Notify::new(),
        }
    }

    /// Permits may have come back, or the rate may be another one: waiting requests ask at once.
    pub(crate) fn ask_again(&self) {
        let mut state = self.lock();
        state.queue.ask_again();
        self.forget_denials(&mut state);
        if state.asleep {
            drop(state);
            self.bell.notify_one();
        }
    }

    /// This client has set the rate itself.
    pub(crate) fn set_seen_rate(&self, rate: Rate) {
        let mut state = self.lock();
        state.seen_rate = Some(rate.permits());
        state.rate = Some(rate);
        self.forget_denials(&mut state);
    }

    fn forget_denials(&self, state: &mut State) {
        state.changes += 1;
        if let Some(denials) = self.denials.get() {
            denials.clear();
        }
    }

    /// Takes options over, beside those that it has. One that it has otherwise is refused, with
    /// the reason.
    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), String> {
        // With the state locked two callers cannot set half of their options each.
        let _state = self.lock();
        if let (Some(wanted), Some(has)) = (options.denial_memory, self.denials.get())
            && has.longest() != wanted
        {
            return Err(format!(
                "a denial memory of {wanted:?}; this client's limiter of the name has one of {:?}",
                has.longest()
            ));
        }
        if let Some(longest) = options.denial_memory {
            let _ = self.denials.set(Denials::new(longest));
        }
        Ok(())
    }

    /// Whether there can be requests that need no call.
    #[inline]
    pub(crate) fn answers_locally(&self) -> bool {
        self.denials.get().is_some()
    }

    /// The answer to a request that needs no call.
    #[inline]
    pub(crate) fn answer_locally(&self, permits: u64, patience: Patience) -> Option<Local> {
        if patience == Patience::None
            && let Some(denials) = self.denials.get()
            && let Some((wait, rate)) = denials.denial(permits, || self.core.now())
        {
            return Some(Local::Denied(wait, rate));
        }
        None
    }

    /// The rate this client last saw.
    pub(crate) fn seen_rate(&self) -> Option<u64> {
        self.lock().seen_rate
    }

    /// Whether nobody stands in the queue and no call is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.queue.is_idle() && !state.driving
    }

    /// Fails all who wait, and all who come; a call in flight is still answered.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.forget_denials(&mut state);
        let drained = state.queue.drain();
        let wake = state.fail_late(drained, &closed());
        drop(state);
        self.bell.notify_one();
        wake.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What to do next. Those who are refused before it are told by the caller's waking `wake`.
    fn step(&mut self, now: Time, wake: &mut Vec<Waker>) -> Next {
        let Turn { step, refused } = self.queue.step(now);
        if !refused.is_empty() {
            self.open.settle_some_late();
        }
        for (ticket, wait, waker) in refused {
            self.late.insert(ticket, Late::Refused(wait));
            wake.extend(waker);
        }
        match step {
            Step::Call(call) => Next::Call(Plan {
                runs: call.runs,
                create: self.create.filter(|_| call.creates),
                cell: std::mem::take(&mut self.open),
                seen_rate: self.seen_rate,
                audit: self.audited.zip(self.rate),
                changes: self.changes,
            }),
            Step::SleepUntil(time) => Next::SleepUntil(time),
            Step::InFlight => Next::InFlight,
            Step::Idle => Next::Idle,
        }
    }

    /// Writes down what a call settled; answers whom to wake.
    fn settle(&mut self, cell: &Arc<Cell>, settled: Settled<Waker>, answer: Answer) -> Vec<Waker> {
        for (ticket, place) in settled.late {
            self.late.insert(ticket, Late::Settled(cell.clone(), place));
        }
        cell.answer(answer);
        settled.wake
    }

    fn fail_late(&mut self, failed: Vec<(Ticket, Option<Waker>)>, failure: &Failure) -> Vec<Waker> {
        if !failed.is_empty() {
            self.open.settle_some_late();
        }
        let mut wake = Vec::with_capacity(failed.len());
        for (ticket, waker) in failed {
            self.late.insert(ticket, Late::Failed(failure.clone()));
            wake.extend(waker);
        }
        wake
    }
}

enum Next {
    Call(Plan),
    SleepUntil(Time),
    InFlight,
    Idle,
}

/// What is answered without a call.
#[derive(Debug)]
pub(crate) enum Local {
    /// The server has refused as much, and the wait that it named is not over.
    Denied(Wait, Rate),
}

/// What a caller is told.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Settled by a call: the cell has the answer.
    Call(Arc<Cell>, Outcome),
    /// Refused without a call, as a request that waits stands before it.
    Queue(Wait, Option<Rate>),
    Failed(Failure),
}

pub(crate) fn closed() -> Failure {
    Failure::new(FailureKind::Closed, Execution::NotExecuted)
}

/// Counts what goes on in the background, so that a client can wait for the end of it.
#[derive(Default)]
pub(crate) struct Tasks {
    count: Mutex<usize>,
    ended: Notify,
}

/// One thing that goes on in the background, until it is dropped.
pub(crate) struct TaskGuard(Arc<Core>);

impl Tasks {
    pub(crate) fn begin(core: &Arc<Core>) -> TaskGuard {
        *core.tasks.lock() += 1;
        TaskGuard(core.clone())
    }

    /// Waits until nothing goes on.
    pub(crate) async fn drained(&self) {
        loop {
            let ended = self.ended.notified();
            if *self.lock() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        *self.0.tasks.lock() -= 1;
        self.0.tasks.ended.notify_waiters();
    }
}
