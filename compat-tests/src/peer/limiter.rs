//! The protocol's calls on one limiter, typed.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Answer, Call, Peer};

/// Whether all clients share a rate or each client has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Mode {
    #[serde(rename = "OVERALL")]
    Overall,
    #[serde(rename = "PER_CLIENT")]
    PerClient,
}

/// The arguments of the calls that set a rate. Signed, so that a test can pass
/// invalid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// The mode.
    pub mode: Mode,
    /// Permits per interval.
    pub rate: i64,
    /// The interval in ms.
    pub interval_ms: i64,
    /// How long an unused limiter lives, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_ms: Option<i64>,
}

impl Rate {
    /// A rate without a keep-alive.
    pub fn new(mode: Mode, rate: i64, interval_ms: i64) -> Rate {
        Rate { mode, rate, interval_ms, keep_alive_ms: None }
    }

    /// A rate shared by all clients.
    pub fn overall(rate: i64, interval_ms: i64) -> Rate {
        Self::new(Mode::Overall, rate, interval_ms)
    }

    /// A rate that each client has for itself.
    pub fn per_client(rate: i64, interval_ms: i64) -> Rate {
        Self::new(Mode::PerClient, rate, interval_ms)
    }

    /// The same with a keep-alive.
    pub fn keep_alive(mut self, ms: i64) -> Rate {
        self.keep_alive_ms = Some(ms);
        self
    }
}

/// The result of `getConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Config {
    pub mode: Mode,
    pub rate: i64,
    pub interval_ms: i64,
    #[serde(default)]
    pub keep_alive_ms: Option<i64>,
}

/// The result of `load`, `waitLoad` and `arrivalLoad`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Load {
    pub granted: u64,
    pub denied: u64,
    pub errors: u64,
    pub elapsed_ms: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// One limiter of one peer.
#[derive(Clone, Debug)]
pub struct Limiter {
    peer: Arc<Peer>,
    name: String,
}

impl Limiter {
    pub(super) fn new(peer: Arc<Peer>, name: String) -> Self {
        Limiter { peer, name }
    }

