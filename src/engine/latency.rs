//! The usual time that answers take, so that an answer that takes far longer is noticed.
//!
//! A grant is dated when its call is sent and used when it is answered. If the answer comes late, for
//! example because the server froze, the permits are used in a later interval than they count in: after a
//! freeze of two seconds, 1.5 times the rate would be used in the second that follows. A late answer is
//! therefore confirmed before its permits are handed out. On a link that is always slow, the delay is the
//! same for every grant and shifts nothing, so only an answer far later than usual counts as late.

use crate::queue::Time;
use crate::rt::{Mutex, lock};

/// The number of answers kept. Their median is the usual time, so up to two of them may be late.
const SAMPLES: usize = 5;

/// When the calls of many limiters are late together, that is one fault: at most one answer within this
/// time counts as a sample.
const SAMPLE_EVERY: Time = 50_000;

/// With fewer samples than this, an answer counts as a sample if its call was sent after the last one. One
/// fault is still one sample, and a client of a distant server soon learns the distance.
const FEW_SAMPLES: usize = 3;

/// An answer is late if it exceeds the usual time by the largest of these three: a part of the interval,
/// because that much of the rate may then be used too late; a part of the usual time, because distant links
/// vary more; and 5 ms, because fast limiters on a busy machine should not ask twice for each scheduling
/// delay.
const PART_OF_INTERVAL: u64 = 50;
const PART_OF_USUAL: u64 = 4;
const SHORTEST: Time = 5_000;

#[derive(Default)]
pub(crate) struct Latency(Mutex<Samples>);

#[derive(Clone, Default)]
struct Samples {
    /// The durations of the latest samples.
    took: [Time; SAMPLES],
    /// The number of samples taken so far.
    count: usize,
    first_at: Time,
    last_at: Time,
}

impl Samples {
    /// The median; of two samples the shorter, because the other may have been late.
    fn usual(&self) -> Time {
        let known = self.count.min(SAMPLES);
        let mut sorted = self.took;
        sorted[..known].sort_unstable();
        sorted[known.saturating_sub(1) / 2]
    }
}

impl Latency {
    /// Another one, which begins with what this one knows.
    pub(super) fn copy(&self) -> Latency {
        Latency(Mutex::new(lock(&self.0).clone()))
    }

    /// Whether the answer to a call sent at `sent` that took `took` must be confirmed.
    pub(super) fn is_late(&self, sent: Time, took: Time, interval_ms: u64) -> bool {
        if took < SHORTEST {
            return false;
        }
        let samples = lock(&self.0);
        // Calls sent before the first sample may be late together with that sample.
        let usual = if sent < samples.first_at { 0 } else { samples.usual() };
        took > longest_on_time(usual, interval_ms)
    }

    /// The longest that an answer may take now without needing confirmation.
    pub(super) fn longest_on_time(&self, interval_ms: u64) -> Time {
        longest_on_time(lock(&self.0).usual(), interval_ms)
    }

    /// Records the time taken by the answer to a call sent at `sent`.
    pub(super) fn record(&self, sent: Time, took: Time) {
        let mut samples = lock(&self.0);
        let now = sent.saturating_add(took);
        let is_first_of_fault = samples.count < FEW_SAMPLES && sent >= samples.last_at;
        if now < samples.last_at.saturating_add(SAMPLE_EVERY) && !is_first_of_fault {
            return;
        }
        let next = samples.count % SAMPLES;
        samples.took[next] = took;
        samples.count += 1;
        samples.last_at = now;
        if samples.count == 1 {
            samples.first_at = now;
        }
    }
}

fn longest_on_time(usual: Time, interval_ms: u64) -> Time {
    let slack = SHORTEST
        .max(interval_ms.saturating_mul(1000) / PART_OF_INTERVAL)
        .max(usual / PART_OF_USUAL);
    usual.saturating_add(slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1000;

    /// When everything in a test is over.
    const LATER: Time = 3_600_000 * MS;

    fn usual(took: Time) -> Latency {
        let latency = Latency::default();
        for sample in 0..SAMPLES as u64 {
            latency.record(sample * (SAMPLE_EVERY + took), took);
        }
        latency
    }

    #[test]
    fn an_answer_far_later_than_usual_is_late() {
        let latency = usual(MS / 10);
        let is_late = |took, interval_ms| latency.is_late(LATER, took, interval_ms);
        assert!(!is_late(20 * MS, 1000));
        assert!(is_late(20 * MS + MS / 10 + 1, 1000));
        assert!(is_late(2000 * MS, 1000));
        assert!(!is_late(2000 * MS, 3_600_000), "a small part of an hour");
        assert!(!is_late(5 * MS + MS / 10, 10));
        assert!(is_late(6 * MS, 10));
    }

    #[test]
    fn a_link_that_is_always_slow_is_not_asked_twice() {
        assert!(!usual(200 * MS).is_late(LATER, 250 * MS, 1000));
        assert!(usual(200 * MS).is_late(LATER, 400 * MS, 1000), "a second round trip");
    }

    #[test]
    fn one_fault_does_not_change_what_is_usual() {
        let latency = usual(MS);
        for call in 0..1000 {
            latency.record(LATER + call, 2000 * MS);
        }
        assert!(latency.is_late(LATER, 2000 * MS, 1000));
    }

    #[test]
    fn a_far_link_is_known_after_one_answer() {
        let latency = Latency::default();
        assert!(latency.is_late(0, 40 * MS, 1000), "nothing is known");
        latency.record(0, 40 * MS);
        assert!(!latency.is_late(40 * MS, 42 * MS, 1000));
    }

    #[test]
    fn a_fault_at_the_beginning_is_not_taken_for_what_is_usual() {
        let latency = Latency::default();
        for call in 0..10 {
            assert!(latency.is_late(call, 2000 * MS - call, 1000), "call {call} of one fault");
            latency.record(call, 2000 * MS - call);
        }
        latency.record(2000 * MS, MS / 10);
        assert!(latency.is_late(2001 * MS, 2000 * MS, 1000));
        latency.record(2001 * MS, MS / 10);
        assert!(latency.is_late(2002 * MS, 2000 * MS, 1000));
    }
}
