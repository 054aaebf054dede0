//! Limiters that follow a policy instead of Redisson's rules.

use redisson_rate_limiter::{CalendarUnit, ChangeRule, Policy};

use super::*;

/// 10 at once, and 10 a second.
fn bucket() -> Policy {
    Policy::bucket(10, 10, SECOND).unwrap()
}

fn window() -> Policy {
    Policy::fixed_window(10, SECOND).unwrap()
}

impl World {
    async fn limiter_of(&self, policy: Policy) -> RateLimiter {
        self.client().await.limiter_of("api", policy).unwrap()
    }
}

async fn denied(limiter: &RateLimiter, permits: u64) -> Duration {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.into_denial().expect("a denial").retry_after()
}

conformance! {

async fn a_bucket_fills_steadily(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let grant = granted(&limiter, 10).await;
    assert_eq!((grant.permits(), grant.left()), (10, 0));
    assert_eq!(denied(&limiter, 1).await, ms(100));
    assert_eq!(denied(&limiter, 3).await, ms(300));
    world.pass(250);
    assert_eq!(left(&limiter).await, 2);
    assert_eq!(denied(&limiter, 3).await, ms(50));
    let peek = limiter.peek(3).await.unwrap();
    assert_eq!((peek.available(), peek.wait(), peek.is_lower_bound()), (2, ms(50), false));
    world.pass(50);
    assert!(limiter.try_acquire_now(3).await.unwrap().is_granted());
}

async fn a_key_is_granted_once(world: World) {
    let queue = Policy::queue(10, SECOND, SECOND).unwrap();
    for (at, policy) in [bucket(), window(), queue].into_iter().enumerate() {
        let name = format!("once-{at}");
        let limiter = world.client().await.limiter_of(&name, policy.clone()).unwrap();
        let other = world.client().await.limiter_of(&name, policy).unwrap();
        let once = async |limiter: &RateLimiter, key, permits| {
            let answer = limiter.try_acquire_once(key, permits).await.unwrap();
            answer.into_grant().map(|grant| grant.permits())
        };
        assert_eq!(once(&limiter, "a", 3).await, Some(3), "{name}");
        let after = left(&limiter).await;
        for (limiter, permits) in [(&limiter, 3), (&other, 3), (&other, 1), (&limiter, 9)] {
            assert_eq!(once(limiter, "a", permits).await, Some(3), "{name}, {permits}");
        }
        assert_eq!(left(&limiter).await, after, "{name}");
        // It stays the key's: given back, it would be granted again.
        let mut grant = other.try_acquire_once("a", 3).await.unwrap().into_grant().unwrap();
        assert_eq!(grant.refund_all().await.unwrap(), 0, "{name}");
        assert_eq!(left(&limiter).await, after, "{name}");
        if at < 2 {
            assert_eq!(once(&other, "b", 7).await, Some(7), "{name}");
        }
        assert_eq!(once(&other, "c", 1).await, None, "{name}");
        let waiter = limiter.clone();
        let waiter = tokio::spawn(async move { waiter.acquire(10).await.unwrap() });
        tokio::time::sleep(ms(50)).await;
        // Half of the bucket is there, for the call that waits.
        world.pass(500);
        assert_eq!(once(&limiter, "a", 3).await, Some(3), "{name}");
        assert_eq!(once(&limiter, "d", 1).await, None, "{name}");
        waiter.abort();
        world.pass(if at < 2 { 500 } else { 1500 });
        assert_eq!(once(&other, "c", 1).await, Some(1), "{name}");
        let error = limiter.try_acquire_once("e", 11).await;
        assert!(at == 2 || error.unwrap_err().kind() == (ErrorKind::ExceedsRate { requested: 11, rate: 10 }));
    }
}

async fn a_window_begins_anew(world: World) {
    let limiter = world.limiter_of(window()).await;
    world.pass(400);
    assert!(limiter.try_acquire_now(10).await.unwrap().is_granted());
    assert_eq!(denied(&limiter, 1).await, ms(600));
    world.pass(600);
    assert_eq!(left(&limiter).await, 10);
}

async fn waits_are_exact_to_the_microsecond(world: World) {
    let limiter = world.limiter_of(Policy::bucket(3, 3, SECOND).unwrap()).await;
    assert!(limiter.try_acquire_now(3).await.unwrap().is_granted());
    assert_eq!(denied(&limiter, 1).await, Duration::from_micros(333_334));
    world.time.set_micros(START * 1000 + 333_333);
    assert_eq!(denied(&limiter, 1).await, Duration::from_micros(1));
    world.time.set_micros(START * 1000 + 333_334);
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
}

async fn concurrent_calls_of_a_policy_are_merged_in_order(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let decisions = join_all([4, 5, 3, 1].map(|permits| limiter.try_acquire_now(permits))).await;
    let granted: Vec<_> = decisions.into_iter().map(|it| it.unwrap().is_granted()).collect();
    assert_eq!(granted, [true, true, false, true]);
    let up_to = limiter.try_acquire_up_to(5).await.unwrap();
    assert!(!up_to.is_granted());
    world.pass(300);
    assert_eq!(limiter.try_acquire_up_to(5).await.unwrap().into_grant().unwrap().permits(), 3);
}

async fn a_call_waits_for_a_policy(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let client = world.client().await;
    let other = client.limiter_of("api", bucket()).unwrap();
    let _all = granted(&limiter, 10).await;
    assert!(!other.try_acquire(2, ms(199)).await.unwrap().is_granted());
    let waiting = async {
        let decision = other.try_acquire(2, ms(500)).await.unwrap();
        assert!(decision.is_granted());
    };
    let passing = async {
        tokio::time::sleep(ms(50)).await;
        world.pass(200);
        client.recheck_waiters();
    };
    futures::join!(waiting, passing);
}

async fn a_refund_comes_back_to_a_policy(world: World) {
    for policy in [bucket(), window()] {
        let limiter = world.limiter_of(policy).await;
        limiter.delete().await.unwrap();
        let _first = granted(&limiter, 6).await;
        let mut second = granted(&limiter, 4).await;
        assert_eq!(second.refund(3).await.unwrap(), 3);
        assert_eq!(left(&limiter).await, 3);
        assert_eq!(second.refund(1).await.unwrap(), 1);
        let error = second.refund(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

async fn more_than_a_policy_allows_is_an_error(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let error = limiter.try_acquire_now(11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
}

async fn what_was_used_stays_used_under_other_parameters(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let larger = world.limiter_of(Policy::bucket(15, 10, SECOND).unwrap()).await;
    let _used = granted(&limiter, 8).await;
    assert_eq!(left(&larger).await, 7);
    let _used = granted(&larger, 7).await;
    assert_eq!(left(&limiter).await, 0);
}

async fn policies_of_one_name_are_two_limiters(world: World) {
    let client = world.client().await;
    let bucket = client.limiter_of("api", bucket()).unwrap();
    let window = client.limiter_of("api", window()).unwrap();
    let redissons = client.limiter("api").unwrap().with_rate(Rate::per_second(10));
    let _used = granted(&bucket, 10).await;
    assert_eq!(left(&window).await, 10);
    assert_eq!(left(&redissons).await, 10);
    assert!(bucket.exists().await.unwrap());
    assert!(!window.exists().await.unwrap());
    assert!(bucket.delete().await.unwrap());
    assert_eq!(left(&bucket).await, 10);
}

async fn a_policy_has_no_rate_and_no_log(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let rate = Rate::per_second(1);
    let errors = [
        limiter.set_rate(rate).await.unwrap_err(),
        limiter.release(1).await.unwrap_err(),
        limiter.config().await.unwrap_err(),
        limiter.pause_for(SECOND).await.unwrap_err(),
        limiter.clone().with_headroom(redisson_rate_limiter::Fraction::one_of(2)).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("bucket"), "{error}");
    }
    assert!(!limiter.exists().await.unwrap());
}

async fn parameters_are_stored_and_changed(world: World) {
    let client = world.client().await;
    let stored = client.stored_limiter_of("api", bucket()).unwrap();
    let error = stored.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    stored.set_policy(bucket(), ChangeRule::Keep, None).await.unwrap();
    let _used = granted(&stored, 4).await;
    assert_eq!(stored.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
    let larger = Policy::bucket(20, 10, SECOND).unwrap();
    stored.set_policy(larger.clone(), ChangeRule::Scale, None).await.unwrap();
    assert_eq!(left(&stored).await, 12);
    stored.set_policy(bucket(), ChangeRule::Keep, Some(60 * SECOND)).await.unwrap();
    assert_eq!(left(&stored).await, 2);
    assert_eq!(left(&client.limiter_of("api", bucket()).unwrap()).await, 2);
    stored.set_policy(larger, ChangeRule::Reset, Some(60 * SECOND)).await.unwrap();
    assert_eq!(left(&stored).await, 20);
    let day = |limit| Policy::calendar_window(limit, CalendarUnit::Day).unwrap();
    let quota = client.stored_limiter_of("quota", day(100)).unwrap();
    quota.set_policy(day(50), ChangeRule::Keep, None).await.unwrap();
    let grant = quota.try_acquire_now(1).await.unwrap().into_grant().unwrap();
    assert_eq!((grant.rate().permits(), grant.left()), (100, 49), "its own, and the stored one");
    for (limiter, policy) in [(stored, window()), (client.limiter("api").unwrap(), bucket())] {
        let error = limiter.set_policy(policy, ChangeRule::Keep, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

async fn what_was_used_beyond_a_grant_is_taken(world: World) {
    let limiter = world.limiter_of(bucket()).await;
    let mut first = granted(&limiter, 3).await;
    first.settle(5).await.unwrap();
    assert_eq!(left(&limiter).await, 5);
    let mut second = granted(&limiter, 4).await;
    second.settle(1).await.unwrap();
    assert_eq!(left(&limiter).await, 4);
    // As much as there is: a policy has no debts.
    let mut third = granted(&limiter, 3).await;
    third.settle(100).await.unwrap();
    assert_eq!(left(&limiter).await, 0);
}

async fn a_window_and_a_bucket_grant_together_or_not_at_all(world: World) {
    let client = world.client().await;
    let bucket = client.limiter_of("api", Policy::bucket(5, 5, SECOND).unwrap()).unwrap();
    let window = client.limiter_of("api", Policy::fixed_window(12, SECOND * 60).unwrap()).unwrap();
    let both = client.all_of([&bucket, &window]).unwrap();
    let mut grant = both.try_acquire_now([3, 10]).await.unwrap().into_grant().unwrap();
    assert_eq!((grant.left(), left(&bucket).await, left(&window).await), (2, 2, 2));
    // A denial takes nothing, and names the limit that refuses longest.
    let denial = both.try_acquire_now([1, 3]).await.unwrap().into_denial().unwrap();
    assert_eq!(denial.refused_by(), Some("api"));
    assert_eq!(denial.rate().unwrap().permits(), 12);
    let window_ends = denial.retry_after();
    let denial = both.try_acquire_now([3, 1]).await.unwrap().into_denial().unwrap();
    assert_eq!((denial.rate().unwrap().permits(), denial.retry_after()), (5, ms(200)));
    let denial = both.try_acquire_now([3, 3]).await.unwrap().into_denial().unwrap();
    assert_eq!((denial.rate().unwrap().permits(), denial.retry_after()), (12, window_ends));
    assert_eq!((left(&bucket).await, left(&window).await), (2, 2));
    let error = both.try_acquire_now([1, 13]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 13, rate: 12 });
    // What is not used comes back to both.
    assert_eq!(grant.refund(2).await.unwrap(), 2);
    assert_eq!((left(&bucket).await, left(&window).await), (4, 4));
    grant.settle([1, 9]).await.unwrap();
    assert_eq!((left(&bucket).await, left(&window).await), (4, 3));
    world.pass(200);
    let waits = both.acquire([5, 4]);
    let passes = async {
        tokio::time::sleep(ms(50)).await;
        assert_eq!((left(&bucket).await, left(&window).await), (5, 3));
        world.pass(window_ends.as_millis() as i64);
        client.recheck_waiters();
    };
    let (granted, ()) = futures::join!(waits, passes);
    granted.unwrap();
    assert_eq!((left(&bucket).await, left(&window).await), (0, 8));
}

async fn merged_calls_of_several_policies_are_decided_one_by_one(world: World) {
    let client = world.client().await;
    let of = |policy: Result<Policy, _>| client.limiter_of("api", policy.unwrap()).unwrap();
    let bucket = of(Policy::interval_bucket(10, 10, SECOND));
    let window = of(Policy::rolling_window(20, SECOND));
    let counter = of(Policy::sliding_counter(1000, SECOND));
    let all = client.all_of([&bucket, &window, &counter]).unwrap();
    let calls = [[4, 1, 1], [5, 1, 1], [2, 1, 1], [1, 18, 1], [1, 1, 1], [1, 1, 998], [1, 1, 1]];
    let answers = join_all(calls.map(|costs| all.try_acquire_now(costs))).await;
    let granted: Vec<bool> = answers.into_iter().map(|it| it.unwrap().is_granted()).collect();
    assert_eq!(granted, [true, true, false, true, false, false, false]);
    let left = join_all(all.limiters().iter().map(left)).await;
    assert_eq!(left, [0, 0, 997]);
}

async fn limiters_of_all_kinds_are_asked_in_turn(world: World) {
    let client = world.client().await;
    let bucket = client.limiter_of("a", bucket()).unwrap();
    let window = client.limiter_of("a", Policy::fixed_window(5, SECOND).unwrap()).unwrap();
    let redissons = client.limiter("b").unwrap().with_rate(Rate::per_minute(7));
    let error = client.all_of([&bucket, &redissons]).unwrap_err();
    assert!(error.to_string().contains("all_of_in_turn"), "{error}");
    let all = client.all_of_in_turn([&bucket, &window, &redissons]).unwrap();
    assert!(all.try_acquire_now(4).await.unwrap().is_granted());
    let denial = all.try_acquire_now(2).await.unwrap().into_denial().unwrap();
    assert_eq!(denial.refused_by(), Some("a"));
    // What the limiter and the bucket had granted has come back: by their names they are asked before the window.
    for _ in 0..100 {
        if (left(&bucket).await, left(&redissons).await) == (6, 3) {
            break;
        }
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!((left(&bucket).await, left(&window).await, left(&redissons).await), (6, 1, 3));
}

}
