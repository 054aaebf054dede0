//! What an operator needs: a ping, errors that name the server, credentials, rates rolled out over
//! a bad network.

use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::server::{Options, Server};
use redisson_rate_limiter::{Client, Ensured, ErrorKind, Execution, Rate};

#[tokio::test]
async fn a_ping_succeeds_only_if_the_server_is_there() {
    let server = Server::start().await;
    let deadline = Duration::from_millis(600);
    let client = Client::builder().deadline(deadline).connect(&server.url()).await.unwrap();
    client.ping().await.unwrap();

    server.pause();
    let begun = Stopwatch::start();
    let error = client.ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.is_transient(), "{error:?}");
    assert!(begun.given() < deadline + Duration::from_millis(300), "{begun:?}");
    server.resume();
    // A failed attempt to connect is not repeated for 100 ms.
    tokio::time::sleep(Duration::from_millis(150)).await;
    client.ping().await.unwrap();

    server.kill();
    // The first one finds the connection dead, the second one finds none.
    for _ in 0..2 {
        let begun = Stopwatch::start();
        let error = client.ping().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(begun.given() < Duration::from_millis(300), "{begun:?}");
        let address = format!("ping: the server at 127.0.0.1:{} is unavailable: ", server.port());
        assert!(error.to_string().starts_with(&address), "{error}");
    }

    server.restart().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    client.ping().await.unwrap();
}

#[tokio::test]
async fn a_ping_survives_a_connection_that_has_died() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::connect(&proxy.url()).await.unwrap();
    proxy.cut();
    client.ping().await.unwrap();
}

#[tokio::test]
async fn every_error_of_reaching_the_server_names_it() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    let mut grant = limiter.acquire(2).await.unwrap();
    let hasty = limiter.clone().with_deadline(Duration::from_millis(100)).unwrap();
    server.pause();
    let address = format!("the server at 127.0.0.1:{}", server.port());
    let (acquire, peek) = (hasty.acquire(1).await, hasty.peek(1).await);
    for (operation, error) in [("acquire", acquire.unwrap_err()), ("peek", peek.unwrap_err())] {
        let text = format!("{operation} of limiter \"api\": no answer from {address} within");
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    server.resume();
    limiter.exists().await.unwrap();
    server.kill();
    for (operation, error) in [
        ("refund", grant.refund_all().await.unwrap_err()),
        ("exists", limiter.exists().await.unwrap_err()),
    ] {
        let text = format!("{operation} of limiter \"api\": {address} is unavailable: ");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert_eq!(error.to_string().matches("127.0.0.1").count(), 1, "{error}");
    }
}

#[tokio::test]
async fn connecting_fails_without_the_right_password() {
    let server = Server::start_with(Options::default().password("right")).await;
    let address = format!("127.0.0.1:{}", server.port());
    Client::connect(&server.url()).await.unwrap().ping().await.unwrap();
    for user in ["", ":wrong@", "nobody:wrong@"] {
        let url = format!("redis://{user}{address}");
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{user:?}: {error}");
        assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        assert!(!error.is_transient());
        let text = format!("{error} {error:?}");
        assert!(text.contains(&format!("connect: the server at {address} refused")), "{text}");
        assert!(!text.contains("wrong") && !text.contains("nobody"), "{text}");

        let lazy = Client::builder().connect_lazy(&url).unwrap();
        let limiter = lazy.limiter("api").unwrap().with_rate(Rate::per_second(1));
        for error in [
            lazy.ping().await.unwrap_err(),
            limiter.try_acquire_now(1).await.unwrap_err(),
            limiter.exists().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Auth, "{user:?}: {error}");
            assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        }
    }
}

#[tokio::test]
async fn connecting_needs_no_right_to_ping() {
    let server = Server::start().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(&["app", "on", ">word", "~*", "+@all", "-ping"]);
    let () = server.run(user).await;
    let url = format!("redis://app:word@127.0.0.1:{}", server.port());
    let limiter = Client::connect(&url).await.unwrap().limiter("api").unwrap();
    let decision = limiter.with_rate(Rate::per_second(1)).try_acquire_now(1).await;
    assert!(decision.unwrap().is_granted());
}

#[tokio::test]
async fn ensuring_a_rate_survives_lost_requests_and_answers() {
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        let server = Server::start().await;
        let proxy = Proxy::start(&server).await;
        let client = Client::connect(&proxy.url()).await.unwrap();
        // The server knows the scripts from here on: no answer is that it does not.
        let other = client.limiter("other").unwrap();
        other.ensure_rate(Rate::per_hour(1)).await.unwrap();
        other.ensure_rate(Rate::per_hour(2)).await.unwrap();
        let limiter = client.limiter("api").unwrap();
        // Only the writes name the rate.
        let trap = proxy.trap("77701", fault);
        let created = limiter.ensure_rate(Rate::per_hour(77_701)).await.unwrap();
        assert!(trap.has_sprung());
        // If the answer to a write is lost, nobody can tell whose write it was.
        let found = if fault == Fault::LoseRequest { Ensured::Created } else { Ensured::Unchanged };
        assert_eq!(created, found);
        assert_eq!(limiter.config().await.unwrap(), Some(Rate::per_hour(77_701)));
        limiter.acquire(1000).await.unwrap();

        let trap = proxy.trap("77702", fault);
        let from = Rate::per_hour(77_701);
        let changed = limiter.ensure_rate(Rate::per_hour(77_702)).await.unwrap();
        assert!(trap.has_sprung());
        assert_eq!(changed, Ensured::Changed { from }, "{fault:?}");
        assert_eq!(limiter.available_permits().await.unwrap(), 76_702, "{fault:?}");
    }
}
