//! What is decided while the server is away, and how it comes back.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock};

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::error::Error;
use crate::observe::{CallEvent, Event, ObservedCall, ObservedLimiter, Observer};
use crate::{CircuitState, Fraction, InProcessStore, ManualClock, OnOutage, Usage};

mod groups;
mod local;
mod random;
mod returning;
mod semaphores;

const HALF: OnOutage = OnOutage::Local(Fraction::one_of(2));

/// The longest pause of a prober, and a moment.
const LOOK: Duration = Duration::from_millis(2100);

impl World {
    fn set_away(&self, away: bool) {
        self.store.set_away(away);
    }

    fn probes(&self) -> u64 {
        self.store.ledger().probes.load(Ordering::SeqCst)
    }

    fn attempts(&self) -> u64 {
        self.store.ledger().attempts.load(Ordering::SeqCst)
    }

    /// A limiter of 100 permits a second with a policy, whose server has gone away after this many
    /// permits were taken.
    async fn away(&self, policy: OnOutage, taken: u64) -> RateLimiter {
        let limiter = self.limiter(LimiterOptions::new().on_outage(policy)).await;
        // It has to learn the rate: from the server, or from its handle.
        if taken > 0 {
            grant(&limiter, taken).await;
        }
        self.set_away(true);
        if taken > 0 { limiter } else { limiter.with_rate(rate(100)) }
    }

    /// A client, and what makes handles of its limiter of 100 permits a second, whose policy is the
    /// limiter's own or the client's.
    fn handles(
        &self,
        policy: OnOutage,
        is_own: bool,
    ) -> (Client, impl Fn() -> RateLimiter + Clone + Send + 'static) {
        let (builder, options) = match is_own {
            true => (Client::builder(), LimiterOptions::new().on_outage(policy)),
            false => (Client::builder().on_outage(policy), LimiterOptions::new()),
        };
        let client = self.client_by(builder);
        let of = client.clone();
        (client, move || of.limiter_with("api", options).unwrap().with_rate(rate(100)))
    }

    /// The permits that another client finds.
    async fn available(&self) -> u64 {
        self.client().limiter("api").unwrap().available_permits().await.unwrap()
    }
}

/// Long-lived clocks: an interval does not pass by itself.
fn stopped() -> (World, ManualClock) {
    let (clock, hands) = Clock::manual(1_700_000_000_000);
    (World::with_clock(clock), hands)
}

#[tokio::test(start_paused = true)]
async fn by_default_calls_fail() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    world.set_away(true);
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let client = client_of(&limiter);
    assert_eq!(client.outages(), Default::default());
    assert_eq!(world.probes(), 0);
    // An own policy takes precedence over the client's.
    let client = world.client_by(Client::builder().on_outage(OnOutage::Allow));
    let options = LimiterOptions::new().on_outage(OnOutage::Fail);
    assert!(client.limiter_with("api", options).unwrap().try_acquire_now(1).await.is_err());
    assert!(client.limiter("other").unwrap().try_acquire_now(1).await.unwrap().is_granted());
}

/// The attempts that were followed by another.
#[derive(Default)]
struct Retried(Mutex<Vec<u32>>);

