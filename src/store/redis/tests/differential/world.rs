//! Both stores, and what the clients of a program know.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::super::Limited;
use super::damage::{Damage, read_score};
use super::program::{Attempt, Op, Seen, Who};
use super::{CLIENTS, LIMITERS, T0};
use crate::error::Error;
use crate::inspection::{self, StoredKey};
use crate::rate::{Mode, Rate};
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::{Content, Key, Snapshot};
use crate::store::{
    AcquireCall, ChargeCall, ConfigCall, Earlier, InspectCall, InspectReply, KeysCall, LimitCall,
    Outcome, OutcomeGroup, PauseCall, Peek, PeekCall, RefundCall, ReleaseCall, RemainingTimeCall,
    RemoveUnusedCall, RenameCall, RepairCall, RequestGroup, SetRateCall, StateRule, StoreCall,
    TrySetRateCall, decided,
};
use crate::wire::entry::{ClientTag, EntryId};
use crate::wire::keys::Keys;

/// A client's last acquire, and the dates of its attempts.
#[derive(Clone, Debug)]
struct Made {
    call: AcquireCall,
    dates: Vec<i64>,
    /// The date of its reservation, once it has one.
    reserved: Option<i64>,
}

/// The same for several limiters.
type MadeAll = (AcquireCall, Vec<i64>);

struct Grant {
    limiter: usize,
    id: EntryId,
    date: i64,
    permits: u64,
}

