//! Random programs of store calls, damage and foreign writers: the store over a server and the
//! in-process one must give the same answers, and have the same state after each call.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::Value;

use super::Server;
use crate::clock::Now;
use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::store::memory::MemoryStore;
use crate::store::memory::raw::{Content, Key, Snapshot};
use crate::store::redis::RedisStore;
use crate::store::{
    AcquireCall, Earlier, ExpireCondition, Lifetime, Outcome, PeekCall, RefundCall, ReleaseCall,
    Reply, RequestGroup, SeenRate, SetRate, StateRule, Store,
};
use crate::wire::entry::{EntryId, pack};
use crate::wire::keys::Keys;

const T0: i64 = 1_700_000_000_000;
const LIMITERS: [&str; 2] = ["one", "t{w}o"];
const CLIENTS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Op {
    /// The time moves on, or back.
    Advance(i64),
    Acquire {
        who: Who,
        groups: Vec<RequestGroup>,
        seen: Seen,
        audit: bool,
        create: Option<Rate>,
        hold: u64,
    },
    /// Another attempt of this client's last acquire, whose answer was lost.
    Retry {
        who: Who,
        since: bool,
        seen: Seen,
        /// The first attempt arrives only after this one.
        late: bool,
    },
    /// The first attempt of this client's last acquire arrives, late.
    LateFirst {
        who: Who,
        since: bool,
    },
    Refund {
        who: Who,
        grant: usize,
        share: u64,
    },
    Release {
        who: Who,
        permits: u64,
        seen: Seen,
    },
    Peek {
        who: Who,
        permits: u64,
        seen: Seen,
    },
    TrySetRate {
        who: Who,
        rate: Rate,
    },
    SetRate {
        who: Who,
        rate: Rate,
        only_existing: bool,
        state: StateRule,
    },
    Config(Who),
    Expire {
        who: Who,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    },
    ClearExpire(Who),
    TimeToLive(Who),
    Exists(Who),
    Delete(Who),
    Rename(Who),
    Touch(Who),
    Damage {
        who: Who,
        damage: Damage,
    },
}

/// A limiter and a client.
#[derive(Clone, Copy, Debug)]
struct Who(usize, usize);

#[derive(Clone, Copy, Debug)]
enum Seen {
    Known,
    /// What the client knows, but in the other mode.
    OtherMode,
    None,
    Other(SeenRate),
}

