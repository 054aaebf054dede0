//! Properties of the rules, over the in-process store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::store::memory::InProcessStore;
use crate::store::memory::raw::{Content, Snapshot};
use crate::store::{
    AcquireReply, LaneCall, Outcome, PolicyCall, PolicyLimit, PolicyPeek, PolicyPeekCall,
    PolicyRefundCall, RequestGroup, decided,
};
use crate::wire::keys::Keys;
use crate::{Client, Fraction};

pub(crate) const T0: i64 = 1_700_000_000_000_000;

impl PolicyCall {
    /// Requests for a limiter by itself.
    pub(crate) fn alone(
        keys: Keys,
        of: Followed,
        at: Option<i64>,
        lane: LaneCall,
        groups: Vec<RequestGroup>,
    ) -> Self {
        PolicyCall { at, lane, limits: vec![PolicyLimit { keys, of, groups }], is_group: false }
    }
}

/// Small numbers, for the most part.
pub(crate) fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1..=most.min(12), 1 => 1..=most, 1 => (most - most.min(3)).max(1)..=most]
}

/// A width or a period in microseconds.
fn span() -> impl Strategy<Value = Duration> {
    let us = prop_oneof![
        Just(1_000_000_u64),
        Just(60_000_000),
        Just(86_400_000_000),
        1000..=2_000_000_u64,
        315_575_999_000_000..=315_576_000_000_000_u64,
    ];
    us.prop_map(Duration::from_micros)
}

const MOST: u64 = u32::MAX as u64;

/// Any policy, as the values by which it is valid; kinds are told apart by their place.
pub(crate) fn policy_of(kind: usize) -> BoxedStrategy<Policy> {
    let some = |policy: Result<Policy, Error>| policy.ok();
    match kind {
        0 => (number(MOST), number(MOST), span(), 0..4_u64)
            .prop_filter_map("exact", move |(capacity, refill, period, part)| {
                let bucket = Policy::bucket(capacity, refill, period).ok()?;
                some(bucket.with_initial_tokens(capacity - capacity / 3 * part))
            })
            .boxed(),
        1 => (number(MOST), span(), any::<u64>())
            .prop_filter_map("valid", move |(limit, width, offset)| {
                let offset = Duration::from_micros(offset % width.as_micros() as u64);
                some(Policy::fixed_window(limit, width).ok()?.with_offset(offset))
            })
            .boxed(),
        2 => (number(MOST), 0..5_usize, 0..2_usize)
            .prop_filter_map("valid", move |(limit, unit, weekday)| {
                let unit = [
                    CalendarUnit::Day,
                    CalendarUnit::Week,
                    CalendarUnit::Month,
                    CalendarUnit::Quarter,
                    CalendarUnit::Year,
                ][unit];
                let weekday = [Weekday::Monday, Weekday::Sunday][weekday];
                some(Policy::calendar_window(limit, unit).ok()?.with_first_weekday(weekday))
            })
            .boxed(),
        3 => (number(MOST), span())
            .prop_filter_map("valid", move |(limit, width)| {
                some(Policy::anchored_window(limit, width))
            })
            .boxed(),
        4 => (number(MOST), span())
            .prop_filter_map("ticks", move |(limit, width)| {
                some(Policy::sliding_counter(limit, width))
            })
            .boxed(),
        5 => (number(MOST), 10..2_000_000_u64, 1..=100_u64)
            .prop_filter_map("buckets", move |(limit, length, buckets)| {
                let width = Duration::from_micros(length * buckets * 10);
                some(Policy::rolling_window(limit, width).ok()?.with_buckets(buckets))
            })
            .boxed(),
        6 => (number(MOST), number(MOST), span(), 0..4_u64, any::<Option<u64>>())
            .prop_filter_map("a century", move |(capacity, refill, period, part, aligned)| {
                let bucket = Policy::interval_bucket(capacity, refill, period).ok()?;
                let bucket = bucket.with_initial_tokens(capacity - capacity / 3 * part).ok()?;
                match aligned {
                    Some(us) => some(bucket.aligned_at(Duration::from_micros(us % (1 << 50)))),
                    None => Some(bucket),
                }
            })
            .boxed(),
        _ => (number(MOST), span(), prop_oneof![Just(Duration::ZERO), span()], 0..4_u64)
            .prop_filter_map("exact", move |(permits, period, max_delay, slack)| {
                some(Policy::queue(permits, period, max_delay).ok()?.with_slack(slack))
            })
            .boxed(),
    }
}

