//! Reservations for the request at the head.
//!
//! A request for many permits needs them all at one time. If other clients take each permit as it comes back,
//! that time never comes. So once the request has waited at the head for an interval, permits that come back
//! are set aside for it, by a log entry that is dated ahead.

use super::events::{Ticket, Time};
use super::reply::ASK_EVERY;
use super::state::Queue;

/// The shortest wait of a head before permits are set aside for it, and between two attempts: as long as
/// other clients are given to take permits left for them.
const SHORTEST: Time = 125_000;

/// Attempts per interval until one gets a reservation. Each reads the whole log.
const ATTEMPTS: u64 = 8;

/// The queue's state for reserving permits for its head.
#[derive(Debug, Default)]
pub(super) struct Reserving {
    /// The request that waits at the head.
    head: Option<Ticket>,
    /// The time from which a reservation may be requested for it.
    at: Time,
    /// Whether the last call that was limited to a share found permits held by others.
    is_shared: bool,
    /// The request that has a reservation.
    reserved: Option<Ticket>,
}

impl Reserving {
    /// The call in flight was answered; `head` is the request that waits at the head. Returns the latest time
    /// to ask for it.
    pub(super) fn replied(
        &mut self,
        now: Time,
        interval: Time,
        head: Option<(Ticket, u64)>,
        reserved: Option<Ticket>,
        is_shared: bool,
    ) -> Time {
        self.reserved = reserved;
        self.is_shared = is_shared;
        let ticket = head.map(|(ticket, _)| ticket);
        if self.head != ticket {
            self.head = ticket;
            self.at = now.saturating_add(interval.max(SHORTEST));
        } else if self.at <= now {
            self.at = now.saturating_add((interval / ATTEMPTS).clamp(SHORTEST, ASK_EVERY));
        }
        // A single permit needs no reservation: it is free as soon as anything is.
        let is_large = head.is_some_and(|(_, permits)| permits > 1);
        if is_shared && is_large && reserved.is_none() { self.at } else { Time::MAX }
    }

    /// The call in flight has failed: the reservation of its request is returned.
    pub(super) fn forget(&mut self) {
        self.reserved = None;
    }
}

impl<C> Queue<C> {
    /// Whether the next call asks for the head alone, and for a reservation if it does not fit.
    pub(super) fn reserves(&self, now: Time) -> bool {
        let Some(head) = self.waiters.front().filter(|head| head.has_server_answer) else {
            return false;
        };
        let Reserving { head: known, at, is_shared, reserved } = self.reserving;
        let is_due = known == Some(head.ticket) && is_shared && now >= at;
        reserved == Some(head.ticket) || is_due && head.request.permits > 1
    }

    /// Whether the server holds a reservation for a request that is pending.
    pub(crate) fn has_reservation(&self) -> bool {
        self.reserving.reserved.is_some_and(|ticket| self.find(ticket).is_some())
    }
}
