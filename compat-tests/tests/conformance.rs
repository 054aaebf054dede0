//! One suite for every store: each case runs on the in-process store and on a server, through the
//! public API, with a clock that the case sets.

use std::future::Future;
use std::time::Duration;

use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{
    Client, ClientBuilder, Clock, DecidedBy, Decision, Denial, Ensured, ErrorKind, Execution,
    ExpireCondition, Grant, InProcessStore, LimiterOptions, ManualClock, Mode, Rate, RateLimiter,
    RemainingTime, Usage,
};

use redisson_rate_limiter::raw_store::{Content, Key};

const SECOND: Duration = Duration::from_secs(1);
const START: i64 = 1_800_000_000_000;

enum Backend {
    InProcess(InProcessStore),
    Server(Server),
}

/// A store, and a clock that all its clients use.
struct World {
    backend: Backend,
    clock: Clock,
    time: ManualClock,
}

impl World {
    async fn client(&self) -> Client {
        self.client_by(Client::builder()).await
    }

    async fn client_by(&self, builder: ClientBuilder) -> Client {
        let builder = builder.clock(self.clock.clone());
        match &self.backend {
            Backend::InProcess(store) => builder.in_process(store).unwrap(),
            Backend::Server(server) => builder.connect(&server.url()).await.unwrap(),
        }
    }

    /// A limiter of 10 permits a second.
    async fn limiter(&self) -> RateLimiter {
        let limiter = self.client().await.limiter("api").unwrap();
        assert!(limiter.try_set_rate(rate(10)).await.unwrap());
        limiter
    }

    /// Leaves a hash behind that has no field but this one.
    async fn put_hash(&self, name: &str, field: &str, text: &str) {
        match &self.backend {
            Backend::InProcess(store) => {
                let content = Content::Hash([(field.to_owned(), text.to_owned())].into());
                store.raw_put(name, Some(Key { content, ttl_ms: None }));
            }
            Backend::Server(server) => {
                let () = server.run(redis::cmd("HSET").arg(&[name, field, text]).take()).await;
            }
        }
    }

    fn pass(&self, ms: i64) {
        self.time.advance(ms);
    }
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn granted(limiter: &RateLimiter, permits: u64) -> Grant {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.granted().unwrap_or_else(|| panic!("{permits} were denied"))
}

async fn denied(limiter: &RateLimiter, permits: u64) -> Denial {
    let decision = limiter.try_acquire_now(permits).await.unwrap();
    decision.denied().unwrap_or_else(|| panic!("{permits} were granted"))
}

async fn left(limiter: &RateLimiter) -> u64 {
    limiter.available_permits().await.unwrap()
}

/// Its rate is 4, not the one that the handle carries, and no permits have been used.
async fn limiter_of_four(limiter: &RateLimiter) {
    assert_eq!(left(limiter).await, 4);
    assert_eq!(limiter.peek(1).await.unwrap().rate(), rate(4));
    assert!(matches!(limiter.peek(5).await.unwrap_err().kind(), ErrorKind::ExceedsRate { .. }));
}

fn run<F: Future<Output = ()>>(case: impl Fn(World) -> F, on_server: bool) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = if on_server {
            Backend::Server(Server::start().await)
        } else {
            Backend::InProcess(InProcessStore::new())
        };
        let (clock, time) = Clock::manual(START);
        case(World { backend, clock, time }).await;
    });
}

