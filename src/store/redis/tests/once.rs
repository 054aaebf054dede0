//! One acquire: what it costs the server, whose clock dates it, and that it grants once.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Commands as _;

use super::{Limited, Server};
use crate::options::Fraction;
use crate::rate::{Mode, Rate};
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::store::{
    AcquireCall, AcquireReply, Earlier, Holders, LimitCall, Outcome, OutcomeGroup, RefundCall,
    RequestGroup, ServerTimeCall, SetRateCall, ShareTerms, StateRule, TrySetRateCall, pack_groups,
};
use crate::wire::entry::{ClientTag, EntryId, pack};
use crate::wire::keys::Keys;

const T0: i64 = 1_700_000_000_000;

struct Client {
    _server: Server,
    store: Limited,
    raw: redis::Connection,
    keys: Keys,
}

/// A limiter of 100 permits per 60 s, after a first grant.
async fn client() -> Option<Client> {
    let server = Server::start(&[])?;
    let store = super::store(&server.url(), Duration::from_secs(5)).unwrap();
    let raw = server.raw();
    let keys = keys();
    let rate = Rate::from_wire(Mode::Overall, 100, 60_000, 0);
    assert!(store.run(&keys, TrySetRateCall(rate)).await.unwrap());
    let mut client = Client { _server: server, store, raw, keys };
    client.acquire(call(T0, 0, 1)).await;
    Some(client)
}

fn keys() -> Keys {
    Keys::new("api", "a")
}

fn request(permits: u64) -> Vec<RequestGroup> {
    vec![RequestGroup { permits, max_wait_ms: 0, count: 1 }]
}

fn call(t: i64, id: u8, permits: u64) -> AcquireCall {
    let limit = LimitCall {
        keys: keys(),
        seen: Some(Rate::from_wire(Mode::Overall, 100, 60_000, 0)),
        create: None,
        groups: request(permits),
    };
    AcquireCall::usual(Some(t), EntryId([id; 16]), limit)
}

impl Client {
    async fn acquire(&mut self, call: AcquireCall) -> AcquireReply {
        let call = call.with(|it| it.keys = self.keys.clone());
        self.store.run(&self.keys, call).await.unwrap()
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

    /// The commands that the server has carried out, including those of scripts.
    fn commands(&mut self) -> BTreeMap<String, u64> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut self.raw).unwrap();
        let own = ["info", "config|resetstat", "config"];
        info.lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
            .filter(|(name, _)| !own.contains(name))
            .map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
            .collect()
    }

    fn reset_commands(&mut self) {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.raw).unwrap();
    }
}

#[tokio::test]
async fn a_single_grant_is_one_call_of_six_commands() {
    let Some(mut client) = client().await else { return };
    client.reset_commands();
    let reply = client.acquire(call(T0 + 1, 1, 1)).await;
    let names = ["decrby", "evalsha", "get", "hmget", "pttl", "zadd", "zrange"];
    let expected = names.map(|name| (name.to_owned(), 1)).into();
    assert_eq!(client.commands(), expected);
    assert_eq!(reply.left, 98);
    assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 1), T0 + 1));
}

/// It names the keys of the mode that was last seen, and nothing is done under another one.
#[tokio::test]
async fn a_call_in_another_mode_than_the_last_one_is_made_with_all_keys() {
    let Some(mut client) = client().await else { return };
    let [common, own] =
        [Mode::Overall, Mode::PerClient].map(|mode| Rate::from_wire(mode, 100, 60_000, 0));
    for (seen, rate, id) in [(common, own, 1), (own, common, 2)] {
        let change = SetRateCall {
            now: Some(T0),
            rate,
            only_existing: false,
            from: None,
            state: StateRule::Drop,
        };
        assert!(client.store.run(&client.keys, change).await.unwrap());
        client.reset_commands();
        let call = call(T0 + 1, id, 2).with(|it| it.seen = Some(seen));
        let reply = client.acquire(call.clone()).await;
        assert_eq!((reply.rate, reply.left), (rate, rate.permits() as i64 - 2));
        assert_eq!(client.commands()["evalsha"], 2);
        assert_eq!(client.commands()["hmget"], 2);
        assert_eq!(client.commands()["zadd"], 1);
        let [_, value, log] = client.keys.of_mode(rate.mode());
        let [_, other_value, other_log] = client.keys.of_mode(seen.mode());
        let found: [bool; 4] =
            [value, log, other_value, other_log].map(|key| client.raw.exists(&**key).unwrap());
        assert_eq!(found, [true, true, false, false]);
        // From then on its keys will do.
        client.reset_commands();
        let next = AcquireCall { id: EntryId([id + 10; 16]), ..call };
        let next = next.with(|it| it.seen = reply.seen());
        assert_eq!(client.acquire(next).await.left, rate.permits() as i64 - 4);
        assert_eq!(client.commands()["evalsha"], 1);
    }
}

