//! The store as a client sees it: the server's, at the other end of a network.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::network::Link;
use super::server::Effect;
use crate::clock::Now;
use crate::rate::{Mode, Rate};
use crate::store::inspect::{InspectReply, RepairCall, RepairReply, ScanCall, ScanReply};
use crate::store::memory::MemoryStore;
use crate::store::{
    AcquireCall, AcquireReply, ChargeCall, ChargeReply, ExpireCondition, Lifetime, PeekCall,
    PeekReply, RefundCall, RefundReply, ReleaseCall, ReleaseReply, Reply, SetRate, Store,
    TimeToLive,
};
use crate::wire::keys::Keys;

#[derive(Clone)]
pub(super) struct RemoteStore {
    link: Arc<Link>,
    /// How long a call may take.
    limit: Duration,
}

impl RemoteStore {
    pub(super) fn new(link: Arc<Link>) -> Self {
        RemoteStore { link, limit: Duration::from_secs(3) }
    }

    fn send<T: Debug + Send + 'static>(
        &self,
        what: &'static str,
        effect: Effect,
        keys: &Keys,
        call: impl Fn(&MemoryStore, &Keys) -> Reply<T> + Send + Sync + 'static,
    ) -> Reply<T> {
        let keys = keys.clone();
        self.link.clone().send(what, effect, self.limit, move |store| call(store, &keys)).boxed()
    }
}

impl Store for RemoteStore {
    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
        self.send("acquire", Effect::Idempotent, keys, move |store, keys| {
            store.acquire(keys, call.clone())
        })
    }

    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply> {
        assert!(call.returned <= call.granted, "more given back than was granted");
        self.send("refund", Effect::Idempotent, keys, move |store, keys| store.refund(keys, call))
    }

    fn release(&self, keys: &Keys, call: ReleaseCall) -> Reply<ReleaseReply> {
        self.send("release", Effect::Once, keys, move |store, keys| store.release(keys, call))
    }

    fn charge(&self, keys: &Keys, call: ChargeCall) -> Reply<ChargeReply> {
        self.send("charge", Effect::Idempotent, keys, move |store, keys| store.charge(keys, call))
    }

    fn peek(&self, keys: &Keys, call: PeekCall) -> Reply<PeekReply> {
        self.send("peek", Effect::Idempotent, keys, move |store, keys| store.peek(keys, call))
    }

    fn try_set_rate(&self, keys: &Keys, rate: Rate) -> Reply<bool> {
        self.send("try_set_rate", Effect::Resets, keys, move |store, keys| {
            store.try_set_rate(keys, rate)
        })
    }

    fn set_rate(&self, keys: &Keys, call: SetRate) -> Reply<bool> {
        self.send("set_rate", Effect::Resets, keys, move |store, keys| store.set_rate(keys, call))
    }

    fn drop_usage(&self, keys: &Keys, mode: Mode) -> Reply<Option<Rate>> {
        self.send("drop_usage", Effect::Resets, keys, move |store, keys| {
            store.drop_usage(keys, mode)
        })
    }

    fn config(&self, keys: &Keys) -> Reply<Option<Rate>> {
        self.send("config", Effect::Idempotent, keys, |store, keys| store.config(keys))
    }

    fn expire(&self, keys: &Keys, to: Lifetime, when: Option<ExpireCondition>) -> Reply<bool> {
        self.send("expire", Effect::Once, keys, move |store, keys| store.expire(keys, to, when))
    }

    fn clear_expire(&self, keys: &Keys) -> Reply<bool> {
        self.send("clear_expire", Effect::Once, keys, |store, keys| store.clear_expire(keys))
    }

    fn time_to_live(&self, keys: &Keys) -> Reply<TimeToLive> {
        self.send("time_to_live", Effect::Idempotent, keys, |store, keys| store.time_to_live(keys))
    }

    fn exists(&self, keys: &Keys) -> Reply<bool> {
        self.send("exists", Effect::Idempotent, keys, |store, keys| store.exists(keys))
    }

    fn delete(&self, keys: &Keys) -> Reply<bool> {
        self.send("delete", Effect::Resets, keys, |store, keys| store.delete(keys))
    }

    fn rename(&self, from: &Keys, to: &Keys) -> Reply<()> {
        let to = to.clone();
        self.send("rename", Effect::Resets, from, move |store, from| store.rename(from, &to))
    }

    fn touch(&self, keys: &Keys) -> Reply<bool> {
        self.send("touch", Effect::Idempotent, keys, |store, keys| store.touch(keys))
    }

    fn size_in_memory(&self, keys: &Keys) -> Reply<u64> {
        self.send("size_in_memory", Effect::Idempotent, keys, |store, keys| {
            store.size_in_memory(keys)
        })
    }

    fn inspect(&self, keys: &Keys, most: u64) -> Reply<InspectReply> {
        self.send("inspect", Effect::Idempotent, keys, move |store, keys| store.inspect(keys, most))
    }

    fn repair(&self, keys: &Keys, call: RepairCall) -> Reply<RepairReply> {
        self.send("repair", Effect::Idempotent, keys, move |store, keys| store.repair(keys, call))
    }

    fn remove_unused(&self, keys: &Keys, now: Now, age_ms: u64) -> Reply<u64> {
        self.send("remove_unused", Effect::Idempotent, keys, move |store, keys| {
            store.remove_unused(keys, now, age_ms)
        })
    }

    fn scan_parts(&self) -> Reply<Vec<Arc<str>>> {
        let link = self.link.clone();
        link.send("scan_parts", Effect::Idempotent, self.limit, |store| store.scan_parts()).boxed()
    }

    fn scan(&self, call: ScanCall) -> Reply<ScanReply> {
        let link = self.link.clone();
        link.send("scan", Effect::Idempotent, self.limit, move |store| store.scan(call.clone()))
            .boxed()
    }

    fn server_time(&self) -> Reply<i64> {
        let link = self.link.clone();
        link.send("server_time", Effect::Idempotent, self.limit, |store| store.server_time())
            .boxed()
    }

    fn within(&self, limit: Duration) -> Box<dyn Store> {
        Box::new(RemoteStore { link: self.link.clone(), limit })
    }
}
