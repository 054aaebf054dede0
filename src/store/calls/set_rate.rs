//! Setting the rate, and keeping or deleting the value and the log.
//!
//! `lua/set_rate.lua` is its twin.

use super::*;
use crate::rate::Mode;
use crate::store::limits::FAR_TTL_MS;
use crate::store::memory::config::{StoredLimiter, texts};
use crate::store::memory::keyspace::Fields;
use crate::store::memory::live_log::LiveLog;
use crate::wire::{KEEP_ALIVE, TYPE, mode_text};

script!(SET_RATE, AtReceiver, of a limiter: "set_rate");

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetRateCall {
    pub(crate) now: Now,
    pub(crate) rate: Rate,
    /// Do nothing if the hash does not exist.
    pub(crate) only_existing: bool,
    pub(crate) state: StateRule,
}

/// The effect of a new rate on the value and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateRule {
    /// Redisson's `setRate(mode, rate, interval)`: deletes those of the new mode.
    DropNewMode,
    /// `setRate(args)`: deletes them; all four if the mode changes.
    Drop,
    /// With keep-state: fits them to the new rate; deletes all four if the mode changes.
    Keep,
}

impl StoreCall for SetRateCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        let old = space.hash(&keys.hash)?;
        if old.is_none() && self.only_existing {
            return Ok(false);
        }
        let rate = &self.rate;
        let limiter = StoredLimiter::of(keys, rate);
        let kind = mode_text(rate.mode());
        let other_mode =
            old.and_then(|fields| fields.get(TYPE)).is_some_and(|old_kind| old_kind != kind);
        let had_keep_alive = old.is_some_and(has_keep_alive);

        // Everything that can fail comes before the first write.
        let keep = self.state == StateRule::Keep && !other_mode;
        let mut kept = None;
        if keep {
            limiter.read_value(space)?;
            let log = space.log_or_empty(limiter.log)?;
            let live = LiveLog::read_all(log, limiter, space.time(self.now));
            kept = Some((limiter.rate - live.sum_log()?, live.into_changes()));
        }

        let fields = space.hash_mut(&keys.hash)?;
        for (name, text) in texts(rate) {
            fields.insert(name.into(), text);
        }
        if limiter.keep_alive > 0 {
            space.expire_in(&keys.hash, limiter.keep_alive);
        } else if had_keep_alive {
            end_keep_alive(space, &limiter);
        }

        match kept {
            Some((v, changes)) => {
                space.with_log(limiter.log, |log| changes.write(log))?;
                space.set_number(limiter.value, v);
                limiter.refresh_lifetime(space);
            }
            None if other_mode && self.state != StateRule::DropNewMode => {
                for key in &keys.all()[1..] {
                    space.remove(key);
                }
            }
            None => {
                space.remove(limiter.value);
                space.remove(limiter.log);
            }
        }
        Ok(true)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        let state = match self.state {
            StateRule::DropNewMode => 0,
            StateRule::Drop => 1,
            StateRule::Keep => 2,
        };
        ServerCommand::of_limiter(&SET_RATE, keys)
            .time(self.now)
            .rate(&self.rate)
            .arg(u8::from(self.only_existing))
            .arg(state)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}

/// Removes the time to live that the keep-alive had set. In PER_CLIENT other clients' keys are out of reach,
/// and would end before the hash: they get a far time to live from their own clients.
fn end_keep_alive(space: &mut Keyspace, limiter: &StoredLimiter<'_>) {
    for key in [limiter.hash, limiter.value, limiter.log] {
        match limiter.mode {
            Mode::Overall => space.persist(key),
            Mode::PerClient => space.expire_in(key, FAR_TTL_MS),
        };
    }
}

fn has_keep_alive(fields: &Fields) -> bool {
    fields.get(KEEP_ALIVE).and_then(|ms| ms.parse::<u64>().ok()).is_some_and(|ms| ms > 0)
}
