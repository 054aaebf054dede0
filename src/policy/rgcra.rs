//! The configuration of Redisson's `RGcra`: the parameters of a bucket, in a hash of their own.
//!
//! The twin of `lua/policy/rgcra.lua`.

use super::bucket::Bucket;
use super::frame::is_permits;
use super::pace::Pace;
use crate::error::Error;
use crate::store::memory::keyspace::Fields;
use crate::store::refusal;

/// A bucket with the parameters that `RGcra` has, or is to have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rgcra {
    pub(crate) bucket: Bucket,
    /// By the names of [`FIELDS`].
    pub(crate) config: [String; 3],
}

const FIELDS: [&str; 3] = ["maxBurst", "rate", "period"];

impl Rgcra {
    /// With a period in seconds, as decimal text.
    pub(crate) fn new(config: [String; 3]) -> Result<Self, Error> {
        for (place, text) in config.iter().enumerate() {
            let is_exact = |number: &f64| *number < (1_u64 << 53) as f64;
            let number = text.parse().ok().filter(is_exact);
            let is_valid = match place {
                0 => whole(text).is_some(),
                1 => whole(text).is_some_and(|rate| rate > 0),
                _ => is_decimal(text) && number.is_some_and(|period| period > 0.0),
            };
            if !is_valid {
                return Err(refusal::unreadable_state(FIELDS[place], Some(text)));
            }
        }
        let [burst, rate, period] =
            config.each_ref().map(|text| text.parse::<f64>().unwrap_or_default());
        // As its command has it: the time between two permits in whole microseconds.
        let every = (period * 1_000_000.0 / rate + 0.5).floor().max(1.0);
        let (capacity, every) = (burst as u64 + 1, every as u64);
        let pace = Pace { permits: 1, every };
        match is_permits(capacity) && pace.allows(capacity) {
            true => Ok(Rgcra { bucket: Bucket { capacity, pace, initial: capacity }, config }),
            false => {
                let text = format!("b1:{capacity},1,{every},{capacity}");
                Err(refusal::unreadable_state("c", Some(&text)))
            }
        }
    }

    pub(crate) fn read(fields: Option<&Fields>) -> Result<Self, Error> {
        let texts = FIELDS.map(|name| fields.and_then(|fields| fields.get(name)).cloned());
        match texts {
            [Some(burst), Some(rate), Some(period)] => Rgcra::new([burst, rate, period]),
            _ => Err(refusal::no_parameters()),
        }
    }

    pub(crate) fn write(&self, fields: &mut Fields) {
        for (name, text) in FIELDS.iter().zip(&self.config) {
            fields.insert((*name).into(), text.clone());
        }
    }
}

fn is_decimal(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !whole.is_empty() && is_digits(whole) && is_digits(part)
}

/// The integer of 0..=2^53-1 that this text represents.
fn whole(text: &str) -> Option<u64> {
    let is_number = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number < 1 << 53)
}
