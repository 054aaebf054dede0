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
use crate::error::{Error, ErrorKind, Execution};
use crate::queue::{Call, Queue, Settled, Step, Ticket, Time, Turn};
use crate::rate::Rate;
use crate::store::{Outcome, Run, Store, Wait};
use crate::wire::keys::Keys;

pub(crate) mod acquire;
pub(crate) mod busy_poll;
mod call;
pub(crate) mod cell;
mod denials;
mod driver;
mod keeper;
mod lease;
mod leasing;
pub(crate) mod local;
#[cfg(all(test, shuttle))]
mod model_tests;
pub(crate) mod pool;
mod refund;
mod rt;
#[cfg(all(test, not(shuttle)))]
mod tests;

use busy_poll::BusyPoll;
use call::Plan;
use cell::{Answer, Cell};
use denials::Denials;
use lease::{Leases, Leasing};
use pool::Nanos;
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
    pub(crate) busy_poll: BusyPoll,
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
    /// Permits that are taken ahead, where its user wants them to be.
    leasing: OnceLock<Leasing>,
    state: Apart<Mutex<State>>,
    /// Rung when a sleeping driver has something to look at.
    bell: Notify,
}

/// In cache lines of its own: who writes to it does not slow down those who read what stands beside.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

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
    /// The rates that handles carry.
    carried: Vec<Rate>,
    /// Goes up when permits may have come back: what was decided before says nothing any more.
    changes: u64,
    leases: Leases,
}

enum Late {
    Settled(Arc<Cell>, usize),
    Refused(Wait),
    Failed(Error),
}

impl Core {
    /// The time of the queues.
    pub(crate) fn now(&self) -> Time {
        micros(rt::now().saturating_duration_since(self.origin))
    }

    /// The time of what is answered without a call.
    #[inline]
    pub(crate) fn nanos(&self) -> Nanos {
        let since = rt::now().saturating_duration_since(self.origin);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }

    fn instant_of(&self, time: Time) -> Instant {
        rt::now() + self.until(time)
    }

    /// How long it is until then; no more than a day, which is as good as for ever here.
    fn until(&self, time: Time) -> Duration {
        Duration::from_micros(time.saturating_sub(self.now())).min(Duration::from_secs(86_400))
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
            leasing: OnceLock::new(),
            state: Apart(Mutex::new(State {
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
                carried: Vec::new(),
                changes: 0,
                leases: Leases::default(),
            })),
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

    /// This client has set the rate itself: what was leased under the old one is given up.
    pub(crate) fn set_seen_rate(self: &Arc<Self>, rate: Rate) {
        self.end_leases();
        let mut state = self.lock();
        state.seen_rate = Some(rate.permits());
        state.rate = Some(rate);
        self.forget_denials(&mut state);
    }

    /// The rate in force at the last answer.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.lock().rate
    }

    /// What this client last saw may have been replaced by itself, with an unknown outcome.
    pub(crate) fn forget_seen_rate(&self) {
        self.lock().seen_rate = None;
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
    pub(crate) fn close(self: &Arc<Self>) {
        let mut left = Vec::new();
        let mut state = self.lock();
        state.closed = true;
        self.forget_denials(&mut state);
        self.end_leases_locked(&mut state, &mut left);
        let drained = state.queue.drain();
        let wake = state.fail_late(drained, &closed());
        drop(state);
        self.bell.notify_one();
        self.give_back_all(left);
        wake.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What to do next. Those who are refused before it are told by the caller's waking `wake`.
    fn step(&mut self, engine: &Engine, wake: &mut Vec<Waker>) -> Next {
        let Turn { step, refused } = self.queue.step(engine.core.now());
        if !refused.is_empty() {
            self.open.settle_some_late();
        }
        for (ticket, wait, waker) in refused {
            self.late.insert(ticket, Late::Refused(wait));
            wake.extend(waker);
        }
        match step {
            Step::Call(call) => {
                // Where somebody has waited already, nothing is taken ahead of the queue.
                let leased = if self.queue.asks_again() { 0 } else { self.lease_wanted(engine) };
                Next::Call(self.plan(engine, call, leased))
            }
            Step::SleepUntil(time) => Next::SleepUntil(time),
            Step::InFlight => Next::InFlight,
            Step::Idle if self.leases.is_call_wanted() => match self.lease_wanted(engine) {
                0 => Next::Idle,
                leased => {
                    let call = self.queue.call_for_nobody();
                    Next::Call(self.plan(engine, call, leased))
                }
            },
            Step::Idle => Next::Idle,
        }
    }

    /// The number of a rate that a handle carries.
    fn carried(&mut self, rate: Rate) -> u16 {
        let known = self.carried.iter().position(|carried| *carried == rate);
        let index = known.unwrap_or_else(|| {
            // Nobody carries thousands of rates for one limiter; if so, the last ones are one.
            if self.carried.len() > usize::from(u16::MAX) {
                self.carried.pop();
            }
            self.carried.push(rate);
            self.carried.len() - 1
        });
        index as u16
    }

    fn plan(&mut self, engine: &Engine, call: Call, leased: u64) -> Plan {
        let mut runs = call.runs;
        let mut hold_ms = 0;
        if let Some(leasing) = engine.leasing.get().filter(|_| leased > 0) {
            runs.push(Run { permits: 1, patience_ms: 0, count: leased });
            hold_ms = leasing.hold_ms();
        }
        Plan {
            runs,
            leased,
            hold_ms,
            create: call.create.map(|index| self.carried[usize::from(index)]),
            due: call.due,
            cell: std::mem::take(&mut self.open),
            seen_rate: self.seen_rate,
            audit: self.audited.zip(self.rate),
            changes: self.changes,
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

    fn fail_late(&mut self, failed: Vec<(Ticket, Option<Waker>)>, failure: &Error) -> Vec<Waker> {
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

/// What a caller is told. It is small, as it is moved often: what is seldom told is boxed.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Settled by a call: the cell has the answer.
    Call(Arc<Cell>, Outcome),
    /// Refused without a call, as a request that waits stands before it.
    Queue(Box<(Wait, Option<Rate>)>),
    Failed(Error),
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, Execution::NotExecuted)
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