pub(crate) const KINDS: usize = 8;

/// Policies with few permits and short times, so that random programs meet their limits.
pub(crate) fn small(kind: usize) -> BoxedStrategy<Policy> {
    let some = |policy: Result<Policy, Error>| policy.ok();
    (1..=6_u64, 1..=5_u64, 1000..=1400_u64, 0..=3_u64)
        .prop_filter_map("valid", move |(limit, other, us, part)| {
            let span = Duration::from_micros(us);
            match kind {
                0 => some(
                    Policy::bucket(limit, other, span).ok()?.with_initial_tokens(limit * part / 3),
                ),
                1 => some(
                    Policy::fixed_window(limit, span)
                        .ok()?
                        .with_offset(Duration::from_micros(part)),
                ),
                2 => some(Policy::calendar_window(limit, CalendarUnit::Day)),
                3 => some(Policy::anchored_window(limit, span)),
                4 => some(Policy::sliding_counter(limit, span)),
                5 => {
                    let width = Duration::from_micros(us * other * 10);
                    some(Policy::rolling_window(limit, width).ok()?.with_buckets(other))
                }
                6 => {
                    let bucket = Policy::interval_bucket(limit, other, span).ok()?;
                    let bucket = bucket.with_initial_tokens(limit * part / 3).ok()?;
                    if part % 2 == 0 { Some(bucket) } else { bucket.aligned_at(span).ok() }
                }
                _ => {
                    let max_delay = Duration::from_micros(us * part);
                    some(Policy::queue(other, span, max_delay).ok()?.with_slack(part))
                }
            }
        })
        .boxed()
}

/// One limiter in a store whose keys do not end.
struct Limiter {
    store: InProcessStore,
    keys: Keys,
    policy: Policy,
}

impl Limiter {
    fn new(policy: &Policy) -> Self {
        let store = InProcessStore::with_clock(Clock::manual(T0 / 1000).0);
        Limiter { store, keys: Keys::new("{limiter}:policy", "c"), policy: policy.clone() }
    }

    fn call(&self, at: i64, groups: Vec<RequestGroup>) -> AcquireReply {
        let (policy, at) = (self.policy.clone(), Some(at));
        let call = PolicyCall::alone(self.keys.clone(), policy.into(), at, next_call(), groups);
        self.store.run(&self.keys, &call).unwrap()
    }

    /// The mark of a grant, or the wait of a denial.
    fn take(&self, at: i64, permits: u64) -> Result<Mark, i64> {
        let reply = self.call(at, vec![RequestGroup { permits, max_wait_ms: 0, count: 1 }]);
        match reply.outcomes[0].outcome {
            Outcome::Granted => Ok(reply.mark.unwrap().mark),
            Outcome::Scheduled { start, mark } if start == at => Ok(mark),
            Outcome::Refused(wait, _) if !wait.at_least => Err(wait.us as i64),
            other => panic!("{other:?}"),
        }
    }

    fn give(&self, at: i64, mark: Mark, permits: u64) -> u64 {
        let (policy, at) = (self.policy.clone(), Some(at));
        let lane = next_call();
        let call = PolicyRefundCall { of: policy.into(), at, lane, mark, permits };
        self.store.run(&self.keys, &call).unwrap()
    }

