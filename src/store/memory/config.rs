//! The limiter's hash and the keys of its mode: reads and checks the hash, with a clear error if that fails,
//! and fills it if there is none.
//!
//! `lua/part/config.lua` is its twin.

use std::sync::Arc;

use crate::error::Error;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::store::memory::keyspace::{Fields, Keyspace};
use crate::store::refusal;
use crate::wire::keys::Keys;
use crate::wire::{INTERVAL, KEEP_ALIVE, RATE, TYPE, integer};

/// The rate in the hash: positive, and exact as a Lua number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) rate: i64,
    /// In ms.
    pub(crate) interval: i64,
    /// In ms; 0 for none.
    pub(crate) keep_alive: i64,
}

impl Config {
    /// Reads the rate in force. If the type is missing, `create` supplies what is missing.
    pub(crate) fn read(
        space: &Keyspace,
        keys: &Keys,
        create: Option<&Rate>,
    ) -> Result<Config, Error> {
        let none = Fields::new();
        let fields = space.hash(&keys.hash)?.unwrap_or(&none);
        match create {
            Some(rate) if !fields.contains_key(TYPE) => {
                let mut filled = fields.clone();
                fill(&mut filled, rate);
                Config::parse(&filled)
            }
            _ => Config::parse(fields),
        }
    }

    fn parse(fields: &Fields) -> Result<Config, Error> {
        let field = |name: &str| fields.get(name).map(String::as_str);
        let (Some(rate), Some(interval), Some(kind)) = (field(RATE), field(INTERVAL), field(TYPE))
        else {
            return Err(refusal::not_initialized(missing(fields)));
        };
        Ok(Config {
            rate: number(RATE, rate, 1)?,
            interval: number(INTERVAL, interval, 1)?,
            mode: match kind {
                "0" => Mode::Overall,
                "1" => Mode::PerClient,
                _ => return Err(refusal::unreadable(TYPE, kind)),
            },
            keep_alive: field(KEEP_ALIVE).map_or(Ok(0), |ms| number(KEEP_ALIVE, ms, 0))?,
        })
    }

    pub(crate) fn to_rate(self) -> Rate {
        Rate::from_wire(self.mode, self.rate as u64, self.interval as u64, self.keep_alive as u64)
    }
}

/// Reads the rate; `None` if there is no hash.
pub(crate) fn config(space: &Keyspace, keys: &Keys) -> Result<Option<Rate>, Error> {
    space.hash(&keys.hash)?.map_or(Ok(None), config_of)
}

/// Parses the rate from these fields.
pub(crate) fn config_of(fields: &Fields) -> Result<Option<Rate>, Error> {
    match missing(fields) {
        missing if missing.contains(&true) => Err(refusal::incomplete(missing)),
        _ => Config::parse(fields).map(|config| Some(config.to_rate())),
    }
}

/// Whether the hash says PER_CLIENT; OVERALL if it does not say.
pub(crate) fn is_per_client(space: &Keyspace, keys: &Keys) -> Result<bool, Error> {
    let kind = space.hash(&keys.hash)?.and_then(|fields| fields.get(TYPE));
    Ok(kind.is_some_and(|kind| kind == type_text(Mode::PerClient)))
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
pub(crate) fn fill(fields: &mut Fields, rate: &Rate) {
    for (name, text) in texts(rate) {
        fields.entry(name.into()).or_insert(text);
    }
}

/// The four fields of a rate.
pub(crate) fn texts(rate: &Rate) -> [(&'static str, String); 4] {
    [
        (RATE, rate.permits().to_string()),
        (INTERVAL, rate.interval_ms().to_string()),
        (KEEP_ALIVE, rate.keep_alive_ms().to_string()),
        (TYPE, type_text(rate.mode()).into()),
    ]
}

pub(crate) fn type_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

/// Parses a numeric field, which must consist of decimal digits.
fn number(field: &str, text: &str, min: u64) -> Result<i64, Error> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits && (min..=MAX_EXACT).contains(&number) => Ok(number as i64),
        _ => Err(refusal::unreadable(field, text)),
    }
}

/// The value and the log of the mode in force.
pub(crate) struct Pair<'a> {
    pub(crate) value: &'a Arc<str>,
    pub(crate) log: &'a Arc<str>,
}

impl<'a> Pair<'a> {
    pub(crate) fn of(keys: &'a Keys, mode: Mode) -> Self {
        match mode {
            Mode::Overall => Pair { value: &keys.value, log: &keys.permits },
            Mode::PerClient => Pair { value: &keys.client_value, log: &keys.client_permits },
        }
    }
}

/// Reads the value; anything but an integer counts as missing. Also checks the types of value and log, so
/// that no error is found after the first write.
pub(crate) fn read_value(space: &Keyspace, pair: &Pair<'_>) -> Result<Option<i64>, Error> {
    space.log(pair.log)?;
    Ok(space.text(pair.value)?.and_then(integer))
}
