//! What a client decides by itself while its server is away, and how that is written afterwards.

use super::*;
use crate::engine::outage::MOST_STAND_INS;

#[tokio::test(start_paused = true)]
async fn a_part_of_the_rate_is_granted_here_less_what_is_in_use_already() {
    let (world, clock) = stopped();
    let limiter = world.away(HALF, 40).await;
    // Half of 100, less half of 40.
    let granted = grant(&limiter, 20).await;
    assert_eq!(
        (granted.decided_by(), granted.rate(), granted.left()),
        (DecidedBy::Outage, rate(50), 10)
    );
    grant(&limiter, 10).await;
    let denied = denial(&limiter, 1).await;
    assert_eq!((denied.decided_by(), denied.retry_after()), (DecidedBy::Outage, ms(1000)));
    assert_eq!(denied.rate(), Some(rate(50)));
    // More than this client's part, but not than the rate: the server could grant it.
    let denied = denial(&limiter, 51).await;
    assert!(denied.is_lower_bound() && denied.retry_after() <= ms(200), "{denied}");
    assert_eq!(limiter.acquire(51).await.unwrap_err().kind(), ErrorKind::Unavailable);
    clock.advance(1000);
    grant(&limiter, 50).await;
    denial(&limiter, 1).await;
    assert_eq!(limiter.outages().granted, 80);
}

