//! A limiter that a real Redisson has written.

use compat_tests::peer::{Kind, Peer, Rate};
use compat_tests::scenario::kinds;
use compat_tests::server::Server;

use crate::tool::Tool;

#[tokio::test]
async fn a_limiter_of_redisson_is_told_from_ours() {
    if !kinds().contains(&Kind::Java) {
        return;
    }
    let server = Server::start().await;
    let peer = std::sync::Arc::new(Peer::start(Kind::Java, server.url()).await);
    let limiter = peer.limiter("api");
    assert!(limiter.try_set_rate(Rate::overall(10, 3_600_000)).await.unwrap());
    assert!(limiter.try_acquire(3).await.unwrap());
    let tool = Tool::on(&server);
    tool.ends(0, &["acquire", "api", "2"]).await;
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    let budget = &seen["budgets"][0];
    assert_eq!((&budget["available"], &budget["drift"]), (&5.into(), &0.into()), "{seen:#}");
    let writers: Vec<_> = budget["log"]["entries"].as_array().unwrap().iter().collect();
    assert_eq!((&writers[0]["writer"], &writers[0]["permits"]), (&"redisson".into(), &3.into()));
    assert_eq!((&writers[1]["writer"], &writers[1]["permits"]), (&"client".into(), &2.into()));
    // What Redisson cannot get out of by itself.
    let () = server.run(redis::cmd("DEL").arg("{api}:permits").take()).await;
    tool.ends(0, &["doctor", "api", "--fix", "--yes"]).await;
    assert_eq!(limiter.available().await.unwrap(), 5);
    assert!(limiter.try_acquire(5).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    tool.ends(0, &["doctor", "api"]).await;
}
