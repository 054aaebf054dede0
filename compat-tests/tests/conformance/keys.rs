//! All keys of a limiter: their names, their time to live, a rename.

use super::*;

conformance! {

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
    world.pass(1000 + LATE);
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

async fn names_are_used_unchanged(world: World) {
    let client = world.client().await;
    let builder = Client::builder().clock(world.clock.clone());
    let prefixed = world.connect(builder, "team:").await;
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

}
