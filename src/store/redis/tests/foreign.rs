//! Limits that other services enforce: our calls in turn with the scripts of the others, on the same keys.
//!
//! Time is an argument of both; between two calls the times to live of all keys are shortened by what has passed.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Connection, cmd};

use super::{Limited, Server, store};
use crate::error::{Error, ErrorKind};
use crate::policy::{Kind, Mark, Policy};
use crate::store::{
    AcquireReply, LaneCall, PolicyCall, PolicyPeek, PolicyPeekCall, PolicyRefundCall, RequestGroup,
    StoreCall,
};
use crate::wire::keys::Keys;

mod handles;
mod others;
mod programs;
mod vectors;

use others::Other;

const T0: i64 = 1_700_000_000_000_000;

struct World {
    runtime: tokio::runtime::Runtime,
    _server: Server,
    store: Limited,
    raw: Connection,
    now: i64,
    /// The keys that end.
    ends: HashMap<String, End>,
    calls: u64,
    /// Calls are made at the server's own time, on which times to live depend.
    is_real: bool,
}

/// When a key ends, in ms, and the time to live that it was given last.
#[derive(Clone, Copy)]
struct End {
    end_ms: i64,
    set_ms: i64,
}

/// No key ends by itself during a step, which is shorter than this. Calls set longer times.
const LEAST_MS: i64 = 500;

fn keys(policy: &Policy, name: &str) -> Keys {
    Keys::new(&foreign(policy).key(name).unwrap(), "c")
}

impl World {
    fn new() -> Self {
        let server = Server::start(&[]).expect("without a server nothing is compared");
        World {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            store: store(&server.url(), Duration::from_secs(20)).unwrap(),
            raw: server.raw(),
            _server: server,
            now: T0,
            ends: HashMap::new(),
            calls: 0,
            is_real: false,
        }
    }

    /// Begins with nothing, at this time.
    fn begin(&mut self, at: i64) {
        cmd("FLUSHALL").exec(&mut self.raw).unwrap();
        self.ends.clear();
        self.now = at;
    }

    /// Notes the times to live that calls have set, all of which are multiples of 100 ms.
    fn note_ends(&mut self) {
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut self.raw).unwrap();
        let mut ends = HashMap::new();
        for key in keys {
            let ms: i64 = cmd("PTTL").arg(&key).query(&mut self.raw).unwrap();
            match self.ends.get(&key) {
                Some(known) if (0..=LEAST_MS).contains(&(known.set_ms - ms)) => {
                    ends.insert(key, *known)
                }
                _ if ms >= 0 => {
                    let end_ms = self.now.div_euclid(1000) + (ms + 99) / 100 * 100;
                    ends.insert(key, End { end_ms, set_ms: ms })
                }
                _ => None,
            };
        }
        self.ends = ends;
    }

    /// Goes on at this time.
    fn go_to(&mut self, at: i64) {
        self.note_ends();
        self.now = at;
        self.set_ends();
    }

    fn set_ends(&mut self) {
        for (key, end) in &mut self.ends {
            let left_ms = end.end_ms - self.now.div_euclid(1000);
            end.set_ms = left_ms.max(LEAST_MS);
            match left_ms {
                // A key is gone a millisecond after its time to live.
                ..0 => cmd("DEL").arg(key).exec(&mut self.raw).unwrap(),
                _ => cmd("PEXPIRE").arg(key).arg(end.set_ms).exec(&mut self.raw).unwrap(),
            }
        }
    }

    fn run<C: StoreCall>(&self, policy: &Policy, name: &str, call: C) -> Result<C::Reply, Error> {
        self.runtime.block_on(self.store.run(&keys(policy, name), call))
    }

    fn at(&self, at: i64) -> Option<i64> {
        (!self.is_real).then_some(at)
    }

    fn call(
        &mut self,
        policy: &Policy,
        name: &str,
        lane: &str,
        permits: u64,
        count: u64,
    ) -> PolicyCall {
        self.calls += 1;
        let (keys, of, at) = (keys(policy, name), policy.clone().into(), self.at(self.now));
        let groups = vec![RequestGroup { permits, max_wait_ms: 0, count }];
        PolicyCall::alone(keys, of, at, LaneCall::new(lane.into(), self.calls), groups)
    }

    fn give(&mut self, policy: &Policy, name: &str, mark: Mark, permits: u64) -> u64 {
        let lane = self.call(policy, name, "bbbbbbbb1", 1, 1).lane;
        let (policy, at) = (policy.clone(), self.at(self.now));
        let call = PolicyRefundCall { of: policy.into(), at, lane, mark, permits };
        self.run(&call.of.rules.clone(), name, call).unwrap()
    }

    fn peek(
        &self,
        policy: &Policy,
        name: &str,
        at: i64,
        permits: u64,
    ) -> Result<PolicyPeek, Error> {
        let call = PolicyPeekCall { of: policy.clone().into(), at: self.at(at), permits };
        self.run(policy, name, call)
    }
}

fn foreign(policy: &Policy) -> &crate::policy::foreign::Foreign {
    match &policy.0 {
        Kind::Foreign(foreign) => foreign,
        other => panic!("{other:?}"),
    }
}

/// What the call's grant is given back by.
fn mark(reply: &AcquireReply) -> Mark {
    reply.mark.unwrap().mark
}
