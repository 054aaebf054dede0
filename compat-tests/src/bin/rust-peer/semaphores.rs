//! The calls on semaphores: `sem…` on plain ones, `pxs…` on those whose permits have ids and leases.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redisson_rate_limiter::{
    Client, Denial, Error, ErrorKind, Permit, Semaphore, SemaphoreOptions,
};
use serde_json::{Value, json};

use crate::load;
use crate::protocol::{Failure, Line};

/// The permits that this process holds, and has renewed; all others are out without a holder.
#[derive(Default)]
pub(crate) struct Semaphores {
    renewed: Mutex<HashMap<String, Permit>>,
}

impl Semaphores {
    pub(crate) async fn call(&self, client: &Client, line: &Line) -> Result<Value, Failure> {
        let name = line.text("name")?;
        let semaphore = match line.op.starts_with("sem") {
            true => client.semaphore(name)?,
            false => client.concurrency_with(name, options(line)?)?,
        };
        match line.op.as_str() {
            "semTrySetPermits" | "pxsTrySetPermits" => {
                Ok(json!(semaphore.try_set_permits(line.whole("permits")?).await?))
            }
            "semAvailable" | "pxsAvailable" => Ok(json!(semaphore.available_permits().await?)),
            "semAcquire" => {
                semaphore.acquire(line.whole("permits")?).await?.keep();
                Ok(Value::Null)
            }
            "semTryAcquire" => {
                let permit = try_acquire(&semaphore, line.whole("permits")?, line, "timeoutMs");
                Ok(json!(permit.await?.map(Permit::keep).is_some()))
            }
            "semRelease" => Ok(json!(semaphore.release_permits(line.whole("permits")?).await?)),
            "pxsTryAcquire" => {
                let permit = try_acquire(&semaphore, 1, line, "waitMs").await?;
                Ok(json!(permit.map(|permit| self.keep(permit, line)).transpose()?))
            }
            "pxsRelease" => {
                let id = line.text("permit")?;
                let renewed =
                    self.renewed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
                Ok(json!(match renewed {
                    Some(permit) => permit.release().await?,
                    None => semaphore.release(id).await?,
                }))
            }
            "pxsUpdateLease" => {
                let lease = lease(line)?;
                Ok(json!(semaphore.update_lease(line.text("permit")?, lease).await?))
            }
            "semLoad" | "pxsLoad" => load::holding(semaphore, line).await,
            other => Err(Failure::invalid(format!("unknown op {other:?}"))),
        }
    }

    /// Leaves a permit out, and returns its id.
    fn keep(&self, permit: Permit, line: &Line) -> Result<Option<String>, Failure> {
        if !line.flag("renew")? {
            return Ok(permit.keep().pop());
        }
        let id = permit.ids().pop();
        if let Some(id) = id.clone() {
            self.renewed.lock().unwrap_or_else(PoisonError::into_inner).insert(id, permit);
        }
        Ok(id)
    }
}

fn options(line: &Line) -> Result<SemaphoreOptions, Failure> {
    let options = SemaphoreOptions::new();
    Ok(match (lease(line)?, line.flag("renew")?) {
        (Some(lease), true) => options.lease(lease),
        (Some(lease), false) => options.fixed_lease(lease),
        (None, true) => options,
        (None, false) => options.without_lease(),
    })
}

fn lease(line: &Line) -> Result<Option<Duration>, Failure> {
    line.has("leaseMs").then(|| line.millis("leaseMs")).transpose()
}

/// As with Redisson, a semaphore that does not exist has no permits.
async fn try_acquire(
    semaphore: &Semaphore,
    permits: u64,
    line: &Line,
    timeout: &str,
) -> Result<Option<Permit>, Failure> {
    let answer: Result<Result<Permit, Denial>, Error> = match line.has(timeout) {
        true => semaphore.try_acquire(permits, line.millis(timeout)?).await,
        false => semaphore.try_acquire_now(permits).await,
    };
    match answer {
        Ok(answer) => Ok(answer.ok()),
        Err(error) if error.kind() == ErrorKind::NotInitialized => Ok(None),
        Err(error) => Err(error.into()),
    }
}
