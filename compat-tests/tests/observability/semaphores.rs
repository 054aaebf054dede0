//! What is counted of semaphores.

use compat_tests::server::Server;
use redisson_rate_limiter::{Client, SemaphoreOptions};

use crate::ms;
use crate::scrape::{Scrape, install};

#[tokio::test]
async fn permits_that_are_lost_while_they_are_held_are_counted() {
    install();
    let lost = || Scrape::take().sum("redisson_limiter_lost_permits_total", &[]);
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let options = SemaphoreOptions::new().permits(5).lease(ms(600));
    let jobs = client.concurrency_with("jobs", options).unwrap();
    let permit = jobs.acquire(3).await.unwrap();
    let kept = client.concurrency("kept").unwrap();
    kept.try_set_permits(1).await.unwrap();
    let kept = kept.acquire(1).await.unwrap();
    assert!(jobs.delete().await.unwrap());
    // The next renewal finds out.
    permit.lost().await;
    assert!(permit.is_lost() && !kept.is_lost());
    while lost() < 3.0 {
        tokio::time::sleep(ms(20)).await;
    }
    drop((permit, kept));
    client.close().await;
    assert_eq!(lost(), 3.0);
}

#[tokio::test]
async fn a_release_that_fails_is_counted() {
    install();
    let server = Server::start().await;
    let client = Client::builder().deadline(ms(300)).connect(&server.url()).await.unwrap();
    let jobs = client.concurrency_with("jobs", SemaphoreOptions::new().permits(5)).unwrap();
    let permit = jobs.acquire(1).await.unwrap();
    drop(server);
    let error = permit.release().await.unwrap_err();
    let failed = Scrape::take().sum("redisson_limiter_errors_total", &[("operation", "release")]);
    assert_eq!(failed, 1.0, "{error:?}");
}