/// Each case twice: `in_process::name` and `server::name`.
macro_rules! conformance {
    ($($(#[$doc:meta])* async fn $name:ident($world:ident: World) $body:block)*) => {
        $($(#[$doc])* async fn $name($world: World) $body)*

        mod in_process {
            $(#[test] fn $name() { super::run(super::$name, false); })*
        }

        mod server {
            $(#[test] fn $name() { super::run(super::$name, true); })*
        }
    };
}

conformance! {

async fn a_limiter_that_does_not_exist_is_not_initialized(world: World) {
    let limiter = world.client().await.limiter("none").unwrap();
    for error in [
        limiter.try_acquire_now(1).await.map(drop).unwrap_err(),
        limiter.acquire(1).await.map(drop).unwrap_err(),
        limiter.available_permits().await.map(drop).unwrap_err(),
        limiter.release(1).await.map(drop).unwrap_err(),
        limiter.rename("other").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
        assert_eq!(error.execution(), Execution::Executed);
        assert_eq!(error.limiter(), Some("none"));
    }
    assert_eq!(limiter.config().await.unwrap(), None);
    assert!(!limiter.exists().await.unwrap());
    assert!(!limiter.delete().await.unwrap());
    assert!(!limiter.touch().await.unwrap());
    assert!(!limiter.expire(SECOND, None).await.unwrap());
    assert!(!limiter.clear_expire().await.unwrap());
    assert!(!limiter.update_rate(rate(1), Usage::Keep).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::NoLimiter);
    assert_eq!(limiter.size_in_memory().await.unwrap(), 0);
}

async fn a_rate_is_set_once(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    let first = rate(10).with_keep_alive(SECOND * 60).unwrap();
    assert!(limiter.try_set_rate(first).await.unwrap());
    assert!(!limiter.try_set_rate(rate(20)).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(first));
    assert!(limiter.exists().await.unwrap());
    assert!(limiter.size_in_memory().await.unwrap() > 0);
}

async fn bad_arguments_are_refused_before_anything_is_sent(world: World) {
    let client = world.client().await;
    assert_eq!(client.limiter("").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let limiter = client.limiter("api").unwrap();
    for error in [
        limiter.try_acquire_now(0).await.map(drop).unwrap_err(),
        limiter.try_acquire(1 << 32, SECOND).await.map(drop).unwrap_err(),
        limiter.acquire(0).await.map(drop).unwrap_err(),
        limiter.release((1 << 53) + 1).await.map(drop).unwrap_err(),
        limiter.expire(Duration::from_micros(1), None).await.map(drop).unwrap_err(),
        limiter.rename("").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(error.execution(), Execution::NotExecuted);
    }
    assert_eq!(limiter.release(0).await.unwrap(), 0);
}

async fn permits_come_back_an_interval_after_they_were_taken(world: World) {
    let limiter = world.limiter().await;
    assert_eq!(granted(&limiter, 3).await.left(), 7);
    world.pass(100);
    assert_eq!(granted(&limiter, 7).await.left(), 0);
    world.pass(100);
    let denial = denied(&limiter, 4).await;
    assert_eq!((denial.retry_after(), denial.is_at_least()), (ms(900), false));
    assert_eq!(denial.decided_by(), DecidedBy::Server);
    assert_eq!(denied(&limiter, 3).await.retry_after(), ms(800));
    world.pass(799);
    assert_eq!(denied(&limiter, 1).await.retry_after(), ms(1));
    world.pass(1);
    assert_eq!(granted(&limiter, 3).await.left(), 0);
    assert_eq!(denied(&limiter, 1).await.retry_after(), ms(100));
}

async fn a_request_above_the_rate_is_an_error(world: World) {
    let limiter = world.limiter().await;
    let (big, small) = futures::join!(limiter.try_acquire_now(11), limiter.try_acquire_now(10));
    let error = big.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
    assert!(small.unwrap().is_granted());
    let error = limiter.peek(11).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExceedsRate { .. }), "{error}");
    // Also while more is in use than the rate allows.
    limiter.update_rate(rate(4), Usage::Keep).await.unwrap();
    let error = limiter.peek(u64::MAX).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExceedsRate { .. }), "{error}");
}

async fn merged_calls_are_decided_as_if_made_one_by_one(world: World) {
    let limiter = world.limiter().await;
    let sizes = [4, 3, 5, 2, 1, 1, 12, 1];
    let answers = join_all(sizes.map(|permits| limiter.try_acquire_now(permits))).await;
    let granted: Vec<bool> = answers
        .into_iter()
        .map(|answer| answer.is_ok_and(|decision| decision.is_granted()))
        .collect();
    assert_eq!(granted, [true, true, false, true, true, false, false, false]);
    assert_eq!(left(&limiter).await, 0);
}

async fn permits_beyond_32_bits_are_counted(world: World) {
    let limiter = world.client().await.limiter("big").unwrap();
    limiter.try_set_rate(rate(1 << 40)).await.unwrap();
    let most = u64::from(u32::MAX);
    let grants = join_all((0..5).map(|_| limiter.try_acquire_now(most))).await;
    assert!(grants.iter().all(|grant| grant.as_ref().is_ok_and(Decision::is_granted)));
    assert_eq!(left(&limiter).await, (1 << 40) - 5 * most);
    for grant in grants {
        assert_eq!(grant.unwrap().granted().unwrap().refund_all().await.unwrap(), most);
    }
    assert_eq!(left(&limiter).await, 1 << 40);
    world.pass(1000);
    assert_eq!(left(&limiter).await, 1 << 40);
}

async fn a_refund_gives_back_what_its_grant_took(world: World) {
    let limiter = world.limiter().await;
    let mut one = granted(&limiter, 4).await;
    let mut two = granted(&limiter, 6).await;
    assert_eq!(one.refund(1).await.unwrap(), 1);
    assert_eq!((one.permits(), left(&limiter).await), (3, 1));
    assert_eq!(one.refund(1).await.unwrap(), 1);
    assert_eq!((one.permits(), left(&limiter).await), (2, 2));
    assert_eq!(one.refund(4).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(one.refund_all().await.unwrap(), 2);
    assert_eq!(one.refund_all().await.unwrap(), 0);
    assert_eq!(left(&limiter).await, 4);
    world.pass(1000);
    assert_eq!(two.refund(6).await.unwrap_or(0) + left(&limiter).await % 10, 6, "not twice");
    assert_eq!(left(&limiter).await, 10);
}

async fn merged_grants_are_refunded_separately(world: World) {
    let limiter = world.limiter().await;
    let answers = join_all((0..10).map(|_| limiter.try_acquire_now(1))).await;
    let mut grants: Vec<Grant> =
        answers.into_iter().map(|answer| answer.unwrap().granted().unwrap()).collect();
    for (given_back, grant) in grants.iter_mut().take(7).enumerate() {
        assert_eq!(left(&limiter).await, given_back as u64);
        assert_eq!(grant.refund_all().await.unwrap(), 1);
    }
    assert_eq!(left(&limiter).await, 7);
    world.pass(1000);
    assert_eq!(left(&limiter).await, 10);
}

async fn release_removes_the_oldest_grants(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 4).await;
    world.pass(500);
    let _spent = granted(&limiter, 6).await;
    assert_eq!(limiter.release(5).await.unwrap(), 5);
    assert_eq!(left(&limiter).await, 5);
    world.pass(500);
    assert_eq!(left(&limiter).await, 5, "what was released does not expire again");
    assert_eq!(limiter.release(100).await.unwrap(), 5);
    assert_eq!(left(&limiter).await, 10);
}

async fn a_lower_rate_counts_at_once(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 8).await;
    assert!(limiter.update_rate(rate(5), Usage::Keep).await.unwrap());
    assert_eq!(left(&limiter).await, 0);
    assert_eq!(denied(&limiter, 1).await.retry_after(), SECOND);
    world.pass(1000);
    assert_eq!(left(&limiter).await, 5);
}

async fn a_higher_rate_counts_at_once(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 8).await;
    assert!(limiter.update_rate(rate(20), Usage::Keep).await.unwrap());
    assert_eq!(left(&limiter).await, 12);
    limiter.set_rate(rate(7)).await.unwrap();
    assert_eq!(left(&limiter).await, 7);
    let _spent = granted(&limiter, 7).await;
    limiter.set_rate_with(rate(9), Usage::Keep).await.unwrap();
    assert_eq!(left(&limiter).await, 2);
    limiter.set_rate_with(rate(9), Usage::Reset).await.unwrap();
    assert_eq!(left(&limiter).await, 9);
}

async fn another_clients_rate_is_noticed(world: World) {
    let (one, two) = (world.limiter().await, world.client().await.limiter("api").unwrap());
    let _spent = granted(&one, 4).await;
    assert!(two.update_rate(rate(6), Usage::Keep).await.unwrap());
    assert_eq!(left(&one).await, 2);
    let _spent = granted(&one, 2).await;
    let _denied = denied(&one, 1).await;
}

async fn a_mode_that_changes_there_and_back_is_noticed(world: World) {
    let minute = 60 * SECOND;
    let client = world.client().await.limiter("api").unwrap();
    let other = world.client().await.limiter("api").unwrap();
    other.try_set_rate(Rate::per_client(1000, minute).unwrap()).await.unwrap();
    let _one = granted(&client, 1).await;
    other.set_rate(Rate::overall(10, minute).unwrap()).await.unwrap();
    let _another = granted(&client, 1).await;
    other.set_rate(Rate::per_client(10, minute).unwrap()).await.unwrap();
    // The PER_CLIENT value of 999 is still there.
    let _denied = denied(&client, 10).await;
    let _rest = granted(&client, 9).await;
    let _denied = denied(&client, 1).await;
}

async fn a_restarted_client_does_not_trust_the_value(world: World) {
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let minute = 60 * SECOND;
    for (name, used, lowered) in [("few", 100, 100), ("more", 600, 500)] {
        let client = world.client_by(Client::builder().id(id)).await;
        let limiter = client.limiter(name).unwrap();
        limiter.try_set_rate(Rate::per_client(1000, minute).unwrap()).await.unwrap();
        for _ in 0..used {
            let _one = granted(&limiter, 1).await;
        }
        let other = world.client().await.limiter(name).unwrap();
        let rate = Rate::per_client(lowered, minute).unwrap();
        assert!(other.update_rate(rate, Usage::Keep).await.unwrap());
        let restarted = world.client_by(Client::builder().id(id)).await;
        let limiter = restarted.limiter(name).unwrap();
        assert_eq!(left(&limiter).await, 0, "{name}");
        let _denied = denied(&limiter, 1).await;
    }
}

async fn a_limiter_that_is_set_up_again_does_not_trust_the_old_value(world: World) {
    let minute = 60 * SECOND;
    let client = world.client().await.limiter("api").unwrap();
    client.try_set_rate(Rate::per_client(1000, minute).unwrap()).await.unwrap();
    let _one = granted(&client, 1).await;
    // It cannot reach the other client's value of 999.
    assert!(world.client().await.limiter("api").unwrap().delete().await.unwrap());
    assert!(client.try_set_rate(Rate::per_client(10, minute).unwrap()).await.unwrap());
    let _denied = denied(&client, 10).await;
    let _rest = granted(&client, 9).await;
}

async fn an_error_about_the_rate_creates_nothing(world: World) {
    let limiter = world.client().await.limiter("api").unwrap().with_rate(rate(10));
    let error = limiter.try_acquire_now(11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
    assert!(!limiter.exists().await.unwrap());
    let _spent = granted(&limiter, 10).await;
    assert!(limiter.exists().await.unwrap());
}

async fn each_client_has_its_own_budget(world: World) {
    let id = "11111111-2222-4333-8444-555555555555";
    let one = world.client_by(Client::builder().id(id)).await.limiter("api").unwrap();
    let again = world.client_by(Client::builder().id(id)).await.limiter("api").unwrap();
    let other = world.client().await.limiter("api").unwrap();
    let rate = Rate::per_client(5, SECOND).unwrap();
    assert_eq!(rate.mode(), Mode::PerClient);
    one.try_set_rate(rate).await.unwrap();
    let _spent = granted(&one, 5).await;
    let _spent = granted(&other, 5).await;
    let _denied = denied(&again, 1).await;
    let refused = one.rename("elsewhere").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
}

async fn a_limiter_that_carries_its_rate_needs_no_set_up(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let carrying = plain.clone().with_rate(rate(2));
    let grant = granted(&carrying, 1).await;
    assert_eq!((grant.left(), grant.rate()), (1, rate(2)));
    assert!(plain.delete().await.unwrap());
    let _spent = granted(&carrying, 2).await;
    let _denied = denied(&plain, 1).await;
    assert_eq!(plain.config().await.unwrap(), Some(rate(2)));
}

async fn only_handles_that_carry_a_rate_create_limiters_each_with_its_own(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let (two, three) = (plain.clone().with_rate(rate(2)), plain.clone().with_rate(rate(3)));
    let (warm, first, second, third, last) = futures::join!(
        plain.try_acquire_now(1),
        plain.try_acquire_now(1),
        three.try_acquire_now(1),
        two.try_acquire_now(1),
        plain.try_acquire_now(1),
    );
    for early in [warm, first] {
        assert!(matches!(&early, Err(error) if error.kind() == ErrorKind::NotInitialized), "{early:?}");
    }
    for later in [second, third, last] {
        assert_eq!(later.unwrap().granted().unwrap().rate(), rate(3));
    }
}

async fn a_limiter_yet_to_be_created_has_all_its_permits(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let carrying = plain.clone().with_rate(rate(10));
    assert_eq!(left(&carrying).await, 10);
    let peek = carrying.peek(10).await.unwrap();
    assert_eq!((peek.available(), peek.wait(), peek.rate()), (10, Duration::ZERO, rate(10)));
    assert!(!peek.is_at_least());
    for permits in [11, u64::MAX] {
        let error = carrying.peek(permits).await.unwrap_err();
        let exceeds = ErrorKind::ExceedsRate { requested: permits, rate: 10 };
        assert_eq!((error.kind(), error.execution()), (exceeds, Execution::Executed));
    }
    assert_eq!(carrying.release(3).await.unwrap(), 0);
    assert!(!plain.exists().await.unwrap(), "none of them has created it");
    assert_eq!(plain.available_permits().await.unwrap_err().kind(), ErrorKind::NotInitialized);
    // If the limiter exists, they answer for it, not for the rate that the handle carries.
    plain.try_set_rate(rate(4)).await.unwrap();
    limiter_of_four(&carrying).await;
}

async fn a_hash_that_lacks_its_rate_is_not_mistaken_for_a_missing_limiter(world: World) {
    let carrying = world.client().await.limiter("api").unwrap().with_rate(rate(10));
    world.put_hash("api", "type", "0").await;
    for error in [
        carrying.try_acquire_now(1).await.map(drop).unwrap_err(),
        carrying.available_permits().await.map(drop).unwrap_err(),
        carrying.peek(1).await.map(drop).unwrap_err(),
        carrying.release(1).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    }
}

async fn ensuring_a_rate_creates_it_or_changes_it_or_leaves_it(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    assert_eq!(limiter.ensure_rate(rate(10)).await.unwrap(), Ensured::Created);
    assert_eq!(limiter.config().await.unwrap(), Some(rate(10)));
    let _spent = granted(&limiter, 4).await;
    assert_eq!(limiter.ensure_rate(rate(10)).await.unwrap(), Ensured::Unchanged);
    assert_eq!(left(&limiter).await, 6, "the usage is kept");
    let other = world.client().await.limiter("api").unwrap();
    let raised = Ensured::Changed { from: rate(10) };
    assert_eq!(other.ensure_rate(rate(15)).await.unwrap(), raised);
    assert_eq!((left(&limiter).await, left(&other).await), (11, 11), "the usage is kept");
    let lowered = Ensured::Changed { from: rate(15) };
    assert_eq!(limiter.ensure_rate(rate(3)).await.unwrap(), lowered);
    assert_eq!(denied(&other, 1).await.retry_after(), SECOND, "4 of 3 are used");
    // A keep-alive and an interval belong to the rate as well.
    let kept = rate(3).with_keep_alive(SECOND * 60).unwrap();
    assert_eq!(other.ensure_rate(kept).await.unwrap(), Ensured::Changed { from: rate(3) });
    assert_eq!(other.ensure_rate(kept).await.unwrap(), Ensured::Unchanged);
    let slower = Rate::overall(3, SECOND * 2).unwrap();
    assert_eq!(other.ensure_rate(slower).await.unwrap(), Ensured::Changed { from: kept });
    assert_eq!(limiter.config().await.unwrap(), Some(slower));
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
    // Budgets of another mode start over.
    let own = Rate::per_client(3, SECOND * 2).unwrap();
    assert_eq!(other.ensure_rate(own).await.unwrap(), Ensured::Changed { from: slower });
    assert_eq!((left(&limiter).await, left(&other).await), (3, 3));
    assert!(limiter.delete().await.unwrap());
    assert_eq!(other.ensure_rate(own).await.unwrap(), Ensured::Created);
}

async fn every_instance_may_ensure_the_rate_at_once(world: World) {
    let mut instances = Vec::new();
    for _ in 0..8 {
        instances.push(world.client().await.limiter("api").unwrap());
    }
    let created = join_all(instances.iter().map(|limiter| limiter.ensure_rate(rate(10)))).await;
    let created: Vec<Ensured> = created.into_iter().map(Result::unwrap).collect();
    let count = |what| created.iter().filter(|found| **found == what).count();
    assert_eq!((count(Ensured::Created), count(Ensured::Unchanged)), (1, 7), "{created:?}");

    let _spent = granted(&instances[0], 4).await;
    let changed = join_all(instances.iter().map(|limiter| limiter.ensure_rate(rate(20)))).await;
    let changed: Vec<Ensured> = changed.into_iter().map(Result::unwrap).collect();
    let from = Ensured::Changed { from: rate(10) };
    assert!(changed.contains(&from), "{changed:?}");
    assert!(changed.iter().all(|found| [from, Ensured::Unchanged].contains(found)), "{changed:?}");
    for limiter in &instances {
        assert_eq!(left(limiter).await, 16, "the usage is kept, whichever call came last");
    }
}

async fn a_ping_is_answered_until_the_client_is_closed(world: World) {
    let client = world.client().await;
    client.ping().await.unwrap();
    client.close().await;
    let error = client.ping().await.unwrap_err();
    assert_eq!((error.kind(), error.limiter()), (ErrorKind::Closed, None));
    assert_eq!(error.to_string(), "ping: the client is closed");
}

async fn the_longest_times_and_the_largest_numbers_are_accepted(world: World) {
    let client = world.client_by(Client::builder().deadline(Duration::MAX)).await;
    client.ping().await.unwrap();
    let options = LimiterOptions::new().denial_memory(Duration::MAX);
    let limiter = client.limiter_with("api", options).unwrap();
    let limiter = limiter.with_deadline(Duration::MAX).unwrap();
    assert_eq!(limiter.ensure_rate(rate(10)).await.unwrap(), Ensured::Created);
    let decision = limiter.try_acquire(10, Duration::MAX).await.unwrap();
    let mut grant = decision.granted().unwrap();
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.try_acquire(4, Duration::MAX).await });
    while limiter.try_acquire_now(1).await.unwrap().denied().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(grant.refund(4).await.unwrap(), 4);
    assert!(waiter.await.unwrap().unwrap().is_granted());
    let _denied = denied(&limiter, 1).await;
    // Below zero.
    assert!(limiter.update_rate(rate(5), Usage::Keep).await.unwrap());
    for permits in [6, 1 << 53, (1 << 53) + 1, u64::MAX] {
        let error = limiter.peek(permits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: permits, rate: 5 });
    }
    assert_eq!(limiter.peek(5).await.unwrap().wait(), SECOND);
    client.close().await;
}

