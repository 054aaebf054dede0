//! The calls of a peer whose limiters are in this process.

use std::sync::mpsc;
use std::time::Duration;

use redisson_rate_limiter::{Client, Clock, InProcessStore};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::calls::Peer;
use crate::protocol::Line;

struct Case {
    peer: Peer,
    replies: UnboundedReceiver<Value>,
}

impl Case {
    fn new() -> Self {
        let (clock, manual) = Clock::manual(0);
        manual.follow_system();
        let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
        let (sender, replies) = unbounded_channel();
        Case { peer: Peer::new(client, manual, sender, usize::MAX), replies }
    }

    /// With the rate of the limiter `api`: this many permits in ten minutes.
    async fn limited(permits: u64) -> Self {
        let mut case = Self::new();
        let rate = json!({"op": "setRate", "name": "api", "mode": "OVERALL", "rate": permits, "intervalMs": 600_000});
        assert_eq!(case.result(rate).await, Value::Null);
        case
    }

    fn begin(&self, id: i64, mut call: Value) {
        call["id"] = json!(id);
        self.peer.run(Line::parse(call.to_string().as_bytes()).ok().unwrap());
    }

    async fn reply(&mut self) -> Value {
        let reply = tokio::time::timeout(Duration::from_secs(20), self.replies.recv()).await;
        reply.expect("it answers in time").unwrap()
    }

    /// The reply of a call that no other one runs beside.
    async fn call(&mut self, call: Value) -> Value {
        self.begin(0, call);
        self.reply().await
    }

    async fn result(&mut self, call: Value) -> Value {
        let mut reply = self.call(call).await;
        assert!(reply["error"].is_null(), "{reply}");
        reply["result"].take()
    }

