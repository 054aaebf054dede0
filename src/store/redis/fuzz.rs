//! What reads the answers of servers, sentinels and nodes of a cluster, for fuzzing.

use super::cluster::{self, slot::slot_of};
use super::inspect;
use super::reply::{self, Numbers};
use super::sentinel::Sentinels;
use crate::error::Error;
use crate::queue::{MaxWait, Queue, Request, Step};
use crate::rate::{Mode, Rate};
use crate::store::{AcquireReply, SeenRate};
use crate::wire::keys::Keys;

/// Reads an answer as that of each call. It is read, or is an error whose text can be shown.
pub(crate) fn read(answer: &[u8], number: u64) {
    let Ok(value) = redis::parse_redis_value(answer) else { return };
    reply::is_no_script(&value);
    reply::is_of_replica(&value);
    said(reply::time(&value));
    said(reply::integer(&value));
    said(reply::authenticated(value.clone()));
    said(inspect::read(&value));
    said(inspect::read_scan(&value));
    said(reply::accepted(value.clone()));
    cluster::fuzz::read(&value, number as u16);
    if let Ok(sentinels) = Sentinels::new("m", ["redis://10.0.0.1"]) {
        sentinels.address_in(&value);
    }
    let numbers = match Numbers::of(value) {
        Ok(numbers) => numbers,
        Err(error) => return said::<()>(Err(error)),
    };
    said(numbers.number());
    said(numbers.flag());
    said(numbers.rate().map(|rate| rate.to_string()));
    said(numbers.refund());
    said(numbers.release());
    said(numbers.peek());
    said(numbers.repair());
    let requests = 1 + number % 4;
    for seen in [None, Some(SeenRate::from(Rate::from_wire(Mode::Overall, 10, 1000, 0)))] {
        match numbers.acquire(requests, Some(1_700_000_000_000), 0, seen) {
            Ok(reply) => settle(requests, reply),
            Err(error) => said::<()>(Err(error)),
        }
    }
}

/// The slot of a key is one of the cluster's; the keys of a name without a brace are all in one.
pub(crate) fn keys(keys: &Keys) {
    let slot = slot_of(keys.hash.as_bytes());
    assert!(slot < cluster::slot::SLOTS);
    let is_plain = !keys.hash.contains(['{', '}']);
    assert!(cluster::slot::check_one_slot(keys).is_ok() || !is_plain, "{keys:?}");
}

fn said<T>(read: Result<T, Error>) {
    if let Err(error) = read {
        assert!(!format!("{error} {error:?}").is_empty());
    }
}

/// What a call is answered, its queue can settle, and go on.
fn settle(requests: u64, reply: AcquireReply) {
    let mut queue: Queue<()> = Queue::default();
    for request in 0..requests {
        let max_wait = match request % 3 {
            0 => MaxWait::None,
            1 => MaxWait::Until(5_000_000),
            _ => MaxWait::Unbounded,
        };
        let request = Request { permits: 1, max_wait, deadline: 3_000_000, create: None };
        assert!(queue.arrive(|| 0, request, ()).is_ok());
    }
    assert!(matches!(queue.step(0).step, Step::Call(_)));
    let rate = (reply.rate.permits(), reply.rate.interval_ms().saturating_mul(1000), 0);
    let left = u64::try_from(reply.left).unwrap_or(0);
    queue.replied(1, 0, rate, reply.outcomes, left, reply.holders);
    queue.step(2);
}
