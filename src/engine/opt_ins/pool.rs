//! The permits of a lease, taken without a lock.

use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nanoseconds since the client's origin: the time by which leased permits are granted.
pub(crate) type Nanos = u64;

/// The permits left in the current lease.
///
/// One word holds the lease's number and the permits left, so that a take is one compare-and-swap.
/// The time until which permits may be taken is next to it. It is set for a new lease only while no
/// lease is in use: the number has changed by then, so that a take from the previous lease fails.
/// Otherwise a take could check the end of one lease and take from another.
///
/// Only takes and put-backs are done without the limiter's lock.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Pool {
    /// The lease's number (its upper half) and the permits left.
    word: AtomicU64,
    /// From this time on nothing is taken, until the leases have been checked under the lock.
    usable_until: AtomicU64,
    /// The next lease has arrived already, for when this one is used up.
    has_next: AtomicBool,
    /// A take that leaves fewer permits than this requests another lease.
    low: AtomicU64,
}

/// The number of a lease. It wraps around only after many more leases than are remembered.
pub(crate) type LeaseNumber = u32;

/// Permits taken out of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) lease: LeaseNumber,
    /// The permits that it left in the lease.
    pub(crate) left: u32,
    /// It is time to request another lease.
    pub(crate) runs_low: bool,
}

impl Pool {
    pub(crate) fn new(low: u32) -> Self {
        Pool {
            word: AtomicU64::new(0),
            usable_until: AtomicU64::new(0),
            has_next: AtomicBool::new(false),
            low: AtomicU64::new(low.into()),
        }
    }

    /// Takes permits, unless there are fewer or the lease is no longer usable. The clock is read
    /// for every take, so that nothing is used after the hold's end.
    #[inline]
    pub(crate) fn take(&self, permits: u64, now: impl FnOnce() -> Nanos) -> Option<Taken> {
        let mut word = self.word.load(Ordering::Acquire);
        if left(word) < permits {
            return None;
        }
        let now = now();
        loop {
            if left(word) < permits || now >= self.usable_until.load(Ordering::Relaxed) {
                return None;
            }
            let after = word - permits;
            match self.word.compare_exchange_weak(word, after, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    let low = self.low.load(Ordering::Relaxed);
                    let runs_low = left(after) < low && left(word) >= low;
                    return Some(Taken { lease: number(word), left: left(after) as u32, runs_low });
                }
                Err(current) => word = current,
            }
        }
    }

    /// Puts back permits that were taken from this lease; returns whether it is still in use.
    pub(crate) fn put_back(&self, lease: LeaseNumber, permits: u64) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (number(word) == lease).then(|| word + permits)
            })
            .is_ok()
    }

    /// Whether a take that failed may succeed once the leases have been checked under the lock: the
    /// next lease has arrived, or this one has the permits and may be usable for longer.
    #[inline]
    pub(crate) fn is_worth_a_look(&self, permits: u64) -> bool {
        self.has_next.load(Ordering::Acquire) || self.left() >= permits
    }

    pub(in crate::engine) fn set_has_next(&self, has_next: bool) {
        self.has_next.store(has_next, Ordering::Release);
    }

    /// Ends the current lease; returns how many permits were left. Under the limiter's lock.
    pub(in crate::engine) fn retire(&self) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        // The number changes only under the lock, so it is still this one at the swap.
        let none = pack(number(word).wrapping_add(1), 0);
        left(self.word.swap(none, Ordering::AcqRel))
    }

    /// Makes a lease the current one, and returns its number. Under the limiter's lock, after a
    /// [`retire`](Self::retire).
    pub(in crate::engine) fn publish(&self, permits: u32, usable_until: Nanos) -> LeaseNumber {
        let word = self.word.load(Ordering::Acquire);
        debug_assert_eq!(left(word), 0, "the previous lease was not retired");
        let new = pack(number(word).wrapping_add(1), permits);
        self.usable_until.store(usable_until, Ordering::Relaxed);
        self.word.store(new, Ordering::Release);
        number(new)
    }

    /// When to request another lease: see the field.
    pub(in crate::engine) fn set_low(&self, low: u64) {
        self.low.store(low, Ordering::Relaxed);
    }

    pub(in crate::engine) fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Changes the time until which the current lease is usable. Under the limiter's lock.
    pub(in crate::engine) fn set_usable_until(&self, usable_until: Nanos) {
        self.usable_until.store(usable_until, Ordering::Relaxed);
    }

    /// The number and the permits left, to find out later whether any were taken.
    pub(in crate::engine) fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn left(&self) -> u64 {
        left(self.word())
    }
}

fn pack(number: LeaseNumber, permits: u32) -> u64 {
    u64::from(number) << 32 | u64::from(permits)
}

fn number(word: u64) -> LeaseNumber {
    (word >> 32) as LeaseNumber
}

fn left(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}