/// What happens to one of the five keys.
#[derive(Clone, Debug)]
enum Damage {
    Del(usize),
    Value(bool, String),
    Field(&'static str, String),
    NoField(&'static str),
    /// Members with scores relative to now.
    Log(bool, Vec<(i64, Vec<u8>)>),
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

fn who() -> impl Strategy<Value = Who> {
    (
        prop_oneof![9 => Just(0usize), 1 => Just(1usize)],
        prop_oneof![3 => Just(0usize), 1 => Just(1)],
    )
        .prop_map(|(limiter, client)| Who(limiter, client))
}

fn rate() -> impl Strategy<Value = Rate> {
    let permits =
        prop_oneof![8 => 1u64..30, 2 => Just(100u64), 1 => Just(1u64 << 40), 1 => Just(1u64 << 53)];
    let keep_alive = prop_oneof![4 => Just(0u64), 1 => Just(200_000), 1 => Just(2_000_000)];
    (
        prop_oneof![3 => Just(Mode::Overall), 1 => Just(Mode::PerClient)],
        permits,
        prop_oneof![4 => Just(1000u64), 1 => Just(1), 1 => Just(60_000)],
        keep_alive,
    )
        .prop_map(|(mode, permits, interval, keep)| Rate::from_wire(mode, permits, interval, keep))
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![9 => Just(Seen::Known), 1 => Just(Seen::OtherMode), 2 => Just(Seen::None), 1 => rate().prop_map(|rate| Seen::Other(rate.into()))]
}

fn groups() -> impl Strategy<Value = Vec<RequestGroup>> {
    let patience = prop_oneof![4 => Just(0u64), 2 => 1u64..3000, 1 => Just(u64::MAX)];
    let permits = prop_oneof![4 => Just(1u64), 4 => 1u64..12, 1 => 20u64..200, 1 => Just(u64::from(u32::MAX))];
    let count = prop_oneof![6 => Just(1u64), 3 => 1u64..8, 1 => 10u64..200];
    let group = (permits, patience, count).prop_map(|(permits, patience_ms, count)| RequestGroup {
        permits,
        patience_ms,
        count,
    });
    prop_oneof![4 => prop::collection::vec(group.clone(), 1), 2 => prop::collection::vec(group, 1..8)]
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    let id = any::<[u8; 16]>();
    prop_oneof![
        6 => (id, 0u32..12).prop_map(|(id, permits)| pack(EntryId(id), permits)),
        2 => (any::<[u8; 8]>(), 0u32..5).prop_map(|(id, permits)| {
            let mut member = vec![8];
            member.extend(id);
            member.extend(permits.to_le_bytes());
            member
        }),
        1 => prop::sample::select(vec![20usize, 8, 3, 0, 21]).prop_map(|len| vec![7; len]),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
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
    let score =
        prop_oneof![4 => -3000i64..100, 1 => 0i64..3000, 1 => Just(-1000), 1 => Just(-T0 - 5)];
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
        4 => (any::<bool>(), prop::collection::vec((score, member()), 1..6))
            .prop_map(|(own, entries)| Damage::Log(own, entries)),
        4 => (any::<bool>(), prop_oneof![3 => 1u32..150, 1 => 400u32..700, 1 => 1990u32..2600],
            0u32..4, 0i64..4000, 0i64..20)
            .prop_map(|(own, count, permits, ago, step)| Damage::Fill { own, count, permits, ago, step }),
        2 => (any::<bool>(), any::<usize>()).prop_map(|(own, at)| Damage::NoEntry(own, at)),
        2 => (0usize..5, prop::option::of(prop_oneof![Just(100_000i64), Just(1_000_000)]))
            .prop_map(|(key, ttl)| Damage::Ttl(key, ttl)),
        1 => (0usize..5).prop_map(Damage::Text),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let pass = prop_oneof![6 => 0i64..400, 3 => 400i64..2500, 1 => -500i64..0, 1 => Just(1000i64)];
    let hold = prop_oneof![9 => Just(0u64), 1 => 1u64..2000];
    let create = prop::option::weighted(0.2, rate());
    let acquire = (who(), groups(), seen(), prop::bool::weighted(0.1), create, hold).prop_map(
        |(who, groups, seen, audit, create, hold)| Op::Acquire {
            who,
            groups,
            seen,
            audit,
            create,
            hold,
        },
    );
    // Calls that the fast path of the script decides.
    let few = prop_oneof![4 => Just((1, 1)), 1 => Just((3, 1)), 1 => (1u64..3, 1u64..8)];
    let simple = (who(), few).prop_map(|(who, (permits, count))| Op::Acquire {
        who,
        groups: vec![RequestGroup { permits, patience_ms: 0, count }],
        seen: Seen::Known,
        audit: false,
        create: None,
        hold: 0,
    });
    let lifetime = prop_oneof![
        3 => prop::sample::select(vec![100_000u64, 1_000_000, 315_360_000_000]).prop_map(Lifetime::In),
        1 => Just(Lifetime::In(0)),
        1 => Just(Lifetime::At(1000)),
        1 => Just(Lifetime::At(4_000_000_000_000)),
    ];
    let condition = prop::option::of(prop::sample::select(vec![
        ExpireCondition::IfNotSet,
        ExpireCondition::IfSet,
        ExpireCondition::IfGreater,
        ExpireCondition::IfLess,
    ]));
    let state =
        prop::sample::select(vec![StateRule::DropNewMode, StateRule::Drop, StateRule::Keep]);
    prop_oneof![
        20 => pass.prop_map(Op::Advance),
        30 => acquire,
        30 => simple,
        8 => (who(), any::<bool>(), seen(), prop::bool::weighted(0.4))
            .prop_map(|(who, since, seen, late)| Op::Retry { who, since, seen, late }),
        3 => (who(), any::<bool>()).prop_map(|(who, since)| Op::LateFirst { who, since }),
        8 => (who(), any::<usize>(), 0u64..120)
            .prop_map(|(who, grant, share)| Op::Refund { who, grant, share }),
        5 => (who(), 1u64..20, seen()).prop_map(|(who, permits, seen)| Op::Release { who, permits, seen }),
        6 => (who(), 0u64..40, seen()).prop_map(|(who, permits, seen)| Op::Peek { who, permits, seen }),
        6 => (who(), rate()).prop_map(|(who, rate)| Op::TrySetRate { who, rate }),
        5 => (who(), rate(), any::<bool>(), state).prop_map(|(who, rate, only_existing, state)| {
            Op::SetRate { who, rate, only_existing, state }
        }),
        1 => who().prop_map(Op::Config),
        2 => (who(), lifetime, condition)
            .prop_map(|(who, lifetime, condition)| Op::Expire { who, lifetime, condition }),
        1 => who().prop_map(Op::ClearExpire),
        1 => who().prop_map(Op::TimeToLive),
        1 => who().prop_map(Op::Exists),
        1 => who().prop_map(Op::Delete),
        1 => who().prop_map(Op::Rename),
        1 => who().prop_map(Op::Touch),
        12 => (who(), damage()).prop_map(|(who, damage)| Op::Damage { who, damage }),
    ]
}

/// A client's last acquire, and the dates of its attempts.
#[derive(Clone, Debug)]
struct Made {
    call: AcquireCall,
    dates: Vec<i64>,
}

struct Grant {
    limiter: usize,
    id: EntryId,
    date: i64,
    permits: u64,
}

struct World<'a> {
    runtime: &'a tokio::runtime::Runtime,
    server: &'a RedisStore,
    raw: &'a mut redis::Connection,
    memory: MemoryStore,
    now: i64,
    ids: u32,
    seen: BTreeMap<(usize, usize), SeenRate>,
    made: BTreeMap<(usize, usize), Made>,
    grants: Vec<Grant>,
}

impl World<'_> {
    fn keys(&self, Who(limiter, client): Who) -> Keys {
        Keys::new(LIMITERS[limiter], CLIENTS[client])
    }

    fn seen(&self, who: Who, seen: Seen) -> Option<SeenRate> {
        match seen {
            Seen::Known => self.seen.get(&(who.0, who.1)).copied(),
            Seen::OtherMode => self.seen.get(&(who.0, who.1)).map(|seen| {
                let rate = seen.rate();
                let mode = match rate.mode() {
                    Mode::Overall => Mode::PerClient,
                    Mode::PerClient => Mode::Overall,
                };
                let (permits, interval) = (rate.permits(), rate.interval_ms());
                Rate::from_wire(mode, permits, interval, rate.keep_alive_ms()).into()
            }),
            Seen::None => None,
            Seen::Other(rate) => Some(rate),
        }
    }

    /// Both stores' answers, which must be equal.
    fn both<T: std::fmt::Debug + PartialEq>(
        &mut self,
        call: impl Fn(&dyn Store) -> Reply<T>,
    ) -> Result<Option<T>, TestCaseError> {
        let server = self.runtime.block_on(call(self.server));
        let memory =
            call(&self.memory).now_or_never().expect("the in-process store answers at once");
        let plain =
            |error: &Error| (error.kind(), error.detail().map(str::to_owned), error.execution());
        prop_assert_eq!(
            server.as_ref().map_err(plain),
            memory.as_ref().map_err(plain),
            "the server's answer, then the model's"
        );
        Ok(server.ok())
    }

    fn acquire(&mut self, who: Who, made: Made) -> Result<(), TestCaseError> {
        let keys = self.keys(who);
        let call = made.call.clone();
        let reply = self.both(|store| store.acquire(&keys, call.clone()))?;
        if let Some(reply) = reply {
            if let Some(seen) = reply.seen() {
                self.seen.insert((who.0, who.1), seen);
            }
            let mut left: Vec<RequestGroup> = call.groups.clone();
            let mut permits = 0;
            for outcome in &reply.outcomes {
                let mut count = outcome.count;
                while count > 0 {
                    let n = left[0].count.min(count);
                    if outcome.outcome == Outcome::Granted {
                        permits += n * left[0].permits;
                    }
                    count -= n;
                    left[0].count -= n;
                    if left[0].count == 0 {
                        left.remove(0);
                    }
                }
            }
            if permits > 0 {
                let date = reply.entry_date;
                self.grants.push(Grant { limiter: who.0, id: call.id, date, permits });
            }
        }
        self.made.insert((who.0, who.1), made);
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op.clone() {
            Op::Advance(ms) => self.now += ms,
            Op::Acquire { who, groups, seen, audit, create, hold } => {
                self.ids += 1;
                let mut id = [0x5a; 16];
                id[..4].copy_from_slice(&self.ids.to_be_bytes());
                id[15] = if self.ids.is_multiple_of(2) { 0x13 } else { 0x93 };
                let call = AcquireCall {
                    now: Now::At(self.now),
                    id: EntryId(id),
                    seen: self.seen(who, seen),
                    audit,
                    create,
                    hold_ms: hold,
                    earlier: Earlier::None,
                    groups,
                };
                self.acquire(who, Made { call, dates: vec![self.now + hold as i64] })?;
            }
            Op::Retry { who, since, seen, late } => {
                let Some(mut made) = self.made.get(&(who.0, who.1)).cloned() else { return Ok(()) };
                let latest = *made.dates.iter().max().unwrap();
                self.now = self.now.max(latest + 1);
                made.call.now = Now::At(self.now);
                made.call.seen = self.seen(who, seen);
                made.call.earlier = if since {
                    Earlier::Since(made.dates.iter().min().unwrap() - 1)
                } else {
                    Earlier::Dated(made.dates.clone())
                };
                made.dates.push(self.now + made.call.hold_ms as i64);
                self.acquire(who, made)?;
                if late {
                    self.step(&Op::LateFirst { who, since })?;
                }
            }
            Op::LateFirst { who, since } => {
                let Some(mut made) = self.made.get(&(who.0, who.1)).cloned() else { return Ok(()) };
                if made.dates.len() < 2 {
                    return Ok(());
                }
                let first = made.dates[0];
                made.call.now = Now::At(first - made.call.hold_ms as i64);
                made.call.earlier =
                    if since { Earlier::FirstSince(first - 1) } else { Earlier::None };
                self.acquire(who, made)?;
            }
            Op::Refund { who, grant, share } => {
                if self.grants.is_empty() {
                    return Ok(());
                }
                let grant = &self.grants[grant % self.grants.len()];
                let call = RefundCall {
                    id: grant.id,
                    entry_date: grant.date,
                    granted: grant.permits,
                    returned: (grant.permits.saturating_mul(share) / 100).max(1),
                };
                let keys = self.keys(Who(grant.limiter, who.1));
                self.both(|store| store.refund(&keys, call))?;
            }
            Op::Release { who, permits, seen } => {
                let now = Now::At(self.now);
                let call = ReleaseCall { now, permits, seen: self.seen(who, seen) };
                let keys = self.keys(who);
                self.both(|store| store.release(&keys, call))?;
            }
            Op::Peek { who, permits, seen } => {
                let now = Now::At(self.now);
                let call = PeekCall { now, permits, seen: self.seen(who, seen) };
                let keys = self.keys(who);
                self.both(|store| store.peek(&keys, call))?;
            }
            Op::TrySetRate { who, rate } => {
                let keys = self.keys(who);
                self.both(|store| store.try_set_rate(&keys, rate))?;
            }
            Op::SetRate { who, rate, only_existing, state } => {
                let call = SetRate { now: Now::At(self.now), rate, only_existing, state };
                let keys = self.keys(who);
                self.both(|store| store.set_rate(&keys, call))?;
            }
            Op::Config(who) => {
                let keys = self.keys(who);
                self.both(|store| store.config(&keys))?;
            }
            Op::Expire { who, lifetime, condition } => {
                let keys = self.keys(who);
                self.both(|store| store.expire(&keys, lifetime, condition))?;
            }
            Op::ClearExpire(who) => {
                let keys = self.keys(who);
                self.both(|store| store.clear_expire(&keys))?;
            }
            Op::TimeToLive(who) => {
                let keys = self.keys(who);
                self.both(|store| {
                    let reply = store.time_to_live(&keys);
                    // The stores are asked a moment apart: only the kind of answer is compared.
                    async move { Ok(format!("{:?}", reply.await?).get(..2).map(str::to_owned)) }
                        .boxed()
                })?;
            }
            Op::Exists(who) => {
                let keys = self.keys(who);
                self.both(|store| store.exists(&keys))?;
            }
            Op::Delete(who) => {
                let keys = self.keys(who);
                self.both(|store| store.delete(&keys))?;
            }
            Op::Rename(who) => {
                let (from, to) = (self.keys(who), self.keys(Who(1 - who.0, who.1)));
                self.both(|store| store.rename(&from, &to))?;
            }
            Op::Touch(who) => {
                let keys = self.keys(who);
                self.both(|store| store.touch(&keys))?;
            }
            Op::Damage { who, damage } => self.damage(who, &damage),
        }
        Ok(())
    }

    fn damage(&mut self, who: Who, damage: &Damage) {
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
                for (ago, member) in entries {
                    self.memory.raw_zadd(log(*own), self.now + ago, member);
                    send(raw, redis::cmd("ZADD").arg(log(*own)).arg(self.now + ago).arg(member));
                }
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

    /// The states of both stores must be equal; times to live may differ slightly.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let server = dump(self.raw);
        let memory = self.memory.snapshot();
        let without_ttl = |snapshot: &Snapshot| {
            snapshot
                .iter()
                .map(|(name, key)| (name.clone(), (key.content.clone(), key.ttl_ms.is_some())))
                .collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(
            without_ttl(&server),
            without_ttl(&memory),
            "the server's state, then the model's"
        );
        for (name, key) in &server {
            let (a, b) = (key.ttl_ms.unwrap_or(0), memory[name].ttl_ms.unwrap_or(0));
            prop_assert!(
                (a - b).abs() < 20_000,
                "{} has a time to live of {} ms, in the model {} ms",
                name,
                a,
                b
            );
        }
        Ok(())
    }
}

/// All keys of the server.
fn dump(raw: &mut redis::Connection) -> Snapshot {
    let script = "local all = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
          local kind, data = redis.call('TYPE', key).ok, nil
          if kind == 'hash' then data = redis.call('HGETALL', key)
          elseif kind == 'string' then data = {redis.call('GET', key)}
          else data = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
          all[#all + 1] = {key, kind, redis.call('PTTL', key), data}
        end
        return all";
    let all: Vec<(String, String, i64, Vec<Vec<u8>>)> =
        redis::cmd("EVAL").arg(script).arg(0).query(raw).unwrap();
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    all.into_iter()
        .map(|(name, kind, ttl, data)| {
            let content = match kind.as_str() {
                "hash" => Content::Hash(
                    data.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
                ),
                "string" => Content::Text(text(&data[0])),
                _ => Content::Log(
                    data.chunks(2)
                        .map(|pair| (text(&pair[1]).parse().unwrap(), pair[0].clone()))
                        .collect(),
                ),
            };
            (name, Key { content, ttl_ms: (ttl >= 0).then_some(ttl) })
        })
        .collect()
}

#[test]
fn both_stores_agree() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = super::store(&server.url(), Duration::from_secs(20)).unwrap();
    let raw = std::cell::RefCell::new(server.raw());
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let program = (rate(), prop::bool::weighted(0.85), prop::collection::vec(op(), 1..50));
    let result = TestRunner::new(config).run(&program, |(rate, created, ops)| {
        let mut raw = raw.borrow_mut();
        redis::cmd("FLUSHALL").exec(&mut *raw).unwrap();
        let mut world = World {
            runtime: &runtime,
            server: &store,
            raw: &mut raw,
            memory: MemoryStore::new(),
            now: T0,
            ids: 0,
            seen: BTreeMap::new(),
            made: BTreeMap::new(),
            grants: Vec::new(),
        };
        if created {
            world.step(&Op::TrySetRate { who: Who(0, 0), rate })?;
        }
        for (at, op) in ops.iter().enumerate() {
            let context = |error| match error {
                TestCaseError::Fail(reason) => {
                    TestCaseError::fail(format!("at call {at}, {op:?}: {reason}"))
                }
                other => other,
            };
            world.step(op).map_err(context)?;
            world.compare().map_err(context)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
