//! The limiter's hash: read and checked, or a clear error; and filled if there is none.

use crate::error::Error;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::store::memory::keyspace::{Fields, Keyspace};
use crate::store::refusal::{self, Field};
use crate::wire::keys::Keys;

pub(super) const RATE: &str = "rate";
pub(super) const INTERVAL: &str = "interval";
pub(super) const TYPE: &str = "type";
pub(super) const KEEP_ALIVE: &str = "keepAliveTime";

/// The rate as the hash has it: positive, and exact as a Lua number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) mode: Mode,
    pub(super) rate: i64,
    /// ms
    pub(super) interval: i64,
    /// ms; 0 for none.
    pub(super) keep_alive: i64,
}

impl Config {
    /// The rate in force. `create` stands for what is missing if the type is.
    pub(super) fn read(
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
            rate: number(Field::Rate, rate, 1)?,
            interval: number(Field::Interval, interval, 1)?,
            mode: match kind {
                "0" => Mode::Overall,
                "1" => Mode::PerClient,
                _ => return Err(refusal::unreadable(Field::Type, kind)),
            },
            keep_alive: field(KEEP_ALIVE).map_or(Ok(0), |ms| number(Field::KeepAlive, ms, 0))?,
        })
    }

    pub(super) fn to_rate(self) -> Rate {
        Rate::from_wire(self.mode, self.rate as u64, self.interval as u64, self.keep_alive as u64)
    }
}

/// Which of rate, interval and type the hash lacks.
pub(super) fn missing(fields: &Fields) -> [bool; 3] {
    [RATE, INTERVAL, TYPE].map(|name| !fields.contains_key(name))
}

/// Sets each field that is not there, as Redisson's `trySetRate` does.
pub(super) fn fill(fields: &mut Fields, rate: &Rate) {
    for (name, text) in texts(rate) {
        fields.entry(name.into()).or_insert(text);
    }
}

/// The four fields of a rate.
pub(super) fn texts(rate: &Rate) -> [(&'static str, String); 4] {
    [
        (RATE, rate.permits().to_string()),
        (INTERVAL, rate.interval_ms().to_string()),
        (KEEP_ALIVE, rate.keep_alive_ms().to_string()),
        (TYPE, type_text(rate.mode()).into()),
    ]
}

pub(super) fn type_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

/// A field that is a number: decimal digits alone.
fn number(field: Field, text: &str, min: u64) -> Result<i64, Error> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits && (min..=MAX_EXACT).contains(&number) => Ok(number as i64),
        _ => Err(refusal::unreadable(field, text)),
    }
}
