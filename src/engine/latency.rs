//! How long answers usually take, so that one that takes far longer is noticed.
//!
//! A grant is dated when its call is sent and used when it is answered. If the answer comes late, a
//! frozen server for one, the permits are used in a later interval than they count in: after a
//! freeze of two seconds, 1.5 times the rate would be used in the second that follows. A late answer
//! is therefore confirmed before its permits are handed out. On a link that is always slow the delay
//! is the same for every grant and shifts nothing, so that only an answer far later than usual
//! counts as late.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::queue::Time;
use crate::rt::{Mutex, lock};

/// The answers looked at: their median is what is usual, so that up to two of them may be late.
const SAMPLES: usize = 5;

/// The calls of many limiters that are late together are one fault: at most one answer in this time
/// counts as a sample.
const SAMPLE_EVERY: Time = 50_000;

/// An answer is late if it takes longer than usual by the largest of these: a part of the interval,
/// as that much of the rate may then be used too late; a part of the usual time, as far links vary
/// more; and 5 ms, as fast limiters on a busy machine are not to ask twice for each delay of a
/// scheduler.
const PART_OF_INTERVAL: u64 = 50;
const PART_OF_USUAL: u64 = 4;
const SHORTEST: Time = 5_000;

#[derive(Default)]
pub(crate) struct Latency {
    usual: AtomicU64,
    next_sample_at: AtomicU64,
    samples: Mutex<([Time; SAMPLES], usize)>,
}

impl Latency {
    /// Whether an answer that took this long is to be confirmed.
    pub(super) fn is_late(&self, took: Time, interval_ms: u64) -> bool {
        if took < SHORTEST {
            return false;
        }
        took > self.longest_on_time(interval_ms)
    }

    pub(super) fn longest_on_time(&self, interval_ms: u64) -> Time {
        let usual = self.usual.load(Ordering::Relaxed);
        let slack = SHORTEST
            .max(interval_ms.saturating_mul(1000) / PART_OF_INTERVAL)
            .max(usual / PART_OF_USUAL);
        usual.saturating_add(slack)
    }

    /// An answer took this long.
    pub(super) fn record(&self, now: Time, took: Time) {
        if now < self.next_sample_at.load(Ordering::Relaxed) {
            return;
        }
        self.next_sample_at.store(now.saturating_add(SAMPLE_EVERY), Ordering::Relaxed);
        let mut guard = lock(&self.samples);
        let (samples, next) = &mut *guard;
        samples[*next % SAMPLES] = took;
        *next += 1;
        let mut sorted = *samples;
        sorted.sort_unstable();
        self.usual.store(sorted[SAMPLES / 2], Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1000;

    fn usual(took: Time) -> Latency {
        let latency = Latency::default();
        for sample in 0..SAMPLES as u64 {
            latency.record(sample * SAMPLE_EVERY, took);
        }
        latency
    }

    #[test]
    fn an_answer_far_later_than_usual_is_late() {
        let latency = usual(MS / 10);
        assert!(!latency.is_late(20 * MS, 1000));
        assert!(latency.is_late(20 * MS + MS / 10 + 1, 1000));
        assert!(latency.is_late(2000 * MS, 1000));
        assert!(!latency.is_late(2000 * MS, 3_600_000), "a small part of an hour");
        assert!(!latency.is_late(5 * MS + MS / 10, 10));
        assert!(latency.is_late(6 * MS, 10));
    }

    #[test]
    fn a_link_that_is_always_slow_is_not_asked_twice() {
        assert!(!usual(200 * MS).is_late(250 * MS, 1000));
        assert!(usual(200 * MS).is_late(400 * MS, 1000), "a second round trip");
    }

    #[test]
    fn one_fault_does_not_change_what_is_usual() {
        let latency = usual(MS);
        let now = 10 * SAMPLE_EVERY;
        for call in 0..1000 {
            latency.record(now + call, 2000 * MS);
        }
        assert!(latency.is_late(2000 * MS, 1000));
    }
}
