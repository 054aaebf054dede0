//! A network that changes bytes, under TLS: a change ends the connection, and nothing else comes of
//! it.

use std::time::{Duration, Instant};

use compat_tests::dump::Dump;
use compat_tests::proxy::{Chaos, Proxy};
use compat_tests::scenario::run_alone;
use compat_tests::server::{Options, Server};
use futures::future::join_all;
use redisson_rate_limiter::{Client, Rate, Tls};
use tokio::time::sleep;

use crate::certificates::Authority;

const PERMITS: u64 = 1_000_000;
const LASTS: Duration = Duration::from_millis(1_500);

#[test]
fn tls_detects_bytes_that_are_changed_on_the_way() {
    run_alone(async {
        let authority = Authority::new();
        let certificate = authority.sign("localhost", -1..30);
        let options = Options::default()
            .tls()
            .set("tls-cert-file", &authority.file("server.pem", &certificate.pem))
            .set("tls-key-file", &authority.file("server.key", &certificate.key))
            .set("tls-ca-cert-file", &authority.file("ca.pem", &authority.pem()))
            .set("tls-auth-clients", "no");
        let server = Server::start_with(options).await;
        let proxy = Proxy::start_tls(&server).await;
        let client = Client::builder().tls(Tls::new().ca_pem(authority.pem()));
        let url = format!("rediss://localhost:{}", proxy.port());
        let client = client.connect(&url).await.unwrap();
        let limiter = client.limiter("api").unwrap();
        let limiter = limiter.with_rate(Rate::per_hour(PERMITS));
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());

        let seed = crate::seed();
        proxy.disturb(Some((Chaos::Bytes, seed)));
        let end = Instant::now() + LASTS;
        let task = async || {
            let (mut granted, mut errors) = (0, 0);
            while Instant::now() < end {
                match limiter.try_acquire_now(3).await {
                    Ok(decision) => granted += 3 * u64::from(decision.is_granted()),
                    Err(error) => {
                        assert!(error.is_transient() || is_handshake(&error), "{error:?}");
                        errors += 1;
                        sleep(Duration::from_millis(10)).await;
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
            (granted, errors)
        };
        let calls = join_all((0..8).map(|_| task())).await;
        proxy.disturb(None);
        let granted = 1 + calls.iter().map(|(granted, _)| granted).sum::<u64>();
        let errors: u64 = calls.iter().map(|(_, errors)| errors).sum();

        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let _ = limiter.try_acquire_now(PERMITS).await;
            let dump = Dump::read(&mut server.connect().await, "api").await;
            let (logged, left) = (dump.overall().logged(), dump.overall().left());
            // Both are read by a command each: refunds in the background may come between.
            let is_whole = (logged, left) == (granted, Some((PERMITS - granted) as i64));
            if is_whole || Instant::now() > deadline {
                println!(
                    "bytes changed under TLS: {granted} granted, {logged} logged, {errors} errors"
                );
                assert_eq!((logged, left), (granted, Some((PERMITS - granted) as i64)));
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
}

/// A handshake that was disturbed looks like one that the server refuses.
fn is_handshake(error: &redisson_rate_limiter::Error) -> bool {
    error.kind() == redisson_rate_limiter::ErrorKind::Tls
}