    fn peek(&self, at: i64) -> PolicyPeek {
        let (policy, at) = (self.policy.clone(), Some(at));
        let call = PolicyPeekCall { of: policy.into(), at, permits: 1 };
        self.store.run(&self.keys, &call).unwrap()
    }

    /// All keys, without the record of the last call.
    fn state(&self) -> Snapshot {
        let mut snapshot = self.store.snapshot();
        for key in snapshot.values_mut() {
            if let Content::Hash(fields) = &mut key.content {
                fields.retain(|name, _| !name.starts_with('@'));
            }
        }
        snapshot
    }

    /// The most permits of a request in these tests.
    fn most(&self) -> u64 {
        self.policy.limit().min(6)
    }
}

/// A call that is not repeated.
fn next_call() -> LaneCall {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    LaneCall::new("a".into(), number)
}

/// A step of a history: time passes, by a part of the window in 64ths and microseconds; then permits are taken, or
/// some of an earlier grant are given back.
type Step = (i64, i64, u64, Option<usize>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let give = prop_oneof![3 => Just(None), 1 => (0..8_usize).prop_map(Some)];
    prop::collection::vec((0..=24_i64, 0..=3_i64, 1..=6_u64, give), 1..30)
}

fn later(policy: &Policy, (parts, us, ..): &Step) -> i64 {
    parts * policy.window().as_micros() as i64 / 64 + us
}

/// Grants, with what is left of them.
#[derive(Clone, Debug)]
struct Grant {
    at: i64,
    mark: Mark,
    left: u64,
    /// Nothing more can come back.
    is_final: bool,
}

/// Carries the steps out; returns the time and the grants.
fn history(limiter: &Limiter, steps: &[Step]) -> (i64, Vec<Grant>) {
    let (mut at, mut grants) = (T0, Vec::<Grant>::new());
    for step in steps {
        at += later(&limiter.policy, step);
        let permits = step.2.min(limiter.most());
        match step.3.and_then(|back| grants.len().checked_sub(back + 1)) {
            Some(place) => {
                let grant = &mut grants[place];
                if grant.is_final {
                    continue;
                }
                // A second refund of one grant could meet the mark of another one, see queue.rs.
                grant.is_final = matches!(limiter.policy.0, Kind::Queue(_));
                let returned = permits.min(grant.left);
                limiter.give(at, grant.mark, returned);
                grant.left -= returned;
            }
            None => grants.extend(limiter.take(at, permits).ok().map(|mark| Grant {
                at,
                mark,
                left: permits,
                is_final: false,
            })),
        }
    }
    (at, grants)
}

/// Every small policy by its place, or those up to this one.
fn any_small(kinds: usize) -> impl Strategy<Value = Policy> {
    (0..kinds).prop_flat_map(small)
}

/// All policies but the queue, which is the last one.
const COUNTING: usize = KINDS - 1;

/// The most permits in an interval of this length, at the end of which `last` are granted, if it is bounded here.
fn ceiling(policy: &Policy, us: i64, last: u64) -> Option<u64> {
    let limit = policy.limit();
    let gained = |pace: bucket::Pace| {
        (u128::from(pace.permits) * us as u128 / u128::from(pace.every)) as u64
    };
    Some(match &policy.0 {
        Kind::Bucket(bucket) => limit + gained(bucket.pace),
        Kind::Interval(rules) => limit + rules.refill * (us as u64 / rules.period + 1),
        // A request pays after itself, so that the last one of an interval is not counted.
        Kind::Queue(rules) => gained(rules.pace) + rules.slack + last,
        _ if us >= policy.window().as_micros() as i64 => return None,
        Kind::Rolling(_) => limit,
        Kind::Sliding(_) => 2 * limit - 1,
        Kind::Window(_) => 2 * limit,
        Kind::Rgcra(_) | Kind::Foreign(_) => unreachable!("on servers only"),
    })
}

