//! The clock that dates grants in the log.
//!
//! The clock only supplies dates: timeouts and timers run on the runtime's own time.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::rt;

mod skew;
mod steady;

pub use skew::ClockSkew;
use steady::SteadyClock;

/// The clock that dates a client's grants, in milliseconds since the Unix epoch.
///
/// Redisson dates each grant by the clock of the machine that requests it, and so does this crate by default.
/// If the machines' clocks differ, the one that is ahead drops the others' grants too early. If all clients
/// use [`Clock::server`], their own clocks do not matter. [`Client::clock_skew`](crate::Client::clock_skew)
/// tells how much a clock differs from the server's.
///
/// Timeouts and waits do not follow this clock: they run on the tokio runtime's own time.
#[derive(Clone, Default)]
pub struct Clock(TimeSource);

#[derive(Clone, Default)]
enum TimeSource {
    #[default]
    System,
    Server,
    Runtime {
        /// The time since 1970 at `origin`.
        epoch: Duration,
        origin: Instant,
    },
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// This machine's clock, as Redisson uses it. The default.
    ///
    /// If the machine's clock is set back by up to ten seconds while the process runs, dates do not go back:
    /// they advance at three quarters of the speed until the machine's clock has caught up. Otherwise callers
    /// would be refused for as long as the clock was set back. Steps back of more than ten seconds, and all
    /// steps forward, are followed at once.
    pub fn system() -> Self {
        Clock(TimeSource::System)
    }

    /// The server's clock, read by the script that decides. All clients that choose it share the same clock,
    /// so their own clocks do not matter. If it goes back, by a step or because a failover leads to a server
    /// whose clock is behind, permits in use come back that much later.
    pub fn server() -> Self {
        Clock(TimeSource::Server)
    }

    /// The time of the current tokio runtime, starting at the system's current time. It is paused and
    /// advanced with the runtime's time: for tests in paused time, on an
    /// [in-process store](crate::InProcessStore).
    pub fn runtime() -> Self {
        Clock::runtime_at(system_time())
    }

    /// [`Clock::runtime`], starting at `epoch` since 1970.
    pub(crate) fn runtime_at(epoch: Duration) -> Self {
        Clock(TimeSource::Runtime { epoch, origin: rt::now() })
    }

    /// For tests: a clock that stays at `epoch_ms`, in milliseconds since the Unix epoch, and the handle that
    /// sets it. Waits still take real time, unless the runtime's time is paused.
    pub fn manual(epoch_ms: i64) -> (Self, ManualClock) {
        let now = Arc::new(AtomicI64::new(epoch_ms.saturating_mul(1000)));
        (Clock(TimeSource::Manual(now.clone())), ManualClock(now))
    }

    pub(crate) fn is_servers(&self) -> bool {
        matches!(self.0, TimeSource::Server)
    }

    /// Whether a [`ManualClock`] sets this clock now; one that follows the system's clock does not.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(&self.0, TimeSource::Manual(now) if now.load(Ordering::SeqCst) != FOLLOW_SYSTEM)
    }

    /// The time to send with an attempt, in milliseconds; `None` for the server's clock: then the store's own dates the call.
    pub(crate) fn own_ms(&self) -> Option<i64> {
        self.own_us().map(|us| us.div_euclid(1000))
    }

    /// [`own_ms`](Self::own_ms), in microseconds.
    pub(crate) fn own_us(&self) -> Option<i64> {
        Some(match &self.0 {
            TimeSource::System => steady_us(),
            TimeSource::Runtime { epoch, origin } => to_micros(*epoch + (rt::now() - *origin)),
            TimeSource::Server => return None,
            TimeSource::Manual(now) => shown_us(now.load(Ordering::SeqCst)),
        })
    }

    /// The time in microseconds that a test has set; `None` if the store's own clock is to be used.
    pub(crate) fn told_us(&self) -> Option<i64> {
        let is_told = matches!(self.0, TimeSource::Runtime { .. }) || self.is_manual();
        is_told.then(|| self.local_us())
    }

    /// The time in microseconds; for the server's clock, the time of this machine.
    pub(crate) fn local_us(&self) -> i64 {
        self.own_us().unwrap_or_else(steady_us)
    }
}

/// The value of a manual clock that follows the system's clock.
const FOLLOW_SYSTEM: i64 = i64::MIN;

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TimeSource::System => f.write_str("Clock::system"),
            TimeSource::Server => f.write_str("Clock::server"),
            TimeSource::Runtime { .. } => f.write_str("Clock::runtime"),
            TimeSource::Manual(_) => f.write_str("Clock::manual"),
        }
    }
}

/// Sets a [`Clock::manual`]. Clones set the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Sets the time, in milliseconds since the Unix epoch. It may go back.
    ///
    /// Waiting calls check again within a second of real time. To make them check at once, call
    /// [`Client::recheck_waiters`](crate::Client::recheck_waiters).
    pub fn set(&self, epoch_ms: i64) {
        self.set_micros(epoch_ms.saturating_mul(1000));
    }

    /// [`set`](Self::set), in microseconds since the Unix epoch.
    pub fn set_micros(&self, epoch_us: i64) {
        self.0.store(epoch_us, Ordering::SeqCst);
    }

    /// Moves the time by `ms` milliseconds, back if negative.
    pub fn advance(&self, ms: i64) {
        let moved = |now| Some(shown_us(now).saturating_add(ms.saturating_mul(1000)));
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
    }

    /// The time, in milliseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        shown_us(self.0.load(Ordering::SeqCst)).div_euclid(1000)
    }

    /// Makes the clock follow the system's clock, until it is set again.
    pub fn follow_system(&self) {
        self.0.store(FOLLOW_SYSTEM, Ordering::SeqCst);
    }
}

/// The time of a manual clock with this value, in microseconds.
fn shown_us(value: i64) -> i64 {
    if value == FOLLOW_SYSTEM { steady_us() } else { value }
}

/// This machine's clock; a clock before 1970 reads as 1970.
fn system_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The system's time in microseconds, without its steps back, for as long as the process runs.
fn steady_us() -> i64 {
    static CLOCK: SteadyClock = SteadyClock::new();
    static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    let origin = *ORIGIN;
    CLOCK.date(|| (to_micros(system_time()), to_micros(origin.elapsed()))).max(0)
}

fn to_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn system_ms() -> i64 {
    to_micros(system_time()) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stays_moves_and_follows_the_system() {
        let (clock, manual) = Clock::manual(5);
        assert_eq!(clock.own_ms(), Some(5));
        manual.advance(-3);
        assert_eq!((clock.own_ms(), manual.now()), (Some(2), 2));
        let before = system_ms();
        manual.follow_system();
        let Some(now) = clock.own_ms() else { panic!("not a time") };
        assert!((before..=system_ms()).contains(&now));
    }
}
