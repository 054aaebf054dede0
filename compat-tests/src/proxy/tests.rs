use std::time::Instant;

use super::*;
use crate::server::connect;

/// The address of the proxy for a user that may do anything.
fn admin(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

async fn incr(url: &str) -> Result<i64, redis::RedisError> {
    let mut connection = connect(url).await?;
    redis::cmd("INCR").arg("n").query_async(&mut connection).await
}

async fn get(server: &Server) -> Option<i64> {
    server.run(redis::cmd("GET").arg("n").take()).await
}

#[tokio::test]
async fn each_direction_is_delayed_without_loss_of_throughput() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(&admin(&proxy)).await.unwrap();
    proxy.delay(Duration::from_millis(30), Duration::from_millis(50));
    let start = Instant::now();
    let ping = redis::cmd("PING");
    let calls = (0..20).map(|_| {
        let mut connection = connection.clone();
        let ping = &ping;
        async move { ping.query_async::<String>(&mut connection).await.unwrap() }
    });
    futures::future::join_all(calls).await;
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(80), "{took:?}");
    assert!(took < Duration::from_millis(400), "{took:?}");
    proxy.delay(Duration::ZERO, Duration::ZERO);
    let () = ping.query_async(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_was_executed_and_a_lost_request_was_not() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    proxy.trap("INCR", Fault::LoseRequest);
    assert!(incr(&admin(&proxy)).await.is_err());
    assert_eq!(get(&server).await, None);
    proxy.trap("INCR", Fault::LoseReply);
    assert!(incr(&admin(&proxy)).await.is_err());
    assert_eq!(get(&server).await, Some(1));
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 2);
}

#[tokio::test]
async fn a_silent_connection_was_executed() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut trap = proxy.trap("INCR", Fault::Silence);
    let url = admin(&proxy);
    let call = tokio::spawn(async move { incr(&url).await });
    trap.sprung().await;
    while get(&server).await.is_none() {
        tokio::task::yield_now().await;
    }
    assert!(!call.is_finished());
    proxy.cut();
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn a_held_request_arrives_after_its_sender_has_disconnected() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut trap = proxy.trap("INCR", Fault::Hold);
    let url = admin(&proxy);
    let call = tokio::spawn(async move { incr(&url).await });
    trap.sprung().await;
    call.abort();
    assert_eq!(get(&server).await, None);
    trap.release();
    while get(&server).await != Some(1) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_duplicate_is_executed_twice_and_answered_once() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut trap = proxy.trap("INCR", Fault::Duplicate);
    let mut connection = connect(&admin(&proxy)).await.unwrap();
    let incr = redis::cmd("INCR").arg("n").take();
    let () = incr.query_async(&mut connection).await.unwrap();
    trap.sprung().await;
    let after: i64 = incr.query_async(&mut connection).await.unwrap();
    assert_eq!(after, 3);
}

#[tokio::test]
async fn a_refusing_proxy_accepts_again() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    proxy.refuse().await;
    assert!(connect(&admin(&proxy)).await.is_err());
    proxy.accept().await;
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 1);
}

#[tokio::test]
async fn a_truncated_request_is_not_executed_and_one_with_a_truncated_reply_is() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    for length in [0, 1, 10, 20] {
        let trap = proxy.trap("INCR", Fault::TruncateRequest(length));
        assert!(incr(&admin(&proxy)).await.is_err());
        assert!(trap.has_sprung());
        assert_eq!(get(&server).await, None);
    }
    for (nth, length) in [0, 1, 2, 3].into_iter().enumerate() {
        proxy.trap("INCR", Fault::TruncateReply(length));
        // A reply is `:1\r\n`.
        assert!(incr(&admin(&proxy)).await.is_err());
        assert_eq!(get(&server).await, Some(nth as i64 + 1));
    }
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 5);
}

#[tokio::test]
async fn a_bad_network_loses_replies_and_a_worse_one_changes_them() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    for chaos in [Chaos::Network, Chaos::Bytes] {
        proxy.disturb(Some((chaos, 7)));
        let call = async || {
            let url = admin(&proxy);
            let answer = tokio::time::timeout(Duration::from_millis(200), incr(&url));
            matches!(answer.await, Ok(Ok(_)))
        };
        let mut failed = 0;
        for _ in 0..300 {
            failed += u32::from(!call().await);
        }
        assert!((1..250).contains(&failed), "{chaos:?}: {failed} of 300 fail");
        proxy.disturb(None);
        assert!(call().await, "{chaos:?} is over");
    }
}

#[tokio::test]
async fn a_proxy_leads_to_another_server() {
    let (one, other) = (Server::start().await, Server::start().await);
    let proxy = Proxy::start(&one).await;
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 1);
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 2);
    proxy.retarget(&other);
    assert_eq!(incr(&admin(&proxy)).await.unwrap(), 1);
}
