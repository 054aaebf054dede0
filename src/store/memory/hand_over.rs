//! Handing over a limiter that stands in for another store's: put here whole, and taken away in one step.

use super::*;

impl InProcessStore {
    /// Puts a limiter here. `used` are permits in use that nobody here holds, with their dates.
    pub(crate) fn put(&self, keys: &Keys, rate: &Rate, id: EntryId, used: &[(i64, u64)]) {
        let mut space = self.enter();
        keys.all().iter().for_each(|key| _ = space.remove(key));
        // Neither call can fail: the keys have just been removed.
        let _ = create(&mut space, keys, rate);
        let _ = space.with_log(StoredLimiter::of(keys, rate).log, |log| {
            let lots = used.iter().flat_map(|(date, permits)| {
                parts(*permits as i64).map(move |permits| (*date, permits))
            });
            for (number, (date, permits)) in lots.enumerate() {
                log.add(date, pack(id.debt(number as u16), permits));
            }
        });
    }

    /// Whether any permits of a limiter are in use at `now`.
    pub(crate) fn is_in_use(&self, keys: &Keys, now: i64) -> bool {
        live_entries(&self.enter(), keys, now).next().is_some()
    }

    /// Takes a semaphore's value away: calls find no semaphore, and what is out stays known.
    pub(crate) fn take_value(&self, keys: &Keys) {
        self.enter().remove(&keys.hash);
    }

    /// Takes a limiter away, and returns its grants that still count at `now`: dates and permits, oldest
    /// first. From then on calls find no limiter.
    pub(crate) fn take(&self, keys: &Keys, now: i64) -> Vec<(i64, u64)> {
        let mut space = self.enter();
        let granted = |(date, member)| match unpack(member) {
            Some((id, permits)) if holder(id) != Holder::Debt => Some((date, permits)),
            _ => None,
        };
        let granted = live_entries(&space, keys, now).filter_map(granted).collect();
        keys.all().iter().for_each(|key| _ = space.remove(key));
        granted
    }
}

/// The entries of a limiter that count at `now`; none if there is no limiter.
fn live_entries<'a>(
    space: &'a Keyspace,
    keys: &Keys,
    now: i64,
) -> impl Iterator<Item = (i64, &'a [u8])> + use<'a> {
    let limiter = StoredLimiter::read(space, keys, None).ok();
    let log =
        limiter.and_then(|limiter| Some((space.log(limiter.log).ok()??, limiter.cutoff(now))));
    log.into_iter().flat_map(|(log, cutoff)| log.later_than(cutoff))
}
