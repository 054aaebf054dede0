//! The system's clock, without its steps back.
//!
//! If the clock is set back by a second, entries dated before the step count for a second longer: callers
//! would be refused for that time. Entries cannot be dated again either, because nobody can tell them from
//! those of a client whose clock is ahead, which would then be granted the rate again and again. So dates
//! continue from where they were and let the system's clock catch up: three seconds of dates in four seconds
//! of time, which is three quarters of the rate for that long.

use std::sync::{Mutex, PoisonError};

/// The most that dates may be ahead of the system's clock, in µs. If a clock is set back by more than that,
/// it was wrong by too much for this to help: dates follow it at once.
const LONGEST_LEAD: i64 = 10_000_000;

/// The lead shrinks by one part in this many of the time that passes.
const CATCH_UP: i64 = 4;

/// A difference that is not a step, in µs: from gradual adjustments, and from the time between reading the
/// two clocks.
const NOISE: i64 = 1_000;

/// How often both clocks are read to confirm a step.
const LOOKS: usize = 5;

pub(super) struct SteadyClock(Mutex<Observed>);

/// Times are in microseconds.
struct Observed {
    /// How far the system's clock was ahead of the monotonic one.
    offset: i64,
    /// `None` while dates are those of the system's clock.
    lead: Option<Lead>,
}

/// The lead of dates over the system's clock.
struct Lead {
    /// How far dates were ahead of the monotonic clock.
    offset: i64,
    /// When the lead was set.
    since: i64,
}

impl SteadyClock {
    pub(super) const fn new() -> Self {
        SteadyClock(Mutex::new(Observed { offset: i64::MIN, lead: None }))
    }

    /// The date. `look` reads the system's clock and then the monotonic one.
    pub(super) fn date(&self, look: impl Fn() -> (i64, i64)) -> i64 {
        let offset = |(system, monotonic): &(i64, i64)| system.saturating_sub(*monotonic);
        let seen = look();
        let mut observed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = observed.offset;
        if observed.lead.is_none() && offset(&seen) >= known.saturating_sub(NOISE) {
            observed.offset = offset(&seen);
            return seen.0;
        }
        // A thread that is suspended between its two readings sees too small an offset.
        let best = (1..LOOKS)
            .map(|_| look())
            .fold(seen, |best, seen| if offset(&seen) >= offset(&best) { seen } else { best });
        let (offset, monotonic) = (offset(&best), best.1);
        let lead = observed.lead.get_or_insert(Lead { offset: known, since: monotonic });
        let passed = monotonic.saturating_sub(lead.since).max(0);
        let dated = lead.offset - passed / CATCH_UP;
        if dated > offset && dated - offset <= LONGEST_LEAD {
            return monotonic + dated;
        }
        *observed = Observed { offset, lead: None };
        monotonic + offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const EPOCH: i64 = 1_700_000_000 * SECOND;

    /// A clock that has shown the right time for a second.
    fn clock() -> SteadyClock {
        let clock = SteadyClock::new();
        assert_eq!(clock.date(|| (EPOCH, 0)), EPOCH);
        assert_eq!(clock.date(|| (EPOCH + SECOND, SECOND)), EPOCH + SECOND);
        clock
    }

    #[test]
    fn dates_are_the_systems_while_it_goes_forward() {
        let clock = clock();
        // By a jump, by a small adjustment, and over a sleep in which monotonic time stands still.
        for (system, monotonic) in [(9, 2), (10, 3), (500, 3)] {
            let date = EPOCH + system * SECOND;
            assert_eq!(clock.date(|| (date, monotonic * SECOND)), date);
        }
        let mut at = 4 * SECOND;
        for drift in 0..10_000 {
            at += SECOND;
            let date = EPOCH + 497 * SECOND + at - drift * 500;
            assert_eq!(clock.date(|| (date, at)), date, "half a millisecond slower each second");
        }
    }

    #[test]
    fn a_step_back_is_made_up_for_while_dates_go_on() {
        let clock = clock();
        let mut last = EPOCH + SECOND;
        // The clock goes two seconds back at this very moment.
        for ms in 0..10_000 {
            let passed = ms * 1000;
            let date = clock.date(|| (EPOCH - SECOND + passed, SECOND + passed));
            if ms > 0 {
                let step = date - last;
                assert!((750..=1_000).contains(&step), "{step} µs of dates in 1 ms, after {ms} ms");
            }
            let lead = date - (EPOCH - SECOND + passed);
            assert!((0..=2 * SECOND).contains(&lead));
            assert_eq!(lead == 0, ms >= 8_000, "{lead} µs ahead after {ms} ms");
            last = date;
        }
    }

    #[test]
    fn a_second_step_back_and_one_forward_are_seen_too() {
        let clock = clock();
        assert_eq!(clock.date(|| (EPOCH, SECOND)), EPOCH + SECOND);
        let date = clock.date(|| (EPOCH - 3 * SECOND, 2 * SECOND));
        assert_eq!(date, EPOCH + 2 * SECOND - SECOND / CATCH_UP);
        assert_eq!(clock.date(|| (EPOCH + 9 * SECOND, 3 * SECOND)), EPOCH + 9 * SECOND);
        assert_eq!(clock.date(|| (EPOCH + 10 * SECOND, 4 * SECOND)), EPOCH + 10 * SECOND);
    }

    #[test]
    fn a_clock_that_was_far_ahead_is_followed_at_once() {
        let clock = clock();
        let back = EPOCH + SECOND - LONGEST_LEAD - 2;
        assert_eq!(clock.date(|| (back, SECOND)), back);
        assert_eq!(clock.date(|| (back + 5, SECOND + 5)), back + 5);
    }
}
