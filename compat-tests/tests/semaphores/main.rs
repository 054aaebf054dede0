//! Semaphores: beside a real Redisson, on a bad network, and where holders and servers go away.

mod faults;
mod fleet;
mod interop;

use std::time::Duration;

use compat_tests::peer::{Answer, Call, Limiter};
use serde_json::{Value, json};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Permits of one semaphore of one peer, of either kind, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// `RSemaphore`.
    Plain,
    /// `RPermitExpirableSemaphore`.
    Expirable,
}

const SORTS: [Sort; 2] = [Sort::Plain, Sort::Expirable];

impl Sort {
    async fn set(self, of: &Limiter, permits: u64) {
        let op = self.op("TrySetPermits");
        assert!(of.call::<bool>(&op, json!({"permits": permits})).await.unwrap());
    }

    async fn available(self, of: &Limiter) -> i64 {
        of.call(&self.op("Available"), Value::Null).await.unwrap()
    }

    /// Begins to take a permit. Java's call blocks a thread if `blocking` is set.
    fn begin(self, of: &Limiter, wait_ms: u64, lease_ms: Option<u64>, blocking: bool) -> Call<'_> {
        of.begin(
            &self.op("TryAcquire"),
            match self {
                Sort::Plain => {
                    json!({"permits": 1, "timeoutMs": wait_ms, "blocking": blocking})
                }
                Sort::Expirable => {
                    json!({"waitMs": wait_ms, "leaseMs": lease_ms, "blocking": blocking})
                }
            },
        )
    }

    async fn take(self, of: &Limiter, wait_ms: u64, lease_ms: Option<u64>) -> Option<String> {
        granted(self.begin(of, wait_ms, lease_ms, false).answer().await)
    }

    /// Gives a permit back, and returns whether it was out.
    async fn give_back(self, of: &Limiter, permit: &str) -> bool {
        let op = self.op("Release");
        match self {
            Sort::Plain => of.call::<()>(&op, json!({"permits": 1})).await.is_ok(),
            Sort::Expirable => of.call(&op, json!({"permit": permit})).await.unwrap(),
        }
    }

    fn op(self, name: &str) -> String {
        let prefix = if self == Sort::Plain { "sem" } else { "pxs" };
        format!("{prefix}{name}")
    }
}

/// The permit that an answer has: a plain one is text without digits.
fn granted(answer: Answer<Value>) -> Option<String> {
    // Redisson has not subscribed within the time that the call waits.
    if answer.as_ref().is_err_and(|error| error.message.contains("subscription lock")) {
        return None;
    }
    match answer.unwrap() {
        Value::Bool(granted) => granted.then(String::new),
        permit => permit.as_str().map(str::to_owned),
    }
}
