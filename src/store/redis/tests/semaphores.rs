//! Semaphores: the rules in process and the scripts give the same answers and leave the same state.

use std::cell::RefCell;
use std::time::Duration;

use super::{Limited, Server, store};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::{Content, Snapshot};
use crate::store::{
    AcquireReply, CallId, LaneCall, Outcome, PermitId, RenewCall, RequestGroup, Returned,
    SemaphoreAcquireCall, SemaphoreCountsCall, SemaphoreKind, SemaphoreReleaseCall, SemaphoreTerms,
    SetPermits, SetPermitsCall, StoreCall, decided,
};
use crate::wire::keys::Keys;

mod once;
mod programs;
mod server;
mod vectors;

use SemaphoreKind::{Expirable, Plain};

const T0: i64 = 1_795_407_550_000;
const NO_END: i64 = 922_337_203_685_477;

/// Both stores, each with one semaphore.
struct World {
    runtime: tokio::runtime::Runtime,
    server: Server,
    /// A connection to look at the server's state.
    raw: RefCell<redis::Connection>,
    redis: Limited,
    memory: InProcessStore,
    keys: Keys,
}

/// The value as text, and the permits that are out with the ends of their leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    value: Option<String>,
    out: Vec<(i64, Vec<u8>)>,
}

impl State {
    /// The value and the permits that are out; `None` without a readable value.
    fn total(&self) -> Option<i64> {
        let value: i64 = self.value.as_ref()?.parse().ok()?;
        Some(value + self.out.iter().filter(|(end, _)| *end >= 0).count() as i64)
    }
}

impl World {
    fn new() -> Self {
        let server = Server::start(&[]).expect("without a server nothing is compared");
        let redis = store(&server.url(), Duration::from_secs(20)).unwrap();
        World {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            raw: server.raw().into(),
            server,
            redis,
            memory: InProcessStore::with_clock(Clock::manual(T0).0),
            keys: Keys::of_semaphore("doors"),
        }
    }

    fn clear(&self) {
        redis::cmd("FLUSHALL").exec(&mut self.raw.borrow_mut()).unwrap();
        self.memory.flush();
    }

    fn on_server<C: StoreCall>(&self, call: &C) -> Result<C::Reply, Error> {
        self.runtime.block_on(self.redis.run(&self.keys, call.clone()))
    }

    /// The answer of both stores.
    fn run<C: StoreCall<Reply: PartialEq> + std::fmt::Debug>(
        &self,
        call: &C,
    ) -> Result<C::Reply, Error> {
        let (server, process) = (self.on_server(call), self.memory.run(&self.keys, call));
        match (&server, &process) {
            (Ok(server), Ok(process)) => assert_eq!(server, process, "{call:?}"),
            (Err(server), Err(process)) => {
                assert_eq!(server.kind(), process.kind(), "{call:?}");
                assert_eq!(server.detail(), process.detail(), "{call:?}");
            }
            _ => panic!("{server:?} by the server, {process:?} in process, for {call:?}"),
        }
        server
    }

    fn set(&self, kind: SemaphoreKind, rule: SetPermits, permits: i64) -> i64 {
        self.run(&SetPermitsCall { kind, rule, permits }).unwrap()
    }

    fn on_the_server(&self) -> State {
        let mut raw = self.raw.borrow_mut();
        let out: Vec<(Vec<u8>, String)> = redis::cmd("ZRANGE")
            .arg(&*self.keys.value)
            .arg(&[0, -1])
            .arg("WITHSCORES")
            .query(&mut raw)
            .unwrap();
        State {
            value: redis::cmd("GET").arg(&*self.keys.hash).query(&mut raw).unwrap(),
            // Large ends are printed with an exponent.
            out: out
                .into_iter()
                .map(|(id, end)| (end.parse::<f64>().unwrap() as i64, id))
                .collect(),
        }
    }

    /// The state, which is the same in both stores, and whose keys have times to live in both or in neither.
    fn state(&self) -> State {
        let state = self.on_the_server();
        let snapshot = self.memory.snapshot();
        assert_eq!(state, in_process(&snapshot, &self.keys));
        for key in [&self.keys.hash, &self.keys.value] {
            let left: i64 =
                redis::cmd("PTTL").arg(&**key).query(&mut self.raw.borrow_mut()).unwrap();
            let ends = snapshot.get(&**key).and_then(|key| key.ttl_ms);
            // The server's time goes on; the other's does not.
            let are_alike = |ends: i64| (ends - 60_000..=ends).contains(&left);
            assert!(ends.map_or(left < 0, are_alike), "{key}: {left} and {ends:?}");
        }
        state
    }
}

fn in_process(snapshot: &Snapshot, keys: &Keys) -> State {
    let content = |key: &str| snapshot.get(key).map(|key| key.content.clone());
    State {
        value: match content(&keys.hash) {
            Some(Content::Text(text)) => Some(text),
            None => None,
            other => panic!("{other:?}"),
        },
        out: match content(&keys.value) {
            Some(Content::Log(log)) => log,
            None => Vec::new(),
            other => panic!("{other:?}"),
        },
    }
}

fn request(permits: u64) -> RequestGroup {
    RequestGroup { permits, max_wait_ms: 0, count: 1 }
}

/// A call by the time T0.
fn acquire(kind: SemaphoreKind, number: u64, groups: Vec<RequestGroup>) -> SemaphoreAcquireCall {
    let mut id = [0; 12];
    id[4..].copy_from_slice(&number.to_be_bytes());
    SemaphoreAcquireCall {
        terms: SemaphoreTerms { kind, lease_ms: Some(30_000), ..SemaphoreTerms::IN_PROCESS },
        at: Some(T0),
        id: CallId(id),
        lane: (kind == Plain).then(|| lane("aaaaaaaa0", number)),
        is_repeat: false,
        groups,
    }
}

/// The same call for permits with this lease.
fn leased(mut call: SemaphoreAcquireCall, lease_ms: Option<u64>) -> SemaphoreAcquireCall {
    call.terms.lease_ms = lease_ms;
    call
}

/// The permits that the call was granted.
fn granted(call: &SemaphoreAcquireCall, reply: &AcquireReply) -> u64 {
    let decided = decided(&call.groups, &reply.outcomes);
    decided
        .filter(|(.., outcome)| *outcome == Outcome::Granted)
        .map(|(n, count, _)| n * count)
        .sum()
}

fn release(kind: SemaphoreKind, permits: Vec<PermitId>, count: u64) -> SemaphoreReleaseCall {
    SemaphoreReleaseCall { kind, at: Some(T0), lane: None, permits, count }
}

fn lane(name: &str, number: u64) -> LaneCall {
    LaneCall::new(name.into(), number)
}
