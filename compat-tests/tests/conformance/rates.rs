//! Rates: set, changed, ensured, and noticed by other clients.

use super::*;

conformance! {

async fn a_rate_is_set_once(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    let first = rate(10).with_keep_alive(SECOND * 60).unwrap();
    assert!(limiter.try_set_rate(first).await.unwrap());
    assert!(!limiter.try_set_rate(rate(20)).await.unwrap());
    assert_eq!(limiter.config().await.unwrap(), Some(first));
    assert!(limiter.exists().await.unwrap());
    assert!(limiter.size_in_memory().await.unwrap() > 0);
}

async fn a_lower_rate_counts_at_once(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 8).await;
    assert!(limiter.update_rate(rate(5), Usage::Keep).await.unwrap());
    assert_eq!(left(&limiter).await, 0);
    assert_wait(denied(&limiter, 1).await.retry_after(), SECOND);
    world.pass(1000 + LATE);
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
    assert_wait(denied(&other, 1).await.retry_after(), SECOND); // 4 of 3 are used
    // A keep-alive and an interval belong to the rate as well.
    let kept = rate(3).with_keep_alive(SECOND * 60).unwrap();
    assert_eq!(other.ensure_rate(kept).await.unwrap(), Ensured::Changed { from: rate(3) });
    assert_eq!(other.ensure_rate(kept).await.unwrap(), Ensured::Unchanged);
    let slower = Rate::overall(3, SECOND * 2).unwrap();
    assert_eq!(other.ensure_rate(slower).await.unwrap(), Ensured::Changed { from: kept });
    assert_eq!(limiter.config().await.unwrap(), Some(slower));
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
    // Budgets of another mode would start anew: that has to be asked for.
    let own = Rate::per_client(3, SECOND * 2).unwrap();
    let refused = other.ensure_rate(own).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    for part in ["3 per 2s", "per client", "update_rate"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert_eq!(limiter.config().await.unwrap(), Some(slower));
    assert!(limiter.delete().await.unwrap());
    assert_eq!(other.ensure_rate(own).await.unwrap(), Ensured::Created);
}

async fn a_rate_that_was_set_meanwhile_is_not_replaced(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    let operator = world.client().await.limiter("api").unwrap();
    assert!(limiter.try_set_rate(rate(10)).await.unwrap());
    for theirs in [rate(2), Rate::per_client(2, SECOND).unwrap()] {
        operator.set_rate_with(rate(10), Usage::Keep).await.unwrap();
        let asked = std::sync::Mutex::new(Vec::new());
        let may_replace = |found: Rate| {
            let is_first = asked.lock().unwrap().is_empty();
            asked.lock().unwrap().push(found);
            if is_first {
                let set = || futures::executor::block_on(operator.set_rate(theirs)).unwrap();
                std::thread::scope(|scope| scope.spawn(set).join().unwrap());
            }
            found == rate(10)
        };
        let ensured = limiter.ensure_rate_if(rate(15), may_replace).await.unwrap();
        assert_eq!(ensured, Ensured::Unchanged);
        assert_eq!(limiter.config().await.unwrap(), Some(theirs));
        assert_eq!(asked.into_inner().unwrap(), [rate(10), theirs]);
    }
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

}