async fn a_rename_moves_all_keys(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 4).await;
    let other = world.client().await.limiter("other").unwrap();
    other.try_set_rate(rate(100)).await.unwrap();
    let _spent = granted(&other, 50).await;
    limiter.rename("other").await.unwrap();
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(other.config().await.unwrap(), Some(rate(10)));
    assert_eq!(left(&other).await, 6);
    world.pass(1000);
    assert_eq!(left(&other).await, 10);
    other.rename("other").await.unwrap();
    assert_eq!(left(&other).await, 10);
}

async fn expiry_obeys_its_conditions(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 1).await;
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
    let minute = SECOND * 60;
    for (time, condition, changed) in [
        (minute, Some(ExpireCondition::IfSet), false),
        (minute, Some(ExpireCondition::IfGreater), false),
        (minute, Some(ExpireCondition::IfNotSet), true),
        (minute, Some(ExpireCondition::IfNotSet), false),
        (minute * 2, Some(ExpireCondition::IfLess), false),
        (minute * 2, Some(ExpireCondition::IfGreater), true),
        (minute, Some(ExpireCondition::IfLess), true),
        (minute * 3, Some(ExpireCondition::IfSet), true),
        (minute, None, true),
    ] {
        let answer = limiter.expire(time, condition).await.unwrap();
        assert_eq!(answer, changed, "{time:?} {condition:?}");
    }
    match limiter.remaining_time_to_live().await.unwrap() {
        RemainingTime::Ends(left) => assert!(left <= minute && left > minute - SECOND * 10),
        other => panic!("{other:?}"),
    }
    assert!(limiter.clear_expire().await.unwrap());
    assert!(!limiter.clear_expire().await.unwrap());
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
    assert!(limiter.expire(Duration::ZERO, None).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(left(&world.limiter().await).await, 10, "value and log went with it");
}

