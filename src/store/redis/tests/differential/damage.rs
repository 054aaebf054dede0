//! What may happen to a limiter's keys besides calls.

use proptest::prelude::*;
use redis::Value;

use super::T0;
use super::program::Who;
use super::world::World;
use crate::store::memory::raw::Content;
use crate::wire::entry::{ClientTag, EntryId, pack};

/// What happens to one of the five keys.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    Del(usize),
    Value(bool, String),
    Field(&'static str, String),
    NoField(&'static str),
    /// Members with their scores: see [`score`].
    Log(bool, Vec<(i64, Vec<u8>)>),
    /// An entry with this many permits under the id of the client's last acquire.
    SameId(bool, i64, u32),
    /// `count` entries of `permits` each, the first `ago` ms old, then one every `step` ms.
    Fill {
        own: bool,
        count: u32,
        permits: u32,
        ago: i64,
        step: i64,
    },
    NoEntry(bool, usize),
    Ttl(usize, Option<i64>),
    Text(usize),
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    let id = any::<[u8; 16]>();
    prop_oneof![
        6 => (id, 0u32..12).prop_map(|(id, permits)| pack(EntryId(id), permits)),
        // Few ids with few permits, so that taking permits out of one entry makes it like another.
        2 => (0u8..2, 1u32..5).prop_map(|(id, permits)| pack(EntryId([id; 16]), permits)),
        3 => (0u8..3, any::<u8>(), 0u32..12).prop_map(|(client, weight, permits)| {
            pack(EntryId::random(ClientTag([client, 1, 2, 3]), weight), permits)
        }),
        2 => (any::<[u8; 8]>(), 0u32..5).prop_map(|(id, permits)| {
            let mut member = vec![8];
            member.extend(id);
            member.extend(permits.to_le_bytes());
            member
        }),
        1 => prop::sample::select(vec![20usize, 8, 3, 0, 21]).prop_map(|len| vec![7; len]),
    ]
}

/// Scores that a server holds and no limiter writes; the in-process store has the nearest number.
const STRANGE_SCORES: [(i64, &str); 5] = [
    (i64::MAX, "+inf"),
    (i64::MAX - 1, "1e300"),
    (9_000_000_000_000_000_000, "9e18"),
    (-9_000_000_000_000_000_000, "-9e18"),
    (i64::MIN, "-inf"),
];

/// A score relative to now, or a strange one.
pub(super) fn score() -> impl Strategy<Value = i64> {
    let strange = prop::sample::select(STRANGE_SCORES.to_vec()).prop_map(|(score, _)| score);
    const YEAR: i64 = 365 * 86_400_000;
    prop_oneof![
        8 => -3000i64..100,
        2 => 0i64..3000,
        2 => Just(-1000),
        1 => Just(-T0 - 5),
        1 => Just(YEAR),
        1 => strange,
    ]
}

/// The score as either store takes it.
fn at(now: i64, score: i64) -> (i64, String) {
    match STRANGE_SCORES.iter().find(|(strange, _)| *strange == score) {
        Some((score, text)) => (*score, (*text).to_owned()),
        None => (now + score, (now + score).to_string()),
    }
}

/// The score that a server shows, as the in-process store has it.
pub(super) fn read_score(text: &str) -> i64 {
    let score: f64 = text.parse().unwrap();
    match score as i64 {
        i64::MAX if score.is_finite() => i64::MAX - 1,
        score => score,
    }
}

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    let value = prop_oneof![
        4 => (-20i64..40).prop_map(|n| n.to_string()),
        1 => prop::sample::select(vec!["1e+17", "", "007", "-0", "abc", "9007199254740993",
            "-4503599627370496", "99999999999999999999", "1.5", " 3", "+3", "9007199254740000"])
            .prop_map(str::to_owned),
    ];
    let field = prop::sample::select(vec!["rate", "interval", "type", "keepAliveTime"]);
    let text = prop::sample::select(vec![
        "0",
        "1",
        "2",
        "10",
        "1000",
        "-1",
        "abc",
        "",
        "1e3",
        "9007199254740993",
        "0x10",
        "007",
        "5.0",
        "300000",
    ]);
    prop_oneof![
        3 => (0usize..5).prop_map(Damage::Del),
        4 => (any::<bool>(), value).prop_map(|(own, text)| Damage::Value(own, text)),
        2 => (field.clone(), text)
            // Keys with a short time to live would expire at different moments in the two stores.
            .prop_filter("a short time to live", |(field, text)| {
                *field != "keepAliveTime" || !matches!(*text, "1" | "2" | "10" | "1000" | "007")
            })
            .prop_map(|(field, text)| Damage::Field(field, text.to_owned())),
        1 => field.prop_map(Damage::NoField),
        4 => (any::<bool>(), prop::collection::vec((score(), member()), 1..6))
            .prop_map(|(own, entries)| Damage::Log(own, entries)),
        4 => (any::<bool>(), prop_oneof![3 => 1u32..150, 1 => 400u32..700, 1 => 1990u32..2600],
            0u32..4, 0i64..4000, 0i64..20)
            .prop_map(|(own, count, permits, ago, step)| Damage::Fill { own, count, permits, ago, step }),
        4 => (any::<bool>(), score(), 1u32..8)
            .prop_map(|(own, score, permits)| Damage::SameId(own, score, permits)),
        2 => (any::<bool>(), any::<usize>()).prop_map(|(own, at)| Damage::NoEntry(own, at)),
        2 => (0usize..5, prop::option::of(prop_oneof![Just(100_000i64), Just(1_000_000)]))
            .prop_map(|(key, ttl)| Damage::Ttl(key, ttl)),
        1 => (0usize..5).prop_map(Damage::Text),
    ]
}

