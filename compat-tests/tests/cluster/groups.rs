//! Several limits whose keys are in different slots: asked in turn, all or nothing.

use futures::future::join_all;
use redisson_rate_limiter::{Client, Decision, LimitGroup, Rate, RateLimiter};

use super::{SECOND, fresh_name, on_cluster, rate, slot_of, until};
use compat_tests::cluster::Cluster;

/// A client's handles of two limiters in different slots; the second has twice the rate of the first.
struct Pair {
    client: Client,
    limiters: [RateLimiter; 2],
}

impl Pair {
    async fn new(cluster: &Cluster, rate: Rate) -> Pair {
        let pair = Pair::of(cluster, [fresh_name(), fresh_name()]).await;
        assert_ne!(slot_of(&pair.limiters[0]), slot_of(&pair.limiters[1]));
        for (limiter, times) in pair.limiters.iter().zip([1, 2]) {
            let rate = Rate::overall(rate.permits() * times, rate.interval()).unwrap();
            limiter.set_rate(rate).await.unwrap();
        }
        pair
    }

    async fn of(cluster: &Cluster, names: [String; 2]) -> Pair {
        let client = Client::connect(&cluster.url()).await.unwrap();
        let limiters = names.map(|name| client.limiter(&name).unwrap());
        Pair { client, limiters }
    }

    /// The same limiters in another client.
    async fn again(&self, cluster: &Cluster) -> Pair {
        Pair::of(cluster, self.limiters.each_ref().map(|it| it.name().to_owned())).await
    }

    fn group(&self) -> LimitGroup {
        self.client.all_of_in_turn(&self.limiters).unwrap()
    }

    async fn left(&self) -> [u64; 2] {
        let [first, second] = &self.limiters;
        [first.available_permits().await.unwrap(), second.available_permits().await.unwrap()]
    }

    /// Begins a request, and waits until the first limiter, of 10 permits, has granted it its part. The request is polled
    /// once only, so that it does not ask the second limiter.
    async fn asks_the_first(&self, request: impl Future<Output: std::fmt::Debug> + Unpin) {
        let polled = futures::poll!(request);
        assert!(polled.is_pending(), "{polled:?}");
        while self.left().await[0] == 10 {
            tokio::time::sleep(SECOND / 100).await;
        }
    }

    async fn is_left(&self, expected: [u64; 2]) {
        until("they come back", async || self.left().await == expected).await;
    }
}

#[test]
fn what_one_call_cannot_decide_is_refused_and_asked_in_turn() {
    on_cluster(async |cluster| {
        let pair = Pair::new(cluster, rate(10)).await;
        let error = pair.client.all_of(&pair.limiters).unwrap_err().to_string();
        for limiter in &pair.limiters {
            assert!(error.contains(limiter.name()), "{error}");
        }
        let tagged = ["a", "b"].map(|end| format!("{{{}}}:{end}", fresh_name()));
        let together = Pair::of(cluster, [tagged[0].clone(), tagged[0].replace(":a", ":b")]).await;
        for limiter in &together.limiters {
            limiter.set_rate(rate(10)).await.unwrap();
        }
        let group = together.client.all_of(&together.limiters).unwrap();
        assert!(group.try_acquire_now([3, 4]).await.unwrap().is_granted());
        assert_eq!(together.left().await, [7, 6]);

        let group = pair.group();
        let mut grant = group.try_acquire_now([3, 4]).await.unwrap().into_grant().unwrap();
        assert_eq!(pair.left().await, [7, 16]);
        let denial = group.try_acquire_now([1, 17]).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.refused_by(), Some(pair.limiters[1].name()));
        pair.is_left([7, 16]).await;
        grant.refund_all().await.unwrap();
        assert_eq!(pair.left().await, [10, 20]);
    });
}

#[test]
fn another_client_takes_the_rest_in_between() {
    on_cluster(async |cluster| {
        let pair = Pair::new(cluster, rate(10)).await;
        let other = pair.again(cluster).await;
        let group = pair.group();
        // Its first answer is not read yet when the second limiter is exhausted.
        let request = loop {
            let mut request = Box::pin(group.try_acquire_now([4, 5]));
            other.asks_the_first(&mut request).await;
            if other.left().await == [6, 20] {
                break request;
            }
            // The machine was so busy that the answer was there before the poll had ended.
            let mut grant = request.await.unwrap().into_grant().unwrap();
            grant.refund_all().await.unwrap();
        };
        let mut all = other.limiters[1].try_acquire_now(18).await.unwrap().into_grant().unwrap();
        let denial = request.await.unwrap().into_denial().unwrap();
        assert_eq!(denial.refused_by(), Some(pair.limiters[1].name()));
        other.is_left([10, 2]).await;
        all.refund_all().await.unwrap();
        assert!(group.try_acquire_now([10, 20]).await.unwrap().is_granted());
        assert_eq!(other.left().await, [0, 0]);
    });
}

#[test]
fn a_request_that_is_dropped_in_between_gives_back() {
    on_cluster(async |cluster| {
        let pair = Pair::new(cluster, rate(10)).await;
        let other = pair.again(cluster).await;
        let group = pair.group();
        let mut request = Box::pin(group.try_acquire_now([4, 5]));
        other.asks_the_first(&mut request).await;
        drop(request);
        other.is_left([10, 20]).await;
    });
}

#[test]
fn what_a_process_took_that_dies_in_between_expires() {
    on_cluster(async |cluster| {
        let pair = Pair::new(cluster, Rate::overall(10, SECOND * 2).unwrap()).await;
        let names = pair.limiters.each_ref().map(|it| it.name().to_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let dies = runtime.spawn(async move {
            let dying = Pair::of(cluster, names).await;
            let group = dying.group();
            let mut request = Box::pin(group.try_acquire_now([4, 5]));
            dying.asks_the_first(&mut request).await;
            // Nothing runs any more, not even what is to give permits back.
            std::mem::forget((request, dying));
        });
        dies.await.unwrap();
        runtime.shutdown_background();
        assert_eq!(pair.left().await, [6, 20]);
        let group = pair.group();
        let denial = group.try_acquire_now([7, 1]).await.unwrap().into_denial().unwrap();
        assert!(denial.retry_after() <= SECOND * 2, "{denial}");
        let waits = group.try_acquire([10, 20], SECOND * 10).await.unwrap();
        assert!(waits.is_granted());
        assert_eq!(pair.left().await, [0, 0]);
    });
}

#[test]
fn clients_that_ask_in_opposite_orders_never_take_more_than_there_is() {
    on_cluster(async |cluster| {
        let pair = Pair::new(cluster, rate(100)).await;
        let clients = [pair.again(cluster).await, pair.again(cluster).await];
        let turned: Vec<&RateLimiter> = clients[1].limiters.iter().rev().collect();
        let groups = [clients[0].group(), clients[1].client.all_of_in_turn(turned).unwrap()];
        let calls = (0..200).map(|nth| {
            let group = &groups[nth % 2];
            let cost = 1 + nth as u64 % 3;
            async move {
                match group.try_acquire_now(cost).await.unwrap() {
                    Decision::Granted(_) => cost,
                    Decision::Denied(_) => 0,
                }
            }
        });
        let granted: u64 = join_all(calls).await.into_iter().sum();
        assert!((50..=100).contains(&granted), "{granted}");
        pair.is_left([100 - granted, 200 - granted]).await;
    });
}
