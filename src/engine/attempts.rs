//! The attempts of one call whose outcome is unknown: an attempt must find what an earlier one was granted.

use super::reservation::Reservation;
use crate::store::Earlier;

/// How far before the last time seen on the server's clock an attempt may have been dated, in ms: a
/// failover may lead to a server whose clock is behind. Without this margin, a retry on that server would
/// not find the grant of its first attempt and would be granted twice.
const CLOCK_MAY_GO_BACK: i64 = 60_000;

#[derive(Default)]
pub(super) struct Attempts {
    /// Those that may have been granted permits which their callers have not received.
    unconfirmed: Earlier,
    under_way: Option<Attempt>,
    /// The call asks for a reservation, whose date is not known before the answer.
    reserves: bool,
    /// A time before any date that the reservation of the call's request may have, and its date.
    reserved: Option<(i64, i64)>,
}

enum Attempt {
    /// Its grant has this date.
    Dated(i64),
    /// The server dates it, after this time.
    Since(i64),
}

impl Attempts {
    pub(super) fn of(reserves: bool, reservation: Option<&Reservation>) -> Self {
        let reserved = reservation.map(|it| (it.since, it.entry.date));
        Attempts { reserves, reserved, ..Attempts::default() }
    }

    /// Whether no earlier attempt may have been carried out.
    pub(super) fn is_first(&self) -> bool {
        self.unconfirmed == Earlier::None
    }

    /// The date to send with the next attempt if the client's clock shows `now`; grants are dated `hold_ms` after it.
    pub(super) fn next_date(&self, now: i64, hold_ms: i64) -> i64 {
        let last = match &self.unconfirmed {
            Earlier::Dated(dates) => dates.last(),
            _ => None,
        };
        let date = last.map_or(now, |last| now.max(last - hold_ms + 1));
        // Otherwise a grant of this attempt could not be distinguished from the reservation.
        if self.reserved.is_some_and(|(_, reserved)| reserved == date) { date + 1 } else { date }
    }

    /// Begins an attempt whose grant has this date. Returns what it says about the earlier ones.
    pub(super) fn begin_dated(&mut self, date: i64) -> Earlier {
        self.under_way = Some(Attempt::Dated(date));
        self.earlier(Earlier::None)
    }

    /// Begins an attempt that the server dates, after `since` if it is the first. Returns what it says about the
    /// earlier ones.
    pub(super) fn begin_since(&mut self, since: i64) -> Earlier {
        self.under_way = Some(Attempt::Since(since));
        self.earlier(Earlier::FirstSince(since))
    }

    fn earlier(&self, first: Earlier) -> Earlier {
        match (self.reserved, &self.unconfirmed) {
            (Some((since, date)), _) => Earlier::Reserved { since, date },
            (None, Earlier::None) => first,
            (None, Earlier::Dated(dates)) if self.reserves => Earlier::Since(dates[0] - 1),
            (None, earlier) => earlier.clone(),
        }
    }

    /// The attempt under way has ended. `may_have_granted`: permits that its callers have not received.
    pub(super) fn ended(&mut self, may_have_granted: bool) {
        let Some(attempt) = self.under_way.take().filter(|_| may_have_granted) else { return };
        match (&mut self.unconfirmed, attempt) {
            (Earlier::Dated(dates), Attempt::Dated(date)) => dates.push(date),
            (unconfirmed, Attempt::Dated(date)) => *unconfirmed = Earlier::Dated(vec![date]),
            (unconfirmed @ Earlier::None, Attempt::Since(since)) => {
                *unconfirmed = Earlier::Since(since - CLOCK_MAY_GO_BACK);
            }
            (_, Attempt::Since(_)) => {}
        }
    }

    /// The known dates of what the call may have been granted, its reservation included.
    pub(super) fn dates(&self) -> Vec<i64> {
        let mut dates = match &self.unconfirmed {
            Earlier::Dated(dates) => dates.clone(),
            _ => Vec::new(),
        };
        if let Some(Attempt::Dated(date)) = self.under_way {
            dates.push(date);
        }
        dates.extend(self.reserved.map(|(_, date)| date));
        dates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_by_the_clients_clock_has_a_date_of_its_own() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.next_date(100, 0), 100);
        assert_eq!(attempts.begin_dated(100), Earlier::None);
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
        assert_eq!(attempts.begin_dated(101), Earlier::Dated(vec![100]));
        attempts.ended(false);
        assert_eq!(attempts.begin_dated(150), Earlier::Dated(vec![100]));
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
        assert_eq!(attempts.begin_since(70_000), Earlier::FirstSince(70_000));
        attempts.ended(true);
        let earlier = Earlier::Since(70_000 - CLOCK_MAY_GO_BACK);
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
        assert_eq!(attempts.begin_dated(199), Earlier::Reserved { since: 50, date: 200 });
        attempts.ended(true);
        assert_eq!(attempts.dates(), [199, 200]);
        // The date of one that an attempt has made itself is not known.
        let mut attempts = Attempts { reserves: true, ..Attempts::default() };
        attempts.begin_dated(100);
        attempts.ended(true);
        assert_eq!(attempts.begin_dated(101), Earlier::Since(99));
    }
}
