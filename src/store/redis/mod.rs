//! The store that asks a server, by the scripts in `lua/`.
//!
//! One attempt a call, in one round trip: a script is called by its digest, and sent in full, on
//! the same connection, only if the server does not know it. An acquire takes a second one if the mode
//! of the limiter has changed. The only module that names the
//! `redis` crate.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::ready;
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::clock::Now;
use crate::error::Error;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::rt::RuntimeId;
use crate::store::inspect::{InspectReply, RepairCall, RepairReply, ScanCall, ScanReply};
use crate::store::limits::ENDLESS_TTL_MS;
use crate::store::{
    AcquireCall, AcquireReply, ChargeCall, ChargeReply, ExpireCondition, Lifetime, PeekCall,
    PeekReply, RefundCall, RefundReply, ReleaseCall, ReleaseReply, Reply, SetRate, StateRule,
    Store, TimeToLive,
};
use crate::wire::entry;
use crate::wire::keys::Keys;

mod access;
mod address_map;
mod arguments;
mod cluster;
mod connection;
mod dial;
mod endpoint;
#[cfg(any(all(test, not(shuttle)), feature = "_fuzz"))]
pub(crate) mod fuzz;
mod inspect;
mod open;
mod replicated;
mod reply;
mod role;
mod scripts;
mod sentinel;
mod servers;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod topology;

pub(crate) use access::Access;
pub use cluster::Cluster;
pub use endpoint::Endpoint;
pub use replicated::Replicated;
pub use sentinel::Sentinels;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use topology::Topology;

use arguments::{acquire_cmd, arg_rate, arg_seen, arg_time, call_of, mode_text};
use reply::Numbers;
use scripts::Script;
use servers::Servers;

/// The servers of a topology, and how long a call may take. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct RedisStore {
    servers: Arc<Servers>,
    deadline: Duration,
}

impl RedisStore {
    /// These servers, connected to by the first call.
    pub(crate) fn new(
        topology: Topology,
        access: Access,
        deadline: Duration,
    ) -> Result<Self, Error> {
        Ok(RedisStore { servers: Arc::new(Servers::new(topology, access)?), deadline })
    }

    /// The same servers, over the same connections, with another deadline.
    pub(crate) fn with_deadline(&self, deadline: Duration) -> Self {
        RedisStore { servers: self.servers.clone(), deadline }
    }

    /// Calls a script and reads its reply.
    fn run<T: 'static>(
        &self,
        script: &'static Script,
        call: Cmd,
        read: impl FnOnce(Numbers) -> Result<T, Error> + Send + 'static,
    ) -> Reply<T> {
        let RedisStore { servers, deadline } = self.clone();
        async move {
            let value = servers.call(Some(script), &call, deadline).await?;
            read(Numbers::of(reply::accepted(value)?)?)
        }
        .boxed()
    }

    /// Sends a plain command and reads its reply.
    fn ask<T: 'static>(
        &self,
        cmd: Cmd,
        read: impl FnOnce(Value) -> Result<T, Error> + Send + 'static,
    ) -> Reply<T> {
        let RedisStore { servers, deadline } = self.clone();
        async move { read(reply::accepted(servers.call(None, &cmd, deadline).await?)?) }.boxed()
    }
}

