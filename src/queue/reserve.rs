//! When the request at the head is served by a reservation.
//!
//! A request for many permits needs them all at one time. Beside clients that take each permit as
//! it comes back, that time never comes. So once it has waited at the head for an interval, the
//! permits that come back are set aside for it, by an entry in the log that is dated ahead.

use super::events::{Ticket, Time};
use super::reply::ASK_EVERY;
use super::state::Queue;

/// A head waits at least this long before its permits are set aside, and between two attempts: as
/// long as others are given to take permits that were left for them.
const SHORTEST: Time = 125_000;

/// Attempts in an interval, if none gets a reservation: each reads the whole log.
const ATTEMPTS: u64 = 8;

/// What a queue knows of its head.
#[derive(Debug, Default)]
pub(super) struct Reserving {
    /// The request that waits at the head.
    head: Option<Ticket>,
    /// When a reservation may be asked for it.
    at: Time,
    /// Others hold permits, as the last call found that kept to a share.
    is_shared: bool,
    /// It has a reservation.
    reserved: Option<Ticket>,
}

impl Reserving {
    /// The call in flight was answered. `head`: the request that waits at the head; returns when to
    /// ask for it at the latest.
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
        // One permit is there whenever anything is.
        let is_large = head.is_some_and(|(_, permits)| permits > 1);
        if is_shared && is_large && reserved.is_none() { self.at } else { Time::MAX }
    }

    /// The call in flight has failed: the reservation of its request is given back.
    pub(super) fn forget(&mut self) {
        self.reserved = None;
    }
}

impl<C> Queue<C> {
    /// Whether the next call asks for the head alone, and for a reservation if it does not fit.
    pub(super) fn reserves(&self, now: Time) -> bool {
        let Some(head) = self.pending.front().filter(|head| head.has_server_answer) else {
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