    /// The peer that owns it.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Its name, without the peer's prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the call `op`; `arguments` is an object or null.
    pub fn begin(&self, op: &str, arguments: Value) -> Call<'_> {
        let mut request = json!({"op": op, "name": self.name});
        if let Value::Object(arguments) = arguments {
            request.as_object_mut().expect("an object").extend(arguments);
        }
        self.peer.begin(request)
    }

    /// Makes the call `op`.
    pub async fn call<T: DeserializeOwned>(&self, op: &str, arguments: Value) -> Answer<T> {
        let reply = self.begin(op, arguments).answer().await?;
        Ok(serde_json::from_value(reply.clone()).unwrap_or_else(|e| {
            panic!("the reply of {:?} to {op}, {reply}: {e}", self.peer.kind())
        }))
    }

    /// Has its peer load classes, compile and connect, which the first calls of a process do: waits for
    /// permits of another limiter for this time.
    pub async fn warm_up(&self, ms: u64) {
        let warm = self.peer().limiter(format!("{}-warm", self.name()));
        warm.try_set_rate(Rate::overall(50, 200)).await.unwrap();
        warm.wait_load(1, 8, ms).await.unwrap();
    }

    /// `trySetRate`
    pub async fn try_set_rate(&self, rate: Rate) -> Answer<bool> {
        self.call("trySetRate", json!(rate)).await
    }

    /// `setRate`
    pub async fn set_rate(&self, rate: Rate) -> Answer<()> {
        self.call("setRate", json!(rate)).await
    }

    /// `setRate(args)`
    pub async fn set_rate_args(&self, rate: Rate, keep_state: bool) -> Answer<()> {
        self.call("setRateArgs", kept(rate, keep_state)).await
    }

    /// `updateRate(args)`
    pub async fn update_rate(&self, rate: Rate, keep_state: bool) -> Answer<bool> {
        self.call("updateRate", kept(rate, keep_state)).await
    }

    /// `tryAcquire` without a timeout: it never waits
    pub async fn try_acquire(&self, permits: i64) -> Answer<bool> {
        self.call("tryAcquire", json!({"permits": permits})).await
    }

    /// `tryAcquire` that waits for up to `timeout_ms`
    pub async fn try_acquire_for(&self, permits: i64, timeout_ms: i64) -> Answer<bool> {
        let arguments = json!({"permits": permits, "timeoutMs": timeout_ms});
        self.call("tryAcquire", arguments).await
    }

    /// `acquire`, which waits for as long as it takes
    pub async fn acquire(&self, permits: i64) -> Answer<()> {
        self.call("acquire", json!({"permits": permits})).await
    }

    /// `release`
    pub async fn release(&self, permits: i64) -> Answer<()> {
        self.call("release", json!({"permits": permits})).await
    }

    /// `availablePermits`
    pub async fn available(&self) -> Answer<i64> {
        self.call("availablePermits", Value::Null).await
    }

    /// `getConfig`
    pub async fn config(&self) -> Answer<Option<Config>> {
        self.call("getConfig", Value::Null).await
    }

    /// `delete`
    pub async fn delete(&self) -> Answer<bool> {
        self.call("delete", Value::Null).await
    }

    /// `isExists`
    pub async fn exists(&self) -> Answer<bool> {
        self.call("isExists", Value::Null).await
    }

    /// `expire`
    pub async fn expire(&self, ttl_ms: i64, condition: Option<&str>) -> Answer<bool> {
        self.call("expire", conditioned("ttlMs", ttl_ms, condition)).await
    }

    /// `expireAt`
    pub async fn expire_at(&self, epoch_ms: i64, condition: Option<&str>) -> Answer<bool> {
        self.call("expireAt", conditioned("epochMs", epoch_ms, condition)).await
    }

    /// `clearExpire`
    pub async fn clear_expire(&self) -> Answer<bool> {
        self.call("clearExpire", Value::Null).await
    }

    /// `remainTimeToLive`
    pub async fn ttl(&self) -> Answer<i64> {
        self.call("remainTimeToLive", Value::Null).await
    }

    /// `rename`; this handle keeps the old name
    pub async fn rename(&self, to: &str) -> Answer<()> {
        self.call("rename", json!({"to": to})).await
    }

    /// `touch`
    pub async fn touch(&self) -> Answer<bool> {
        self.call("touch", Value::Null).await
    }

    /// `sizeInMemory`
    pub async fn size_in_memory(&self) -> Answer<u64> {
        self.call("sizeInMemory", Value::Null).await
    }

    /// `load`
    pub async fn load(&self, permits: u64, tasks: u64, ms: u64) -> Answer<Load> {
        self.call("load", json!({"permits": permits, "tasks": tasks, "ms": ms})).await
    }

    /// `waitLoad`
    pub async fn wait_load(&self, permits: u64, tasks: u64, ms: u64) -> Answer<Load> {
        self.call("waitLoad", json!({"permits": permits, "tasks": tasks, "ms": ms})).await
    }

    /// `arrivalLoad`: callers that wait for up to `timeout_ms` each.
    pub async fn arrival_load(
        &self,
        permits: u64,
        per_second: f64,
        timeout_ms: u64,
        ms: u64,
    ) -> Answer<Load> {
        let arguments = json!({
            "permits": permits, "perSecond": per_second, "timeoutMs": timeout_ms, "ms": ms,
        });
        self.call("arrivalLoad", arguments).await
    }
}

fn kept(rate: Rate, keep_state: bool) -> Value {
    let mut arguments = json!(rate);
    arguments["keepState"] = keep_state.into();
    arguments
}

fn conditioned(name: &str, ms: i64, condition: Option<&str>) -> Value {
    let mut arguments = json!({name: ms});
    if let Some(condition) = condition {
        arguments["condition"] = condition.into();
    }
    arguments
}