/// Two policies with other limits, but the same pace, window, or portions; of portions another alignment too.
pub(crate) fn versions() -> impl Strategy<Value = (Policy, Policy)> {
    let limits = (1..=9_u64, 1..=9_u64, 1..=3_u64);
    (0..COUNTING, limits, 1000..=1400_u64, any::<[bool; 2]>()).prop_map(
        |(kind, (first, second, refill), us, is_aligned)| {
            let (span, half) = (Duration::from_micros(us * 10), Duration::from_micros(us * 5));
            let of = |limit: u64, place: usize| match kind {
                0 => Policy::bucket(limit, refill, span),
                1 => Policy::fixed_window(limit, span),
                2 => Policy::calendar_window(limit, CalendarUnit::Day),
                3 => Policy::anchored_window(limit, span),
                4 => Policy::sliding_counter(limit, span),
                5 => Policy::rolling_window(limit, span),
                _ if is_aligned[place] => Policy::interval_bucket(limit, refill, span)
                    .and_then(|bucket| bucket.aligned_at(half * place as u32)),
                _ => Policy::interval_bucket(limit, refill, span),
            };
            (of(first, 0).unwrap(), of(second, 1).unwrap())
        },
    )
}

fn with_cases(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap());
    ProptestConfig { failure_persistence: None, cases, ..ProptestConfig::default() }
}