pub(super) struct World<'a> {
    runtime: &'a tokio::runtime::Runtime,
    server: &'a Limited,
    pub(super) raw: &'a mut redis::Connection,
    pub(super) memory: InProcessStore,
    pub(super) now: i64,
    pub(super) ids: u32,
    seen: BTreeMap<(usize, usize), Rate>,
    made: BTreeMap<(usize, usize), Made>,
    grants: Vec<Grant>,
    charged: Option<ChargeCall>,
    /// The last acquire of each client from both limiters, and the dates of its attempts.
    made_all: BTreeMap<usize, MadeAll>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        runtime: &'a tokio::runtime::Runtime,
        server: &'a Limited,
        raw: &'a mut redis::Connection,
    ) -> Self {
        World {
            runtime,
            server,
            raw,
            memory: InProcessStore::new(),
            now: T0,
            ids: 0,
            seen: BTreeMap::new(),
            made: BTreeMap::new(),
            grants: Vec::new(),
            charged: None,
            made_all: BTreeMap::new(),
        }
    }

    pub(super) fn keys(&self, Who(limiter, client): Who) -> Keys {
        Keys::new(LIMITERS[limiter], CLIENTS[client])
    }

    /// The id of the client's last acquire.
    pub(super) fn last_id(&self, who: Who) -> Option<EntryId> {
        self.made.get(&(who.0, who.1)).map(|made| made.call.id)
    }

    fn seen(&self, who: Who, seen: Seen) -> Option<Rate> {
        match seen {
            Seen::Known => self.seen.get(&(who.0, who.1)).copied(),
            Seen::OtherMode => self.seen.get(&(who.0, who.1)).map(|rate| {
                let mode = match rate.mode() {
                    Mode::Overall => Mode::PerClient,
                    Mode::PerClient => Mode::Overall,
                };
                let (permits, interval) = (rate.permits(), rate.interval_ms());
                Rate::from_wire(mode, permits, interval, rate.keep_alive_ms())
            }),
            Seen::None => None,
            Seen::Other(rate) => Some(rate),
        }
    }

    /// Both stores' answers, which must be equal.
    fn both<C: StoreCall<Reply: PartialEq>>(
        &mut self,
        keys: &Keys,
        call: C,
    ) -> Result<Option<C::Reply>, TestCaseError> {
        self.both_as(keys, call, |reply| reply)
    }

    /// Both stores' answers, which must be equal as this function shows them.
    fn both_as<C: StoreCall, T: std::fmt::Debug + PartialEq>(
        &mut self,
        keys: &Keys,
        call: C,
        show: impl Fn(C::Reply) -> T,
    ) -> Result<Option<T>, TestCaseError> {
        let memory = self.memory.run(keys, &call).map(&show);
        let server = self.runtime.block_on(self.server.run(keys, call)).map(show);
        let plain =
            |error: &Error| (error.kind(), error.detail().map(str::to_owned), error.execution());
        prop_assert_eq!(
            server.as_ref().map_err(plain),
            memory.as_ref().map_err(plain),
            "the server's answer, then the model's"
        );
        Ok(server.ok())
    }

    fn acquire(&mut self, who: Who, mut made: Made) -> Result<(), TestCaseError> {
        let keys = self.keys(who);
        let call = made.call.clone();
        let reply = self.both(&keys, call.clone())?;
        if let Some(reply) = reply {
            if let Some(seen) = reply.seen() {
                self.seen.insert((who.0, who.1), seen);
            }
            let granted = decided(&call.limits[0].groups, &reply.outcomes)
                .filter(|(_, _, outcome)| *outcome == Outcome::Granted);
            let permits = granted.map(|(permits, count, _)| permits * count).sum();
            if let Some(Outcome::Reserved(wait)) = reply.outcomes.first().map(|it| it.outcome) {
                let date = reply.now + wait.ms() as i64;
                let permits = call.limits[0].groups[0].permits;
                self.grants.push(Grant { limiter: who.0, id: call.id, date, permits });
                made.reserved = Some(date);
            }
            if permits > 0 {
                let date = reply.entry_date;
                self.grants.push(Grant { limiter: who.0, id: call.id, date, permits });
            }
        }
        self.made.insert((who.0, who.1), made);
        Ok(())
    }

    fn acquire_all(
        &mut self,
        client: usize,
        call: AcquireCall,
        dates: Vec<i64>,
    ) -> Result<(), TestCaseError> {
        let keys = self.keys(Who(0, client));
        if let Some(reply) = self.both(&keys, call.clone())? {
            let is_decided = |it: &OutcomeGroup| it.outcome != Outcome::ExceedsRate;
            let is_decided = reply.outcomes.iter().any(is_decided);
            for (limiter, (asked, limit)) in call.limits.iter().zip(reply.limits()).enumerate() {
                if is_decided {
                    self.seen.insert((limiter, client), limit.rate);
                }
                let granted = decided(&asked.groups, &reply.outcomes)
                    .filter(|(_, _, outcome)| *outcome == Outcome::Granted);
                let permits = granted.map(|(permits, count, _)| permits * count).sum();
                if permits > 0 {
                    self.grants.push(Grant { limiter, id: call.id, date: reply.now, permits });
                }
            }
        }
        self.made_all.insert(client, (call, dates));
        Ok(())
    }

    pub(super) fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op.clone() {
            Op::Advance(ms) => self.now += ms,
            Op::Acquire {
                who,
                groups,
                seen,
                audit_limit,
                create,
                hold,
                tag,
                share,
                reserve,
                headroom,
                same_id,
            } => {
                self.ids += 1;
                let mut id = [0x5a; 16];
                id[8..12].copy_from_slice(&self.ids.to_be_bytes());
                if let Some((client, weight)) = tag {
                    let tagged = EntryId::random(ClientTag([client, 1, 2, 3]), weight);
                    id[..8].copy_from_slice(&tagged.0[..8]);
                }
                // Those of this crate's clients have no bit there.
                id[15] = if tag.is_some() || self.ids.is_multiple_of(2) { 0x13 } else { 0x93 };
                let (keys, seen) = (self.keys(who), self.seen(who, seen));
                let call = AcquireCall {
                    now: Some(self.now),
                    id: EntryId(id),
                    // Read or not, the answer is the same.
                    expects_expired: self.ids % 4 < 2,
                    audit_limit,
                    hold_ms: hold,
                    earlier: Earlier::default(),
                    share,
                    // Both stores recognise reservations by the mark in the id, which every client sets.
                    reserve: reserve && hold == 0 && tag.is_some(),
                    headroom,
                    limits: vec![LimitCall { keys, seen, create, groups }],
                };
                let made = Made { call, dates: vec![self.now + hold as i64], reserved: None };
                if let Some((score, permits)) = same_id {
                    self.made.insert((who.0, who.1), made.clone());
                    for own in [false, true] {
                        self.damage(who, &Damage::SameId(own, score, permits));
                    }
                }
                self.acquire(who, made)?;
            }
            Op::Once { who, key, permits, seen, create, headroom } => {
                let (keys, seen) = (self.keys(who), self.seen(who, seen));
                let groups = vec![RequestGroup { permits, max_wait_ms: 0, count: 1 }];
                let limit = LimitCall { keys, seen, create, groups };
                let call = AcquireCall::usual(Some(self.now), EntryId::of_key(&[key]), limit);
                let call = AcquireCall { headroom, ..call };
                self.acquire(who, Made { call, dates: vec![self.now], reserved: None })?;
            }
            Op::Retry { who, since, seen, late } => {
                let Some(mut made) = self.made.get(&(who.0, who.1)).cloned() else { return Ok(()) };
                let latest = *made.dates.iter().max().unwrap();
                self.now = self.now.max(latest + 1);
                made.call.now = Some(self.now);
                made.call.limits[0].seen = self.seen(who, seen);
                let before = made.dates.iter().min().unwrap() - 1;
                made.call.earlier = match made.reserved {
                    _ if !since => Earlier::dated(made.dates.clone()),
                    Some(date) => Earlier::reserved(before, date),
                    None => Earlier::since(before),
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
                if let Some(date) = made.reserved.filter(|_| since) {
                    made.call.now = Some(made.dates[1]);
                    made.call.earlier = Earlier::reserved(first - 1, date);
                    return self.acquire(who, made);
                }
                made.call.now = Some(first - made.call.hold_ms as i64);
                made.call.earlier =
                    if since { Earlier::first_since(first - 1) } else { Earlier::default() };
                self.acquire(who, made)?;
            }
            Op::AcquireAll {
                client,
                groups,
                factor,
                seen,
                audit_limit,
                create,
                tag: (tag, weight),
                attempt,
            } => {
                self.ids += 1;
                let mut id = EntryId::random(ClientTag([tag, 1, 2, 3]), weight).0;
                id[8..12].copy_from_slice(&self.ids.to_be_bytes());
                id[12..15].fill(0);
                id[15] = 0x13;
                let limits = seen.into_iter().enumerate().map(|(limiter, seen)| {
                    let who = Who(limiter, client);
                    let mut groups = groups.clone();
                    if limiter == 1 {
                        let other = |permits: u64| 1 + permits.saturating_mul(factor) % 13;
                        groups.iter_mut().for_each(|it| it.permits = other(it.permits));
                    }
                    let (keys, seen) = (self.keys(who), self.seen(who, seen));
                    LimitCall { keys, seen, create, groups }
                });
                let mut limits = limits.collect::<Vec<_>>();
                let first = limits.remove(0);
                let mut call = AcquireCall::usual(Some(self.now), EntryId(id), first);
                call.audit_limit = audit_limit;
                call.limits.extend(limits);
                let mut dates = vec![self.now];
                let last = self.made_all.get(&client).cloned();
                let (now, earlier) = match (attempt, last) {
                    (Attempt::Again(since), Some((last, made))) => {
                        let (first, latest) = (made[0], *made.iter().max().unwrap());
                        self.now = self.now.max(latest + 1);
                        (call, dates) = (last, made);
                        dates.push(self.now);
                        let before = &dates[..dates.len() - 1];
                        let earlier = match since {
                            true => Earlier::since(first - 1),
                            false => Earlier::dated(before.to_vec()),
                        };
                        (self.now, earlier)
                    }
                    (Attempt::LateFirst(since), Some((last, made))) if made.len() > 1 => {
                        let first = made[0];
                        (call, dates) = (last, made);
                        let earlier = match since {
                            true => Earlier::first_since(first - 1),
                            false => Earlier::default(),
                        };
                        (first, earlier)
                    }
                    _ => (self.now, Earlier::default()),
                };
                (call.now, call.earlier) = (Some(now), earlier);
                self.acquire_all(client, call, dates)?;
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
                self.both(&keys, call)?;
            }
            Op::Release { who, permits, seen } => {
                let now = Some(self.now);
                let call = ReleaseCall { now, permits, seen: self.seen(who, seen) };
                let keys = self.keys(who);
                self.both(&keys, call)?;
            }
            Op::Charge { who, permits, age, seen, again } => {
                self.ids += u32::from(!again);
                let mut id = [0x3c; 16];
                id[8..12].copy_from_slice(&self.ids.to_be_bytes());
                let new = ChargeCall {
                    now: Some(self.now),
                    id: EntryId(id),
                    date: self.now - age,
                    permits,
                    seen: self.seen(who, seen),
                };
                let call = match self.charged {
                    Some(last) if again => ChargeCall { now: new.now, seen: new.seen, ..last },
                    _ => new,
                };
                self.charged = Some(call);
                let keys = self.keys(who);
                self.both(&keys, call)?;
            }
            Op::Pause { who, ms, seen } => {
                let call = PauseCall { now: Some(self.now), ms, seen: self.seen(who, seen) };
                let keys = self.keys(who);
                self.both(&keys, call)?;
            }
            Op::Peek { who, permits, seen } => {
                let now = Some(self.now);
                let call = PeekCall { now, permits, seen: self.seen(who, seen) };
                let keys = self.keys(who);
                self.both(&keys, call)?;
            }
            Op::TrySetRate { who, rate } => {
                let keys = self.keys(who);
                self.both(&keys, TrySetRateCall(rate))?;
            }
            Op::SetRate { who, rate, only_existing, from, state } => {
                let keys = self.keys(who);
                let in_force = self.memory.run(&keys, &ConfigCall).ok().flatten();
                let from = from.and_then(|other| other.or(in_force));
                let now = Some(self.now);
                let call = SetRateCall { now, rate, only_existing, from, state };
                self.both(&keys, call)?;
            }
            Op::Config(who) => {
                let keys = self.keys(who);
                self.both(&keys, ConfigCall)?;
            }
            Op::DropUsage(who) => {
                let in_force = self.memory.run(&self.keys(who), &ConfigCall).ok().flatten();
                let Some(rate) = in_force else { return Ok(()) };
                let (only_existing, from, state) = (false, Some(None), StateRule::Drop);
                self.step(&Op::SetRate { who, rate, only_existing, from, state })?;
            }
            Op::Expire { who, lifetime, condition } => {
                let keys = self.keys(who);
                self.both(&keys, KeysCall::Expire(lifetime, condition))?;
            }
            Op::ClearExpire(who) => {
                let keys = self.keys(who);
                self.both(&keys, KeysCall::ClearExpire)?;
            }
            Op::TimeToLive(who) => {
                let keys = self.keys(who);
                // The stores are asked a moment apart: only the kind of answer is compared.
                let kind = |reply| format!("{reply:?}").get(..2).map(str::to_owned);
                self.both_as(&keys, RemainingTimeCall, kind)?;
            }
            Op::Exists(who) => {
                let keys = self.keys(who);
                self.both(&keys, KeysCall::Exists)?;
            }
            Op::Delete(who) => {
                let keys = self.keys(who);
                self.both(&keys, KeysCall::Delete)?;
            }
            Op::Rename(who) => {
                let (from, to) = (self.keys(who), self.keys(Who(1 - who.0, who.1)));
                self.both(&from, RenameCall { to: to.clone() })?;
            }
            Op::Touch(who) => {
                let keys = self.keys(who);
                self.both(&keys, KeysCall::Touch)?;
            }
            Op::Inspect { who, most_entries } => {
                let keys = self.keys(who);
                let call = InspectCall { now: Some(self.now), most: most_entries };
                self.both_as(&keys, call, without_times)?;
            }
            Op::Repair { who, only_look } => self.repair(who, only_look)?,
            Op::RemoveUnused { who, age_ms } => {
                let (keys, now) = (self.keys(who), Some(self.now));
                self.both(&keys, RemoveUnusedCall { now, age_ms })?;
            }
            Op::RemoveOrphaned { who, age_ms } => {
                self.damage(who, &Damage::Del(0));
                self.step(&Op::RemoveUnused { who, age_ms })?;
            }
            Op::RemoveShared { who, age_ms } => {
                let (keys, now) = (self.keys(who), Some(self.now));
                let Some(other) = keys.sibling() else { return Ok(()) };
                self.memory.raw_hset(&other.hash, "rate", "1");
                let mut set = redis::cmd("HSET");
                set.arg(&*other.hash).arg("rate").arg(1).exec(self.raw).unwrap();
                let removed = self.both(&keys, RemoveUnusedCall { now, age_ms })?;
                prop_assert_eq!(removed.unwrap_or(0), 0);
                self.memory.raw_del(&other.hash);
                redis::cmd("DEL").arg(&*other.hash).exec(self.raw).unwrap();
            }
            Op::RenameByBraces(who) => {
                let keys = self.keys(who);
                let Some(other) = keys.sibling() else { return Ok(()) };
                self.both(&keys, RenameCall { to: other.clone() })?;
                self.compare()?;
                self.both(&other, RenameCall { to: keys.clone() })?;
            }
            Op::Damage { who, damage } => self.damage(who, &damage),
        }
        Ok(())
    }

    /// What a repair has fitted needs none.
    fn repair(&mut self, who: Who, only_look: bool) -> Result<(), TestCaseError> {
        self.ids += 1;
        let mut id = [0x6b; 16];
        id[8..12].copy_from_slice(&self.ids.to_be_bytes());
        let call = RepairCall { now: Some(self.now), id: EntryId(id), only_look };
        let keys = self.keys(who);
        let done = self.both(&keys, call)?;
        if let Some(done) = done.filter(|done| !only_look && done.debt < 1 << 37) {
            let look = RepairCall { only_look: true, ..call };
            let again = self.both(&keys, look)?.expect("it was just done");
            let left = [again.debt, again.endless_keys, again.excess, again.dated_ahead];
            prop_assert_eq!(left, [0; 4], "after {:?}", done);
            let expired = again.before.map(|before| before + again.expired as i64);
            prop_assert!(expired.is_none_or(|value| value == again.after), "{:?}", again);
        }
        Ok(())
    }

    /// The states of both stores must be equal; times to live may differ slightly.
    pub(super) fn compare(&mut self) -> Result<(), TestCaseError> {
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
                        .map(|pair| (read_score(&text(&pair[1])), pair[0].clone()))
                        .collect(),
                ),
            };
            (name, Key { content, ttl_ms: (ttl >= 0).then_some(ttl) })
        })
        .collect()
}

/// What both stores must agree on: their clocks may differ slightly.
fn without_times(
    reply: InspectReply,
) -> (Vec<StoredKey<inspection::Content>>, Result<Peek, String>) {
    let mut keys = reply.keys;
    for key in &mut keys {
        let StoredKey::Present { content, time_to_live } = key else { continue };
        *time_to_live = time_to_live.map(|_| Duration::ZERO);
        if let inspection::Content::Set(_, members) = content {
            // The model has whole numbers, and no program has a use for the difference between 1e300 and infinity.
            members.iter_mut().for_each(|(score, _)| *score = score.floor().clamp(-1e18, 1e18));
        }
    }
    (keys.into(), reply.peek.map_err(|error| format!("{:?}: {:?}", error.kind(), error.detail())))
}
