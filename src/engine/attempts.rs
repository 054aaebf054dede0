//! The attempts of one call whose outcome is unknown: an attempt must find what an earlier one was granted.

use super::reservation::Reservation;
use crate::store::Earlier;

/// How far before the last time seen on the server's clock an attempt may have been dated, in ms: a
/// failover may lead to a server whose clock is behind. Without this margin, a retry on that server would
/// not find the grant of its first attempt and would be granted twice.
const CLOCK_MAY_GO_BACK: i64 = 60_000;

#[derive(Default)]
pub(super) struct Attempts {
    /// An earlier one may have been granted permits which its callers have not received.
    is_again: bool,
    /// The dates of what those may have been granted, by the client's clock.
    dates: Vec<i64>,
    /// A time before all of them, if that is what is known: the server dates them, or an entry may be reserved.
    since: Option<i64>,
    /// The date of the attempt under way, by the client's clock.
    date: Option<i64>,
    /// The call asks for a reservation, whose date is not known before the answer.
    reserves: bool,
    /// A time before any date that the reservation of the call's request may have, and its date.
    reserved: Option<(i64, i64)>,
}

impl Attempts {
    pub(super) fn of(reserves: bool, reservation: Option<&Reservation>) -> Self {
        let reserved = reservation.map(|it| (it.since, it.entry.date));
        Attempts { reserves, reserved, ..Attempts::default() }
    }

    /// Whether no earlier attempt may have been carried out.
    pub(super) fn is_first(&self) -> bool {
        !self.is_again
    }

    /// The date to send with the next attempt if the client's clock shows `now`; grants are dated `hold_ms` after it.
    pub(super) fn next_date(&self, now: i64, hold_ms: i64) -> i64 {
        let date = self.dates.last().map_or(now, |last| now.max(last - hold_ms + 1));
        // Otherwise a grant of this attempt could not be distinguished from the reservation.
        if self.reserved.is_some_and(|(_, reserved)| reserved == date) { date + 1 } else { date }
    }

    /// Begins an attempt whose grant has this date. Returns what it says about the earlier ones.
    pub(super) fn begin_dated(&mut self, date: i64) -> Earlier {
        self.date = Some(date);
        if !self.is_again {
            self.since = self.reserves.then_some(date - 1);
        }
        self.earlier(None)
    }

    /// Begins an attempt that the server dates, after `since` if it is the first. Returns what it says about the
    /// earlier ones.
    pub(super) fn begin_since(&mut self, since: i64) -> Earlier {
        if !self.is_again {
            self.since = Some(since - CLOCK_MAY_GO_BACK);
        }
        self.earlier(Some(since))
    }

    /// `since` is what the first attempt says.
    fn earlier(&self, since: Option<i64>) -> Earlier {
        let since = if self.is_again { self.since } else { since };
        let dates = if self.reserves { Vec::new() } else { self.dates.clone() };
        match self.reserved {
            Some((since, date)) => {
                Earlier { is_again: true, since: Some(since), dates, reserved: Some(date) }
            }
            None => Earlier { is_again: self.is_again, since, dates, reserved: None },
        }
    }

    /// The attempt under way has ended. `may_have_granted`: permits that its callers have not received.
    pub(super) fn ended(&mut self, may_have_granted: bool) {
        let date = self.date.take();
        if may_have_granted {
            self.is_again = true;
            self.dates.extend(date);
        }
    }

    /// The known dates of what the call may have been granted, its reservation included.
    pub(super) fn dates(&self) -> Vec<i64> {
        let reserved = self.reserved.map(|(_, date)| date);
        self.dates.iter().copied().chain(self.date).chain(reserved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_by_the_clients_clock_has_a_date_of_its_own() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.next_date(100, 0), 100);
        assert_eq!(attempts.begin_dated(100), Earlier::default());
        assert_eq!(
            attempts.dates(),
            [100],
            "it may be carried out although nobody waits for the answer"
        );
        attempts.ended(true);
        assert!(!attempts.is_first());
        // The clock went back, or stood still.
        assert_eq!(attempts.next_date(90, 0), 101);
        assert_eq!(attempts.next_date(150, 0), 150);
        assert_eq!(attempts.begin_dated(101), Earlier::dated(vec![100]));
        attempts.ended(false);
        assert_eq!(attempts.begin_dated(150), Earlier::dated(vec![100]));
        attempts.ended(true);
        assert_eq!(attempts.dates(), [100, 150]);
    }

    #[test]
    fn a_hold_is_part_of_the_date() {
        let mut attempts = Attempts::default();
        attempts.begin_dated(100 + 30);
        attempts.ended(true);
        assert_eq!(attempts.next_date(100, 30), 101);
    }

    #[test]
    fn an_attempt_that_was_not_carried_out_leaves_nothing() {
        let mut attempts = Attempts::default();
        attempts.begin_dated(100);
        attempts.ended(false);
        assert!(attempts.is_first() && attempts.dates().is_empty());
        attempts.begin_since(100);
        attempts.ended(false);
        assert!(attempts.is_first());
    }

    #[test]
    fn by_the_servers_clock_the_first_time_seen_counts() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.begin_since(70_000), Earlier::first_since(70_000));
        attempts.ended(true);
        let earlier = Earlier::since(70_000 - CLOCK_MAY_GO_BACK);
        assert_eq!(attempts.begin_since(80_000), earlier);
        attempts.ended(true);
        assert_eq!(attempts.begin_since(90_000), earlier);
        assert!(attempts.dates().is_empty(), "they are found by the id");
    }

    #[test]
    fn a_reservation_is_told_from_what_replaces_it() {
        let reserved = Some((50, 200));
        let mut attempts = Attempts { reserves: true, reserved, ..Attempts::default() };
        assert_eq!(attempts.next_date(200, 0), 201);
        assert_eq!(attempts.begin_dated(199), Earlier::reserved(50, 200));
        attempts.ended(true);
        assert_eq!(attempts.dates(), [199, 200]);
        // The date of one that an attempt has made itself is not known.
        let mut attempts = Attempts { reserves: true, ..Attempts::default() };
        attempts.begin_dated(100);
        attempts.ended(true);
        assert_eq!(attempts.begin_dated(101), Earlier::since(99));
    }
}