#[test]
fn what_is_out_of_range_is_refused() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let refused = [
        (Policy::bucket(0, 1, second), "a capacity of 0 permits: must be 1 to 2^32-1"),
        (Policy::bucket(1 << 32, 1, second), "a capacity of 4294967296 permits"),
        (Policy::bucket(1, 0, second), "a refill of 0 permits"),
        (Policy::bucket(1 << 31, 4_194_307, second), "must be below 2^53"),
        (Policy::bucket(101, 1, Duration::from_secs(31_557_600)), "within 100 years"),
        (Policy::fixed_window(1, Duration::from_micros(999)), "from 1 ms to 10 years"),
        (Policy::fixed_window(1, Duration::from_nanos(1_000_001)), "whole microseconds"),
        (Policy::fixed_window(1, 5_259_601 * minute), "from 1 ms to 10 years"),
        (
            Policy::fixed_window(1, second).and_then(|windows| windows.with_offset(second)),
            "must be below the width, 1s",
        ),
        (
            Policy::sliding_counter(u32::MAX.into(), Duration::from_micros(1_048_577)),
            "a multiple of 10 us",
        ),
        (Policy::rolling_window(1, Duration::from_micros(1001)), "10 buckets: must be 1 to 100"),
        (
            Policy::rolling_window(1, second).and_then(|windows| windows.with_buckets(101)),
            "101 buckets",
        ),
        (Policy::interval_bucket(u32::MAX.into(), 1, second), "within 100 years"),
        (Policy::queue(1, second, Duration::MAX), "a longest delay"),
        (
            Policy::queue(1, second, second).and_then(|queue| queue.with_slack(u64::MAX)),
            "a slack of 18446744073709551615 permits: must be at most 3155759999",
        ),
        (
            Policy::bucket(5, 1, second).and_then(|bucket| bucket.with_initial_tokens(6)),
            "must be at most the capacity, 5",
        ),
        (
            Policy::bucket(5, 1, second).and_then(|bucket| bucket.with_slack(1)),
            "slack of a policy bucket, which has none",
        ),
    ];
    for (policy, said) in refused {
        let error = policy.expect_err(said);
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_bucket_is_shown_as_it_was_configured() {
    let second = Duration::from_secs(1);
    for (policy, text) in [
        (Policy::bucket(50, 10, second), "bucket, 50 at 10/s"),
        (Policy::bucket(5, 1, second * 7), "bucket, 5 at 1 per 7s"),
        (Policy::bucket(5, 3, Duration::from_micros(7007)), "bucket, 5 at 3000 per 7007ms"),
        (Policy::gcra(4, 10, second * 60), "bucket, 5 at 10/m"),
        (Policy::rgcra(4, 3, second), "bucket, 5 at 3 per 1s"),
        (Policy::interval_bucket(50, 5, second * 10), "interval, 50 at 5 per 10s"),
        (Policy::fixed_window(50, second * 10), "fixed, 50 per 10s"),
        (Policy::queue(1, second, second), "queue, 1/s"),
    ] {
        assert_eq!(policy.unwrap().to_string(), text);
    }
}

/// Also once the lowered bucket is full, and its key is kept for as long.
#[test]
fn what_was_used_beyond_a_lowered_capacity_counts_until_it_is_gained() {
    let minute = Duration::from_secs(60);
    for of in [Policy::bucket, Policy::interval_bucket] {
        let mut limiter = Limiter::new(&of(100, 10, minute).unwrap());
        limiter.take(T0, 100).unwrap();
        limiter.policy = of(1, 10, minute).unwrap();
        limiter.take(T0 + 1_000_000, 1).unwrap_err();
        let ttl_ms = limiter.store.snapshot().into_values().filter_map(|key| key.ttl_ms).max();
        assert!(ttl_ms >= Some(599_000), "{ttl_ms:?}");
        assert_eq!(limiter.peek(T0 + 300_000_000).available, 1);
        limiter.policy = of(100, 10, minute).unwrap();
        assert_eq!(limiter.peek(T0 + 300_000_000).available, 50);
    }
}

/// Each text names the operation once.
#[tokio::test]
async fn what_a_policy_does_not_have_is_refused() {
    let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let second = Duration::from_secs(1);
    let (bucket, rate) = (Policy::bucket(50, 10, second).unwrap(), Rate::per_second(1));
    let limiter = client.limiter_of("api", bucket.clone()).unwrap();
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    let short = limiter.set_policy(bucket, ChangeRule::Keep, Some(second)).await.unwrap_err();
    assert!(short.to_string().contains(": a keep-alive of 1s: must be"), "{short}");
    let errors = [
        limiter.config().await.unwrap_err(),
        limiter.set_rate(rate).await.unwrap_err(),
        limiter.ensure_rate(rate).await.unwrap_err(),
        limiter.release(1).await.unwrap_err(),
        limiter.pause_for(second).await.unwrap_err(),
        #[cfg(feature = "admin")]
        limiter.inspect(1).await.unwrap_err(),
        #[cfg(feature = "admin")]
        limiter.budget_of(client.id()).inspect(1).await.unwrap_err(),
        #[cfg(feature = "admin")]
        limiter.preview_repair().await.unwrap_err(),
        #[cfg(feature = "admin")]
        limiter.remove_unused(second).await.unwrap_err(),
        #[cfg(feature = "admin")]
        limiter.reset_usage(Mode::Overall).await.unwrap_err(),
        limiter.clone().with_headroom(Fraction::one_of(2)).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument, "{error}");
        let text = error.to_string();
        assert!(
            text.ends_with("must be one with Redisson's rules, from Client::limiter"),
            "{text}"
        );
        let is_named = error.operation() != crate::error::Operation::Limiter;
        let name = error.operation().name();
        assert!(!is_named || text.matches(name).count() == 1, "{text}");
    }
}

#[test]
fn the_same_pace_is_the_same_policy() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    assert_eq!(Policy::bucket(9, 1, second).unwrap(), Policy::bucket(9, 60, minute).unwrap());
    assert_eq!(Policy::gcra(8, 1, second).unwrap(), Policy::leaky_meter(9, 1, second).unwrap());
}

