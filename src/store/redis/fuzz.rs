//! Entry points for fuzzing the parsers of answers by servers, sentinels and nodes of a cluster.

use super::master::Sentinels;
use super::nodes::{self, slot::slot_of};
use super::{ServerAnswer, read_scan, reply};
use crate::error::Error;
use crate::queue::{MaxWait, Queue, Request, Step};
use crate::rate::{Mode, Rate};
use crate::store::{
    AcquireCall, AcquireReply, ChargeCall, ConfigCall, InspectCall, KeysCall, LimitCall, PeekCall,
    RefundCall, ReleaseCall, RemainingTimeCall, RepairCall, RequestGroup, ServerTimeCall, SizeCall,
    StoreCall,
};
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

/// Reads an answer as the answer to each call: it must be readable, or an error whose text can be shown.
pub(crate) fn read(answer: &[u8], number: u64) {
    let Ok(value) = redis::parse_redis_value(answer) else { return };
    reply::is_no_script(&value);
    reply::is_of_replica(&value);
    reply::closes(&value);
    said(reply::authenticated(value.clone()));
    said(reply::accepted(value.clone()));
    nodes::fuzz::read(&value, number as u16);
    if let Ok(sentinels) = Sentinels::new("m", ["redis://10.0.0.1"]) {
        sentinels.address_in(ServerAnswer::of(&value));
    }
    let answer = ServerAnswer::of(&value);
    said::<()>(Err(answer.unexpected()));
    said(answer.refused());
    read_scan(answer);
    RemainingTimeCall.read(answer);
    ServerTimeCall.read(answer);
    KeysCall::Exists.read(answer);
    SizeCall.read(answer);
    KeysCall::ClearExpire.read(answer);
    InspectCall { now: None, most: 1 }.read(answer);
    if let Some(Some(rate)) = ConfigCall.read(answer) {
        assert!(!rate.to_string().is_empty());
    }
    let (now, id) = (Some(1_700_000_000_000), EntryId([0; 16]));
    RefundCall { id, entry_date: 0, granted: 1, returned: 1 }.read(answer);
    ReleaseCall { now, permits: 1, seen: None }.read(answer);
    ChargeCall { now, id, date: 0, permits: 1, seen: None }.read(answer);
    PeekCall { now, permits: 1, seen: None }.read(answer);
    RepairCall { now, id, only_look: true }.read(answer);
    let requests = 1 + number % 4;
    for seen in [None, Some(Rate::from_wire(Mode::Overall, 10, 1000, 0))] {
        let groups = vec![RequestGroup { permits: 1, max_wait_ms: 0, count: requests }];
        let limit = LimitCall { keys: Keys::new("api", "c"), seen, create: None, groups };
        let mut call = AcquireCall::usual(now, id, limit.clone());
        call.corrected(answer);
        if let Some(reply) = call.read(answer) {
            settle(requests, reply);
        }
        call.limits.push(limit);
        if let Some(reply) = call.read(answer) {
            settle(requests, reply);
        }
    }
}

/// The slot of a key is one of the cluster's; the keys of a name without a brace are all in one.
pub(crate) fn keys(keys: &Keys) {
    let slot = slot_of(keys.hash.as_bytes());
    assert!(slot < nodes::slot::SLOTS);
    let is_plain = !keys.hash.contains(['{', '}']);
    assert!(nodes::slot::check_one_slot(keys).is_ok() || !is_plain, "{keys:?}");
}

fn said<T>(read: Result<T, Error>) {
    if let Err(error) = read {
        assert!(!format!("{error} {error:?}").is_empty());
    }
}

/// The queue of a call must be able to settle its answer, and go on.
fn settle(requests: u64, reply: AcquireReply) {
    let mut queue: Queue<()> = Queue::default();
    for request in 0..requests {
        let max_wait = match request % 3 {
            0 => MaxWait::None,
            1 => MaxWait::Until(5_000_000),
            _ => MaxWait::Unbounded,
        };
        let request = Request { permits: 1, max_wait, deadline: 3_000_000, ..Request::ONE };
        assert!(queue.arrive(|| 0, request, ()).is_ok());
    }
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    let rate = (reply.rate.permits(), reply.rate.interval_ms().saturating_mul(1000), 0);
    let left = u64::try_from(reply.left).unwrap_or(0);
    queue.replied(1, 0, rate, reply.outcomes, left, reply.holders);
    queue.step(2);
}
