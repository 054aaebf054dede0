//! The rate in force: read, and set, with what becomes of the value and the log.
//!
//! `lua/config.lua`, `lua/try_set_rate.lua` and `lua/set_rate.lua` are its twins.

use super::*;

script!(CONFIG, AtEither, of a limiter: "part/stored_rate", "config");
script!(TRY_SET_RATE, AtReceiver: "part/hash", "try_set_rate");
script!(SET_RATE, AtReceiver, of a limiter: "part/stored_rate", "set_rate");

/// Reads the rate; the reply is `None` if there is no limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigCall;

impl StoreCall for ConfigCall {
    type Reply = Option<Rate>;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Option<Rate>, Error> {
        config(space, keys)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&CONFIG, keys)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Option<Rate>> {
        answer.found_rate()
    }
}

/// Sets the rate if there is no limiter yet; the reply is whether it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrySetRateCall(pub(crate) Rate);

impl StoreCall for TrySetRateCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        if let Some(fields) = space.hash(&keys.hash)?
            && fields.contains_key(TYPE)
        {
            return match missing(fields) {
                [false, false, false] => Ok(false),
                missing => Err(refusal::incomplete(missing)),
            };
        }
        create(space, keys, &self.0)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&TRY_SET_RATE, keys).arg(&texts(&self.0))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}

/// Sets the rate, and keeps or deletes the value and the log; the reply is whether it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetRateCall {
    pub(crate) now: Option<i64>,
    pub(crate) rate: Rate,
    pub(crate) only_existing: bool,
    /// The only rate that it replaces; `None` for any. A repeated call may find its own.
    pub(crate) from: Option<Rate>,
    pub(crate) state: StateRule,
}

/// The effect of a new rate on the value and the log, by the number in `lua/set_rate.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateRule {
    /// Redisson's `setRate(mode, rate, interval)`: deletes those of the new mode.
    DropNewMode = 0,
    /// `setRate(args)`: deletes them; all four if the mode changes.
    Drop = 1,
    /// With keep-state: fits them to the new rate; deletes all four if the mode changes.
    Keep = 2,
}

impl StoreCall for SetRateCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        let old = space.hash(&keys.hash)?;
        if old.is_none() && self.only_existing {
            return Ok(false);
        }
        let rate = &self.rate;
        if let Some(from) = &self.from
            && config(space, keys)?.is_none_or(|found| found != *from && found != *rate)
        {
            return Ok(false);
        }
        let limiter = StoredLimiter::of(keys, rate);
        let kind = mode_text(rate.mode());
        let other_mode =
            old.and_then(|fields| fields.get(TYPE)).is_some_and(|old_kind| old_kind != kind);
        let old_keep_alive = old.and_then(|fields| fields.get(KEEP_ALIVE)?.parse::<u64>().ok());

        // Everything that can fail comes before the first write.
        let keep = self.state == StateRule::Keep && !other_mode;
        let mut kept = None;
        if keep {
            limiter.read_value(space)?;
            let log = space.log_or_empty(limiter.log)?;
            let live = LiveLog::read_all(log, limiter, space.time(self.now));
            kept = Some((limiter.rate - live.sum_log()?, live.changes));
        }

        let fields = space.hash_mut(&keys.hash)?;
        for (name, text) in FIELDS.into_iter().zip(texts(rate)) {
            fields.insert(name.into(), text);
        }
        if limiter.keep_alive > 0 {
            space.expire_in(&keys.hash, limiter.keep_alive);
        } else if old_keep_alive.is_some_and(|ms| ms > 0) {
            // The keep-alive had set the time to live. In PER_CLIENT other clients' keys are out of reach, and would end
            // before the hash: they get a far time to live from their own clients.
            for key in [limiter.hash, limiter.value, limiter.log] {
                match limiter.mode {
                    Mode::Overall => space.persist(key),
                    Mode::PerClient => space.expire_in(key, FAR_TTL_MS),
                };
            }
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
        ServerCommand::of_limiter(&SET_RATE, keys)
            .opt(self.now)
            .arg(&texts(&self.rate))
            .arg(u8::from(self.only_existing))
            .arg(self.state as u8)
            .arg(self.from.as_ref().map(|from| texts(from).to_vec()))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}
