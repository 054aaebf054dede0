//! Servers with a password, servers that lose their scripts or their data, servers that are down.

use std::sync::Arc;
use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{ErrorKind, Kind, Peer, Rate};
use compat_tests::proxy::Proxy;
use compat_tests::scenario::{World, kinds, pairs, run, until};
use compat_tests::server::{Options, Server};

const LONG: i64 = 600_000;

#[test]
fn clients_log_in_with_a_password() {
    run(async {
        let world = World::start_with(Options::default().password("s3cret-word")).await;
        for kinds in pairs() {
            let case = world.case(kinds, "api").await;
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.other.try_acquire(4).await.unwrap());
            assert_eq!(case.one.available().await.unwrap(), 6);
        }
    });
}

#[test]
fn a_wrong_password_is_reported() {
    run(async {
        let server = Server::start_with(Options::default().password("right")).await;
        let url = server.url().replace(":right@", ":wrong-Pa55@");
        for kind in kinds() {
            let said = match Peer::try_start(kind, &url).await {
                Ok(peer) => {
                    let limiter = Arc::new(peer).limiter("api");
                    let error = limiter.try_acquire(1).await.unwrap_err();
                    assert_eq!(error.kind, ErrorKind::Auth, "{}", error.message);
                    error.message
                }
                // Redisson connects when it is created.
                Err(said) => {
                    assert_eq!(kind, Kind::Java, "{said}");
                    assert!(said.contains("cannot connect"), "{said}");
                    continue;
                }
            };
            assert!(!said.contains("wrong-Pa55"), "{said}");
        }
    });
}

#[test]
fn scripts_that_the_server_has_lost_are_sent_again() {
    run(async {
        let world = World::start().await;
        for kinds in pairs() {
            let case = world.case(kinds, &format!("{kinds:?}")).await;
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            for left in [8, 6, 4] {
                world.server.flush_scripts().await;
                assert!(case.one.try_acquire(1).await.unwrap());
                world.server.flush_scripts().await;
                assert!(case.other.try_acquire(1).await.unwrap());
                world.server.flush_scripts().await;
                assert_eq!(case.one.available().await.unwrap(), left);
            }
            let budget = case.overall().await;
            assert_eq!(budget.logged(), 6, "each was granted once");
        }
    });
}

#[test]
fn a_server_that_restarts_between_calls_is_found_again() {
    run(async {
        let world = World::start().await;
        for kinds in pairs() {
            let case = world.case(kinds, "api").await;
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.other.try_acquire(4).await.unwrap());
            world.server.kill();
            world.server.restart().await;
            // The server is empty, like a new one. The first calls may still use
            // the old connection.
            for limiter in [&case.one, &case.other] {
                until("it answers again", async || {
                    let answer = limiter.try_acquire(1).await;
                    answer.is_err_and(|e| e.kind == ErrorKind::NotInitialized)
                })
                .await;
            }
            assert!(case.other.try_set_rate(Rate::overall(5, LONG)).await.unwrap());
            assert!(case.one.try_acquire(5).await.unwrap());
            assert!(!case.other.try_acquire(1).await.unwrap());
            world.server.flush().await;
        }
    });
}

#[test]
fn a_server_that_is_down_is_unavailable_until_it_is_back() {
    run(async {
        if !kinds().contains(&Kind::Rust) {
            return; // Redisson retries for many seconds before it reports that.
        }
        let world = World::start().await;
        let case = world.case((Kind::Rust, Kind::Rust), "api").await;
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        world.server.kill();
        // Each call ends within its deadline, which is 3 s by default.
        let start = Stopwatch::start();
        let error = case.one.try_acquire(1).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{}", error.message);
        let error = case.other.available().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{}", error.message);
        assert!(start.given() < Duration::from_secs(8), "{start:?}");
        world.server.restart().await;
        until("it is found again", async || {
            case.one.try_set_rate(Rate::overall(10, LONG)).await.is_ok()
        })
        .await;
    });
}

#[test]
fn a_server_that_is_down_at_the_start_is_found_later() {
    run(async {
        if !kinds().contains(&Kind::Rust) {
            return; // Redisson connects when it is created.
        }
        let server = Server::start().await;
        let proxy = Proxy::start(&server).await;
        proxy.refuse().await;
        let peer = Arc::new(Peer::start(Kind::Rust, proxy.url()).await);
        let limiter = peer.limiter("api");
        let error = limiter.try_acquire(1).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{}", error.message);
        proxy.accept().await;
        until("it is found", async || limiter.try_set_rate(Rate::overall(10, LONG)).await.is_ok())
            .await;
        assert!(limiter.try_acquire(10).await.unwrap());
    });
}

#[test]
fn a_server_that_does_not_answer_times_out() {
    run(async {
        if !kinds().contains(&Kind::Rust) {
            return; // Redisson waits for 3 s and retries.
        }
        let world = World::start().await;
        let case = world.case((Kind::Rust, Kind::Rust), "api").await;
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        world.server.pause();
        let answer = case.one.try_acquire(1).await;
        world.server.resume();
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Timeout);
        until("it answers again", async || case.one.available().await.is_ok()).await;
    });
}

#[test]
fn the_peer_continues_after_a_line_that_it_cannot_read() {
    run(async {
        let world = World::start().await;
        for kind in kinds() {
            let peer = world.peer(kind, 0).await;
            for line in ["", "{", "[]", "{\"id\":-1}", "{\"id\":\"x\",\"op\":\"fly\"}"] {
                peer.send_raw(line);
            }
            peer.send_raw(b"\xff");
            // Without an id, or with one that is not an integer, it is not a call.
            let rate = "\"mode\":\"OVERALL\",\"rate\":1,\"intervalMs\":1000";
            for id in ["", "\"id\":null,", "\"id\":\"x\",", "\"id\":1.5,"] {
                peer.send_raw(format!("{{{id}\"op\":\"setRate\",\"name\":\"api\",{rate}}}"));
            }
            let limiter = peer.limiter("api");
            for nonsense in [
                serde_json::json!({"op": "fly", "name": "api"}),
                serde_json::json!({"op": "tryAcquire", "name": "api"}),
                serde_json::json!({"op": "tryAcquire", "name": "api", "permits": "one"}),
                serde_json::json!({"op": "setRate", "name": "api", "mode": "SOME"}),
            ] {
                assert!(peer.call(nonsense.clone()).await.is_err(), "{nonsense}");
            }
            assert!(!limiter.exists().await.unwrap());
        }
    });
}
