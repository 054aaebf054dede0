//! Grants made without the server, in the form in which they are written to the log afterwards.

use std::sync::Arc;

use crate::engine::{Core, Engine, instant_after};
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
    /// The time of the grant on the clock that dates entries.
    pub(super) date: i64,
    pub(super) permits: u64,
}

/// Gathers grants into charges. The grants are ordered from oldest to newest, each with its date and its
/// permits; the clock that dates entries is so far `ahead` of theirs.
pub(super) fn gather(
    grants: &[(i64, u64)],
    rate: Rate,
    ahead: i64,
    mut new_id: impl FnMut() -> EntryId,
) -> Vec<Charge> {
    let interval = i64::try_from(rate.interval_ms()).unwrap_or(i64::MAX);
    let part = (interval / PARTS_OF_INTERVAL).max(1);
    let mut charges: Vec<Charge> = Vec::new();
    for &(granted_at, permits) in grants {
        let shares_entry = |last: &mut Charge| {
            last.granted_at.div_euclid(part) == granted_at.div_euclid(part)
                && last.permits + permits <= MAX_ENTRY_PERMITS
        };
        let shared = charges.pop_if(shares_entry);
        charges.push(Charge {
            id: shared.map_or_else(&mut new_id, |last| last.id),
            granted_at,
            expires_at: granted_at.saturating_add(interval),
            date: granted_at.saturating_add(ahead),
            permits: permits + shared.map_or(0, |last| last.permits),
        });
    }
    charges
}

impl Engine {
    /// How far the clock that dates entries is ahead of that of the local limiters, in ms: only the server's is another
    /// one.
    pub(super) async fn clock_ahead(&self, local: &Core) -> Result<i64, Error> {
        if !self.core.clock.is_servers() {
            return Ok(0);
        }
        // Read before the call: a later date counts for longer.
        let local_now = local.epoch_ms();
        let time = self.attempt(ServerTimeCall, self.core.attempt).await? / 1000;
        self.saw_server_time(time);
        Ok(time - local_now)
    }

    /// Writes an entry. If there is no limiter, and the next acquire would create one with this rate, it is
    /// created first.
    pub(super) async fn write_charge(
        self: &Arc<Self>,
        &Charge { id, date, permits, .. }: &Charge,
        create: Option<Rate>,
    ) -> Result<ChargeReply, Error> {
        let limit = self.core.attempt;
        let write = || self.write_entry(id, date, permits, instant_after(limit), true);
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
        let charges = gather(grants, Rate::per_second(1000), 0, new_id);
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
