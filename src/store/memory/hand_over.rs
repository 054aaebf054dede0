//! Handing over a limiter that stands in for another store's: put here whole, and taken away in one step.

use crate::rate::Rate;
use crate::store::memory::MemoryStore;
use crate::store::memory::config::{Config, Pair, create};
use crate::store::memory::grant::parts;
use crate::wire::entry::{EntryId, Holder, Member, holder, pack, unpack};
use crate::wire::keys::Keys;

impl MemoryStore {
    /// Puts a limiter here. `used` are permits in use that nobody here holds, with their dates.
    pub(crate) fn put(&self, keys: &Keys, rate: &Rate, id: EntryId, used: &[(i64, u64)]) {
        let mut space = self.enter(keys);
        let pair = Pair::of(keys, rate.mode());
        for key in keys.all() {
            space.remove(key);
        }
        // Neither call can fail: the keys have just been removed.
        let _ = create(&mut space, keys, rate);
        let _ = space.with_log(pair.log, |log| {
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
        let space = self.enter(keys);
        match Config::read(&space, keys, None) {
            Ok(config) => match space.log(Pair::of(keys, config.mode).log) {
                Ok(Some(log)) => {
                    log.later_than(now.saturating_sub(config.interval)).next().is_some()
                }
                _ => false,
            },
            Err(_) => false,
        }
    }

    /// Takes a semaphore's value away: calls find no semaphore, and what is out stays known.
    pub(crate) fn take_value(&self, keys: &Keys) {
        self.enter(keys).remove(&keys.hash);
    }

    /// Takes a limiter away, and returns its grants that still count at `now`: dates and permits, oldest
    /// first. From then on calls find no limiter.
    pub(crate) fn take(&self, keys: &Keys, now: i64) -> Vec<(i64, u64)> {
        let mut space = self.enter(keys);
        let mut granted = Vec::new();
        if let Ok(config) = Config::read(&space, keys, None)
            && let Ok(Some(log)) = space.log(Pair::of(keys, config.mode).log)
        {
            let live = log.later_than(now.saturating_sub(config.interval));
            granted.extend(live.filter_map(|(date, member)| match unpack(member) {
                Member::Entry { id, permits } if holder(id) != Holder::Debt => {
                    Some((date, permits))
                }
                _ => None,
            }));
        }
        for key in keys.all() {
            space.remove(key);
        }
        granted
    }
}
