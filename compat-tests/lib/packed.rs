//! What a user of the packed crate writes first.

use std::time::Duration;

use redisson_rate_limiter::{Client, Decision, Error, InProcessStore, Rate};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::builder().in_process(&InProcessStore::new())?;
    let limiter = client.limiter("api")?.with_rate(Rate::per_second(100));
    match limiter.try_acquire(5, Duration::from_millis(250)).await? {
        Decision::Granted(grant) => assert_eq!(grant.left(), 95),
        Decision::Denied(denial) => panic!("{denial}"),
    }
    client.close().await;
    Ok(())
}
