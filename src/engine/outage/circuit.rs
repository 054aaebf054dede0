//! A circuit breaker: whether calls go to the server, or are answered at once without it.
//!
//! Closed, calls go to the server. A fault opens it, and from then on one probe at a time looks for
//! the server, while all calls are answered by their limiter's policy; a probe that is carried out
//! closes it. Time is an argument; [`super::probe`] has the task that probes.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::micros;
use crate::error::Error;
use crate::observe::{Count, Event, Observers};
use crate::queue::Time;
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::{self, Mutex, lock};
use crate::wire::keys::Keys;

/// The pause before the first probe; from then on each is twice the one before, up to the longest.
/// Clients that lost the server at the same time take between half and all of it, so that they do
/// not come back together. The first is longer than a connection waits before it is tried again.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A probe that is this much later than it may be is not coming: nobody runs its runtime.
const OVERDUE: Duration = Duration::from_secs(1);

/// The state of a client's circuit breaker: [`Client::outages`](crate::Client::outages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CircuitState {
    /// Calls go to the server.
    #[default]
    Closed,
    /// Calls are answered without the server, and it is being looked for at this moment.
    HalfOpen,
    /// Calls are answered without the server.
    Open,
}

/// Names a prober among all that a circuit has had.
pub(super) type ProberNumber = u64;

#[derive(Default)]
pub(super) struct Circuit {
    /// Not [`Phase::Closed`]; read without the lock.
    is_open: AtomicBool,
    /// When a call was answered last.
    last_answer: AtomicU64,
    breaker: Mutex<Breaker>,
    opened: Notify,
    /// A call was answered, or has failed.
    settled: Notify,
    observers: Observers,
}

#[derive(Default)]
struct Breaker {
    phase: Phase,
    /// What opened it: the fault, and where its call went.
    cause: Option<(Error, Keys)>,
    failed_probes: u32,
    /// The last prober, and whether it lives.
    prober: (ProberNumber, bool),
    /// What observers were told last.
    observed: CircuitState,
}

#[derive(Default)]
enum Phase {
    #[default]
    Closed,
    /// The next probe is due then.
    Open(Time),
    /// A probe is under way, and should have an answer by then.
    HalfOpen(Time),
}

impl Circuit {
    pub(super) fn new(observers: Observers) -> Self {
        Circuit {
            is_open: AtomicBool::default(),
            last_answer: AtomicU64::default(),
            breaker: Mutex::default(),
            opened: Notify::new(),
            settled: Notify::new(),
            observers,
        }
    }

    /// It may have changed.
    fn observe(&self, breaker: &mut Breaker) {
        let now = breaker.state();
        let before = std::mem::replace(&mut breaker.observed, now);
        if before != now {
            self.count(before, -1);
            self.count(now, 1);
        }
    }