impl Observer for Retried {
    fn call(&self, call: &ObservedCall, event: &CallEvent<'_>) {
        if let CallEvent::Retried { .. } = event {
            self.0.lock().unwrap().push(call.attempts());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_of_an_attempt_once_it_is_made() {
    let world = World::new();
    world.set_away(true);
    let retried = Arc::new(Retried::default());
    let client = world.client_by(Client::builder().observer(retried.clone()));
    let limiter = client.limiter("api").unwrap().with_rate(rate(100));
    // It gives up after the second failure.
    assert!(limiter.try_acquire_now(1).await.is_err());
    assert_eq!((world.attempts(), retried.0.lock().unwrap().as_slice()), (2, &[1][..]));
    // Its deadline ends during a pause.
    let limiter = limiter.with_deadline(ms(30)).unwrap();
    assert!(limiter.acquire(1).await.is_err());
    let told = std::mem::take(&mut *retried.0.lock().unwrap());
    assert_eq!(told.len() as u64, world.attempts() - 2, "{told:?}");
    // Outside of the queue too.
    assert!(limiter.try_acquire_once("key", 1).await.is_err());
    assert_eq!(*retried.0.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn every_call_is_allowed() {
    let world = World::new();
    let limiter = world.away(OnOutage::Allow, 10).await;
    for _ in 0..50 {
        let mut grant = grant(&limiter, 70).await;
        assert_eq!(
            (grant.decided_by(), grant.rate(), grant.left()),
            (DecidedBy::Outage, rate(100), 0)
        );
        assert_eq!(grant.refund(30).await.unwrap(), 0);
        assert_eq!(grant.permits(), 40);
    }
    assert!(limiter.acquire(1_000_000).await.is_ok());
    let report = limiter.outages();
    assert_eq!((report.granted, report.denied, report.circuit), (1_003_500, 0, CircuitState::Open));
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
    assert_eq!(limiter.outages().written, 0, "nothing of it is written");
    assert_eq!(client_of(&limiter).outages(), limiter.outages());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_never_seen_its_server_allows_calls() {
    let world = World::new();
    world.set_away(true);
    let client = world.client_by(Client::builder().on_outage(OnOutage::Allow));
    let limiter = client.limiter("api").unwrap();
    assert_eq!(grant(&limiter, 1).await.rate(), Rate::HIGHEST);
    assert_eq!(grant(&limiter.with_rate(rate(3)), 1).await.rate(), rate(3));
}

#[tokio::test(start_paused = true)]
async fn every_call_is_denied() {
    let world = World::new();
    let limiter = world.away(OnOutage::Deny, 10).await;
    let denied = denial(&limiter, 1).await;
    assert_eq!((denied.decided_by(), denied.is_lower_bound()), (DecidedBy::Outage, true));
    assert!((ms(1)..=ms(200)).contains(&denied.retry_after()), "{denied}");
    let began = Instant::now();
    let waiting = limiter.try_acquire(1, ms(60_000)).await.unwrap();
    assert!(!waiting.is_granted());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(limiter.acquire(1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let error = limiter.try_acquire_now(101).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 101, rate: 100 });
    assert_eq!(limiter.outages().denied, 2);
    world.set_away(false);
    sleep(LOOK).await;
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn calls_are_answered_at_once_while_one_probe_at_a_time_looks_for_the_server() {
    let world = World::new();
    let limiter = world.away(OnOutage::Allow, 0).await;
    let began = Instant::now();
    join_all((0..100).map(|_| grant(&limiter, 1))).await;
    assert!(began.elapsed() <= ms(20), "{:?}", began.elapsed());
    // What was in flight ends by itself.
    sleep(ms(50)).await;
    let before = world.attempts();
    let limiters: Vec<_> = (0..50)
        .map(|number| {
            let options = LimiterOptions::new().on_outage(OnOutage::Allow);
            client_of(&limiter).limiter_with(&format!("other{number}"), options).unwrap()
        })
        .collect();
    for _ in 0..600 {
        let began = Instant::now();
        join_all(limiters.iter().map(|limiter| grant(limiter, 1))).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "another limiter of the client");
        sleep(ms(100)).await;
    }
    assert_eq!(world.attempts(), before, "nothing but probes was sent");
    // A minute of pauses of one to two seconds, after shorter ones.
    assert!((30..=70).contains(&world.probes()), "{} probes", world.probes());
}

/// Calls its limiter when an outage ends.
#[derive(Debug, Default)]
struct CallsAtTheEnd {
    limiter: OnceLock<RateLimiter>,
    calls: AtomicU64,
}

impl Observer for CallsAtTheEnd {
    fn event(&self, _: Option<&ObservedLimiter>, event: &Event<'_>) {
        if let (Event::CircuitClosed { .. }, Some(limiter)) = (event, self.limiter.get()) {
            let _ = limiter.try_acquire_now(1).now_or_never();
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_call_the_limiter_when_an_answer_ends_the_outage() {
    let world = World::new();
    let observer = Arc::new(CallsAtTheEnd::default());
    let builder = Client::builder().observer(observer.clone()).on_outage(OnOutage::Deny);
    let limiter = world.client_by(builder).limiter("api").unwrap().with_rate(rate(100));
    observer.limiter.set(limiter.clone()).unwrap();
    grant(&limiter, 1).await;
    // Not so long that the answer counts as late, or the prober looks first.
    world.store.ledger().second_takes.store(10, Ordering::SeqCst);
    let slow = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_now(1).await.unwrap() }
    });
    sleep(ms(2)).await;
    // Another limiter's call fails, in this test.
    let error = Error::new(ErrorKind::Unavailable, Execution::NotExecuted);
    let engine = limiter.engine();
    engine.server_failed(engine.core.now(), &error);
    assert_eq!(limiter.outages().circuit, CircuitState::Open);
    // Its caller is answered at once, and the call goes on.
    assert!(!slow.await.unwrap().is_granted());
    assert_eq!((world.probes(), observer.calls.load(Ordering::SeqCst)), (0, 0));
    sleep(ms(15)).await;
    assert_eq!((world.probes(), observer.calls.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_fault_begins_no_outage() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().on_outage(OnOutage::Allow)).await;
    grant(&limiter, 100).await;
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Store);
    assert!(matches!(
        limiter.try_acquire_now(101).await.unwrap_err().kind(),
        ErrorKind::ExceedsRate { .. }
    ));
    assert_eq!(limiter.try_acquire_now(0).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let options = LimiterOptions::new().on_outage(OnOutage::Allow);
    let missing = client_of(&limiter).limiter_with("missing", options).unwrap();
    assert_eq!(missing.try_acquire_now(1).await.unwrap_err().kind(), ErrorKind::NotInitialized);
    assert_eq!(client_of(&limiter).outages(), Default::default());
    // One lost answer is none either.
    world.store.ledger().lose.store(1, Ordering::SeqCst);
    sleep(ms(1000)).await;
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
    assert_eq!(client_of(&limiter).outages(), Default::default());
}

#[test]
fn a_client_finds_its_server_although_the_runtime_of_the_call_that_failed_has_ended() {
    let store = World::with_clock(Clock::system());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let limiter = first.block_on(store.away(OnOutage::Allow, 1));
    drop(first.block_on(grant(&limiter, 1)));
    drop(first);
    store.set_away(false);
    let began = std::time::Instant::now();
    second.block_on(async {
        while grant(&limiter, 1).await.decided_by() == DecidedBy::Outage {
            assert!(began.elapsed() < ms(60_000), "nobody looks for the server");
            sleep(ms(10)).await;
        }
    });
}

/// What was granted without it is written, too.
#[test]
fn a_client_finds_its_server_although_nobody_runs_the_runtime_of_the_call_that_failed() {
    let store = World::with_clock(Clock::system());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (parked, second) = (runtime(), runtime());
    let limiter = parked.block_on(async {
        store.client();
        let client = store.client_by(Client::builder().deadline(ms(300)));
        client.limiter("api").unwrap().set_rate(Rate::per_hour(100)).await.unwrap();
        let options = LimiterOptions::new().on_outage(OnOutage::Local(Fraction::ALL));
        let limiter = client.limiter_with("api", options).unwrap();
        grant(&limiter, 1).await;
        store.set_away(true);
        grant(&limiter, 40).await;
        limiter
    });
    store.set_away(false);
    let began = std::time::Instant::now();
    let report = || client_of(&limiter).outages();
    while report().written + report().not_written < 40 {
        assert!(began.elapsed() < ms(60_000), "nobody looks for the server");
        std::thread::sleep(ms(10));
    }
    assert_eq!(second.block_on(grant(&limiter, 1)).decided_by(), DecidedBy::Store);
}

/// Answers of the server come first: what it has leased out, and what it has denied.
#[tokio::test(start_paused = true)]
async fn leased_permits_and_remembered_denials_come_before_the_policy() {
    let world = World::new();
    let options = LimiterOptions::new().lease(20, ms(100));
    let limiter = world.limiter(options.on_outage(OnOutage::Allow)).await;
    grant(&limiter, 1).await;
    grant(&limiter, 1).await;
    world.set_away(true);
    let mut by_lease = 0;
    while grant(&limiter, 1).await.decided_by() == DecidedBy::Lease {
        by_lease += 1;
    }
    assert!(by_lease >= 18, "{by_lease}");
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Outage);

    let world = World::new();
    let options = LimiterOptions::new().denial_memory(ms(60_000));
    let limiter = world.limiter(options.on_outage(OnOutage::Allow)).await;
    grant(&limiter, 100).await;
    denial(&limiter, 60).await;
    world.set_away(true);
    assert_eq!(denial(&limiter, 60).await.decided_by(), DecidedBy::Memory);
    assert_eq!(grant(&limiter, 59).await.decided_by(), DecidedBy::Outage);
}

#[test]
fn callers_outside_of_any_runtime_are_answered_too() {
    let world = World::with_clock(Clock::system());
    let limiter = block_on(world.away(OnOutage::Local(Fraction::ALL), 40));
    assert_eq!(block_on(grant(&limiter, 50)).decided_by(), DecidedBy::Outage);
    let waiting = block_on(limiter.try_acquire(50, ms(5000))).unwrap().into_grant();
    assert_eq!(waiting.expect("it waits").decided_by(), DecidedBy::Outage);
    world.set_away(false);
    let began = std::time::Instant::now();
    while block_on(limiter.try_acquire_now(1))
        .unwrap()
        .into_grant()
        .is_none_or(|grant| grant.decided_by() == DecidedBy::Outage)
    {
        assert!(began.elapsed() < ms(60_000), "nobody looks for the server");
        std::thread::sleep(ms(10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_ends_waiting_calls_and_its_prober() {
    let world = World::new();
    let limiter = world.away(OnOutage::Local(Fraction::ALL), 0).await;
    grant(&limiter, 100).await;
    let client = client_of(&limiter);
    let waiting = limiter.try_acquire(100, ms(60_000));
    let (answer, ()) = tokio::join!(waiting, async {
        settle().await;
        client.close().await;
    });
    assert_eq!(answer.map(drop).unwrap_err().kind(), ErrorKind::Closed);
    let probes = world.probes();
    sleep(LOOK * 5).await;
    assert!(world.probes() <= probes + 1, "it still looks for the server");
}

#[test]
fn options_that_contradict_or_are_out_of_range_are_refused() {
    let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let policy = |policy| client.limiter_with("api", LimiterOptions::new().on_outage(policy));
    for _ in 0..2 {
        assert!(policy(OnOutage::Deny).is_ok());
    }
    let error = policy(HALF).unwrap_err().to_string();
    assert!(error.contains("Some(Deny)"), "{error}");
    let none = OnOutage::Local(Fraction::one_of(0));
    assert!(policy(none).is_err());
    assert!(Client::builder().on_outage(none).in_process(&InProcessStore::new()).is_err());
}