/// One stand-in for all callers: those of each headroom would be granted a part of the rate otherwise.
#[tokio::test(start_paused = true)]
async fn callers_with_a_headroom_leave_it_here_too() {
    let (world, _clock) = stopped();
    let users = world.away(HALF, 0).await;
    let jobs = users.clone().with_headroom(Fraction::one_of(5)).unwrap();
    assert_eq!((grant(&jobs, 30).await.left(), grant(&jobs, 10).await.left()), (10, 0));
    assert_eq!(denial(&jobs, 1).await.decided_by(), DecidedBy::Outage);
    assert!(denial(&jobs, 41).await.is_lower_bound(), "the server could grant it");
    let error = jobs.try_acquire_now(81).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 81, rate: 80 });
    assert_eq!(users.try_acquire_up_to(50).await.unwrap().into_grant().unwrap().permits(), 10);
    denial(&users, 1).await;
    assert_eq!((users.outages().granted, jobs.outages().granted), (50, 50));
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(world.available().await, 50);
    assert_eq!(users.outages().written, 50);
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_begins_with_what_any_caller_has_seen_in_use() {
    let (world, _clock) = stopped();
    let (_client, handle) = world.handles(OnOutage::Local(Fraction::ALL), true);
    let users = handle();
    let jobs = users.clone().with_headroom(Fraction::one_of(5)).unwrap();
    grant(&jobs, 1).await;
    grant(&users, 59).await;
    world.set_away(true);
    assert_eq!(grant(&jobs, 20).await.left(), 0);
    denial(&jobs, 1).await;
    grant(&users, 20).await;
    denial(&users, 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_leased_counts_here_until_its_hold_ends() {
    let world = World::new();
    let options = LimiterOptions::new().lease(50, ms(1500));
    let limiter = world.limiter(options.on_outage(OnOutage::Local(Fraction::ALL))).await;
    grant(&limiter, 1).await;
    grant(&limiter, 1).await;
    for _ in 0..3 {
        sleep(ms(300)).await;
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    }
    world.set_away(true);
    assert_eq!(denial(&limiter, 60).await.decided_by(), DecidedBy::Outage);
    // An interval after the call that brought the lease.
    sleep(ms(200)).await;
    assert_eq!(denial(&limiter, 60).await.decided_by(), DecidedBy::Outage);
    assert_eq!(grant(&limiter, 40).await.decided_by(), DecidedBy::Lease);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_granted_here_is_known_here() {
    let (world, _clock) = stopped();
    let limiter = world.away(HALF, 0).await;
    for permits in [3, 3, 9] {
        let answer = limiter.try_acquire_once("a", permits).await.unwrap();
        let grant = answer.into_grant().unwrap();
        assert_eq!((grant.permits(), grant.left(), grant.decided_by()), (3, 47, DecidedBy::Outage));
    }
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(world.available().await, 97);
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_here_is_written_once_before_the_server_grants_again() {
    let (world, clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 10).await;
    clock.advance(500);
    grant(&limiter, 30).await;
    clock.advance(300);
    grant(&limiter, 25).await;
    world.set_away(false);
    // The answers to the first two writes are lost; each begins another outage.
    world.store.ledger().lose.store(2, Ordering::SeqCst);
    for _ in 0..4 {
        sleep(LOOK).await;
    }
    let report = limiter.outages();
    assert_eq!((report.written, report.not_written, report.circuit), (55, 0, CircuitState::Closed));
    assert_eq!(
        world.store.ledger().charges.load(Ordering::SeqCst),
        4,
        "two entries, two lost answers"
    );
    assert_eq!(world.available().await, 35);
    let denied = denial(&limiter, 36).await;
    assert_eq!((denied.decided_by(), denied.retry_after()), (DecidedBy::Store, ms(200)));
    // They count until an interval after they were granted.
    clock.advance(699);
    assert_eq!(world.available().await, 45);
    clock.advance(1);
    assert_eq!(world.available().await, 75);
    clock.advance(300);
    assert_eq!(world.available().await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_call_writes_what_was_granted_here_if_it_comes_before_the_prober() {
    let (world, _clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 0).await;
    grant(&limiter, 60).await;
    world.set_away(false);
    // Another limiter's call closes the circuit, in this test.
    limiter.engine().server_answered();
    let calls = (0..10).map(|_| limiter.try_acquire_now(10));
    let granted =
        join_all(calls).await.into_iter().filter(|answer| answer.as_ref().unwrap().is_granted());
    assert_eq!(granted.count(), 4, "60 of 100 are in use");
    assert_eq!(world.store.ledger().charges.load(Ordering::SeqCst), 1);
}

/// What was granted here does not end with the handle.
#[tokio::test(start_paused = true)]
async fn a_handle_for_each_call_is_granted_no_more_than_one_for_all() {
    for own_policy in [true, false] {
        let (world, _clock) = stopped();
        let (client, limiter) = world.handles(OnOutage::Local(Fraction::ALL), own_policy);
        world.set_away(true);
        grant(&limiter(), 60).await;
        grant(&limiter(), 40).await;
        denial(&limiter(), 1).await;
        world.set_away(false);
        // The server is back before the prober has noticed.
        limiter().engine().server_answered();
        assert_eq!(denial(&limiter(), 1).await.decided_by(), DecidedBy::Store);
        assert_eq!((client.outages().written, world.available().await), (100, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_here_is_written_if_nobody_has_a_handle_any_more() {
    for has_next in [false, true] {
        let (world, _clock) = stopped();
        let limiter = world.away(OnOutage::Local(Fraction::ALL), 10).await;
        let client = client_of(&limiter);
        grant(&limiter, 60).await;
        drop(limiter);
        let next = has_next.then(|| client.limiter("api").unwrap());
        world.set_away(false);
        sleep(LOOK).await;
        assert_eq!((client.outages().written, world.available().await), (60, 30));
        drop(next);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_moves_to_the_part_of_this_client_and_back() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().on_outage(HALF)).await;
    grant(&limiter, 100).await;
    let waiting = limiter.try_acquire(50, ms(60_000));
    futures::pin_mut!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    world.set_away(true);
    let began = Instant::now();
    let granted = waiting.await.unwrap().into_grant().expect("a grant");
    assert_eq!(granted.decided_by(), DecidedBy::Outage);
    assert!(began.elapsed() <= ms(1100), "{:?}", began.elapsed());
    // And back: it waits for what it will not get here before the server is back.
    let waiting = limiter.try_acquire(50, ms(60_000));
    futures::pin_mut!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    world.set_away(false);
    let granted = waiting.await.unwrap().into_grant().expect("a grant");
    assert!(matches!(granted.decided_by(), DecidedBy::Store | DecidedBy::Outage));
    assert!(began.elapsed() <= ms(4000), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn refunds_of_what_was_granted_here_stay_here() {
    let (world, _clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 0).await;
    let mut first = grant(&limiter, 60).await;
    let mut second = grant(&limiter, 40).await;
    denial(&limiter, 1).await;
    assert_eq!(first.refund(20).await.unwrap(), 20);
    grant(&limiter, 20).await;
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(limiter.outages().written, 100);
    assert_eq!(world.available().await, 0);
    assert_eq!(second.refund_all().await.unwrap(), 0, "never credited on the server");
    assert_eq!(world.available().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_takes_nothing() {
    let (world, clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 0).await;
    grant(&limiter, 100).await;
    let waiting = limiter.acquire(1);
    assert!(waiting.now_or_never().is_none());
    clock.advance(1000);
    sleep(ms(1500)).await;
    grant(&limiter, 100).await;
    assert_eq!(limiter.outages().granted, 200);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_may_have_changed_meanwhile() {
    let (world, _clock) = stopped();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 10).await;
    grant(&limiter, 60).await;
    world.set_away(false);
    let other = world.client().limiter("api").unwrap();
    other.update_rate(rate(50), Usage::Keep).await.unwrap();
    sleep(LOOK).await;
    assert_eq!(limiter.outages().written, 60);
    assert_eq!(world.available().await, 0, "70 of 50 are in use");
    assert_eq!(denial(&limiter, 1).await.retry_after(), ms(1000));

    other.delete().await.unwrap();
    other.set_rate(rate(100)).await.unwrap();
    assert!(grant(&limiter, 1).await.decided_by() == DecidedBy::Store);
    world.set_away(true);
    grant(&limiter, 30).await;
    world.set_away(false);
    other.delete().await.unwrap();
    sleep(LOOK).await;
    let report = limiter.outages();
    assert_eq!((report.written, report.not_written), (60, 30), "there is no limiter any more");
}

#[tokio::test(start_paused = true)]
async fn a_handle_with_a_rate_needs_no_server_and_creates_the_limiter_with_what_it_granted() {
    let (world, _clock) = stopped();
    world.set_away(true);
    let options = LimiterOptions::new().on_outage(HALF);
    let limiter = world.client().limiter_with("api", options).unwrap();
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "it does not know the rate");
    let limiter = limiter.with_rate(rate(20));
    grant(&limiter, 10).await;
    denial(&limiter, 1).await;
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(limiter.outages().written, 10);
    assert_eq!(world.available().await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_clients_own_budget_is_all_its_own() {
    let (world, _clock) = stopped();
    let client = world.client();
    let limiter = client.limiter("api").unwrap();
    limiter.set_rate(Rate::per_client(10, ms(1000)).unwrap()).await.unwrap();
    let limiter = client.limiter_with("api", LimiterOptions::new().on_outage(HALF)).unwrap();
    grant(&limiter, 4).await;
    world.set_away(true);
    grant(&limiter, 6).await;
    denial(&limiter, 1).await;
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_less_than_a_permit_is_nothing() {
    let world = World::new();
    let none = OnOutage::Local(Fraction::one_of(101));
    // The rate is the server's, and comes to be known when it has gone.
    let limiter = world.away(none, 1).await;
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Outage);
    assert_eq!(limiter.acquire(1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    // While the server is there it does not matter.
    world.set_away(false);
    sleep(LOOK).await;
    assert!(limiter.with_rate(rate(100)).try_acquire_now(1).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn the_part_is_that_of_the_rate_of_the_handle_if_there_is_no_limiter() {
    let world = World::new();
    world.set_away(true);
    let none = LimiterOptions::new().on_outage(OnOutage::Local(Fraction::one_of(101)));
    let limiter = |name: &str| world.client().limiter_with(name, none).unwrap();
    assert!(!asked(limiter("a").with_rate(rate(100))).await);
    assert!(asked(limiter("b").with_rate(rate(101))).await);
    // In this mode all of the rate is the client's.
    assert!(asked(limiter("c").with_rate(Rate::per_client(1, ms(1000)).unwrap())).await);
}

async fn asked(limiter: RateLimiter) -> bool {
    limiter.try_acquire_now(1).await.unwrap().is_granted()
}

/// A limiter for each key, of which anybody can make up as many as he likes.
#[tokio::test(start_paused = true)]
async fn no_more_limiters_than_so_many_are_decided_here() {
    let (world, clock) = stopped();
    world.set_away(true);
    let client = world.client_by(Client::builder().on_outage(OnOutage::Local(Fraction::ALL)));
    let ask = async |name: String| {
        let limiter = client.limiter(&name).unwrap().with_rate(rate(1));
        limiter.try_acquire_now(1).await.unwrap()
    };
    for nth in 0..MOST_STAND_INS {
        assert!(ask(format!("user:{nth}")).await.is_granted(), "{nth}");
        clock.advance((nth == MOST_STAND_INS / 2).into());
    }
    for nth in 0..3 * MOST_STAND_INS {
        let Decision::Denied(denial) = ask(format!("attacker:{nth}")).await else {
            panic!("{nth}")
        };
        assert_eq!(denial.decided_by(), DecidedBy::Outage);
        assert!(denial.is_lower_bound() && denial.retry_after() <= LOOK, "{denial}");
    }
    let core = &client.0.core;
    assert_eq!(core.outages.with_stand_in().len(), MOST_STAND_INS);
    assert!(client.0.len() <= 2 * MOST_STAND_INS + 1, "{}", client.0.len());
    // Those that have a place keep it, and their count.
    assert!(!ask("user:7".to_owned()).await.is_granted());
    // Once what they have granted counts no longer, others have room, while the server is still away.
    clock.advance(999);
    sleep(LOOK).await;
    assert!(ask("later".to_owned()).await.is_granted());
    assert!(!ask("later".to_owned()).await.is_granted());
    world.set_away(false);
    clock.advance(1);
    sleep(LOOK * 2).await;
    assert_eq!(core.outages.with_stand_in().len(), 0);
    assert_eq!(ask("user:7".to_owned()).await.into_grant().unwrap().decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn with_the_servers_clock_entries_are_as_old_as_their_permits() {
    let world = World::new();
    let builder = Client::builder().on_outage(OnOutage::Local(Fraction::ALL));
    let client =
        builder.clock(Clock::server()).build(Store::Counting(world.store.clone())).unwrap();
    let limiter = client.limiter("api").unwrap();
    limiter.set_rate(Rate::overall(100, ms(60_000)).unwrap()).await.unwrap();
    grant(&limiter, 10).await;
    world.set_away(true);
    grant(&limiter, 50).await;
    sleep(ms(30_000)).await;
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(limiter.outages().written, 50);
    assert_eq!(limiter.available_permits().await.unwrap(), 40);
    sleep(ms(28_500)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 100);
}

#[tokio::test(start_paused = true)]
async fn limiters_whose_grants_have_expired_are_forgotten_while_the_server_is_away() {
    let (world, clock) = stopped();
    let client = world.client_by(Client::builder().on_outage(HALF));
    world.set_away(true);
    // One caller each millisecond: a thousand in an interval.
    for number in 0..20_000 {
        let limiter = client.limiter(&format!("user:{number}")).unwrap().with_rate(rate(100));
        grant(&limiter, 50).await;
        clock.advance(1);
    }
    let core = &client.0.core;
    assert!(client.0.len() <= 8192, "{}", client.0.len());
    assert!(core.outages.with_stand_in().len() <= 8192, "{}", core.outages.with_stand_in().len());
    // None of the last interval.
    for number in [19_001, 19_500, 19_999] {
        let limiter = client.limiter(&format!("user:{number}")).unwrap().with_rate(rate(100));
        denial(&limiter, 1).await;
    }
    let limiter = client.limiter("user:0").unwrap().with_rate(rate(100));
    grant(&limiter, 50).await;
    // Nor is there more than one of a limiter with a handle for each call.
    let options = LimiterOptions::new().on_outage(OnOutage::Local(Fraction::ALL));
    for _ in 0..10 {
        let limiter = client.limiter_with("other", options).unwrap().with_rate(rate(100));
        grant(&limiter, 1).await;
    }
    let stand_ins = core.outages.with_stand_in();
    assert_eq!(stand_ins.iter().filter(|engine| &*engine.name == "other").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_queue_is_a_part_of_its_permits_in_a_second() {
    let world = World::new();
    let client = world.client_by(Client::builder().on_outage(HALF));
    let ten = crate::Policy::queue(10, ms(1000), ms(10_000)).unwrap();
    let queue = client.limiter_of("api", ten).unwrap();
    assert!(queue.try_acquire_now(1).await.unwrap().is_granted());
    world.set_away(true);
    sleep(ms(1000)).await;
    for _ in 0..5 {
        assert_eq!(grant(&queue, 1).await.decided_by(), DecidedBy::Outage);
    }
    assert_eq!(denial(&queue, 1).await.decided_by(), DecidedBy::Outage);
}