proptest! {
    #![proptest_config(with_cases(2000))]

    #[test]
    fn a_policy_is_what_its_text_says(policy in (0..KINDS).prop_flat_map(policy_of)) {
        let read = Policy::parse(&policy.text()).unwrap();
        prop_assert_eq!(read.text(), policy.text());
        prop_assert_eq!((read.word(), read.limit()), (policy.word(), policy.limit()));
    }

    #[test]
    fn waits_are_exact(
        policy in any_small(KINDS),
        steps in steps(),
        back in prop_oneof![1 => Just(0), 1 => 0..=4_000_000_i64],
        permits in 1..=6_u64,
    ) {
        let limiter = Limiter::new(&policy);
        let (at, _) = history(&limiter, &steps);
        // The clock may go back; what was refused then begins anew.
        let at = at - back;
        let permits = permits.min(limiter.most());
        if let Err(wait) = limiter.take(at, permits) {
            prop_assert!(wait >= 1);
            if wait > 1 {
                prop_assert_eq!(limiter.take(at + wait - 1, permits), Err(1));
            }
            prop_assert!(limiter.take(at + wait, permits).is_ok());
        }
    }

    #[test]
    fn a_batch_equals_its_requests(
        policy in any_small(KINDS),
        steps in steps(),
        asked in prop::collection::vec((1..=7_u64, 1..=3_u64), 1..6),
    ) {
        let (together, alone) = (Limiter::new(&policy), Limiter::new(&policy));
        let (at, _) = history(&together, &steps);
        history(&alone, &steps);
        let groups: Vec<RequestGroup> = asked
            .iter()
            .map(|&(permits, count)| RequestGroup { permits, max_wait_ms: 0, count })
            .collect();
        let reply = together.call(at, groups.clone());
        let by_batch: Vec<Outcome> = decided(&groups, &reply.outcomes)
            .flat_map(|(_, count, outcome)| vec![outcome; count as usize])
            .collect();
        let singles = groups.iter().flat_map(|group| {
            vec![RequestGroup { count: 1, ..*group }; group.count as usize]
        });
        let by_one: Vec<Outcome> =
            singles.map(|single| alone.call(at, vec![single]).outcomes[0].outcome).collect();
        prop_assert_eq!(by_batch, by_one);
        prop_assert_eq!(together.state(), alone.state());
    }

    #[test]
    fn a_split_refund_equals_a_whole_one(
        policy in any_small(COUNTING),
        steps in steps(),
        more in steps(),
        part in 0..=6_u64,
    ) {
        let (whole, split) = (Limiter::new(&policy), Limiter::new(&policy));
        let (_, grants) = history(&whole, &steps);
        history(&split, &steps);
        let Some(grant) = grants.last().filter(|grant| grant.left > 0) else { return Ok(()) };
        let mut at = grant.at;
        for step in &more {
            at += later(&policy, step);
            let permits = step.2.min(whole.most());
            prop_assert_eq!(whole.take(at, permits), split.take(at, permits));
        }
        let part = part.min(grant.left);
        let credit = whole.give(at, grant.mark, grant.left);
        let parts = split.give(at, grant.mark, part) + split.give(at, grant.mark, grant.left - part);
        prop_assert_eq!(whole.peek(at).available, split.peek(at).available);
        if more.iter().all(|step| later(&policy, step) == 0) {
            prop_assert_eq!(credit, parts);
            prop_assert_eq!(whole.state(), split.state());
        }
    }

    /// Compared with a limiter that never made the grant, and took whatever others were granted.
    #[test]
    fn a_refund_is_exact_or_stricter(
        policy in any_small(COUNTING),
        steps in steps(),
        permits in 1..=6_u64,
        more in steps(),
        after in steps(),
    ) {
        let (limiter, without) = (Limiter::new(&policy), Limiter::new(&policy));
        let (mut at, _) = history(&limiter, &steps);
        history(&without, &steps);
        let permits = permits.min(limiter.most());
        // An anchored window stays where its first grant has put it, even if that comes back.
        let is_free = limiter.peek(at).available == policy.limit();
        let opens = is_free && policy.word() == "anchored";
        let Ok(mark) = limiter.take(at, permits) else { return Ok(()) };
        let mut others = 0;
        for step in &more {
            at += later(&policy, step);
            let permits = step.2.min(limiter.most());
            if step.3.is_some() && limiter.take(at, permits).is_ok() {
                prop_assert!(without.take(at, permits).is_ok() || opens);
                others += 1;
            }
        }
        limiter.give(at, mark, permits);
        for step in &after {
            let (left, free) = (limiter.peek(at).available, without.peek(at).available);
            prop_assert!(left <= free || opens && others > 0, "{} {}", left, free);
            prop_assert!(others > 0 || left == free, "{} {}", left, free);
            at += later(&policy, step);
        }
    }

    /// What was used, without what came back, in any interval.
    #[test]
    fn no_interval_has_too_much(policy in any_small(KINDS), steps in steps()) {
        let limiter = Limiter::new(&policy);
        let (_, grants) = history(&limiter, &steps);
        for first in 0..grants.len() {
            let mut sum = 0;
            for grant in &grants[first..] {
                sum += grant.left;
                let us = grant.at - grants[first].at;
                let Some(most) = ceiling(&policy, us, grant.left) else { continue };
                prop_assert!(sum <= most, "{} of {} in {} us", sum, most, us);
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_frees_nothing(
        policy in any_small(KINDS),
        steps in steps(),
        back in 0..=400_000_i64,
    ) {
        let limiter = Limiter::new(&policy);
        let (at, _) = history(&limiter, &steps);
        let free = limiter.peek(at).available;
        prop_assert!(limiter.peek(at - back).available <= free);
        let permits = limiter.most();
        if limiter.take(at - back, permits).is_ok() {
            prop_assert!(free >= permits);
        }
    }
}

/// Neither has a portion of its own when the other calls, if each change passes over the time so far.
#[test]
fn alignments_that_take_turns_pass_over_no_portion() {
    let second = Duration::from_secs(1);
    let aligned = |at| Policy::interval_bucket(10, 10, second).unwrap().aligned_at(at).unwrap();
    let versions = [aligned(Duration::ZERO), aligned(second / 2)];
    let mut limiter = Limiter::new(&versions[0]);
    let granted = (0..2_000_usize).filter(|nth| {
        limiter.policy = versions[nth % 2].clone();
        limiter.take(T0 + *nth as i64 * 50_000, 1).is_ok()
    });
    let granted = granted.count();
    assert!((500..=1_010).contains(&granted), "{granted}");
}

proptest! {
    #![proptest_config(with_cases(400))]

    /// Two versions of a service, one after the other in any order, are granted no more than the larger limit allows in
    /// any interval, and at least half of what either is granted alone.
    #[test]
    fn versions_side_by_side_are_granted_what_one_would_be(
        (first, second) in versions(),
        calls in prop::collection::vec(
            (any::<bool>(), 0..=4_i64, prop_oneof![40 => Just(0_i64), 1 => 0..=300_i64]),
            50..150,
        ),
    ) {
        let policies = [first, second];
        let granted = |policy_of: &dyn Fn(bool) -> usize| {
            let mut limiter = Limiter::new(&policies[0]);
            let mut at = T0;
            let grants = calls.iter().filter_map(|&(which, parts, gap)| {
                at += (parts + gap * 20) * policies[0].window().as_micros() as i64 / 64 + 1;
                limiter.policy = policies[policy_of(which)].clone();
                limiter.take(at, 1).is_ok().then_some(at)
            });
            grants.collect::<Vec<_>>()
        };
        let [both, one, other] =
            [granted(&usize::from), granted(&|_| 0), granted(&|_| 1)];
        let least = one.len().min(other.len()) / 2;
        prop_assert!(both.len() >= least, "{} of {}", both.len(), least);
        for (from, first) in both.iter().enumerate() {
            for (to, last) in both.iter().enumerate().skip(from) {
                let most = policies.iter().map(|it| ceiling(it, last - first, 1)).max().flatten();
                let sum = (to - from + 1) as u64;
                prop_assert!(most.is_none_or(|most| sum <= most), "{sum} of {most:?}");
            }
        }
    }
}
