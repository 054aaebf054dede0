//! Grants made without the server, in the form in which they are written to the log afterwards.

use std::sync::Arc;

use crate::engine::{Engine, instant_after};
use crate::error::{Error, ErrorKind};
use crate::rate::Rate;
use crate::store::{ChargeReply, ServerTimeCall, TrySetRateCall};
use crate::wire::entry::{EntryId, MAX_ENTRY_PERMITS};

/// The grants within this part of an interval share an entry, dated with the last of them. It counts that
/// much longer than the grants themselves would, and the log does not grow with their number.
const PARTS_OF_INTERVAL: i64 = 8;

/// An entry to be written. Its id and its date stay the same no matter how often the write is attempted, so
/// that it counts once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) id: EntryId,
    /// The time at which its permits were granted, and the time at which they cease to count, both on the
    /// clock of the local limiters.
    pub(super) granted_at: i64,
    pub(super) expires_at: i64,
    /// The time of the grant on the clock that dates entries, once it is known.
    pub(super) date: Option<i64>,
    pub(super) permits: u64,
}

/// Gathers grants into charges. The grants are ordered from oldest to newest, each with its date and its
/// permits.
pub(super) fn gather(
    grants: &[(i64, u64)],
    rate: Rate,
    mut new_id: impl FnMut() -> EntryId,
) -> Vec<Charge> {
    let interval = i64::try_from(rate.interval_ms()).unwrap_or(i64::MAX);
    let part = (interval / PARTS_OF_INTERVAL).max(1);
    let mut charges: Vec<Charge> = Vec::new();
    for &(date, permits) in grants {
        match charges.last_mut() {
            Some(last)
                if last.granted_at.div_euclid(part) == date.div_euclid(part)
                    && last.permits + permits <= MAX_ENTRY_PERMITS =>
            {
                (last.granted_at, last.expires_at) = (date, date.saturating_add(interval));
                last.permits += permits;
            }
            _ => charges.push(Charge {
                id: new_id(),
                granted_at: date,
                expires_at: date.saturating_add(interval),
                date: None,
                permits,
            }),
        }
    }
    charges
}

impl Engine {
    /// The date of a charge's entry: as long ago as its permits were granted.
    pub(super) async fn date_of(&self, charge: &Charge, local_now: i64) -> Result<i64, Error> {
        let age = (local_now - charge.granted_at).max(0);
        Ok(match (charge.date, self.core.clock.own_ms()) {
            (Some(date), _) => date,
            (None, Some(now)) => now - age,
            (None, None) => self.attempt(ServerTimeCall, self.core.attempt).await? / 1000 - age,
        })
    }

    /// Writes an entry. If there is no limiter, and the next acquire would create one with this rate, it is
    /// created first.
    pub(super) async fn write_charge(
        self: &Arc<Self>,
        charge: &Charge,
        date: i64,
        create: Option<Rate>,
    ) -> Result<ChargeReply, Error> {
        let limit = self.core.attempt;
        let write =
            || self.write_entry(charge.id, date, charge.permits, instant_after(limit), true);
        match (write().await, create) {
            (Err(error), Some(rate))
                if error.kind() == ErrorKind::NotInitialized && self.rules.policy().is_none() =>
            {
                self.attempt(TrySetRateCall(rate), limit).await?;
                write().await
            }
            (answer, _) => answer,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::wire::entry::ClientTag;

    fn gathered(grants: &[(i64, u64)]) -> Vec<(i64, u64)> {
        let new_id = || EntryId::random(ClientTag([1; 4]), 1);
        let charges = gather(grants, Rate::per_second(1000), new_id);
        charges.iter().map(|charge| (charge.granted_at, charge.permits)).collect()
    }

    #[test]
    fn grants_of_an_eighth_of_the_interval_share_an_entry_dated_with_the_last() {
        assert_eq!(gathered(&[]), []);
        assert_eq!(gathered(&[(1000, 1), (1010, 2), (1125, 3)]), [(1010, 3), (1125, 3)]);
        let spread: Vec<_> = (1..=1000).map(|at| (at, 1)).collect();
        let gathered = gathered(&spread);
        assert!(gathered.len() <= 9, "{gathered:?}");
        assert_eq!(gathered.iter().map(|(_, permits)| permits).sum::<u64>(), 1000);
    }

    #[test]
    fn no_entry_has_more_than_fits() {
        let most = MAX_ENTRY_PERMITS;
        assert_eq!(gathered(&[(1, most), (1, 1), (2, 5)]), [(1, most), (2, 6)]);
    }
}
