//! The calls of semaphores: Redisson's `RSemaphore`, a counter, and `RPermitExpirableSemaphore`, a counter and the
//! set of the permits that are out, each with an id and the end of its lease.
//!
//! Each has its rule in process next to its script in `lua/semaphore`.

use super::*;

mod acquire;
mod change;
mod release;
mod state;

script!(ACQUIRE, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/acquire", "semaphore/write");
script!(RELEASE, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/release", "semaphore/write");
script!(RENEW, AtReceiver: "semaphore/clock", "semaphore/renew");
script!(COUNTS, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/counts");
script!(SET, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/set", "semaphore/write");

/// Redisson's two kinds of semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SemaphoreKind {
    /// `RSemaphore`: nobody knows who holds a permit.
    Plain,
    /// `RPermitExpirableSemaphore`.
    Expirable,
}

/// The permits of one call: their ids have these bytes in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallId(pub(crate) [u8; 12]);

/// A permit that is out of an expirable semaphore: a member of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PermitId(pub(crate) [u8; 16]);

impl PermitId {
    /// From 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id)?;
        Some(PermitId(number.to_be_bytes()))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl CallId {
    /// The id of the permit that the call was granted as this one, from 0.
    pub(crate) fn permit(self, index: u32) -> PermitId {
        let mut id = [0; 16];
        id[..12].copy_from_slice(&self.0);
        id[12..].copy_from_slice(&index.to_be_bytes());
        PermitId(id)
    }
}

/// Requests for permits of one semaphore, decided in this order: one that waits blocks those behind it, one that is
/// refused does not.
#[derive(Clone, Debug)]
pub(crate) struct SemaphoreAcquireCall {
    pub(crate) kind: SemaphoreKind,
    /// The time in epoch ms; `None` for the store's own clock.
    pub(crate) at: Option<i64>,
    /// Expirable: the ids of the permits, in the order in which they are granted. They make the call count once.
    pub(crate) id: CallId,
    /// Plain: the call's number, by which it counts once.
    pub(crate) lane: Option<LaneCall>,
    /// Whether an earlier attempt may have been carried out.
    pub(crate) is_repeat: bool,
    /// Expirable: the lease; `None` for one that does not end.
    pub(crate) lease_ms: Option<u64>,
    /// Expirable: the time to live of both keys from now on; `None` if it stays as it is.
    pub(crate) keep_alive_ms: Option<u64>,
    /// The permits to set if there is no semaphore.
    pub(crate) create: Option<u64>,
    pub(crate) groups: Vec<RequestGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreReply {
    /// The store's time, epoch ms.
    pub(crate) now: i64,
    /// The permits granted: those of the ids 0.. of the call.
    pub(crate) granted: u64,
    /// The permits free after the call; negative if fewer are set than are out.
    pub(crate) free: i64,
    /// Expirable: all permits, free or out.
    pub(crate) total: u64,
    /// The end of the lease that ends first, in epoch ms, if a request was not granted and there is one.
    pub(crate) next_end: Option<i64>,
    /// The outcomes in the order of the requests; their counts add up to the number of requests. Requests wait until
    /// `next_end`, or their own longest wait if that is earlier.
    pub(crate) outcomes: Vec<OutcomeGroup>,
}

/// Gives permits back.
#[derive(Clone, Debug)]
pub(crate) struct SemaphoreReleaseCall {
    pub(crate) kind: SemaphoreKind,
    /// The time in epoch ms, by which permits come back late; 0 if none can be.
    pub(crate) at: Option<i64>,
    /// Plain.
    pub(crate) lane: Option<LaneCall>,
    /// Expirable.
    pub(crate) permits: Vec<PermitId>,
    /// Plain: how many.
    pub(crate) count: u64,
}

/// What became of permits that were given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreReleased {
    pub(crate) returned: Vec<Returned>,
    /// How many hear that permits have become free; `None` if nobody is told.
    pub(crate) listeners: Option<u64>,
}

/// What became of a permit that was given back, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Returned {
    InTime,
    /// It came back, but its lease had ended: nobody had needed it yet.
    Late,
    /// It was no longer out, or the semaphore is gone.
    Gone,
}

/// Renews leases from now on, or changes them.
#[derive(Clone, Debug)]
pub(crate) struct RenewCall {
    pub(crate) at: Option<i64>,
    /// `None`: without end.
    pub(crate) lease_ms: Option<u64>,
    /// Whether leases may also end earlier than before.
    pub(crate) may_shorten: bool,
    /// The time to live of both keys from now on; `None` if it stays as it is.
    pub(crate) keep_alive_ms: Option<u64>,
    pub(crate) permits: Vec<PermitId>,
}

/// Reads the numbers of permits. Nothing is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SemaphoreCountsCall {
    pub(crate) kind: SemaphoreKind,
    pub(crate) at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreCounts {
    /// Whether there is such a semaphore.
    pub(crate) exists: bool,
    /// Permits that can be taken now, those with ended leases included; negative if fewer are set than are out.
    pub(crate) available: i64,
    /// Permits that are out with a lease that has not ended.
    pub(crate) acquired: u64,
    /// Both together.
    pub(crate) total: i64,
}

/// What [`SetPermitsCall`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetPermits {
    /// Sets them if there is no semaphore yet.
    Try,
    /// Sets them, whatever they were; permits that are out stay out.
    Set,
    /// Adds to them; a negative number takes away.
    Add,
    /// Plain: takes all that are free.
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetPermitsCall {
    pub(crate) kind: SemaphoreKind,
    pub(crate) rule: SetPermits,
    pub(crate) permits: i64,
}
