//! Leases.

use futures::FutureExt;

use super::*;
use crate::{Fraction, Policy};

fn lease(permits: u32, hold: u64) -> LimiterOptions {
    LimiterOptions::new().lease(permits, ms(hold))
}

/// A limiter that holds a lease of 20 permits for 200 ms, and a grant of one of them.
async fn leased(world: &World) -> (RateLimiter, Grant) {
    let limiter = world.limiter(lease(20, 200)).await;
    // The first call learns the rate, the second one leases.
    for _ in 0..2 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
    }
    let first = grant(&limiter, 1).await;
    assert_eq!(
        (first.decided_by(), first.left(), first.rate()),
        (DecidedBy::Lease, 19 + 78, rate(100))
    );
    (limiter, first)
}

#[tokio::test(start_paused = true)]
async fn a_lease_grants_without_calls() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let other = world.client().limiter("api").unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 78, "2 used, 20 leased");
    let calls = world.store.calls();
    for _ in 0..9 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    }
    assert_eq!(world.store.calls(), calls);
    assert_eq!(other.available_permits().await.unwrap(), 78);
}

/// What it was granted has a mark and no date.
#[tokio::test(start_paused = true)]
async fn a_lease_of_a_policy_grants_without_calls() {
    for clock in [Clock::system(), Clock::runtime(), Clock::server()] {
        let world = World::with_clock(clock);
        let window = Policy::fixed_window(1000, ms(3_600_000)).unwrap();
        let limiter = world.client().limiter_of_with("api", window, lease(20, 200)).unwrap();
        for _ in 0..2 {
            grant(&limiter, 1).await;
        }
        let calls = world.store.calls();
        for _ in 0..9 {
            assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
        }
        assert_eq!(world.store.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_lease_arrives_before_the_first_is_used_up() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let calls = world.store.calls();
    for used in 1..60 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease, "{used}");
        settle().await;
    }
    let calls = world.store.calls() - calls;
    assert!((3..=6).contains(&calls), "{calls} calls for 60 permits");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_after_the_hold_and_unused_permits_go_back() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    for _ in 0..4 {
        sleep(ms(49)).await;
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    }
    sleep(ms(4)).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 2 + 5, "the permits used");
    let next = grant(&limiter, 1).await;
    assert_eq!(next.decided_by(), DecidedBy::Store);
    // The entry was dated with the end of the hold.
    let other = world.client().limiter("api").unwrap();
    client_of(&limiter).close().await;
    assert_eq!(other.available_permits().await.unwrap(), 100 - 2 - 5 - 1);
    sleep(ms(999)).await;
    assert_eq!(other.available_permits().await.unwrap(), 100 - 1 - 5 - 1);
    sleep(ms(1)).await;
    assert_eq!(other.available_permits().await.unwrap(), 99);
}

#[tokio::test(start_paused = true)]
async fn an_idle_lease_goes_back_after_half_its_hold() {
    let world = World::new();
    let (_limiter, _first) = leased(&world).await;
    sleep(ms(90)).await;
    assert_eq!(world.store.outstanding(), 22);
    sleep(ms(65)).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_leased_permit_overtakes_a_waiting_call() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let big = limiter.clone();
    // 78 are available and 19 leased: together they are enough.
    let waiting = tokio::spawn(async move { big.acquire(90).await.unwrap() });
    let began = tokio::time::Instant::now();
    let _ninety = waiting.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(world.store.outstanding(), 93);
    let big = limiter.clone();
    let waiting = tokio::spawn(async move { big.acquire(50).await.unwrap() });
    settle().await;
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Queue);
    let _fifty = waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handle_with_a_headroom_neither_takes_nor_ends_leases() {
    let world = World::new();
    let jobs = world.limiter(lease(20, 200)).await.with_headroom(Fraction::one_of(2)).unwrap();
    for granted in 1..4 {
        let _job = grant(&jobs, 1).await;
        assert_eq!(world.store.outstanding(), granted);
    }
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let jobs = limiter.clone().with_headroom(Fraction::one_of(2)).unwrap();
    // 78 are available and 19 leased.
    assert_eq!(
        (grant(&jobs, 1).await.decided_by(), world.store.outstanding()),
        (DecidedBy::Store, 23)
    );
    assert_eq!(
        denial(&jobs, 40).await.decided_by(),
        DecidedBy::Store,
        "with those leased it would fit"
    );
    let mut waits = Box::pin(jobs.acquire(40));
    assert!(waits.as_mut().now_or_never().is_none());
    settle().await;
    for _ in 0..19 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    }
}

