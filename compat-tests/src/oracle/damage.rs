//! How the state of a limiter is corrupted in a trial.
//!
//! A trial uses a limiter for a while, corrupts its state, lets one client
//! look at it with a request for the whole rate, uses it for a while, and
//! requests the whole rate again one interval after the last permit was taken.

use proptest::collection::vec;
use proptest::prelude::*;

use super::ops::{Mode, Rate};
use super::state::{Content, Key, State};
use crate::entry::Entry;
use crate::keys::Keys;

/// A change of the state that no client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The value is removed.
    ValueRemoved,
    /// The log is removed.
    LogRemoved,
    /// The value is raised by this much.
    ValueRaised(i64),
    /// The value is lowered by this much.
    ValueLowered(i64),
    /// The hash is removed and created again with this rate.
    HashRemade(i64),
    /// An entry of 8 bytes, as before Redisson 3.16.4, dated this many ms ago.
    Foreign(u64),
    /// An entry whose end is missing, dated this many ms ago.
    Truncated(u64),
    /// Another client writes with a clock this many ms ahead.
    FastClock(u64),
}

impl Damage {
    /// Whether the state afterwards has no more permits than it should: then no
    /// more than the rate may ever be granted.
    pub fn leaves_too_little(self, rate: i64) -> bool {
        match self {
            Damage::ValueRaised(_) | Damage::FastClock(_) => false,
            Damage::HashRemade(new) => new >= rate,
            _ => true,
        }
    }
}

/// One trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The initial rate.
    pub rate: Rate,
    /// Use before the damage: time that passes, permits.
    pub before: Vec<(u64, i64)>,
    /// The damages, one after the other.
    pub damage: Vec<Damage>,
    /// Whether the client that looks first has just been started.
    pub fresh: bool,
    /// Use after the first look.
    pub after: Vec<(u64, i64)>,
}

/// Random trials.
pub fn trials() -> BoxedStrategy<Trial> {
    let rate = (any::<bool>(), 2i64..=10).prop_map(|(own, rate)| {
        Rate::new(if own { Mode::PerClient } else { Mode::Overall }, rate, 2_000)
    });
    let damage = prop_oneof![
        Just(Damage::ValueRemoved),
        Just(Damage::LogRemoved),
        (1i64..=12).prop_map(Damage::ValueRaised),
        (1i64..=12).prop_map(Damage::ValueLowered),
        (1i64..=15).prop_map(Damage::HashRemade),
        (0u64..=2_500).prop_map(Damage::Foreign),
        (0u64..=2_500).prop_map(Damage::Truncated),
        (1u64..=3_000).prop_map(Damage::FastClock),
    ];
    let usage = |n| vec((0u64..=700, 1i64..=4), 0..=n);
    (rate, usage(8), vec(damage, 1..=2), any::<bool>(), usage(6))
        .prop_map(|(rate, before, damage, fresh, after)| Trial {
            rate,
            before,
            damage,
            fresh,
            after,
        })
        .boxed()
}

/// Corrupts the state of the limiter `name`; `client` is the owner of the
/// budget in PER_CLIENT.
///
/// Panics for damages that are done by calls: `HashRemade` and `FastClock`.
pub fn corrupt(state: &mut State, name: &str, damage: Damage, client: Option<&str>, now: u64) {
    let keys = Keys::new(name);
    let (value, log) = (keys.value(client), keys.log(client));
    let mut add = |by: i64| {
        if let Some(Key { content: Content::Text(text), .. }) = state.0.get_mut(&value)
            && let Ok(number) = text.parse::<i64>()
        {
            *text = (number + by).to_string();
        }
    };
    match damage {
        Damage::ValueRaised(by) => add(by),
        Damage::ValueLowered(by) => add(-by),
        Damage::ValueRemoved => drop(state.0.remove(&value)),
        Damage::LogRemoved => drop(state.0.remove(&log)),
        Damage::Foreign(age) => inject(state, log, now - age, vec![1, 0, 0, 0, 2, 0, 0, 0]),
        Damage::Truncated(age) => {
            let whole = Entry::encode(&[7; 16], 1);
            inject(state, log, now - age, whole[..19].to_vec());
        }
        Damage::HashRemade(_) | Damage::FastClock(_) => unreachable!("done by calls"),
    }
}

fn inject(state: &mut State, log: String, at: u64, member: Vec<u8>) {
    let key = state.0.entry(log).or_insert(Key { content: Content::Log(Vec::new()), ttl: None });
    if let Content::Log(entries) = &mut key.content {
        entries.push((at as f64, member));
    }
}
