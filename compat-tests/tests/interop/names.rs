//! Names and prefixes: both sides use the same keys, and no others.

use std::sync::Arc;

use compat_tests::keys::Keys;
use compat_tests::peer::{ErrorKind, Kind, Options, Peer, Rate};
use compat_tests::scenario::{World, fresh_name, kinds, pairs, run, shared_world};

const NAMES: [&str; 12] = [
    "plain",
    "with blanks and  more",
    "{tag}behind",
    "before{tag}",
    "before{tag}behind",
    "colons:value:permits",
    "Überlauf-名前-🦀-\u{301}",
    "quotes\"'`\\ and \t control \u{1}",
    "*?[glob]^$.",
    "100%s%d",
    "{only",
    "a}b",
];

#[test]
fn both_use_the_same_keys_for_any_name() {
    run(async {
        let world = World::start().await;
        for kinds in pairs() {
            for name in NAMES {
                let case = world.case(kinds, name).await;
                assert!(case.one.try_set_rate(Rate::overall(10, 600_000)).await.unwrap());
                assert!(case.one.try_acquire(3).await.unwrap(), "{name}");
                assert!(case.other.try_acquire(7).await.unwrap(), "{name}");
                assert!(!case.one.try_acquire(1).await.unwrap(), "{name}");
                let keys = Keys::new(name);
                let expected = [keys.hash().to_owned(), keys.log(None), keys.value(None)];
                assert_keys(&world, &expected).await;
                assert!(case.other.delete().await.unwrap());
                assert_keys(&world, &[]).await;

                case.other.set_rate(Rate::per_client(10, 600_000)).await.unwrap();
                assert!(case.one.try_acquire(1).await.unwrap(), "{name}");
                assert!(case.other.try_acquire(1).await.unwrap(), "{name}");
                let mut expected = vec![keys.hash().to_owned()];
                for id in [case.id(), case.other_id()] {
                    expected.extend([keys.log(Some(id)), keys.value(Some(id))]);
                }
                assert_keys(&world, &expected).await;
                world.server.flush().await;
            }
        }
    });
}

#[test]
fn a_prefix_is_part_of_the_name() {
    run(async {
        let world = World::start().await;
        for prefix in ["app:", "{tag}", "ü "] {
            let mut prefixed = Vec::new();
            for kind in kinds() {
                let options = Options::new(kind, world.server.url()).key_prefix(prefix);
                prefixed.push(Arc::new(Peer::start_with(options).await));
            }
            for one in &prefixed {
                let limiter = one.limiter("api");
                limiter.set_rate(Rate::overall(10, 600_000)).await.unwrap();
                let keys = Keys::new(format!("{prefix}api"));
                for other in &prefixed {
                    assert!(other.limiter("api").try_acquire(2).await.unwrap());
                }
                let expected = [keys.hash().to_owned(), keys.log(None), keys.value(None)];
                assert_keys(&world, &expected).await;
                for kind in kinds() {
                    let bare = world.peer(kind, 0).await;
                    assert!(!bare.limiter("api").exists().await.unwrap());
                    let left = 10 - 2 * prefixed.len() as i64;
                    let same = bare.limiter(keys.hash());
                    assert_eq!(same.available().await.unwrap(), left);
                }
                // The new name gets the prefix too.
                limiter.rename("{api}-2").await.unwrap();
                assert!(one.limiter("{api}-2").exists().await.unwrap());
                world.server.flush().await;
            }
        }
    });
}

#[test]
fn different_names_are_different_limiters() {
    run(async {
        let world = shared_world().await;
        for (one, other) in pairs() {
            let name = fresh_name();
            let one = world.peer(one, 0).await.limiter(&name);
            one.set_rate(Rate::overall(10, 600_000)).await.unwrap();
            for near in [name.to_uppercase(), format!(" {name}"), format!("{name} ")] {
                let near = world.peer(other, 0).await.limiter(near);
                assert!(!near.exists().await.unwrap());
                assert_eq!(near.try_acquire(1).await.unwrap_err().kind, ErrorKind::NotInitialized);
            }
        }
    });
}

#[test]
fn an_empty_name_is_refused() {
    run(async {
        for kind in kinds() {
            let limiter = shared_world().await.peer(kind, 0).await.limiter("");
            let answer = limiter.try_set_rate(Rate::overall(10, 600_000)).await;
            if kind == Kind::Rust {
                assert_eq!(answer.unwrap_err().kind, ErrorKind::InvalidArgument);
            } else {
                // Redisson accepts the empty name.
                assert_eq!(answer, Ok(true));
            }
        }
    });
}

async fn assert_keys(world: &World, expected: &[String]) {
    let mut found: Vec<String> = world.server.run(redis::cmd("KEYS").arg("*").take()).await;
    let mut expected = expected.to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