    fn count(&self, state: CircuitState, change: i64) {
        match state {
            CircuitState::Closed => {}
            CircuitState::HalfOpen => self.observers.counted(Count::HalfOpenCircuits, change),
            CircuitState::Open => self.observers.counted(Count::OpenCircuits, change),
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn state(&self) -> CircuitState {
        lock(&self.breaker).state()
    }

    /// A call was answered: the server is there.
    pub(super) fn answered(&self, now: Time) {
        self.last_answer.store(now, Ordering::Relaxed);
        self.settled.notify_waiters();
        if self.is_open() {
            self.close(now);
        }
    }

    /// A call failed that began then. It says nothing if another one has been answered since:
    /// a handle may have a short deadline, or the fault be its own. Returns the number of the prober
    /// that is to be started.
    pub(super) fn failed(
        &self,
        now: Time,
        began: Time,
        error: &Error,
        keys: &Keys,
    ) -> Option<ProberNumber> {
        if self.last_answer.load(Ordering::Relaxed) > began {
            self.settled.notify_waiters();
            return None;
        }
        let number = {
            let mut breaker = lock(&self.breaker);
            if !matches!(breaker.phase, Phase::Closed) {
                return None;
            }
            breaker.failed_probes = 0;
            breaker.cause = Some((error.clone(), keys.clone()));
            breaker.open(now);
            self.is_open.store(true, Ordering::Release);
            self.observe(&mut breaker);
            breaker.new_prober()
        };
        self.observers.event(&Event::CircuitOpened { cause: error });
        self.opened.notify_waiters();
        self.settled.notify_waiters();
        Some(number)
    }

    /// Resolves when it opens, if that is after this was called.
    pub(super) fn opened(&self) -> impl Future<Output = ()> {
        self.opened.notified()
    }

    /// Resolves when a call is answered or fails, or the client closes, if that is after this was called.
    pub(super) fn settled(&self) -> impl Future<Output = ()> {
        self.settled.notified()
    }

    /// The client closes.
    pub(super) fn end_waits(&self) {
        self.settled.notify_waiters();
    }

    /// What opened it.
    pub(super) fn cause(&self) -> Option<Error> {
        lock(&self.breaker).cause.as_ref().map(|(error, _)| error.clone())
    }

    /// When the server is looked for again.
    pub(super) fn next_look(&self) -> Option<Time> {
        match lock(&self.breaker).phase {
            Phase::Closed => None,
            Phase::Open(at) | Phase::HalfOpen(at) => Some(at),
        }
    }

    /// The number of a prober to start, if the last one has gone, or its runtime is not run. `attempt`
    /// is how long a probe may take.
    pub(super) fn needs_prober(&self, now: Time, attempt: Duration) -> Option<ProberNumber> {
        let mut breaker = lock(&self.breaker);
        let late = micros(attempt + OVERDUE);
        let is_overdue = match breaker.phase {
            Phase::Closed => return None,
            Phase::Open(due) | Phase::HalfOpen(due) => now > due.saturating_add(late),
        };
        if breaker.prober.1 && !is_overdue {
            return None;
        }
        breaker.phase = Phase::Open(now);
        self.observe(&mut breaker);
        Some(breaker.new_prober())
    }

    /// When this prober's next probe is due; `None`: it is not needed any more.
    pub(super) fn probe_at(&self, prober: ProberNumber) -> Option<Time> {
        let breaker = lock(&self.breaker);
        match breaker.phase {
            Phase::Open(at) if breaker.prober == (prober, true) => Some(at),
            _ => None,
        }
    }

    /// This prober probes now; returns where. `limit` is how long it may take.
    pub(super) fn begin_probe(
        &self,
        prober: ProberNumber,
        now: Time,
        limit: Duration,
    ) -> Option<Keys> {
        let mut breaker = lock(&self.breaker);
        let is_due = matches!(breaker.phase, Phase::Open(_)) && breaker.prober == (prober, true);
        let keys = breaker.cause.as_ref().map(|(_, keys)| keys.clone()).filter(|_| is_due)?;
        breaker.phase = Phase::HalfOpen(now.saturating_add(micros(limit)));
        self.observe(&mut breaker);
        Some(keys)
    }

    pub(super) fn probe_failed(&self, prober: ProberNumber, now: Time, error: Error) {
        self.observers.event(&Event::ProbeFailed { error: &error });
        let mut breaker = lock(&self.breaker);
        if matches!(breaker.phase, Phase::HalfOpen(_)) && breaker.prober == (prober, true) {
            breaker.failed_probes = breaker.failed_probes.saturating_add(1);
            if let Some((cause, _)) = &mut breaker.cause {
                *cause = error;
            }
            breaker.open(now);
            self.observe(&mut breaker);
        }
    }

    /// This prober has ended.
    pub(super) fn prober_gone(&self, prober: ProberNumber, now: Time) {
        let mut breaker = lock(&self.breaker);
        if breaker.prober == (prober, true) {
            breaker.prober.1 = false;
            if let Phase::HalfOpen(_) = breaker.phase {
                breaker.open(now);
                self.observe(&mut breaker);
            }
        }
    }

    pub(super) fn close(&self, now: Time) {
        self.last_answer.store(now, Ordering::Relaxed);
        let cause = {
            let mut breaker = lock(&self.breaker);
            breaker.phase = Phase::Closed;
            self.is_open.store(false, Ordering::Release);
            self.observe(&mut breaker);
            breaker.cause.take()
        };
        if let Some((cause, _)) = cause {
            self.observers.event(&Event::CircuitClosed { cause: &cause });
        }
    }
}

impl Drop for Circuit {
    /// Its client is gone.
    fn drop(&mut self) {
        let breaker = self.breaker.get_mut().unwrap_or_else(PoisonError::into_inner);
        let state = breaker.observed;
        self.count(state, -1);
    }
}

impl Breaker {
    fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed => CircuitState::Closed,
            Phase::Open(_) => CircuitState::Open,
            Phase::HalfOpen(_) => CircuitState::HalfOpen,
        }
    }

