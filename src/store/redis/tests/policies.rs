//! Limiters with a policy: the rules in process and the scripts give the same answers and leave the same state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Limited, Server, store};
use crate::clock::Clock;
use crate::error::Error;
use crate::policy::frame::{self, State};
use crate::policy::tests::T0;
use crate::policy::{CalendarUnit, ChangeRule, Followed, Kind, Policy, packed};
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::Content;
use crate::store::{
    AcquireReply, LaneCall, Outcome, PolicyCall, PolicyChangeCall, PolicyPeek, PolicyPeekCall,
    PolicyRefundCall, RequestGroup, StoreCall, Wait,
};
use crate::wire::keys::Keys;

mod groups;
mod lanes;
mod programs;
mod rgcra;
mod server;
mod vectors;

type Hash = BTreeMap<String, String>;

/// Both stores, each with one limiter.
struct World {
    runtime: tokio::runtime::Runtime,
    server: Server,
    /// A connection to look at the server's state.
    raw: RefCell<redis::Connection>,
    redis: Limited,
    memory: InProcessStore,
    keys: Keys,
    calls: u64,
    /// When the keys were removed last.
    begun: Instant,
}

fn keys() -> Keys {
    Keys::new("{limiter}:policy", "c")
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
            memory: in_process(),
            keys: keys(),
            calls: 0,
            begun: Instant::now(),
        }
    }

    /// Begins with nothing.
    fn clear(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.raw.borrow_mut()).unwrap();
        self.memory = in_process();
        self.begun = Instant::now();
    }

    /// The next call of a lane that makes no second attempts.
    fn lane(&mut self, name: &str) -> LaneCall {
        self.calls += 1;
        LaneCall::new(name.into(), self.calls)
    }

    fn on_server<C: StoreCall>(&self, call: &C) -> Result<C::Reply, Error> {
        self.runtime.block_on(self.redis.run(&self.keys, call.clone()))
    }

    fn in_process<C: StoreCall>(&self, call: &C) -> Result<C::Reply, Error> {
        self.memory.run(&self.keys, call)
    }

    /// The answer of both stores.
    fn run<C: StoreCall<Reply: PartialEq> + std::fmt::Debug>(
        &self,
        call: &C,
    ) -> Result<C::Reply, Error> {
        let (server, process) = (self.on_server(call), self.in_process(call));
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

    fn take(
        &mut self,
        policy: &Policy,
        at: i64,
        groups: Vec<RequestGroup>,
    ) -> Result<AcquireReply, Error> {
        let lane = self.lane("aaaaaaaa0");
        let (keys, of) = (self.keys.clone(), policy.clone().into());
        self.run(&PolicyCall::alone(keys, of, Some(at), lane, groups))
    }

    fn give(&mut self, policy: &Policy, at: i64, mark: (i64, u64), permits: u64) -> u64 {
        let lane = self.lane("aaaaaaaa1");
        let call =
            PolicyRefundCall { of: policy.clone().into(), at: Some(at), lane, mark, permits };
        self.run(&call).unwrap()
    }

    fn peek(&self, policy: &Policy, at: i64, permits: u64) -> PolicyPeek {
        let call = PolicyPeekCall { of: policy.clone().into(), at: Some(at), permits };
        self.run(&call).unwrap()
    }

    /// The hash on the server.
    fn server_hash(&self) -> Hash {
        let fields: BTreeMap<String, Vec<u8>> =
            redis::cmd("HGETALL").arg(&*self.keys.hash).query(&mut self.raw.borrow_mut()).unwrap();
        fields.into_iter().map(|(name, bytes)| (name, packed::text(&bytes))).collect()
    }

    /// The hash without the records of lanes; with them it is the same in both stores, and lives as long.
    fn state(&self) -> Hash {
        let server = self.server_hash();
        let key = self.memory.snapshot().remove(&*self.keys.hash);
        let left: i64 =
            redis::cmd("PTTL").arg(&*self.keys.hash).query(&mut self.raw.borrow_mut()).unwrap();
        let (process, ttl_ms) = match key.map(|key| (key.content, key.ttl_ms)) {
            None => (Hash::new(), None),
            Some((Content::Hash(fields), ttl_ms)) => (fields, ttl_ms),
            Some(other) => panic!("{other:?}"),
        };
        assert_eq!(server, process);
        let left = (left >= 0).then_some(left);
        // The test takes a while, by the server's clock, and on a busy machine a long one.
        let passed = (self.begun.elapsed().as_millis() as i64).max(20_000);
        let is_close = |(left, ttl): (i64, i64)| (ttl - passed..=ttl).contains(&left);
        assert!(left == ttl_ms || left.zip(ttl_ms).is_some_and(is_close), "{left:?} {ttl_ms:?}");
        server.into_iter().filter(|(name, _)| !name.starts_with('@')).collect()
    }
}

/// The numbers of the state in a hash by the reference's names, a rolling window's counts being one text.
fn numbers_of(policy: &Policy, hash: &Hash) -> Hash {
    let rules = policy.rules().unwrap();
    let text = hash.get("s").expect("there is a state");
    let (.., state) = frame::stored(text, rules).expect("it is readable");
    let Some(State { x, y, z, older, .. }) = state else { return Hash::new() };
    let names = match policy.0 {
        Kind::Bucket(_) | Kind::Rgcra(_) => ["u", "t", "f"],
        Kind::Window(_) => ["e", "n", ""],
        Kind::Sliding(_) => ["s", "a", "n"],
        Kind::Rolling(_) => ["i", "w", ""],
        Kind::Interval(_) => ["u", "n", "l"],
        Kind::Queue(_) => ["t", "f", "l"],
        Kind::Foreign(_) => unreachable!(),
    };
    let mut numbers = [x.to_string(), y.to_string(), z.to_string()];
    if rules.older() > 0 {
        let newest = y - older.iter().sum::<u64>();
        let counts = [newest].into_iter().chain(older).collect::<Vec<_>>();
        let used = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
        numbers[1] = counts[..used].iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    }
    let named = names.map(str::to_owned).into_iter().zip(numbers);
    named.filter(|(name, _)| !name.is_empty()).collect()
}

/// A store whose keys do not end.
fn in_process() -> InProcessStore {
    InProcessStore::with_clock(Clock::manual(1_700_000_000_000).0)
}

fn request(permits: u64) -> RequestGroup {
    RequestGroup { permits, max_wait_ms: 0, count: 1 }
}

fn only(reply: &AcquireReply) -> Outcome {
    assert_eq!(reply.outcomes.len(), 1, "{reply:?}");
    reply.outcomes[0].outcome
}

/// What the call's grant is given back by.
fn mark(reply: &AcquireReply) -> (i64, u64) {
    reply.mark.unwrap().mark
}
