//! A circuit breaker, which decides whether calls go to the server or are answered at once without it.
//!
//! While it is closed, calls go to the server. A fault opens it; from then on, one probe at a time checks
//! for the server, while all calls are answered by their limiter's policy. A probe that is executed closes
//! it. Time is passed in as an argument.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::{Core, micros};
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

/// A probe that is overdue by this much will not come: a forked child has its parent's circuit, and not the task that
/// probes; and where it has tasks, their runtime may end.
const OVERDUE: Duration = Duration::from_secs(1);

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
    /// The time at which the next probe is due, or by which the current one should have an answer. A prober
    /// recognizes its turn by this time: if it differs, another prober has taken over.
    due: Time,
    is_probing: bool,
    failed_probes: u32,
}

impl Circuit {
    pub(super) fn new(observers: Observers) -> Self {
        Circuit {
            fault: Mutex::default(),
            last_answer: AtomicU64::default(),
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
    /// Returns when the first probe is due, for which the caller must start a prober.
    pub(super) fn failed(
        &self,
        now: Time,
        began: Time,
        error: &Error,
        keys: &Keys,
    ) -> Option<Time> {
        if self.last_answer.load(Ordering::Relaxed) > began {
            return None;
        }
        let due = self.change(|open| {
            let (cause, keys) = (error.clone(), keys.clone());
            let fault = Fault { cause, keys, due: 0, is_probing: false, failed_probes: 0 };
            open.is_none().then(|| open.insert(fault).schedule(now))
        })?;
        self.observers.event(&Event::CircuitOpened { cause: error });
        self.opened.notify_waiters();
        Some(due)
    }

    /// The time at which a replacement prober must begin, if the last one is overdue. `attempt` is how long a probe may
    /// take.
    pub(super) fn replace_prober(&self, now: Time, attempt: Duration) -> Option<Time> {
        self.change(|open| {
            let fault = open.as_mut()?;
            let is_overdue = now > fault.due.saturating_add(micros(attempt + OVERDUE));
            is_overdue.then(|| {
                (fault.due, fault.is_probing) = (now, false);
                now
            })
        })
    }

    /// Begins the probe that was due at `due`. Returns where to send it and when it should have an answer;
    /// `None` if it is no longer needed. `limit` is how long it may take.
    pub(super) fn begin_probe(
        &self,
        due: Time,
        now: Time,
        limit: Duration,
    ) -> Option<(Keys, Time)> {
        self.change(|open| {
            let fault = open.as_mut().filter(|fault| !fault.is_probing && fault.due == due)?;
            (fault.due, fault.is_probing) = (now.saturating_add(micros(limit)), true);
            Some((fault.keys.clone(), fault.due))
        })
    }

    /// Records the failure of the probe that should have had an answer by `due`. Returns when the prober's
    /// next probe is due.
    pub(super) fn probe_failed(&self, due: Time, now: Time, error: Error) -> Option<Time> {
        self.observers.event(&Event::ProbeFailed { error: &error });
        self.change(|open| {
            let fault = open.as_mut().filter(|fault| fault.is_probing && fault.due == due)?;
            (fault.cause, fault.is_probing) = (error, false);
            fault.failed_probes = fault.failed_probes.saturating_add(1);
            Some(fault.schedule(now))
        })
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
    fn schedule(&mut self, now: Time) -> Time {
        let longest = micros(LONGEST_PAUSE);
        let pause = micros(FIRST_PAUSE).saturating_mul(1 << self.failed_probes.min(8)).min(longest);
        self.due = now.saturating_add(pause / 2 + rt::random_below(pause / 2 + 1));
        self.due
    }
}

impl Core {
    pub(super) fn start_prober(self: &Arc<Self>, circuit: &Arc<Circuit>, due: Time) {
        if let Ok(runtime) = self.background() {
            // Weak: a client that nobody holds any more must not be kept alive just to probe its server.
            runtime.spawn(probe(Arc::downgrade(self), circuit.clone(), due));
        }
    }
}

/// Probes the server while the circuit is open.
async fn probe(client: Weak<Core>, circuit: Arc<Circuit>, mut due: Time) {
    // The client, unless it is gone or closed.
    let core = || client.upgrade().filter(|core| !core.outages.is_closed());
    loop {
        let Some(at) = core().map(|core| core.instant_of(due)) else { return };
        rt::sleep_until(at).await;
        let Some(core) = core() else { return };
        let Some((keys, answer_by)) = circuit.begin_probe(due, core.now(), core.attempt) else {
            break;
        };
        match core.store.run(&keys, ProbeCall, core.attempt).await {
            Err(error) if error.is_outage() => {
                let next = circuit.probe_failed(answer_by, core.now(), error);
                core.make_room_for_stand_ins();
                let Some(next) = next else { break };
                due = next;
            }
            // Any other result is an answer from the server.
            _ => {
                circuit.answered(core.now());
                break;
            }
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

    fn fail(circuit: &Circuit, now: Time) -> Option<Time> {
        circuit.failed(now, now, &fault(), &Keys::new("api", "c"))
    }

    #[test]
    fn a_fault_opens_it_and_a_probe_closes_it() {
        let circuit = circuit();
        let due = fail(&circuit, 0).expect("a prober");
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Open, true));
        assert!(fail(&circuit, 1).is_none(), "it has a prober");
        assert!((100 * MS..=200 * MS).contains(&due), "{due}");
        assert!(circuit.begin_probe(due, due, ATTEMPT).is_some());
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        assert!(circuit.is_open(), "calls are still answered without the server");
        assert!(circuit.begin_probe(due, due, ATTEMPT).is_none(), "one probe at a time");
        circuit.answered(due);
        assert_eq!((circuit.state(), circuit.is_open()), (CircuitState::Closed, false));
        assert!(circuit.begin_probe(due, due, ATTEMPT).is_none());
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
        let mut due = fail(&circuit, 0).unwrap();
        let mut pauses = vec![due];
        for _ in 0..40 {
            let now = due;
            let (_, answer_by) = circuit.begin_probe(due, now, ATTEMPT).unwrap();
            due = circuit.probe_failed(answer_by, now, fault()).unwrap();
            pauses.push(due - now);
        }
        let longest = *pauses.iter().max().unwrap();
        assert!(pauses.iter().all(|pause| (100 * MS..=2000 * MS).contains(pause)), "{pauses:?}");
        assert!(longest > 1500 * MS, "{pauses:?}");
        assert!(pauses.iter().skip(5).min().unwrap() + 300 * MS < longest, "{pauses:?}");
    }

    #[test]
    fn a_prober_that_is_overdue_is_replaced() {
        let circuit = circuit();
        let first = fail(&circuit, 0).unwrap();
        assert!(circuit.replace_prober(1000 * MS, ATTEMPT).is_none());
        let second = circuit.replace_prober(2300 * MS, ATTEMPT).expect("it is overdue");
        assert!(circuit.begin_probe(first, 2300 * MS, ATTEMPT).is_none(), "it was replaced");
        assert!(circuit.replace_prober(2300 * MS, ATTEMPT).is_none());
        let (_, answer_by) = circuit.begin_probe(second, 2300 * MS, ATTEMPT).unwrap();
        assert_eq!(circuit.replace_prober(5400 * MS, ATTEMPT), Some(5400 * MS));
        assert_eq!(circuit.state(), CircuitState::Open);
        assert!(circuit.probe_failed(answer_by, 5400 * MS, fault()).is_none());
    }
}