#[tokio::test]
async fn two_entries_are_read_at_once_if_one_is_expected_to_have_expired() {
    let Some(mut client) = client().await else { return };
    client.acquire(call(T0 + 1000, 1, 1)).await;
    for (expects_expired, reads) in [(true, 1), (false, 2)] {
        let (at, id) = if expects_expired { (T0 + 60_000, 2) } else { (T0 + 61_000, 3) };
        client.reset_commands();
        let reply = client.acquire(AcquireCall { expects_expired, ..call(at, id, 1) }).await;
        assert_eq!(reply.left, 98);
        assert_eq!(client.commands()["zrange"], reads);
        assert_eq!(client.commands().get("zrangebyscore"), None);
    }
}

#[tokio::test]
async fn an_attempt_that_is_overtaken_by_its_own_retry_grants_nothing() {
    let Some(mut client) = client().await else { return };
    for permits in [1, 5] {
        let id = 10 + permits as u8;
        let first = call(T0 + 10, id, permits);
        let retry = AcquireCall {
            now: Some(T0 + 20),
            earlier: Earlier::dated(vec![T0 + 10]),
            ..first.clone()
        };
        assert_eq!(client.outcome(retry.clone()).await, Outcome::Granted);
        let before = (client.value(), client.log());
        // Nor does the retry, if it comes twice, or after a later one.
        assert_eq!(client.outcome(retry.clone()).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
        let later = AcquireCall {
            now: Some(T0 + 30),
            earlier: Earlier::dated(vec![T0 + 10, T0 + 20]),
            ..retry.clone()
        };
        assert_eq!(client.outcome(later).await, Outcome::Granted);
        let before = (client.value(), client.log());
        assert_eq!(client.outcome(retry).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
        assert_eq!(client.outcome(first.clone()).await, Outcome::Granted);
        assert_eq!(client.outcome(first).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
    }
}

/// Leases of others are dated after it. Its entry is looked up with each number of permits that it may have.
#[tokio::test]
async fn an_attempt_that_is_overtaken_finds_its_grant_among_many_leases() {
    let Some(mut client) = client().await else { return };
    for other in 100..180 {
        client.acquire(AcquireCall { hold_ms: 30_000, ..call(T0, other, 1) }).await;
    }
    for (id, audit_limit, hold_ms, returned) in
        [(1, 0, 0, 0), (2, 0, 0, 1), (3, 1, 0, 0), (4, 1, 0, 1), (5, 0, 500, 1)]
    {
        let first = AcquireCall { audit_limit, hold_ms, ..call(T0 + 10, id, 3) };
        let dates = vec![T0 + 10 + hold_ms as i64];
        let retry =
            AcquireCall { now: Some(T0 + 20), earlier: Earlier::dated(dates), ..first.clone() };
        let entry_date = client.acquire(retry).await.entry_date;
        if returned > 0 {
            let refund = RefundCall { id: first.id, entry_date, granted: 3, returned };
            assert_eq!(client.store.run(&client.keys, refund).await.unwrap().credited, 1);
        }
        let before = (client.value(), client.log());
        client.acquire(first).await;
        assert_eq!((client.value(), client.log()), before, "{id}");
    }
    // One that was not overtaken is granted.
    let left = client.value();
    assert_eq!(client.outcome(call(T0 + 30, 6, 3)).await, Outcome::Granted);
    assert_eq!(client.value(), left - 3);
}

#[tokio::test]
async fn an_attempt_that_arrives_twice_grants_once() {
    let Some(mut client) = client().await else { return };
    let batch = vec![RequestGroup { permits: 2, max_wait_ms: 5, count: 3 }];
    for (id, groups) in [(1, request(1)), (2, request(4)), (3, batch)] {
        let call = call(T0 + 10, id, 1).with(|it| it.groups = groups);
        assert_eq!(client.outcome(call.clone()).await, Outcome::Granted);
        let before = (client.value(), client.log());
        assert_eq!(client.outcome(call).await, Outcome::Granted);
        assert_eq!((client.value(), client.log()), before);
    }
}

/// After a refund the entry is not the one that the attempt would write.
#[tokio::test]
async fn a_batch_that_arrives_twice_finds_its_grant_after_a_refund() {
    let Some(mut client) = client().await else { return };
    let batch = |id, count| {
        let groups = vec![RequestGroup { permits: 2, max_wait_ms: 0, count }];
        call(T0 + 10, id, 1).with(|it| it.groups = groups)
    };
    let reply = client.acquire(batch(1, 3)).await;
    let refund =
        RefundCall { id: EntryId([1; 16]), entry_date: reply.entry_date, granted: 6, returned: 2 };
    assert_eq!(client.store.run(&client.keys, refund).await.unwrap().credited, 2);
    let before = (client.value(), client.log());
    let outcomes = client.acquire(batch(1, 3)).await.outcomes;
    assert_eq!((outcomes[0].count, outcomes[0].outcome), (2, Outcome::Granted));
    assert_eq!((client.value(), client.log()), before);

    // The same for one request of several permits.
    let reply = client.acquire(call(T0 + 10, 9, 4)).await;
    let refund =
        RefundCall { id: EntryId([9; 16]), entry_date: reply.entry_date, granted: 4, returned: 1 };
    assert_eq!(client.store.run(&client.keys, refund).await.unwrap().credited, 1);
    let before = (client.value(), client.log());
    client.acquire(call(T0 + 10, 9, 4)).await;
    assert_eq!((client.value(), client.log()), before);

    // The same if some of the requests were refused.
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
        let reply = client.store.run(&client.keys, refund).await.unwrap();
        assert_eq!((reply.credited, reply.left), (credited, 7));
        assert_eq!(client.value(), 92);
        assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 7), T0 + 10));
    }
}