    fn open(&mut self, now: Time) {
        let longest = micros(LONGEST_PAUSE);
        let pause = micros(FIRST_PAUSE).saturating_mul(1 << self.failed_probes.min(8)).min(longest);
        let pause = pause / 2 + rt::random_below(pause / 2 + 1);
        self.phase = Phase::Open(now.saturating_add(pause));
    }

    fn new_prober(&mut self) -> ProberNumber {
        self.prober = (self.prober.0 + 1, true);
        self.prober.0
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Execution};

    const MS: Time = 1000;
    const ATTEMPT: Duration = Duration::from_secs(1);

    fn fault() -> Error {
        Error::new(ErrorKind::Unavailable, Execution::NotExecuted)
    }

    fn fail(circuit: &Circuit, now: Time) -> Option<ProberNumber> {
        circuit.failed(now, now, &fault(), &Keys::new("api", "c"))
    }

    #[test]
    fn a_fault_opens_it_and_a_probe_closes_it() {
        let circuit = Circuit::default();
        let prober = fail(&circuit, 0).expect("a prober");
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Open, true));
        assert!(fail(&circuit, 1).is_none(), "it has a prober");
        let due = circuit.probe_at(prober).unwrap();
        assert!((100 * MS..=200 * MS).contains(&due), "{due}");
        assert!(circuit.begin_probe(prober, due, ATTEMPT).is_some());
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        assert!(circuit.is_open(), "calls are still answered without the server");
        assert!(circuit.begin_probe(prober, due, ATTEMPT).is_none(), "one probe at a time");
        circuit.close(due);
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Closed, false));
        assert!(circuit.probe_at(prober).is_none());
    }

    #[test]
    fn a_fault_says_nothing_if_another_call_was_answered_since() {
        let circuit = Circuit::default();
        circuit.answered(10);
        assert!(circuit.failed(20, 9, &fault(), &Keys::new("api", "c")).is_none());
        assert!(circuit.failed(20, 11, &fault(), &Keys::new("api", "c")).is_some());
    }

    #[test]
    fn an_answer_closes_it() {
        let circuit = Circuit::default();
        fail(&circuit, 0);
        circuit.answered(5);
        assert_eq!(circuit.state(), CircuitState::Closed);
    }

    #[test]
    fn pauses_grow_to_two_seconds_and_differ() {
        let circuit = Circuit::default();
        let prober = fail(&circuit, 0).unwrap();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let due = circuit.probe_at(prober).unwrap();
            pauses.push(due - now);
            now = due;
            circuit.begin_probe(prober, now, ATTEMPT).unwrap();
            circuit.probe_failed(prober, now, fault());
        }
        let longest = *pauses.iter().max().unwrap();
        assert!(pauses.iter().all(|pause| (100 * MS..=2000 * MS).contains(pause)), "{pauses:?}");
        assert!(longest > 1500 * MS, "{pauses:?}");
        assert!(pauses.iter().skip(5).min().unwrap() + 300 * MS < longest, "{pauses:?}");
    }

    #[test]
    fn a_prober_that_has_gone_or_is_overdue_is_replaced() {
        let circuit = Circuit::default();
        let first = fail(&circuit, 0).unwrap();
        assert!(circuit.needs_prober(1000 * MS, ATTEMPT).is_none());
        let second = circuit.needs_prober(2300 * MS, ATTEMPT).expect("it is overdue");
        assert!(circuit.probe_at(first).is_none(), "it was replaced");
        circuit.prober_gone(first, 2300 * MS);
        assert!(circuit.needs_prober(2300 * MS, ATTEMPT).is_none());
        circuit.begin_probe(second, 2300 * MS, ATTEMPT).unwrap();
        circuit.prober_gone(second, 2300 * MS);
        assert_eq!(circuit.state(), CircuitState::Open);
        assert!(circuit.needs_prober(2300 * MS, ATTEMPT).is_some());
    }
}
