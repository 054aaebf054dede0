//! One acquire: what it costs the server, by whose clock, and that it grants once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Server;
use crate::clock::Now;
use crate::rate::{Mode, Rate};
use crate::store::redis::{RedisStore, pack_runs};
use crate::store::{AcquireCall, AcquireReply, Earlier, Outcome, RefundCall, Run, Store};
use crate::wire::entry::{EntryId, pack};
use crate::wire::keys::Keys;

const T0: i64 = 1_700_000_000_000;

struct Client {
    _server: Server,
    store: RedisStore,
    raw: redis::Connection,
    keys: Keys,
}

/// A limiter of 100 permits an interval of 60 s, after a first grant.
async fn client() -> Option<Client> {
    let server = Server::start(&[])?;
    let store = RedisStore::connect(&server.url(), Duration::from_secs(5)).await.unwrap();
    let raw = server.raw();
    let keys = Keys::new("api", "a");
    let rate = Rate::from_wire(Mode::Overall, 100, 60_000, 0);
    assert!(store.try_set_rate(&keys, rate).await.unwrap());
    let mut client = Client { _server: server, store, raw, keys };
    client.acquire(call(T0, 0, 1)).await;
    Some(client)
}

fn call(t: i64, id: u8, permits: u64) -> AcquireCall {
    AcquireCall {
        now: Now::At(t),
        id: EntryId([id; 16]),
        seen_rate: Some(100),
        audit: false,
        create: None,
        hold_ms: 0,
        earlier: Earlier::None,
        runs: vec![Run { permits, patience_ms: 0, count: 1 }],
    }
}

impl Client {
    async fn acquire(&mut self, call: AcquireCall) -> AcquireReply {
        self.store.acquire(&self.keys, call).await.unwrap()
    }

    async fn outcome(&mut self, call: AcquireCall) -> Outcome {
        self.acquire(call).await.outcomes[0].outcome
    }

    fn value(&mut self) -> i64 {
        redis::cmd("GET").arg(&*self.keys.value).query(&mut self.raw).unwrap()
    }

    fn log(&mut self) -> Vec<(Vec<u8>, i64)> {
        let mut cmd = redis::cmd("ZRANGE");
        cmd.arg(&*self.keys.permits).arg(0).arg(-1).arg("WITHSCORES");
        cmd.query(&mut self.raw).unwrap()
    }

    /// The commands that the server has carried out, scripts' own included.
    fn commands(&mut self) -> BTreeMap<String, u64> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut self.raw).unwrap();
        let own = ["info", "config|resetstat", "config"];
        info.lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
            .filter(|(name, _)| !own.contains(name))
            .map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
            .collect()
    }

    fn reset(&mut self) {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.raw).unwrap();
    }
}

#[tokio::test]
async fn a_single_grant_is_one_call_of_seven_commands() {
    let Some(mut client) = client().await else { return };
    client.reset();
    let reply = client.acquire(call(T0 + 1, 1, 1)).await;
    let names = ["decrby", "evalsha", "get", "hmget", "pttl", "zadd", "zcount", "zrange"];
    let expected = names.map(|name| (name.to_owned(), 1)).into();
    assert_eq!(client.commands(), expected);
    assert_eq!(reply.left, 98);
    assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 1), T0 + 1));
}