#[tokio::test]
async fn the_servers_clock_dates_a_grant() {
    let Some(mut client) = client().await else { return };
    let before = client.store.run(&client.keys, ServerTimeCall).await.unwrap() / 1000;
    // By the server's clock the first grant has expired, so the log is empty.
    let first = AcquireCall { now: None, earlier: Earlier::first_since(before), ..call(0, 1, 3) };
    let reply = client.acquire(first.clone()).await;
    assert_eq!(reply.outcomes[0].outcome, Outcome::Granted);
    assert!((before..before + 5000).contains(&reply.now) && reply.entry_date == reply.now);
    assert_eq!(client.log(), [(pack(EntryId([1; 16]), 3), reply.now)]);

    let single = AcquireCall { now: None, ..call(0, 2, 1) };
    let quick = client.acquire(single).await;
    assert!(quick.now >= reply.now && quick.left == 96);

    // The answer was lost: the retry finds the grant and moves it.
    let retry = AcquireCall { earlier: Earlier::since(before - 1), ..first.clone() };
    let again = client.acquire(retry).await;
    assert_eq!((again.outcomes[0].outcome, again.left), (Outcome::Granted, 96));
    assert!(client.log().contains(&(pack(EntryId([1; 16]), 3), again.entry_date)));
    // The first attempt, arriving a second time, grants nothing.
    let late = AcquireCall { earlier: Earlier::first_since(before - 1), ..first };
    assert_eq!(client.outcome(late).await, Outcome::Granted);
    assert_eq!(client.value(), 96);
}

/// By the server's clock, a late attempt cannot tell a grant that is used from one whose answer was lost.
#[tokio::test]
async fn a_late_attempt_that_is_refused_takes_nothing_back() {
    let Some(mut client) = client().await else { return };
    let first = AcquireCall {
        earlier: Earlier::first_since(T0 + 9),
        headroom: Some(Fraction::new(1, 2)),
        ..call(T0 + 10, 1, 5)
    };
    assert_eq!(client.outcome(first.clone()).await, Outcome::Granted);
    assert_eq!(client.outcome(call(T0 + 20, 2, 50)).await, Outcome::Granted);
    let earlier = Earlier::since(T0 + 9);
    let late = AcquireCall { now: Some(T0 + 30), earlier, ..first }.with(|it| it.seen = None);
    let late = client.acquire(late).await;
    assert!(matches!(late.outcomes[0].outcome, Outcome::Refused(..)), "{late:?}");
    assert_eq!((late.left, client.value()), (44, 44));
    assert_eq!(client.log()[2], (pack(EntryId([1; 16]), 5), T0 + 30));
}

#[tokio::test]
async fn a_grant_of_more_parts_than_lua_takes_arguments_is_found_again() {
    let Some(mut client) = client().await else { return };
    let keys = Keys::new("large", "a");
    let rate = Rate::from_wire(Mode::Overall, 1 << 53, 60_000, 0);
    assert!(client.store.run(&keys, TrySetRateCall(rate)).await.unwrap());
    client.keys = keys;
    let count = 8_100;
    let groups = vec![RequestGroup { permits: u64::from(u32::MAX), max_wait_ms: 0, count }];
    let first = call(T0, 1, 1).with(|it| (it.groups, it.seen) = (groups, None));
    let left = client.acquire(first.clone()).await.left;
    let earlier = Earlier::dated(vec![T0]);
    let again = client.acquire(AcquireCall { now: Some(T0 + 5), earlier, ..first }).await;
    let granted = OutcomeGroup { count, outcome: Outcome::Granted };
    assert_eq!((again.left, again.outcomes), (left, vec![granted]));
    let log = client.log();
    assert_eq!(log.len() as u64, count);
    assert!(log.iter().all(|(_, date)| *date == T0 + 5));
}

