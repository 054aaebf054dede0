//! The limiter's hash and the keys of its mode: reads and checks the hash, with a clear error if that fails,
//! and fills it if there is none; and the lifetime of the keys.
//!
//! `lua/part/config.lua` and `lua/part/lifetime.lua` are its twins.

use super::*;
use crate::wire::{FIELDS, INTERVAL, KEEP_ALIVE, RATE, TYPE, integer, mode_text, texts};

/// A limiter with the rate in force, positive and exact as a Lua number, and the keys of its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredLimiter<'k> {
    pub(crate) mode: Mode,
    pub(crate) rate: i64,
    /// In ms.
    pub(crate) interval: i64,
    /// In ms; 0 for none.
    pub(crate) keep_alive: i64,
    pub(crate) hash: &'k Arc<str>,
    pub(crate) value: &'k Arc<str>,
    pub(crate) log: &'k Arc<str>,
}

impl<'k> StoredLimiter<'k> {
    pub(crate) fn of(keys: &'k Keys, rate: &Rate) -> Self {
        let [hash, value, log] = keys.of_mode(rate.mode());
        StoredLimiter {
            mode: rate.mode(),
            rate: rate.permits() as i64,
            interval: rate.interval_ms() as i64,
            keep_alive: rate.keep_alive_ms() as i64,
            hash,
            value,
            log,
        }
    }

    /// Reads the rate in force. If the type is missing, `create` supplies what is missing.
    pub(crate) fn read(
        space: &Keyspace,
        keys: &'k Keys,
        create: Option<&Rate>,
    ) -> Result<Self, Error> {
        let mut fields = space.hash(&keys.hash)?.cloned().unwrap_or_default();
        if let Some(rate) = create.filter(|_| !fields.contains_key(TYPE)) {
            fill(&mut fields, rate);
        }
        Ok(StoredLimiter::of(keys, &parse(&fields)?))
    }

    pub(crate) fn to_rate(self) -> Rate {
        Rate::from_wire(self.mode, self.rate as u64, self.interval as u64, self.keep_alive as u64)
    }

    /// The latest score that has expired at `t`.
    pub(crate) fn cutoff(&self, t: i64) -> i64 {
        t.saturating_sub(self.interval)
    }

    /// Reads the value; anything but an integer counts as missing. Also checks the types of value and log, so
    /// that no error is found after the first write.
    pub(crate) fn read_value(&self, space: &Keyspace) -> Result<Option<i64>, Error> {
        space.log(self.log)?;
        Ok(space.text(self.value)?.and_then(integer))
    }

    /// Writes the log, also by `write_log`, the value, which was `before`, and the lifetimes.
    pub(crate) fn write(
        &self,
        space: &mut Keyspace,
        before: Option<i64>,
        value: NewValue,
        changes: LogChanges,
        write_log: impl FnOnce(&mut Log),
    ) -> Result<(), Error> {
        space.with_log(self.log, |log| {
            changes.write(log);
            write_log(log);
        })?;
        space.write_value(self.value, before, value);
        self.refresh_lifetime(space);
        Ok(())
    }

    /// The lifetime step of a call: the keep-alive for all three keys, or else the hash's time to
    /// live for the other two.
    pub(crate) fn refresh_lifetime(&self, space: &mut Keyspace) {
        if self.keep_alive > 0 {
            for key in [self.hash, self.value, self.log] {
                space.expire_in(key, self.keep_alive);
            }
        } else if let Some(at) = space.expires_at(self.hash).filter(|at| *at > space.now()) {
            space.expire_at(self.value, at);
            space.expire_at(self.log, at);
        }
    }
}

/// Reads the value and the log for a call at this time that drops all expired entries. `lua/part/read_all.lua` does the
/// same.
pub(crate) fn read_all<'k, 's>(
    space: &'s Keyspace,
    keys: &'k Keys,
    now: Option<i64>,
) -> Result<(Option<i64>, LiveLog<'k, 's>), Error> {
    let limiter = StoredLimiter::read(space, keys, None)?;
    let (before, t) = (limiter.read_value(space)?, space.time(now));
    Ok((before, LiveLog::read_all(space.log_or_empty(limiter.log)?, limiter, t)))
}

/// Reads the rate; `None` if there is no hash.
pub(crate) fn config(space: &Keyspace, keys: &Keys) -> Result<Option<Rate>, Error> {
    space.hash(&keys.hash)?.map_or(Ok(None), config_of)
}

pub(crate) fn config_of(fields: &Fields) -> Result<Option<Rate>, Error> {
    match missing(fields) {
        missing if missing.contains(&true) => Err(refusal::incomplete(missing)),
        _ => parse(fields).map(Some),
    }
}

fn parse(fields: &Fields) -> Result<Rate, Error> {
    let field = |name: &str| fields.get(name).map(String::as_str);
    let (Some(rate), Some(interval), Some(kind)) = (field(RATE), field(INTERVAL), field(TYPE))
    else {
        return Err(refusal::not_initialized(missing(fields)));
    };
    let (rate, interval) = (number(RATE, rate, 1)?, number(INTERVAL, interval, 1)?);
    let mode = match kind {
        "0" => Mode::Overall,
        "1" => Mode::PerClient,
        _ => return Err(refusal::unreadable(TYPE, kind)),
    };
    let keep_alive = field(KEEP_ALIVE).map_or(Ok(0), |ms| number(KEEP_ALIVE, ms, 0))?;
    Ok(Rate::from_wire(mode, rate, interval, keep_alive))
}

/// Whether the hash says PER_CLIENT; OVERALL if it does not say.
pub(crate) fn is_per_client(space: &Keyspace, keys: &Keys) -> Result<bool, Error> {
    let kind = space.hash(&keys.hash)?.and_then(|fields| fields.get(TYPE));
    Ok(kind.is_some_and(|kind| kind == mode_text(Mode::PerClient)))
}

/// Redisson's `trySetRate`, for a hash without a type. Returns whether it wrote.
pub(crate) fn create(space: &mut Keyspace, keys: &Keys, rate: &Rate) -> Result<bool, Error> {
    if space.hash(&keys.hash)?.is_some_and(|fields| fields.contains_key(TYPE)) {
        return Ok(false);
    }
    fill(space.hash_mut(&keys.hash)?, rate);
    if rate.keep_alive_ms() > 0 {
        space.expire_in(&keys.hash, rate.keep_alive_ms() as i64);
    }
    Ok(true)
}

/// The fields missing from the hash, of rate, interval and type.
pub(crate) fn missing(fields: &Fields) -> [bool; 3] {
    [RATE, INTERVAL, TYPE].map(|name| !fields.contains_key(name))
}

/// Sets each missing field, as Redisson's `trySetRate` does.
fn fill(fields: &mut Fields, rate: &Rate) {
    for (name, text) in FIELDS.into_iter().zip(texts(rate)) {
        fields.entry(name.into()).or_insert(text);
    }
}

/// Parses a numeric field, which must consist of decimal digits.
fn number(field: &str, text: &str, min: u64) -> Result<u64, Error> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits && (min..=MAX_EXACT).contains(&number) => Ok(number),
        _ => Err(refusal::unreadable(field, text)),
    }
}
