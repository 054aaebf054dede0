//! A circuit breaker, which decides whether calls go to the server or are answered at once without it.
//!
//! While it is closed, calls go to the server. A fault opens it; from then on, one probe at a time checks
//! for the server, while all calls are answered by their limiter's policy. A probe that is executed closes
//! it. Time is passed in as an argument.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard};

use crate::engine::{Core, Turn, micros};
use crate::error::Error;
use crate::observe::{Count, Event, Observers};
use crate::queue::Time;
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{self, Mutex, lock};
use crate::store::ProbeCall;
use crate::wire::keys::Keys;

/// The pause before the first probe; each later pause is twice the one before, up to the longest. Clients
/// that lost the server at the same time wait between half the pause and all of it, so that they do not
/// come back together. The first pause is longer than the wait before a connection is tried again.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The state of a client's circuit breaker: [`Client::outages`](crate::Client::outages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CircuitState {
    /// Calls go to the server.
    #[default]
    Closed,
    /// Calls are answered without the server, and a probe is checking for it at this moment.
    HalfOpen,
    /// Calls are answered without the server.
    Open,
}

/// Decisions made without the server since the client was created:
/// [`Client::outages`](crate::Client::outages) and [`RateLimiter::outages`](crate::RateLimiter::outages).
///
/// Calls that fail under [`OnOutage::Fail`](crate::OnOutage::Fail) are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutageReport {
    /// The state of the circuit breaker; for a client of a cluster, of the one furthest from closed.
    pub circuit: CircuitState,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of calls denied.
    pub denied: u64,
    /// The number of permits granted under [`OnOutage::Local`](crate::OnOutage::Local) that have been
    /// written to the limiter's log.
    pub written: u64,
    /// The number of permits granted under `OnOutage::Local` that still counted when the server came back
    /// but could not be written: the limiter was gone or could not be read, or the permits expired during
    /// the attempts. All other permits expired or were given back before the server was back.
    pub not_written: u64,
}

pub(super) struct Circuit {
    fault: Mutex<Option<Fault>>,
    last_answer: AtomicU64,
    /// Of the task that probes.
    pub(super) turn: Turn,
    pub(super) opened: Notify,
    /// Notified when a call has been answered or has failed.
    pub(super) settled: Notify,
    observers: Observers,
}

/// The cause of the outage, and the state of the probes.
struct Fault {
    cause: Error,
    /// The keys of the call that failed, which tell where to probe.
    keys: Keys,
    /// The time at which the next probe is due, or by which the current one should have an answer.
    due: Time,
    is_probing: bool,
    failed_probes: u32,
}

impl Circuit {
    pub(super) fn new(observers: Observers) -> Self {
        Circuit {
            fault: Mutex::default(),
            last_answer: AtomicU64::default(),
            turn: Turn::default(),
            opened: Notify::new(),
            settled: Notify::new(),
            observers,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.fault).is_some()
    }

    pub(super) fn state(&self) -> CircuitState {
        CircuitState::of(lock(&self.fault).as_ref())
    }

    /// The error that opened the circuit, or that of the last probe.
    pub(super) fn cause(&self) -> Option<Error> {
        lock(&self.fault).as_ref().map(|fault| fault.cause.clone())
    }

    pub(super) fn next_look(&self) -> Option<Time> {
        lock(&self.fault).as_ref().map(|fault| fault.due)
    }

    /// Records that a call was answered, so the server is there.
    pub(super) fn answered(&self, now: Time) {
        self.last_answer.store(now, Ordering::Relaxed);
        if let Some(Fault { cause, .. }) = self.change(Option::take) {
            self.observers.event(&Event::CircuitClosed { cause: &cause });
        }
        self.settled.notify_waiters();
    }

    /// Records the failure of a call that began at `began`. It is ignored if another call has been answered
    /// since then, because a handle may have a short deadline, or the fault may concern only that call.
    /// Returns the turn of the prober that the caller must start, unless one is under way.
    pub(super) fn failed(
        &self,
        now: Time,
        began: Time,
        error: &Error,
        keys: &Keys,
    ) -> Option<OwnedMutexGuard<()>> {
        if self.last_answer.load(Ordering::Relaxed) > began {
            return None;
        }
        let turn = self.change(|open| {
            if open.is_some() {
                return None;
            }
            let (cause, keys) = (error.clone(), keys.clone());
            let fault = Fault { cause, keys, due: 0, is_probing: false, failed_probes: 0 };
            open.insert(fault).schedule(now);
            Some(self.turn.take())
        })?;
        self.observers.event(&Event::CircuitOpened { cause: error });
        self.opened.notify_waiters();
        turn
    }

