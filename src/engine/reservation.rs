//! Permits that the server has set aside for the first request of a queue.

use std::sync::Arc;

use super::Engine;
use super::lane::LaneState;
use super::refund::Entry;
use crate::store::{AcquireReply, Outcome};
use crate::wire::entry::EntryId;

/// An entry for permits that are not all free yet. The call that asks again for its request uses the
/// entry's id.
pub(super) struct Reservation {
    pub(super) entry: Arc<Entry>,
    /// A time before any date that the entry may have, on the clock that dated it.
    pub(super) since: i64,
}

impl Reservation {
    /// The reservation made by a call with this id for this many permits, if any.
    pub(super) fn of(id: EntryId, reply: &AcquireReply, permits: u64) -> Option<Self> {
        let Outcome::Reserved(wait) = reply.outcomes.first()?.outcome else { return None };
        let date = reply.now.saturating_add(i64::try_from(wait.ms()).unwrap_or(i64::MAX));
        Some(Reservation { entry: Entry::new(id, date, permits), since: reply.now - 1 })
    }
}

impl LaneState {
    /// The reservation of a request that is no longer pending. It must be given back once the lock is free:
    /// otherwise it would keep permits from everybody else until it expires.
    pub(super) fn take_unwanted_reservation(&mut self) -> Option<Reservation> {
        if self.queue.has_reservation() { None } else { self.reservation.take() }
    }
}

impl Engine {
    /// From the client's own thread: the current runtime may be parked from now on.
    pub(super) fn give_back_reservation(self: &Arc<Self>, unwanted: Option<Reservation>) {
        if let Some(Reservation { entry, .. }) = unwanted
            && let Ok(runtime) = self.core.background()
        {
            let engine = self.clone();
            runtime.spawn_counted(&self.core, async move {
                if let Some(given_back) = engine.give_back(&entry, entry.granted) {
                    _ = given_back.await;
                }
            });
        }
    }
}