impl World<'_> {
    /// Does the same to both stores.
    pub(super) fn damage(&mut self, who: Who, damage: &Damage) {
        let keys = self.keys(who);
        let all = keys.all();
        let snapshot = self.memory.snapshot();
        let is = |key: &str, content: fn(&Content) -> bool| {
            snapshot.get(key).is_none_or(|key| content(&key.content))
        };
        let is_hash = is(all[0], |content| matches!(content, Content::Hash(_)));
        let (value, log) =
            (|own: bool| all[1 + 2 * usize::from(own)], |own: bool| all[2 + 2 * usize::from(own)]);
        let is_log = |own: bool| is(log(own), |content| matches!(content, Content::Log(_)));
        let last_id = self.last_id(who);
        let raw = &mut *self.raw;
        let send = |raw: &mut redis::Connection, cmd: &mut redis::Cmd| {
            cmd.query::<Value>(raw).unwrap();
        };
        match damage {
            Damage::Del(at) => {
                self.memory.raw_del(all[*at]);
                send(raw, redis::cmd("DEL").arg(all[*at]));
            }
            Damage::Value(own, text) => {
                self.memory.raw_set(value(*own), text);
                send(raw, redis::cmd("SET").arg(value(*own)).arg(text));
            }
            Damage::Field(field, text) if is_hash => {
                self.memory.raw_hset(all[0], field, text);
                send(raw, redis::cmd("HSET").arg(all[0]).arg(*field).arg(text));
            }
            Damage::NoField(field) if is_hash && snapshot.contains_key(all[0]) => {
                self.memory.raw_hdel(all[0], field);
                send(raw, redis::cmd("HDEL").arg(all[0]).arg(*field));
            }
            Damage::Log(own, entries) if is_log(*own) => {
                for (score, member) in entries {
                    let (score, text) = at(self.now, *score);
                    self.memory.raw_zadd(log(*own), score, member);
                    send(raw, redis::cmd("ZADD").arg(log(*own)).arg(text).arg(member));
                }
            }
            Damage::SameId(own, score, permits) if is_log(*own) => {
                let Some(id) = last_id else { return };
                let ((score, text), member) = (at(self.now, *score), pack(id, *permits));
                self.memory.raw_zadd(log(*own), score, &member);
                send(raw, redis::cmd("ZADD").arg(log(*own)).arg(text).arg(member));
            }
            Damage::Fill { own, count, permits, ago, step } if is_log(*own) => {
                let mut cmd = redis::cmd("ZADD");
                cmd.arg(log(*own));
                for n in 0..*count {
                    self.ids += 1;
                    let mut id = [0xc3; 16];
                    id[..4].copy_from_slice(&self.ids.to_be_bytes());
                    let score = self.now - ago + i64::from(n) * step;
                    let member = pack(EntryId(id), *permits);
                    self.memory.raw_zadd(log(*own), score, &member);
                    cmd.arg(score).arg(member);
                }
                send(raw, &mut cmd);
            }
            Damage::NoEntry(own, at) if is_log(*own) => {
                let entries = self.memory.raw_log(log(*own));
                if let Some((_, member)) = entries.get(at % entries.len().max(1)) {
                    self.memory.raw_zrem(log(*own), member);
                    send(raw, redis::cmd("ZREM").arg(log(*own)).arg(member.as_slice()));
                }
            }
            Damage::Ttl(at, Some(ms)) => {
                self.memory.raw_pexpire(all[*at], *ms);
                send(raw, redis::cmd("PEXPIRE").arg(all[*at]).arg(*ms));
            }
            Damage::Ttl(at, None) => {
                self.memory.raw_persist(all[*at]);
                send(raw, redis::cmd("PERSIST").arg(all[*at]));
            }
            Damage::Text(at) => {
                self.memory.raw_set(all[*at], "a text");
                send(raw, redis::cmd("SET").arg(all[*at]).arg("a text"));
            }
            _ => {}
        }
    }
}
