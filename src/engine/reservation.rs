//! Permits that the server has set aside for the first request of a queue.

use std::sync::Arc;

use super::Engine;
use super::flight::Flight;
use super::lane::LaneState;
use super::opt_ins::leases::Leftover;
use super::refund::Entry;
use crate::store::{AcquireReply, Outcome};
use crate::wire::entry::EntryId;

/// An entry for permits that are not all free yet. The call that asks for its request again has its
/// id.
pub(super) struct Reservation {
    pub(super) entry: Arc<Entry>,
    /// A time before the dates that its entry may have, on the clock that gave them.
    pub(super) since: i64,
}

impl Reservation {
    /// What a call of this id for so many permits has reserved.
    pub(super) fn of(id: EntryId, reply: &AcquireReply, permits: u64) -> Option<Self> {
        let Outcome::Reserved(wait) = reply.outcomes.first()?.outcome else { return None };
        let date = reply.now.saturating_add(i64::try_from(wait.ms).unwrap_or(i64::MAX));
        Some(Reservation { entry: Entry::new(id, date, permits), since: reply.now - 1 })
    }
}

impl Flight {
    /// The reservation of a request that exceeds the rate by now: the call has left it as it was.
    pub(super) fn unwanted_reservation(&self, reply: &AcquireReply) -> Option<Leftover> {
        let exceeds = reply.outcomes.first()?.outcome == Outcome::ExceedsRate;
        let entry = &self.reservation.as_ref().filter(|_| exceeds)?.entry;
        Some((entry.clone(), entry.granted))
    }
}

impl LaneState {
    /// The reservation of a request that is no longer pending. To be given back, once the lock is
    /// free: otherwise it would keep permits from all others until it expires.
    pub(super) fn take_unwanted_reservation(&mut self) -> Option<Reservation> {
        if self.queue.has_reservation() { None } else { self.reservation.take() }
    }
}

impl Engine {
    pub(super) fn give_back_reservation(self: &Arc<Self>, unwanted: Option<Reservation>) {
        if let Some(Reservation { entry, .. }) = unwanted {
            self.give_back(&entry, entry.granted);
        }
    }
}