    async fn refuses(&mut self, call: Value, allowed: &str) {
        let reply = self.call(call.clone()).await;
        assert_eq!(reply["error"]["kind"], "InvalidArgument", "{call}: {reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(allowed), "{call}: {message}");
    }
}

#[tokio::test]
async fn numbers_outside_of_their_ranges_are_refused() {
    let mut case = Case::limited(1).await;
    for (op, argument, numbers, allowed) in [
        ("load", "permits", [0, 1 << 32], "from 1 to 4294967295"),
        ("waitLoad", "permits", [0, 1 << 32], "from 1 to 4294967295"),
        ("load", "tasks", [0, 1_000_001], "from 1 to 1000000"),
        ("load", "limiters", [0, 1_000_001], "from 1 to 1000000"),
        ("load", "ms", [1 << 31, u64::MAX], "from 0 to 2147483647"),
        ("arrivalLoad", "ms", [1 << 31, u64::MAX], "from 0 to 2147483647"),
        ("semLoad", "ms", [1 << 31, u64::MAX], "from 0 to 2147483647"),
        ("semLoad", "holdMs", [1 << 31, u64::MAX], "from 0 to 2147483647"),
        ("pxsLoad", "tasks", [0, 1_000_001], "from 1 to 1000000"),
    ] {
        for number in numbers {
            let mut call = json!({"op": op, "name": "api", "permits": 1, "tasks": 1, "ms": 1, "holdMs": 1,
                "perSecond": 1, "timeoutMs": 1});
            call[argument] = json!(number);
            case.refuses(call, allowed).await;
        }
    }
    for headroom in [0.0, -0.5, 1.0, 1e300] {
        let call = json!({"op": "tryAcquire", "name": "api", "permits": 1, "headroom": headroom});
        case.refuses(call, "between 0 and 1").await;
    }
    for now_ms in [(1 << 53) + 1, i64::MIN] {
        case.refuses(json!({"op": "setClock", "nowMs": now_ms}), "from -2^53 to 2^53").await;
    }
}

#[tokio::test]
async fn the_smallest_and_the_largest_headroom_are_parts_of_the_rate() {
    let mut case = Case::limited(10).await;
    let call = json!({"op": "tryAcquire", "name": "api", "permits": 1, "headroom": 1e-300});
    assert_eq!(case.result(call).await, true);
    let call = json!({"op": "tryAcquire", "name": "api", "permits": 1, "headroom": 1.0 - 1e-15});
    assert_eq!(case.call(call).await["error"]["kind"], "ExceedsRate");
}

#[tokio::test]
async fn hardly_anybody_arrives() {
    let mut case = Case::limited(10).await;
    let call = json!({"op": "arrivalLoad", "name": "api", "permits": 1, "perSecond": 1e-300, "timeoutMs": 1, "ms": 5});
    assert_eq!(case.result(call).await["granted"], 0);
}

#[tokio::test]
async fn the_rest_of_a_load_is_not_part_of_its_last_call() {
    let mut case = Case::limited(1).await;
    let call = json!({"op": "waitLoad", "name": "api", "permits": 1, "tasks": 1, "ms": 700});
    let load = case.result(call).await;
    assert_eq!((&load["granted"], &load["denied"]), (&json!(1), &json!(1)), "{load}");
    assert!(load["elapsedMs"].as_u64().unwrap() >= 700, "{load}");
    assert!(load["maxUs"].as_u64().unwrap() < 500_000, "{load}");
}

#[tokio::test]
async fn a_call_that_panics_is_answered() {
    let mut case = Case::new();
    case.peer.start(json!(1), async { panic!("on purpose") });
    let reply = case.reply().await;
    assert_eq!((&reply["id"], &reply["error"]["kind"]), (&json!(1), &json!("Other")), "{reply}");
    // The id is free again.
    case.begin(1, json!({"op": "isExists", "name": "api"}));
    assert_eq!(case.reply().await, json!({"id": 1, "result": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_before_it_notices_its_cancellation_was_not_cancelled() {
    let mut case = Case::new();
    let (begins, begun) = mpsc::channel();
    let (ends, end) = mpsc::channel();
    case.peer.start(json!(1), async move {
        begins.send(()).unwrap();
        end.recv().unwrap();
        Ok(json!(true))
    });
    begun.recv().unwrap();
    case.begin(2, json!({"op": "cancel", "call": 1}));
    ends.send(()).unwrap();
    assert_eq!(case.reply().await, json!({"id": 2, "result": false}));
    assert_eq!(case.reply().await, json!({"id": 1, "result": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_can_be_used_again_once_its_cancellation_is_answered() {
    let mut case = Case::limited(1).await;
    assert_eq!(case.result(json!({"op": "tryAcquire", "name": "api", "permits": 1})).await, true);
    for _ in 0..200 {
        case.begin(1, json!({"op": "acquire", "name": "api", "permits": 1}));
        case.begin(2, json!({"op": "cancel", "call": 1}));
        assert_eq!(case.reply().await, json!({"id": 2, "result": true}));
        // The reply of the cancelled call may come between the two.
        case.begin(1, json!({"op": "acquire", "name": "api", "permits": 1}));
        assert_eq!(case.reply().await["error"]["kind"], "Cancelled");
        case.begin(2, json!({"op": "cancel", "call": 1}));
        assert_eq!(case.reply().await, json!({"id": 2, "result": true}));
        assert_eq!(case.reply().await["error"]["kind"], "Cancelled");
    }
    case.begin(2, json!({"op": "cancel", "call": 1}));
    assert_eq!(case.reply().await, json!({"id": 2, "result": false}));
}

#[tokio::test]
async fn a_group_that_queues_names_a_limiter() {
    let mut case = Case::limited(1).await;
    let limits = json!([{"name": "api", "permits": 1}]);
    let call = json!({"op": "tryAcquireAll", "limits": limits});
    assert_eq!(case.result(call.clone()).await, json!({"granted": true}));
    // So many wait that the server is not asked about a further one.
    for id in 1..=500 {
        case.begin(id, json!({"op": "tryAcquireAll", "limits": limits, "timeoutMs": 1u64 << 40}));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let denied = case.result(call).await;
    assert_eq!(
        (&denied["granted"], &denied["refusedBy"]),
        (&json!(false), &json!("api")),
        "{denied}"
    );
}

#[tokio::test]
async fn a_lease_of_minus_one_does_not_end() {
    let mut case = Case::new();
    let set = json!({"op": "pxsTrySetPermits", "name": "jobs", "permits": 1});
    assert_eq!(case.result(set).await, true);
    let take = json!({"op": "pxsTryAcquire", "name": "jobs", "waitMs": 0, "leaseMs": -1});
    let permit = case.result(take).await;
    assert!(permit.is_string(), "{permit}");
    let update = json!({"op": "pxsUpdateLease", "name": "jobs", "permit": permit, "leaseMs": -1});
    assert_eq!(case.result(update).await, true);
    let update = json!({"op": "pxsUpdateLease", "name": "jobs", "permit": permit, "leaseMs": -2});
    case.refuses(update, "leaseMs").await;
}
