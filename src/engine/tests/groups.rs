//! Groups: what a call takes and nobody gets goes back to every limiter.

use futures::FutureExt;

use super::*;
use crate::observe::{Event, ObservedLimiter, Observer};
use crate::wire::keys::Keys;
use crate::{LimitGroup, Policy};

/// Two limiters of ten permits, none of which comes back with time.
fn ten_of_each(client: &Client, has_policies: bool) -> LimitGroup {
    let year = Duration::from_secs(365 * 86_400);
    let bucket = Policy::bucket(10, 1, year).unwrap();
    let window = Policy::anchored_window(10, year).unwrap();
    let limiters = [("one", bucket), ("other", window)].map(|(name, policy)| match has_policies {
        true => client.limiter_of(name, policy).unwrap(),
        false => client.limiter(name).unwrap().with_rate(Rate::overall(10, year).unwrap()),
    });
    client.all_of(&limiters).unwrap()
}

async fn takes_and_gives_back(group: &LimitGroup) {
    let mut grant = group.try_acquire_now(1).await.unwrap().into_grant().unwrap();
    grant.refund_all().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_at_any_time_leaves_every_limiter_whole() {
    let losses = [0, 1, 2, u64::MAX];
    for (lost, polls) in losses.into_iter().flat_map(|lost| (0..12).map(move |n| (lost, n))) {
        for has_policies in [false, true] {
            let world = World::new();
            let group = ten_of_each(&world.client(), has_policies);
            takes_and_gives_back(&group).await;
            world.store.ledger().lose.store(lost, Ordering::SeqCst);
            let mut call = Box::pin(group.try_acquire_now([3, 2]));
            let mut answer = None;
            for _ in 0..polls {
                answer = call.as_mut().now_or_never();
                if answer.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(call);
            if let Some(Ok(Decision::Granted(mut grant))) = answer {
                grant.refund_all().await.unwrap();
            }
            sleep(ms(20_000)).await;
            if lost == u64::MAX {
                world.store.ledger().lose.store(0, Ordering::SeqCst);
                // With policies, it is still attempted to give back what was abandoned.
                sleep(ms(2000)).await;
                takes_and_gives_back(&group).await;
            }
            for limiter in group.limiters() {
                let (name, left) = (limiter.name(), limiter.available_permits().await.unwrap());
                assert_eq!(left, 10, "{name}: {lost} answers lost, given up after {polls} polls");
            }
        }
    }
}

/// Otherwise its permits would be used in one window, and count in another.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_policy_whose_answers_were_lost_for_long_counts_from_its_use_on() {
    let world = World::new();
    let window = Policy::fixed_window(10, ms(1000)).unwrap();
    let limiter = world.client().limiter_of("api", window).unwrap();
    grant(&limiter, 1).await;
    // Their attempts take longer than a window.
    world.store.ledger().lose.store(8, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    grant(&limiter, 1).await;
    assert!(begun.elapsed() > ms(1000));
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    // Each attempt has a number of its own: one that came late would otherwise give the grant back.
    let keys = Keys::new("{api}:fixed", "any");
    assert!(world.store.last_number(&keys) >= Some(10));
}

/// Calls its group when one of the limiters was repaired.
#[derive(Default)]
struct Calls(std::sync::Mutex<Option<LimitGroup>>);

impl Observer for Calls {
    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let Event::Repaired { deficit: 1 } = event else { return };
        assert_eq!(limiter.unwrap().name(), "other");
        let group = self.0.lock().unwrap().take().expect("one repair");
        let mut call = Box::pin(group.try_acquire_now(1));
        assert!(call.as_mut().now_or_never().is_none());
    }
}

/// Under a lock, it would wait for itself.
#[test]
fn an_observer_that_hears_of_a_repair_may_call_the_group() {
    let (done, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (world, calls) = (World::new(), Arc::new(Calls::default()));
            let client = world.client_by(Client::builder().observer(calls.clone()));
            let limiters =
                ["one", "other"].map(|name| client.limiter(name).unwrap().with_rate(rate(10)));
            let group = client.all_of(&limiters).unwrap();
            *calls.0.lock().unwrap() = Some(group.clone());
            for _ in 0..3 {
                assert!(group.try_acquire_now(1).await.unwrap().is_granted());
                sleep(ms(600)).await;
            }
            world.store.lose_permits(&Keys::new("other", "any"), 1);
            for _ in 0..3 {
                assert!(group.try_acquire_now(1).await.unwrap().is_granted());
                sleep(ms(600)).await;
            }
            assert!(calls.0.lock().unwrap().is_none(), "nothing was repaired");
        });
        done.send(()).unwrap();
    });
    ends.recv_timeout(Duration::from_secs(30)).expect("it hangs, or has failed");
}