#[tokio::test]
async fn an_attempt_that_is_overtaken_by_its_own_retry_grants_nothing() {
    let Some(mut client) = client().await else { return };
    for permits in [1, 5] {
        let id = 10 + permits as u8;
        let first = call(T0 + 10, id, permits);
        let retry = AcquireCall {
            now: Now::At(T0 + 20),
            earlier: Earlier::Dated(vec![T0 + 10]),
            ..first.clone()
        };
        assert_eq!(client.outcome(retry).await, Outcome::Granted);
        let before = (client.value(), client.log());
        assert_eq!(client.outcome(first.clone()).await, Outcome::Granted);
        assert_eq!(client.outcome(first).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
    }
}

#[tokio::test]
async fn the_same_attempt_twice_on_its_way_grants_once() {
    let Some(mut client) = client().await else { return };
    let batch = vec![Run { permits: 2, patience_ms: 5, count: 3 }];
    for (id, runs) in [(1, call(0, 0, 1).runs), (2, call(0, 0, 4).runs), (3, batch)] {
        let call = AcquireCall { runs, ..call(T0 + 10, id, 1) };
        assert_eq!(client.outcome(call.clone()).await, Outcome::Granted);
        let before = (client.value(), client.log());
        assert_eq!(client.outcome(call).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
    }
}

/// Its entry is not the one that this attempt would write.
#[tokio::test]
async fn the_same_batch_twice_finds_what_is_left_of_its_grant() {
    let Some(mut client) = client().await else { return };
    let batch = |id, count| {
        let runs = vec![Run { permits: 2, patience_ms: 0, count }];
        AcquireCall { runs, ..call(T0 + 10, id, 1) }
    };
    let reply = client.acquire(batch(1, 3)).await;
    let refund =
        RefundCall { id: EntryId([1; 16]), entry_date: reply.entry_date, granted: 6, returned: 2 };
    assert_eq!(client.store.refund(&client.keys, refund).await.unwrap().credited, 2);
    let before = (client.value(), client.log());
    let outcomes = client.acquire(batch(1, 3)).await.outcomes;
    assert_eq!((outcomes[0].count, outcomes[0].outcome), (2, Outcome::Granted));
    assert_eq!((client.value(), client.log()), before);

    // One request for several is no other case.
    let reply = client.acquire(call(T0 + 10, 9, 4)).await;
    let refund =
        RefundCall { id: EntryId([9; 16]), entry_date: reply.entry_date, granted: 4, returned: 1 };
    assert_eq!(client.store.refund(&client.keys, refund).await.unwrap().credited, 1);
    let before = (client.value(), client.log());
    client.acquire(call(T0 + 10, 9, 4)).await;
    assert_eq!((client.value(), client.log()), before);

    // A part of them was refused.
    let first = client.acquire(batch(2, 60)).await.outcomes;
    assert_eq!((first[0].count, first[0].outcome), (46, Outcome::Granted));
    let before = (client.value(), client.log());
    let again = client.acquire(batch(2, 60)).await.outcomes;
    assert_eq!((again[0].count, again[0].outcome), (46, Outcome::Granted));
    assert_eq!((client.value(), client.log()), before);
}

#[tokio::test]
async fn a_refund_that_is_repeated_is_idempotent() {
    let Some(mut client) = client().await else { return };
    let reply = client.acquire(call(T0 + 10, 1, 9)).await;
    let refund =
        RefundCall { id: EntryId([1; 16]), entry_date: reply.entry_date, granted: 9, returned: 2 };
    for credited in [2, 0] {
        let reply = client.store.refund(&client.keys, refund).await.unwrap();
        assert_eq!((reply.credited, reply.left), (credited, 7));
        assert_eq!(client.value(), 92);
        assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 7), T0 + 10));
    }
}

#[tokio::test]
async fn the_servers_clock_dates_a_grant() {
    let Some(mut client) = client().await else { return };
    let before = client.store.server_time().await.unwrap();
    // Far enough from the first grant's date that it has expired: the log is empty then.
    let first =
        AcquireCall { now: Now::Server, earlier: Earlier::FirstSince(before), ..call(0, 1, 3) };
    let reply = client.acquire(first.clone()).await;
    assert_eq!(reply.outcomes[0].outcome, Outcome::Granted);
    assert!((before..before + 5000).contains(&reply.now) && reply.entry_date == reply.now);
    assert_eq!(client.log(), [(pack(EntryId([1; 16]), 3), reply.now)]);

    let single = AcquireCall { now: Now::Server, ..call(0, 2, 1) };
    let quick = client.acquire(single).await;
    assert!(quick.now >= reply.now && quick.left == 96);

    // The answer was lost: the retry finds the grant and moves it.
    let retry = AcquireCall { earlier: Earlier::Since(before - 1), ..first.clone() };
    let again = client.acquire(retry).await;
    assert_eq!((again.outcomes[0].outcome, again.left), (Outcome::Granted, 96));
    assert!(client.log().contains(&(pack(EntryId([1; 16]), 3), again.entry_date)));
    // And the first attempt, arriving a second time, grants nothing.
    let late = AcquireCall { earlier: Earlier::FirstSince(before - 1), ..first };
    assert_eq!(client.outcome(late).await, Outcome::Granted);
    assert_eq!(client.value(), 96);
}

#[tokio::test]
async fn a_batch_is_one_entry() {
    let Some(mut client) = client().await else { return };
    let runs = vec![
        Run { permits: 1, patience_ms: 0, count: 60 },
        Run { permits: 2, patience_ms: 10, count: 19 },
    ];
    let reply = client.acquire(AcquireCall { runs, ..call(T0 + 1, 1, 1) }).await;
    assert_eq!(reply.outcomes.iter().map(|run| run.count).sum::<u64>(), 79);
    assert!(reply.outcomes.iter().all(|run| run.outcome == Outcome::Granted));
    assert_eq!((reply.left, client.log().len()), (1, 2));
    assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 98), T0 + 1));
}

#[test]
fn runs_are_packed_in_fifteen_bytes() {
    let run = Run { permits: 0x0403_0201, patience_ms: 0x0006_0504_0302_0100, count: 7 };
    let packed = pack_runs(&[run]);
    assert_eq!(packed, [1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0]);
    let endless = Run { permits: 1, patience_ms: u64::MAX, count: (1 << 32) + 1 };
    let packed = pack_runs(&[endless]);
    assert_eq!(packed.len(), 30, "a count of more than 32 bits is two runs");
    assert_eq!(packed[4..11], [0, 0, 0, 0, 0, 0, 0x20]);
    assert_eq!(packed[11..15], u32::MAX.to_le_bytes());
    assert_eq!(packed[26..30], 2u32.to_le_bytes());
}