async fn removing_the_keep_alive_removes_its_time_to_live(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    limiter.try_set_rate(rate(10).with_keep_alive(SECOND * 60).unwrap()).await.unwrap();
    let ends = limiter.remaining_time_to_live().await.unwrap();
    assert!(matches!(ends, RemainingTime::Ends(_)), "{ends:?}");
    limiter.set_rate(rate(10)).await.unwrap();
    let endless = limiter.remaining_time_to_live().await.unwrap();
    assert_eq!(endless, RemainingTime::Endless);
}

async fn peeking_changes_nothing(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 7).await;
    world.pass(400);
    for _ in 0..3 {
        let peek = limiter.peek(5).await.unwrap();
        assert_eq!((peek.available(), peek.wait(), peek.rate()), (3, ms(600), rate(10)));
        assert_eq!(limiter.peek(3).await.unwrap().wait(), Duration::ZERO);
    }
    assert_eq!(granted(&limiter, 3).await.left(), 0);
}

async fn a_waiting_call_is_served_when_its_permits_are_back(world: World) {
    let limiter = world.limiter().await;
    let client = limiter.clone();
    let _spent = granted(&limiter, 10).await;
    let waiter = tokio::spawn(async move { client.acquire(4).await });
    while limiter.try_acquire_now(1).await.unwrap().denied().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    world.pass(1000);
    // Noticed within a second of real time, whatever the manual clock says.
    let grant = tokio::time::timeout(SECOND * 3, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!((grant.permits(), left(&limiter).await), (4, 6));
}

async fn a_wait_that_cannot_succeed_is_answered_at_once(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 10).await;
    let begun = std::time::Instant::now();
    let denial = limiter.try_acquire(1, ms(999)).await.unwrap().denied().unwrap();
    assert_eq!(denial.retry_after(), SECOND);
    assert!(begun.elapsed() < ms(900), "{:?}", begun.elapsed());
}