    /// When the next probe is due; `None` if the server is back, which ends the prober's turn.
    fn next_probe(&self, turn: &mut Option<OwnedMutexGuard<()>>) -> Option<Time> {
        let fault = lock(&self.fault);
        if fault.is_none() {
            // Under the lock: the next fault begins another prober.
            *turn = None;
        }
        fault.as_ref().map(|fault| fault.due)
    }

    /// Begins the probe that is due. Returns where to send it; `None` if none is due. `limit` is how long it may take.
    fn begin_probe(&self, now: Time, limit: Duration) -> Option<Keys> {
        self.change(|open| {
            let fault = open.as_mut().filter(|fault| fault.due <= now)?;
            (fault.due, fault.is_probing) = (now.saturating_add(micros(limit)), true);
            Some(fault.keys.clone())
        })
    }

    /// Records the failure of a probe, and when the next one is due.
    fn probe_failed(&self, now: Time, error: Error) {
        self.observers.event(&Event::ProbeFailed { error: &error });
        self.change(|open| {
            let Some(fault) = open else { return };
            (fault.cause, fault.is_probing) = (error, false);
            fault.failed_probes = fault.failed_probes.saturating_add(1);
            fault.schedule(now);
        });
    }

    /// Changes the fault, and updates the count of circuits in each state.
    fn change<T>(&self, act: impl FnOnce(&mut Option<Fault>) -> T) -> T {
        let mut fault = lock(&self.fault);
        let before = CircuitState::of(fault.as_ref());
        let done = act(&mut fault);
        let now = CircuitState::of(fault.as_ref());
        if before != now {
            self.count(before, -1);
            self.count(now, 1);
        }
        done
    }

    fn count(&self, state: CircuitState, change: i64) {
        match state {
            CircuitState::Closed => {}
            CircuitState::HalfOpen => self.observers.counted(Count::HalfOpenCircuits, change),
            CircuitState::Open => self.observers.counted(Count::OpenCircuits, change),
        }
    }
}

impl Drop for Circuit {
    /// Removes the circuit from the counts, because its client is gone.
    fn drop(&mut self) {
        self.count(self.state(), -1);
    }
}

impl CircuitState {
    fn of(fault: Option<&Fault>) -> Self {
        match fault {
            None => CircuitState::Closed,
            Some(Fault { is_probing: true, .. }) => CircuitState::HalfOpen,
            Some(_) => CircuitState::Open,
        }
    }
}

impl Fault {
    fn schedule(&mut self, now: Time) {
        let longest = micros(LONGEST_PAUSE);
        let pause = micros(FIRST_PAUSE).saturating_mul(1 << self.failed_probes.min(8)).min(longest);
        self.due = now.saturating_add(pause / 2 + rt::random_below(pause / 2 + 1));
    }
}

impl Core {
    pub(super) fn start_prober(
        self: &Arc<Self>,
        circuit: &Arc<Circuit>,
        turn: OwnedMutexGuard<()>,
    ) -> Result<(), Error> {
        // Weak: a client that nobody holds any more must not be kept alive just to probe its server.
        self.background()?.spawn(probe(Arc::downgrade(self), circuit.clone(), turn));
        Ok(())
    }
}