#[tokio::test(start_paused = true)]
async fn another_rate_that_a_handle_with_a_headroom_meets_ends_leases() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let jobs = limiter.clone().with_headroom(Fraction::one_of(2)).unwrap();
    let operator = world.client().limiter("api").unwrap();
    assert!(operator.update_rate(rate(50), crate::Usage::Keep).await.unwrap());
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease, "nobody has met it");
    let _ = denial(&jobs, 10).await;
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn another_rate_that_a_call_of_a_key_or_a_group_meets_ends_leases() {
    for has_key in [true, false] {
        let world = World::new();
        let (limiter, _first) = leased(&world).await;
        let client = client_of(&limiter);
        let all = client.limiter("all").unwrap().with_rate(rate(100));
        let operator = world.client().limiter("api").unwrap();
        assert!(operator.update_rate(rate(50), crate::Usage::Keep).await.unwrap());
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease, "nobody has met it");
        match has_key {
            true => _ = limiter.try_acquire_once("a", 1).await.unwrap(),
            false => _ = client.all_of([&limiter, &all]).unwrap().try_acquire_now(1).await.unwrap(),
        }
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_back_if_a_request_needs_its_permits() {
    for max_wait in [0, 100] {
        let world = World::new();
        let (limiter, _first) = leased(&world).await;
        // 78 are available and 19 leased.
        let big = limiter.try_acquire(90, ms(max_wait)).await.unwrap();
        assert!(big.is_granted());
        client_of(&limiter).close().await;
        assert_eq!(world.store.outstanding(), 93);
        let (limiter, _first) = leased(&World::new()).await;
        assert!(!limiter.try_acquire(98, ms(max_wait)).await.unwrap().is_granted());
        assert_eq!(
            grant(&limiter, 1).await.decided_by(),
            DecidedBy::Lease,
            "giving it back would not be enough"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn returning_a_lease_takes_no_longer_than_a_call_may() {
    // Without a timeout the deadline; otherwise a third of it after the timeout.
    for (max_wait, longest) in [(0, 300), (100, 200)] {
        let world = World::new();
        let (limiter, _first) = leased(&world).await;
        world.store.ledger().refunds_take.store(2000, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        let hasty = limiter.clone().with_deadline(ms(300)).unwrap();
        let decision = hasty.try_acquire(90, ms(max_wait)).await.unwrap();
        assert!(!decision.is_granted(), "the permits are not known to have come back");
        let took = began.elapsed();
        assert!((ms(longest)..=ms(longest + 1)).contains(&took), "{took:?} for {max_wait} ms");
        client_of(&limiter).close().await;
        assert_eq!(world.store.outstanding(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_a_lease_goes_back_loses_nothing() {
    for dropped_after in [0, 1, 5, 9, 10, 11, 30] {
        let world = World::new();
        let (limiter, _first) = leased(&world).await;
        world.store.ledger().refunds_take.store(10, Ordering::SeqCst);
        let big = limiter.clone();
        let task = tokio::spawn(async move { big.try_acquire(90, ms(50)).await });
        sleep(ms(dropped_after)).await;
        task.abort();
        let spent = match task.await {
            Ok(decision) => decision.unwrap().into_grant().map_or(0, |grant| grant.permits()),
            Err(_) => 0,
        };
        assert_eq!(spent, if dropped_after > 10 { 90 } else { 0 }, "{dropped_after} ms");
        client_of(&limiter).close().await;
        assert_eq!(world.store.outstanding(), 3 + spent, "{dropped_after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_goes_into_the_lease_or_into_its_entry() {
    let world = World::new();
    let (limiter, mut first) = leased(&world).await;
    let mut five = grant(&limiter, 5).await;
    let outstanding = world.store.outstanding();
    assert_eq!(five.refund(3).await.unwrap(), 3);
    assert_eq!(world.store.outstanding(), outstanding, "nothing was sent");
    assert_eq!(grant(&limiter, 1).await.left(), 78 + 20 - 1 - 5 + 3 - 1);
    sleep(ms(200)).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 2 + 1 + 2 + 1);
    assert_eq!(five.refund_all().await.unwrap(), 2);
    assert_eq!(first.refund_all().await.unwrap(), 1);
    assert_eq!(first.refund_all().await.unwrap(), 0);
    assert_eq!(world.store.outstanding(), 2 + 1);
    sleep(ms(1000)).await;
    assert!(five.refund(1).await.is_err(), "it was given back");
}

#[tokio::test(start_paused = true)]
async fn closing_gives_leased_permits_back() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    client_of(&limiter).close().await;
    assert_eq!(world.store.outstanding(), 3);
    assert_eq!(limiter.try_acquire_now(1).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_rate_set_by_this_client_ends_the_lease() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    assert!(limiter.update_rate(rate(5), crate::Usage::Keep).await.unwrap());
    settle().await;
    assert_eq!(world.store.outstanding(), 3);
    let _ = grant(&limiter, 2).await;
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn a_rate_set_by_another_client_ends_the_lease_once_seen() {
    let world = World::new();
    let (limiter, _first) = leased(&world).await;
    let other = world.client().limiter("api").unwrap();
    assert!(other.update_rate(rate(30), crate::Usage::Keep).await.unwrap());
    let _ = grant(&limiter, 1).await;
    let _ = denial(&limiter, 21).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 4);
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_leased_with_a_short_keep_alive() {
    let world = World::new();
    let limiter = world.client().limiter_with("api", lease(20, 200)).unwrap();
    limiter.set_rate(rate(100).with_keep_alive(ms(1199)).unwrap()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
    }
    limiter.set_rate(rate(100).with_keep_alive(ms(1200)).unwrap()).await.unwrap();
    let _ = grant(&limiter, 1).await;
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_forward_ends_the_hold() {
    let (clock, clock_handle) = Clock::manual(1_700_000_000_000);
    let world = World::with_clock(clock);
    let (limiter, _first) = leased(&world).await;
    clock_handle.advance(199);
    client_of(&limiter).recheck_waiters();
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    // The next look at the leases, four times in a hold, gives the rest back.
    sleep(ms(50)).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 2 + 2, "a millisecond of the hold was left");
    // Setting the clock back does not prolong a hold.
    let _ = grant(&limiter, 1).await;
    let _ = grant(&limiter, 1).await;
    clock_handle.advance(-10_000);
    client_of(&limiter).recheck_waiters();
    for _ in 0..4 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
        sleep(ms(50)).await;
    }
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_counts_once() {
    let world = World::new();
    let limiter = world.limiter(lease(20, 200)).await;
    let _ = grant(&limiter, 1).await;
    world.store.ledger().lose.store(2, Ordering::SeqCst);
    let _ = grant(&limiter, 1).await;
    assert_eq!(world.store.calls(), 4);
    assert_eq!(world.store.outstanding(), 22);
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    client_of(&limiter).close().await;
    let other = world.client().limiter("api").unwrap();
    assert_eq!(other.available_permits().await.unwrap(), 97);
    assert_eq!(world.store.outstanding(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_dropped_while_the_server_is_away_stops_asking_for_a_lease() {
    let world = World::new();
    let (limiter, first) = leased(&world).await;
    let core = Arc::downgrade(&limiter.limiters().core);
    world.store.ledger().away.store(true, Ordering::SeqCst);
    // It runs low, so that a call is made that nobody waits for.
    for _ in 0..15 {
        let _ = grant(&limiter, 1).await;
    }
    let attempts = || world.store.ledger().attempts.load(Ordering::SeqCst);
    let before = attempts();
    drop((limiter, first));
    sleep(ms(1000)).await;
    assert!(attempts() > before, "the call goes on for some time");
    sleep(ms(2500)).await;
    let ended = attempts();
    sleep(ms(60_000)).await;
    assert_eq!(attempts(), ended);
    assert_eq!(core.strong_count(), 0, "the client is gone");
}

#[tokio::test(start_paused = true)]
async fn leases_and_options_outlive_the_last_handle() {
    let world = World::new();
    let (limiter, first) = leased(&world).await;
    let client = client_of(&limiter);
    drop((limiter, first));
    let again = client.limiter("api").unwrap();
    assert_eq!(grant(&again, 1).await.decided_by(), DecidedBy::Lease);
    drop(again);
    // Without a handle it ends in time.
    assert!(world.store.outstanding() > 4);
    sleep(ms(110)).await;
    settle().await;
    assert_eq!(world.store.outstanding(), 4);
    let again = client.limiter("api").unwrap();
    for by in [DecidedBy::Store, DecidedBy::Lease] {
        assert_eq!(grant(&again, 1).await.decided_by(), by);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_arrives_after_the_client_has_closed_goes_back_at_once() {
    let world = World::new();
    let limiter = world.limiter(lease(20, 200)).await;
    let _first = grant(&limiter, 1).await;
    let client = client_of(&limiter);
    // Its call takes a lease as well, and goes on when its caller has gone away.
    world.store.ledger().silent_for.store(2, Ordering::SeqCst);
    let dropped = tokio::spawn(async move { limiter.try_acquire_now(1).await });
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(world.store.outstanding(), 1, "no answer yet");
    client.close().await;
    assert_eq!(world.store.calls(), 2);
    assert_eq!(world.store.outstanding(), 1);
}

/// However the clock is set, no more than the rate is granted within an interval of that clock.
#[tokio::test(start_paused = true)]
async fn a_manual_clock_that_passes_the_end_of_the_hold_ends_the_lease() {
    let (clock, manual) = Clock::manual(1_700_000_000_000);
    let world = World::with_clock(clock);
    world.client().limiter("api").unwrap().try_set_rate(rate(10)).await.unwrap();
    let limiter = world.client().limiter_with("api", lease(10, 60_000)).unwrap();
    for advance in [62_000, 120_000, 61_000] {
        // Until it leases, and the lease has just been found usable.
        while grant(&limiter, 1).await.decided_by() != DecidedBy::Lease {}
        manual.advance(advance);
        let mut granted = 0;
        while let Decision::Granted(_) = limiter.try_acquire_now(1).await.unwrap() {
            granted += 1;
        }
        let other = world.client().limiter("api").unwrap();
        while let Decision::Granted(_) = other.try_acquire_now(1).await.unwrap() {
            granted += 1;
        }
        assert!(granted <= 10, "{granted} at once, after {advance} ms");
        settle().await;
        manual.advance(61_000);
    }
}