async fn a_dropped_waiter_takes_nothing(world: World) {
    let limiter = world.limiter().await;
    let mut spent = granted(&limiter, 10).await;
    let waiting = tokio::time::timeout(ms(50), limiter.acquire(4)).await;
    assert!(waiting.is_err());
    assert_eq!(spent.refund_all().await.unwrap(), 10);
    assert_eq!(left(&limiter).await, 10);
}

async fn refunded_permits_are_given_to_waiters_at_once(world: World) {
    let limiter = world.limiter().await;
    let mut spent = granted(&limiter, 10).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(4).await });
    while limiter.try_acquire_now(1).await.unwrap().denied().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    let begun = std::time::Instant::now();
    spent.refund(5).await.unwrap();
    let grant = waiter.await.unwrap().unwrap();
    assert!(begun.elapsed() < ms(900), "{:?}", begun.elapsed());
    assert_eq!((grant.permits(), left(&limiter).await), (4, 1));
}

async fn a_closed_client_fails_all_calls(world: World) {
    let client = world.client().await;
    let limiter = client.limiter("api").unwrap();
    limiter.try_set_rate(rate(1)).await.unwrap();
    let _spent = granted(&limiter, 1).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(1).await.map(drop) });
    tokio::time::sleep(ms(20)).await;
    client.close().await;
    for error in [
        waiter.await.unwrap().unwrap_err(),
        limiter.try_acquire_now(1).await.map(drop).unwrap_err(),
        limiter.config().await.map(drop).unwrap_err(),
        client.limiter("other").map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    assert!(world.client().await.limiter("api").unwrap().exists().await.unwrap());
}

