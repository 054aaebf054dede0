//! One limiter in a store whose clock the test sets, and calls with the least words.

use proptest::test_runner::Config as ProptestConfig;

use crate::clock::{Clock, ManualClock};
use crate::error::{Error, ErrorKind};
use crate::rate::{Mode, Rate};
use crate::store::memory::InProcessStore;
use crate::store::*;
use crate::wire::entry::{EntryId, pack, unpack};
use crate::wire::keys::Keys;

mod acquire;
mod again;
mod batch;
mod damage;
mod errors;
mod giveback;
mod keyspace;
mod ledger;
mod lifetime;
mod listen;
mod program;
mod rates;
mod raw;
mod redisson;
mod reserve;
mod share;

impl ShareTerms {
    /// The terms of a client that knows of nobody else, for tests.
    pub(crate) const KNOWS_NOBODY: ShareTerms =
        ShareTerms { others: 0, unclaimed: 0, retry_after_ms: 125, may_exceed: true };

    /// The terms of a client that shares with another party.
    pub(crate) const BESIDE_ANOTHER: ShareTerms =
        ShareTerms { others: 1, ..ShareTerms::KNOWS_NOBODY };
}

const T0: i64 = 1_700_000_000_000;
/// The interval of all limiters in these tests, in ms.
const I: i64 = 1000;

/// One client's view of one limiter.
struct Client {
    store: InProcessStore,
    clock: ManualClock,
    keys: Keys,
    seen: Option<Rate>,
    ids: u8,
    calls: u32,
}

/// An error's kind and what it says about it.
fn said(error: &Error) -> (ErrorKind, String) {
    (error.kind(), error.detail().unwrap_or_default().to_owned())
}

fn seen(permits: u64) -> Rate {
    rate(permits)
}

fn rate(permits: u64) -> Rate {
    Rate::from_wire(Mode::Overall, permits, I as u64, 0)
}

fn client() -> Client {
    let (clock, manual) = Clock::manual(T0);
    let store = InProcessStore::with_clock(clock);
    Client { store, clock: manual, keys: Keys::new("api", "a"), seen: None, ids: 0, calls: 0 }
}

/// A limiter of this rate, seen by its client, with nothing used.
fn limiter(permits: u64) -> Client {
    let mut client = client();
    assert!(client.store.run(&client.keys, &TrySetRateCall(rate(permits))).unwrap());
    client.seen = Some(seen(permits));
    client
}

impl Client {
    /// Another client of the same store and limiter.
    fn other(&self) -> Client {
        let ids = self.ids + 1;
        let keys = Keys::new("api", &format!("client{ids}"));
        let (store, clock) = (self.store.clone(), self.clock.clone());
        Client { store, clock, keys, seen: None, ids, calls: 0 }
    }

    fn fresh_id(&mut self) -> EntryId {
        self.calls += 1;
        let mut id = [self.ids; 16];
        id[1..5].copy_from_slice(&self.calls.to_be_bytes());
        EntryId(id)
    }

    fn call(&mut self, groups: &[RequestGroup]) -> AcquireCall {
        let (keys, seen) = (self.keys.clone(), self.seen);
        let limit = LimitCall { keys, seen, create: None, groups: groups.to_vec() };
        AcquireCall::usual(Some(self.clock.now()), self.fresh_id(), limit)
    }

    fn send(&mut self, call: AcquireCall) -> Result<AcquireReply, Error> {
        let call = call.with(|it| it.keys = self.keys.clone());
        let reply = self.store.run(&self.keys, &call)?;
        self.seen = reply.seen().or(self.seen);
        Ok(reply)
    }

    fn ask(&mut self, groups: &[RequestGroup]) -> AcquireReply {
        let call = self.call(groups);
        self.send(call).unwrap()
    }

    /// One request that does not wait.
    fn take(&mut self, permits: u64) -> Outcome {
        self.ask(&[request(permits, 0)]).outcomes[0].outcome
    }

    fn grant(&mut self, permits: u64) -> AcquireReply {
        let reply = self.ask(&[request(permits, 0)]);
        assert_eq!(reply.outcomes[0].outcome, Outcome::Granted, "{reply:?}");
        reply
    }

    /// The exact wait of one request that is refused.
    fn wait(&mut self, permits: u64) -> u64 {
        match self.take(permits) {
            Outcome::Refused(wait, _) if !wait.at_least => wait.ms(),
            other => panic!("{other:?}"),
        }
    }

    fn failure(&mut self, permits: u64) -> (ErrorKind, String) {
        let call = self.call(&[request(permits, 0)]);
        said(&self.send(call).unwrap_err())
    }

    fn audit(&mut self, permits: u64) -> AcquireReply {
        let call = AcquireCall { audit_limit: u64::MAX, ..self.call(&[request(permits, 0)]) };
        self.send(call).unwrap()
    }

    fn peek(&self, permits: u64) -> Result<Peek, Error> {
        let now_at = Some(self.clock.now());
        self.store.run(&self.keys, &PeekCall { now: now_at, permits, seen: self.seen })
    }

    fn available(&self) -> u64 {
        self.peek(0).unwrap().available
    }

    fn release(&self, permits: u64) -> u64 {
        let call = ReleaseCall { now: Some(self.clock.now()), permits, seen: self.seen };
        self.store.run(&self.keys, &call).unwrap().0
    }

    fn refund(&self, id: EntryId, entry_date: i64, granted: u64, returned: u64) -> u64 {
        let call = RefundCall { id, entry_date, granted, returned };
        self.store.run(&self.keys, &call).unwrap().credited
    }

    fn set(&mut self, rate: Rate, state: StateRule) {
        let now_at = Some(self.clock.now());
        let call = SetRateCall { now: now_at, rate, only_existing: false, from: None, state };
        assert!(self.store.run(&self.keys, &call).unwrap());
        self.seen = Some(rate);
    }

    fn value(&self) -> Option<i64> {
        self.store.raw_get(&self.keys.value).map(|text| text.parse().unwrap())
    }

    /// Scores after T0, and permits; foreign members show as -1.
    fn log(&self) -> Vec<(i64, i64)> {
        let log = self.store.raw_log(&self.keys.permits);
        log.iter().map(|(score, member)| (score - T0, permits_of(member))).collect()
    }

    fn sum(&self) -> i64 {
        self.log().iter().map(|(_, permits)| permits).sum()
    }

    /// An entry as another client would have logged it.
    fn log_entry(&mut self, after: i64, permits: u32) {
        let member = pack(self.fresh_id(), permits);
        self.store.raw_zadd(&self.keys.permits, T0 + after, &member);
    }

    fn set_value(&self, value: &str) {
        self.store.raw_set(&self.keys.value, value);
    }
}

/// A multiple of the usual number of cases; `PROPTEST_CASES` sets that.
fn cases(times: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { failure_persistence: None, cases: times * usual.cases, ..usual }
}

fn permits_of(member: &[u8]) -> i64 {
    match unpack(member) {
        Some((_, permits)) => permits as i64,
        _ => -1,
    }
}

fn request(permits: u64, max_wait_ms: u64) -> RequestGroup {
    RequestGroup { permits, max_wait_ms, count: 1 }
}

fn group_of(permits: u64, max_wait_ms: u64, count: u64) -> RequestGroup {
    RequestGroup { permits, max_wait_ms, count }
}