/// Probes the server while the circuit is open.
async fn probe(client: Weak<Core>, circuit: Arc<Circuit>, turn: OwnedMutexGuard<()>) {
    // The client, unless it is gone or closed.
    let core = || client.upgrade().filter(|core| !core.outages.is_closed());
    let mut turn = Some(turn);
    while let Some(due) = circuit.next_probe(&mut turn) {
        let Some(at) = core().map(|core| core.instant_of(due)) else { return };
        rt::sleep_until(at).await;
        let Some(core) = core() else { return };
        let Some(keys) = circuit.begin_probe(core.now(), core.attempt) else { continue };
        match core.store.run(&keys, ProbeCall, core.attempt).await {
            Err(error) if error.is_outage() => {
                circuit.probe_failed(core.now(), error);
                core.tend_stand_ins();
            }
            // Any other result is an answer from the server.
            _ => circuit.answered(core.now()),
        }
    }
    // An answer to an earlier call may have closed the circuit. The grants of limiters that are no longer
    // in use must be written to the log all the same.
    if let Some(core) = core() {
        core.end_stand_ins().await;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Execution};

    const MS: Time = 1000;
    const ATTEMPT: Duration = Duration::from_secs(1);

    fn circuit() -> Circuit {
        Circuit::new(Observers::default())
    }

    fn fault() -> Error {
        Error::new(ErrorKind::Unavailable, Execution::NotExecuted)
    }

    fn fail(circuit: &Circuit, now: Time) -> Option<OwnedMutexGuard<()>> {
        circuit.failed(now, now, &fault(), &Keys::new("api", "c"))
    }

    #[test]
    fn a_fault_opens_it_and_a_probe_closes_it() {
        let circuit = circuit();
        let mut turn = fail(&circuit, 0);
        assert!(turn.is_some(), "a prober");
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Open, true));
        assert!(fail(&circuit, 1).is_none() && circuit.turn.take().is_none(), "it has a prober");
        let due = circuit.next_probe(&mut turn).unwrap();
        assert!((100 * MS..=200 * MS).contains(&due), "{due}");
        assert!(circuit.begin_probe(due - 1, ATTEMPT).is_none(), "it is early");
        assert!(circuit.begin_probe(due, ATTEMPT).is_some());
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        assert!(circuit.is_open(), "calls are still answered without the server");
        circuit.answered(due);
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Closed, false));
        assert!(circuit.begin_probe(due, ATTEMPT).is_none());
        assert!(fail(&circuit, due + 1).is_none(), "the prober sees the next fault");
        assert!(circuit.next_probe(&mut turn).is_some() && turn.is_some());
        circuit.answered(due + 2);
        assert!(circuit.next_probe(&mut turn).is_none());
        assert!(fail(&circuit, due + 3).is_some(), "another prober");
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn a_failed_probe_is_not_counted_as_an_opening() {
        let counters = crate::observe::tests::metered::Counters::default();
        metrics::with_local_recorder(&counters, || {
            let circuit = Circuit::new(Observers::default().with_features());
            let mut turn = fail(&circuit, 0);
            for _ in 0..3 {
                let due = circuit.next_probe(&mut turn).unwrap();
                circuit.begin_probe(due, ATTEMPT).unwrap();
                circuit.probe_failed(due, fault());
            }
            circuit.answered(Time::MAX);
        });
        let to = |state| counters.get(&format!("circuit_transitions_total to={state}"));
        assert_eq!(["open", "half_open", "closed"].map(to), [Some(1), Some(3), Some(1)]);
    }

    #[test]
    fn a_fault_says_nothing_if_another_call_was_answered_since() {
        let circuit = circuit();
        circuit.answered(10);
        assert!(circuit.failed(20, 9, &fault(), &Keys::new("api", "c")).is_none());
        assert!(circuit.failed(20, 11, &fault(), &Keys::new("api", "c")).is_some());
    }

    #[test]
    fn pauses_grow_to_two_seconds_and_differ() {
        let circuit = circuit();
        let (mut now, mut turn, mut pauses) = (0, fail(&circuit, 0), Vec::new());
        for _ in 0..40 {
            let due = circuit.next_probe(&mut turn).unwrap();
            pauses.push(due - now);
            now = due;
            circuit.begin_probe(now, ATTEMPT).unwrap();
            circuit.probe_failed(now, fault());
        }
        let longest = *pauses.iter().max().unwrap();
        assert!(pauses.iter().all(|pause| (100 * MS..=2000 * MS).contains(pause)), "{pauses:?}");
        assert!(longest > 1500 * MS, "{pauses:?}");
        assert!(pauses.iter().skip(5).min().unwrap() + 300 * MS < longest, "{pauses:?}");
    }
}