async fn a_waiter_fails_when_its_limiter_is_deleted(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 10).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(1).await.map(drop) });
    tokio::time::sleep(ms(20)).await;
    limiter.delete().await.unwrap();
    let error = tokio::time::timeout(ms(900), waiter).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
}

async fn names_are_used_unchanged(world: World) {
    let client = world.client().await;
    let prefixed = world.client_by(Client::builder().key_prefix("team:")).await;
    for name in ["a b", "{a}b", "a{b}c", "ключ", "a:b", "🦀", "{", "}", "a}b"] {
        let limiter = client.limiter(name).unwrap();
        assert!(limiter.try_set_rate(rate(3)).await.unwrap(), "{name}");
        let _spent = granted(&limiter, 2).await;
        assert_eq!(left(&limiter).await, 1, "{name}");
        let other = prefixed.limiter(name).unwrap();
        assert!(!other.exists().await.unwrap(), "{name}");
        other.try_set_rate(rate(4)).await.unwrap();
        assert_eq!(left(&client.limiter(&format!("team:{name}")).unwrap()).await, 4, "{name}");
    }
}

async fn the_servers_clock_can_date_the_grants(world: World) {
    let builder = Client::builder().clock(Clock::server());
    let client = match &world.backend {
        Backend::InProcess(store) => builder.in_process(store).unwrap(),
        Backend::Server(server) => builder.connect(&server.url()).await.unwrap(),
    };
    let limiter = client.limiter("api").unwrap();
    limiter.try_set_rate(Rate::overall(5, ms(300)).unwrap()).await.unwrap();
    for _ in 0..3 {
        assert!(limiter.try_acquire(5, SECOND).await.unwrap().is_granted());
    }
    let denial = denied(&limiter, 5).await;
    assert!(denial.retry_after() <= ms(300), "{denial:?}");
    tokio::time::sleep(denial.retry_after()).await;
    let _spent = granted(&limiter, 5).await;
}

}
