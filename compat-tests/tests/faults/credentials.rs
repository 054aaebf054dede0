//! Credentials that are refused between two attempts of a call.

use std::time::Duration;

use compat_tests::acl;
use compat_tests::dump::Dump;
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::scenario::{run, until};
use compat_tests::server::Server;
use redisson_rate_limiter::{Client, ErrorKind, Execution, Rate};

/// The first attempt was carried out, and its answer is lost; the second is refused.
#[test]
fn a_refused_retry_does_not_hide_that_the_first_attempt_was_carried_out() {
    run(async {
        let server = Server::start().await;
        let proxy = Proxy::start(&server).await;
        let mut admin = server.connect().await;
        let mut acl = async |rule: &str| {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg(acl::USER).arg(rule.split(' ').collect::<Vec<_>>());
            let () = command.query_async(&mut admin).await.unwrap();
        };
        let client = Client::connect(&proxy.url()).await.unwrap();
        let limiter = client.limiter("once").unwrap().with_rate(Rate::per_hour(10));
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());

        // Open connections stay logged in.
        acl("resetpass >another").await;
        let trap = proxy.trap("once", Fault::LoseReply);
        let error = limiter.try_acquire_now(3).await.unwrap_err();
        assert!(trap.has_sprung());
        assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
        assert_eq!(error.execution(), Execution::Unknown, "{error:?}");

        // What nobody has got is given back once the server accepts the client again.
        tokio::time::sleep(Duration::from_millis(300)).await;
        acl("nopass").await;
        until("three permits are back", async || {
            let dump = Dump::read(&mut server.connect().await, "once").await;
            (dump.overall().left(), dump.overall().logged()) == (Some(9), 1)
        })
        .await;
    });
}
