//! Closing, coming back, and calls that fail by themselves.

use super::*;

/// Not by a policy either.
#[tokio::test(start_paused = true)]
async fn a_closed_client_grants_nothing_during_an_outage() {
    let mut answers = Vec::new();
    for policy in [OnOutage::Allow, OnOutage::Local(Fraction::ALL), OnOutage::Deny] {
        let world = World::new();
        let limiter = world.away(policy, 10).await;
        // The outage begins at another limiter, so that `Local` has no stand-in for this one yet.
        let options = LimiterOptions::new().on_outage(OnOutage::Allow);
        let other = client_of(&limiter).limiter_with("other", options).unwrap();
        grant(&other, 1).await;
        client_of(&limiter).close().await;
        let answer = limiter.try_acquire_now(1).await;
        answers.push(answer.map(|answer| answer.is_granted()).map_err(|error| error.kind()));
    }
    assert_eq!(answers, vec![Err(ErrorKind::Closed); 3]);
}

/// A client begins with its fraction of what the server said was left, also if its last handle has ended since.
#[tokio::test(start_paused = true)]
async fn what_the_server_has_granted_counts_with_a_handle_for_each_call_too() {
    for own_policy in [false, true] {
        let (world, _clock) = stopped();
        let (_client, limiter) = world.handles(OnOutage::Local(Fraction::ALL), own_policy);
        assert_eq!(grant(&limiter(), 100).await.decided_by(), DecidedBy::Store);
        world.set_away(true);
        let decision = limiter().try_acquire_now(100).await.unwrap();
        assert!(
            !decision.is_granted(),
            "own policy: {own_policy}: 200 of 100 in an interval: {decision}"
        );
    }
}

/// A limiter's first calls wait until its grants are written, for an attempt at most. Those of the stand-in
/// that are decided meanwhile are written too.
#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_beyond_their_deadline_for_what_is_written() {
    let (world, clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 1).await;
    for _ in 0..8 {
        grant(&limiter, 1).await;
        clock.advance(120);
    }
    world.set_away(false);
    world.store.ledger().charges_take.store(900, Ordering::SeqCst);
    limiter.engine().server_answered();
    let limiter = limiter.with_deadline(ms(300)).unwrap();
    let began = Instant::now();
    let answer = limiter.try_acquire_now(1).await;
    let took = began.elapsed();
    assert!(took <= ms(110), "an attempt at most: {took:?}");
    assert_eq!(
        answer.unwrap().into_grant().map(|grant| grant.decided_by()),
        Some(DecidedBy::Outage)
    );
    sleep(ms(2000)).await;
    let report = client_of(&limiter).outages();
    assert_eq!((report.written, report.not_written), (report.granted, 0), "{report:?}");
}

/// A fault that opens no circuit, as others were answered meanwhile: what is granted is to be written.
#[tokio::test(start_paused = true)]
async fn what_is_granted_for_a_single_call_that_is_not_answered_is_written() {
    let (world, _clock) = stopped();
    let client = world.client_by(Client::builder().on_outage(OnOutage::Local(Fraction::ALL)));
    let slow = client.limiter("slow").unwrap().with_rate(rate(100));
    let busy = client.limiter("busy").unwrap().with_rate(rate(100));
    grant(&slow, 1).await;
    grant(&busy, 1).await;
    world.store.ledger().unanswered.store(50, Ordering::SeqCst);
    let (decision, ()) = tokio::join!(slow.try_acquire_now(50), async {
        for _ in 0..99 {
            sleep(ms(60)).await;
            let _ = busy.try_acquire_now(1).await.unwrap();
        }
    });
    let decision = decision.unwrap();
    world.store.ledger().unanswered.store(0, Ordering::SeqCst);
    assert_eq!(decision.into_grant().map(|grant| grant.decided_by()), Some(DecidedBy::Outage));
    sleep(ms(100)).await;
    let report = client.outages();
    let other = world.client().limiter("slow").unwrap();
    let left = other.available_permits().await.unwrap();
    assert_eq!((report.granted, report.written, left), (50, 50, 49), "{report:?}");
}

/// `LimiterOptions::max_waiters` holds while the server is away too.
#[tokio::test(start_paused = true)]
async fn no_more_wait_here_than_may() {
    let (world, _clock) = stopped();
    let options = LimiterOptions::new().on_outage(OnOutage::Local(Fraction::ALL)).max_waiters(2);
    let limiter = world.limiter(options).await.with_rate(rate(100));
    world.set_away(true);
    grant(&limiter, 100).await;
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.try_acquire(1, ms(60_000)).await.map(drop) })
        })
        .collect();
    settle().await;
    let waiting = calls.iter().filter(|call| !call.is_finished()).count();
    calls.iter().for_each(|call| call.abort());
    assert!(waiting <= 2, "{waiting} wait");
}

/// The same for one that waits: it is not left to the stand-in for ever.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_goes_back_to_the_server_if_it_alone_has_failed() {
    let (world, _clock) = stopped();
    let client = world.client_by(Client::builder().on_outage(HALF));
    let slow = client.limiter("slow").unwrap().with_rate(crate::Rate::per_hour(100));
    let busy = client.limiter("busy").unwrap().with_rate(rate(100));
    grant(&slow, 1).await;
    world.store.ledger().unanswered.store(50, Ordering::SeqCst);
    let waiting = tokio::spawn({
        let slow = slow.clone();
        async move { slow.acquire(50).await }
    });
    for turn in 0..200 {
        if turn == 80 {
            world.store.ledger().unanswered.store(0, Ordering::SeqCst);
        }
        sleep(ms(60)).await;
        let _ = busy.try_acquire_now(1).await.unwrap();
    }
    assert!(waiting.is_finished(), "it waits for permits of the stand-in");
    assert_eq!(waiting.await.unwrap().unwrap().decided_by(), DecidedBy::Store);
}

/// Callers for whom the queue has no room are answered by the policy too, whether the server refuses them
/// or is silent; from a server that answers they get the error, and at once if nothing is in flight.
#[tokio::test(start_paused = true)]
async fn a_full_queue_hides_no_policy() {
    for policy in [OnOutage::Allow, OnOutage::Deny, HALF] {
        for is_silent in [false, true] {
            let (world, _clock) = stopped();
            let options = LimiterOptions::new().on_outage(policy).max_waiters(4);
            let limiter = world.limiter(options).await;
            grant(&limiter, 100).await.refund_all().await.unwrap();
            let ask = || {
                let calls = (0..50).map(|_| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move { limiter.try_acquire_now(1).await })
                });
                join_all(calls.collect::<Vec<_>>())
            };
            let is_full = |error: crate::Error| matches!(error.kind(), ErrorKind::QueueFull { .. });
            world.store.ledger().silent_for.store(3, Ordering::SeqCst);
            let full = ask().await.into_iter().filter_map(|answer| answer.unwrap().err());
            assert!(full.map(is_full).filter(|is_full| *is_full).count() > 0, "{policy:?}");
            match is_silent {
                true => world.store.ledger().unanswered.store(1, Ordering::SeqCst),
                false => world.set_away(true),
            }
            for answer in ask().await {
                let answer =
                    answer.unwrap().unwrap_or_else(|e| panic!("{policy:?}, {is_silent}: {e}"));
                let by = match answer {
                    Decision::Granted(grant) => grant.decided_by(),
                    Decision::Denied(denial) => denial.decided_by(),
                };
                assert_eq!(by, DecidedBy::Outage, "{policy:?}");
            }
        }
    }
}