#[tokio::test]
async fn a_batch_is_one_entry() {
    let Some(mut client) = client().await else { return };
    let groups = vec![
        RequestGroup { permits: 1, max_wait_ms: 0, count: 60 },
        RequestGroup { permits: 2, max_wait_ms: 10, count: 19 },
    ];
    let reply = client.acquire(call(T0 + 1, 1, 1).with(|it| it.groups = groups)).await;
    assert_eq!(reply.outcomes.iter().map(|group| group.count).sum::<u64>(), 79);
    assert!(reply.outcomes.iter().all(|group| group.outcome == Outcome::Granted));
    assert_eq!((reply.left, client.log().len()), (1, 2));
    assert_eq!(client.log()[1], (pack(EntryId([1; 16]), 98), T0 + 1));
}

#[test]
fn a_request_group_is_packed_into_fifteen_bytes() {
    let group = RequestGroup { permits: 0x0403_0201, max_wait_ms: 0x0006_0504_0302_0100, count: 7 };
    let packed = pack_groups(&[group]);
    assert_eq!(packed, [1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0]);
    let unbounded = RequestGroup { permits: 1, max_wait_ms: u64::MAX, count: (1 << 32) + 1 };
    let packed = pack_groups(&[unbounded]);
    assert_eq!(packed.len(), 30, "a count of more than 32 bits takes two groups");
    assert_eq!(packed[4..11], [0, 0, 0, 0, 0, 0, 0x20]);
    assert_eq!(packed[11..15], u32::MAX.to_le_bytes());
    assert_eq!(packed[26..30], 2u32.to_le_bytes());
}

/// As in process: `store::memory::tests::share`.
#[tokio::test]
async fn a_log_that_is_too_long_has_no_shares() {
    let Some(mut client) = client().await else { return };
    let rate = Rate::from_wire(Mode::Overall, 20_200, 60_000, 0);
    client.keys = Keys::new("long", "a");
    assert!(client.store.run(&client.keys, TrySetRateCall(rate)).await.unwrap());
    let keys = client.keys.clone();
    let own = |share, permits, count| {
        let groups = vec![RequestGroup { permits, max_wait_ms: 5000, count }];
        let limit = LimitCall { keys: keys.clone(), seen: Some(rate), create: None, groups };
        let call = call(T0, 0, 1).with(|it| *it = limit);
        AcquireCall { id: EntryId::random(ClientTag([1; 4]), 1), share, ..call }
    };
    assert_eq!(client.outcome(own(None, 10_100, 1)).await, Outcome::Granted);
    let mut add = |entries: std::ops::Range<usize>| {
        let mut commands = redis::pipe();
        commands.cmd("DECRBY").arg(&*client.keys.value).arg(entries.len()).ignore();
        for number in entries {
            let mut id = [7; 16];
            id[8..].copy_from_slice(&number.to_le_bytes());
            commands.zadd(&*client.keys.permits, &pack(EntryId(id), 1)[..], T0).ignore();
        }
        commands.query::<()>(&mut client.raw).unwrap();
    };
    add(1..LONGEST_SHARED_LOG);
    let terms = ShareTerms::KNOWS_NOBODY;
    let reply = client.store.run(&client.keys, own(Some(terms), 1, 100)).await.unwrap();
    assert!(matches!(reply.outcomes[0].outcome, Outcome::Waiting(_)), "{reply:?}");
    add(LONGEST_SHARED_LOG..LONGEST_SHARED_LOG + 1);
    let reply = client.store.run(&client.keys, own(Some(terms), 1, 100)).await.unwrap();
    assert_eq!(reply.outcomes, [OutcomeGroup { count: 100, outcome: Outcome::Granted }]);
    let entries = LONGEST_SHARED_LOG as u64 + 1;
    assert_eq!(reply.holders, Some(Holders { entries, ..Holders::default() }));
}

/// Calls of one id, as a key makes them, find a deficit of the same size twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_debt_of_an_id_does_not_replace_the_first() {
    let Some(mut client) = client().await else { return };
    for (lost, in_log) in [(2, 3), (2, 5)] {
        let key = client.keys.value.clone();
        let _: i64 = client.raw.decr(&*key, lost).unwrap();
        let refused = client.outcome(call(T0 + in_log, 7, 99)).await;
        assert!(matches!(refused, Outcome::Refused(..)), "{refused:?}");
        let in_use: u32 = client
            .log()
            .iter()
            .map(|(it, _)| u32::from_le_bytes(it[17..].try_into().unwrap()))
            .sum();
        assert_eq!(in_use, in_log as u32);
    }
}