impl Store for RedisStore {
    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
        let requests = call.groups.iter().map(|group| group.count).sum();
        let hold = i64::try_from(call.hold_ms).unwrap_or(i64::MAX);
        let mut now = match call.now {
            Now::At(now) => Some(now),
            Now::Server => None,
        };
        let RedisStore { servers, deadline } = self.clone();
        // Not in a cluster: while a slot is being moved its owner carries out a call whose keys are all
        // there, and may refuse a write in the middle of it. Of all five one is nearly always missing, and
        // the call goes the way of cluster/open_slot.rs.
        let known_mode = match *servers {
            Servers::One(_) => call.seen.map(|seen| seen.rate().mode()),
            Servers::Cluster(_) => None,
        };
        let cmd = match known_mode {
            Some(mode) => acquire_cmd(&keys.of_mode(mode), &call),
            None => acquire_cmd(&keys.all(), &call),
        };
        let keys = keys.clone();
        async move {
            let started = Instant::now();
            let mut value = servers.call(Some(&scripts::ACQUIRE), &cmd, deadline).await?;
            if known_mode.is_some()
                && let Some(date) = reply::date_in_another_mode(&value)
            {
                // Dated as if it had named the right keys at once.
                now = Some(date);
                let cmd = acquire_cmd(&keys.all(), &AcquireCall { now: Now::At(date), ..call });
                let left = deadline.saturating_sub(started.elapsed());
                value = servers.call(Some(&scripts::ACQUIRE), &cmd, left).await?;
            }
            Numbers::of(reply::accepted(value)?)?.acquire(requests, now, hold, call.seen)
        }
        .boxed()
    }

    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply> {
        let mut cmd = call_of(&scripts::REFUND, keys, 4);
        cmd.arg(&entry::pack(call.id, 0)[..17])
            .arg(call.entry_date)
            .arg(call.granted)
            .arg(call.returned);
        self.run(&scripts::REFUND, cmd, |reply| reply.refund())
    }

    fn release(&self, keys: &Keys, call: ReleaseCall) -> Reply<ReleaseReply> {
        let mut cmd = call_of(&scripts::RELEASE, keys, 3);
        arg_time(&mut cmd, call.now);
        cmd.arg(call.permits);
        arg_seen(&mut cmd, call.seen);
        self.run(&scripts::RELEASE, cmd, |reply| reply.release())
    }

    fn charge(&self, keys: &Keys, call: ChargeCall) -> Reply<ChargeReply> {
        let mut cmd = call_of(&scripts::CHARGE, keys, 4);
        arg_time(&mut cmd, call.now);
        cmd.arg(entry::pack(call.id, call.permits as u32)).arg(call.date);
        arg_seen(&mut cmd, call.seen);
        self.run(&scripts::CHARGE, cmd, |reply| reply.charge())
    }

    fn peek(&self, keys: &Keys, call: PeekCall) -> Reply<PeekReply> {
        let mut cmd = call_of(&scripts::PEEK, keys, 3);
        arg_time(&mut cmd, call.now);
        cmd.arg(call.permits.min(MAX_EXACT));
        arg_seen(&mut cmd, call.seen);
        self.run(&scripts::PEEK, cmd, |reply| reply.peek())
    }

    fn try_set_rate(&self, keys: &Keys, rate: Rate) -> Reply<bool> {
        let mut cmd = call_of(&scripts::TRY_SET_RATE, keys, 4);
        arg_rate(&mut cmd, &rate);
        self.run(&scripts::TRY_SET_RATE, cmd, |reply| reply.flag())
    }

    fn set_rate(&self, keys: &Keys, call: SetRate) -> Reply<bool> {
        let mut cmd = call_of(&scripts::SET_RATE, keys, 7);
        arg_time(&mut cmd, call.now);
        arg_rate(&mut cmd, &call.rate);
        cmd.arg(u8::from(call.only_existing)).arg(match call.state {
            StateRule::DropNewMode => 0,
            StateRule::Drop => 1,
            StateRule::Keep => 2,
        });
        self.run(&scripts::SET_RATE, cmd, |reply| reply.flag())
    }

    fn drop_usage(&self, keys: &Keys, mode: Mode) -> Reply<Option<Rate>> {
        let mut cmd = call_of(&scripts::DROP_USAGE, keys, 1);
        cmd.arg(mode_text(mode));
        self.run(&scripts::DROP_USAGE, cmd, Numbers::config)
    }

    fn config(&self, keys: &Keys) -> Reply<Option<Rate>> {
        let cmd = call_of(&scripts::CONFIG, keys, 0);
        self.run(&scripts::CONFIG, cmd, Numbers::config)
    }

    fn expire(
        &self,
        keys: &Keys,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    ) -> Reply<bool> {
        const MOST: i64 = MAX_EXACT as i64;
        let mut cmd = call_of(&scripts::EXPIRE, keys, 3);
        match lifetime {
            Lifetime::In(ms) => cmd.arg("in").arg(ms.min(MAX_EXACT)),
            Lifetime::At(ms) => cmd.arg("at").arg(ms.clamp(-MOST, MOST)),
        };
        cmd.arg(match condition {
            None => "",
            Some(ExpireCondition::IfNotSet) => "nx",
            Some(ExpireCondition::IfSet) => "xx",
            Some(ExpireCondition::IfGreater) => "gt",
            Some(ExpireCondition::IfLess) => "lt",
        });
        self.run(&scripts::EXPIRE, cmd, |reply| reply.flag())
    }

    fn clear_expire(&self, keys: &Keys) -> Reply<bool> {
        let cmd = call_of(&scripts::CLEAR_EXPIRE, keys, 0);
        self.run(&scripts::CLEAR_EXPIRE, cmd, |reply| reply.flag())
    }

    fn time_to_live(&self, keys: &Keys) -> Reply<TimeToLive> {
        self.ask(plain("PTTL", &[&keys.hash]), |value| {
            Ok(match reply::integer(&value)? {
                -2 => TimeToLive::NoLimiter,
                ms => match u64::try_from(ms) {
                    Ok(ms) if ms <= ENDLESS_TTL_MS as u64 => TimeToLive::Ms(ms),
                    _ => TimeToLive::Endless,
                },
            })
        })
    }

    fn exists(&self, keys: &Keys) -> Reply<bool> {
        self.ask(plain("EXISTS", &[&keys.hash]), |value| Ok(reply::integer(&value)? > 0))
    }

    fn delete(&self, keys: &Keys) -> Reply<bool> {
        self.ask(plain("DEL", &keys.all()), |value| Ok(reply::integer(&value)? > 0))
    }

    fn rename(&self, from: &Keys, to: &Keys) -> Reply<()> {
        if let Err(error) = self.servers.check_rename(from, to) {
            return Box::pin(ready(Err(error)));
        }
        let (from, to) = (from.all(), to.all());
        let keys = [from, to];
        let keys = keys.as_flattened().iter().copied();
        let cmd = scripts::RENAME.call(keys, 0);
        self.run(&scripts::RENAME, cmd, |_| Ok(()))
    }

    fn touch(&self, keys: &Keys) -> Reply<bool> {
        self.ask(plain("TOUCH", &keys.all()), |value| Ok(reply::integer(&value)? > 0))
    }

    fn size_in_memory(&self, keys: &Keys) -> Reply<u64> {
        let cmd = call_of(&scripts::SIZE_IN_MEMORY, keys, 0);
        self.run(&scripts::SIZE_IN_MEMORY, cmd, |reply| reply.number())
    }

    fn inspect(&self, keys: &Keys, most_entries: u64) -> Reply<InspectReply> {
        let mut cmd = call_of(&scripts::INSPECT, keys, 1);
        cmd.arg(most_entries.min(MAX_EXACT));
        let RedisStore { servers, deadline } = self.clone();
        async move {
            let value = servers.call(Some(&scripts::INSPECT), &cmd, deadline).await?;
            inspect::read(&reply::accepted(value)?)
        }
        .boxed()
    }

    fn repair(&self, keys: &Keys, call: RepairCall) -> Reply<RepairReply> {
        let mut cmd = call_of(&scripts::REPAIR, keys, 3);
        arg_time(&mut cmd, call.now);
        cmd.arg(&entry::pack(call.id, 0)[..17]).arg(u8::from(call.only_look));
        self.run(&scripts::REPAIR, cmd, |reply| reply.repair())
    }

    fn remove_unused(&self, keys: &Keys, now: Now, age_ms: u64) -> Reply<u64> {
        // In another slot of a cluster no limiter can use these keys.
        let sibling = keys.sibling().filter(|sibling| self.check(sibling).is_ok());
        let mut names = keys.all().to_vec();
        names.extend(sibling.as_ref().map(|sibling| &*sibling.hash));
        let mut cmd = scripts::REMOVE_UNUSED.call(names.iter().copied(), 2);
        arg_time(&mut cmd, now);
        cmd.arg(age_ms.min(MAX_EXACT));
        self.run(&scripts::REMOVE_UNUSED, cmd, |reply| reply.number())
    }

    fn scan_parts(&self) -> Reply<Vec<Arc<str>>> {
        let RedisStore { servers, deadline } = self.clone();
        async move { servers.parts(deadline).await }.boxed()
    }

    fn scan(&self, call: ScanCall) -> Reply<ScanReply> {
        // All values and logs, and little else: fewer keys have to be sent.
        const PATTERN: &str = "*:[vp][ae]*";
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(call.cursor).arg("MATCH").arg(PATTERN).arg("COUNT").arg(call.count.max(1));
        let RedisStore { servers, deadline } = self.clone();
        async move {
            let value = servers.call_part(&call.part, &cmd, deadline).await?;
            inspect::read_scan(&reply::accepted(value)?)
        }
        .boxed()
    }

    fn ping(&self) -> Reply<()> {
        let RedisStore { servers, deadline } = self.clone();
        async move {
            reply::authenticated(servers.call(None, &redis::cmd("PING"), deadline).await?)
        }
        .boxed()
    }

    fn check(&self, keys: &Keys) -> Result<(), Error> {
        self.servers.check(keys)
    }

    fn address(&self) -> Option<Arc<str>> {
        Some(self.servers.address())
    }

    fn probe(&self, keys: &Keys) -> Reply<()> {
        // Of the log, which there need not be: a script, as an acquire is, with a write that memory
        // is needed for.
        let mut cmd = redis::cmd("EVAL");
        cmd.arg("redis.call('ZADD', KEYS[1], 'XX', '0', '') return 0").arg(1).arg(&*keys.permits);
        self.ask(cmd, |_| Ok(()))
    }

    fn part_of(&self, keys: &Keys) -> u64 {
        self.servers.part_of(keys)
    }

    fn server_time(&self) -> Reply<i64> {
        self.ask(plain("TIME", &[]), |value| reply::time(&value))
    }

    fn server_time_of(&self, keys: &Keys) -> Reply<i64> {
        if self.has_one_clock() {
            return self.server_time();
        }
        // TIME has no key by which it could be routed.
        let mut cmd = redis::cmd("EVAL");
        cmd.arg("return redis.call('TIME')").arg(1).arg(&*keys.hash);
        self.ask(cmd, |value| reply::time(&value))
    }

    fn has_one_clock(&self) -> bool {
        matches!(*self.servers, Servers::One(_))
    }

    fn within(&self, limit: Duration) -> Box<dyn Store> {
        Box::new(self.with_deadline(limit))
    }

    fn runtime_ended(&self, runtime: RuntimeId) {
        self.servers.runtime_ended(runtime);
    }
}

fn plain(name: &str, keys: &[&str]) -> Cmd {
    let mut cmd = redis::cmd(name);
    for key in keys {
        cmd.arg(*key);
    }
    cmd
}
