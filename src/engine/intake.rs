//! Arrivals at a busy lane, gathered by thread.
//!
//! With several worker threads every arrival would write what the other threads read next: the
//! lane's lock, its queue, the count of references to the answer that callers share. Two threads on
//! two cores then grant fewer permits than one. So once threads have met at the lane's lock, each
//! thread has a shard of its own, with an answer of its own; the driver takes what has gathered in
//! all of them before each call.
//!
//! Requests that arrive during one call on different threads so count as simultaneous: the queue
//! orders them by shard, and by arrival within one. A shard is open only while the driver is sure to
//! come: while it is awake, or its call is in flight.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::answer::BatchAnswer;
use super::create_rates::CreateRates;
use crate::queue::Request;
use crate::rate::Rate;
use crate::rt::{self, CachePadded, Mutex, lock};

/// More threads than this share shards.
const SHARDS: usize = 8;

/// The shards of one lane: none until threads have met at its lock.
#[derive(Default)]
pub(super) struct Intake(OnceLock<Box<[CachePadded<Mutex<Shard>>]>>);

#[derive(Default)]
struct Shard {
    is_open: bool,
    answer: Option<Arc<BatchAnswer>>,
    arrivals: Vec<Arrived>,
    create_rates: CreateRates,
}

/// A request that has not joined the queue yet. It is written by one thread and read by another, so
/// each byte of it counts: the rate with which it creates its limiter is a number, which its shard knows.
pub(super) struct Arrived {
    pub(super) request: Request,
    pub(super) waker: Waker,
}

/// What has gathered in one shard.
pub(super) struct Gathered {
    pub(super) answer: Arc<BatchAnswer>,
    pub(super) arrivals: Vec<Arrived>,
    pub(super) create_rates: CreateRates,
}

impl Intake {
    /// Threads have met at the lane's lock.
    #[cold]
    pub(super) fn begin(&self) {
        self.0.get_or_init(|| (0..SHARDS).map(|_| CachePadded::default()).collect());
    }

    /// Leaves a request in this thread's shard, if it is open, and the lane still the right one: since
    /// it was found its runtime may have ended, and another one may have it. Returns the answer that
    /// the request shares, and its position there. The waker is taken only then.
    #[inline]
    pub(super) fn arrive(
        &self,
        mut request: Request,
        create: Option<&Rate>,
        waker: &mut Option<Waker>,
        is_lane_right: impl FnOnce() -> bool,
    ) -> Option<(Arc<BatchAnswer>, usize)> {
        let shards = self.0.get()?;
        let mut shard = lock(&shards[rt::thread_index() % SHARDS].0);
        let may_join = shard.is_open && is_lane_right();
        let waker = if may_join { waker.take()? } else { return None };
        let answer = shard.answer.get_or_insert_default().clone();
        request.create = create.map(|rate| shard.create_rates.number_of(*rate));
        shard.arrivals.push(Arrived { request, waker });
        Some((answer, shard.arrivals.len() - 1))
    }

    /// How many requests have gathered.
    pub(super) fn len(&self) -> usize {
        self.shards().map(|shard| lock(shard).arrivals.len()).sum()
    }

    /// Takes what has gathered. Open shards stay open, and the others closed.
    pub(super) fn take(&self) -> impl Iterator<Item = Gathered> {
        self.shards().filter_map(|shard| {
            let mut shard = lock(shard);
            let answer = shard.answer.take()?;
            // As many are likely to come again.
            let room = Vec::with_capacity(shard.arrivals.len());
            let arrivals = mem::replace(&mut shard.arrivals, room);
            Some(Gathered { answer, arrivals, create_rates: mem::take(&mut shard.create_rates) })
        })
    }

    /// Lets requests gather, or has them join the queue.
    pub(super) fn set_open(&self, is_open: bool) {
        for shard in self.shards() {
            lock(shard).is_open = is_open;
        }
    }

    fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.0.get().into_iter().flat_map(|shards| shards.iter().map(|shard| &shard.0))
    }
}
