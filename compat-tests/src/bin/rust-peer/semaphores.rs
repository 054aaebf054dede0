//! The calls on semaphores: `sem…` on plain ones, `pxs…` on those whose permits have ids and leases.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Client, Error, ErrorKind, Permit, Semaphore, SemaphoreOptions};
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
                acquire(&semaphore, line.whole("permits")?).await?.keep();
                Ok(Value::Null)
            }
            "semTryAcquire" => {
                let (permits, timeout) = (line.whole("permits")?, line.whole_or("timeoutMs", 0)?);
                let permit = try_acquire(&semaphore, permits, Duration::from_millis(timeout));
                Ok(json!(permit.await?.map(Permit::keep).is_some()))
            }
            "semRelease" => Ok(json!(semaphore.release_permits(line.whole("permits")?).await?)),
            "pxsTryAcquire" => {
                let wait = Duration::from_millis(line.whole_or("waitMs", 0)?);
                let permit = try_acquire(&semaphore, 1, wait).await?;
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
    match line.args.get("leaseMs") {
        None | Some(Value::Null) => Ok(None),
        // Redisson's word for a lease that does not end.
        Some(lease) if *lease == -1 => Ok(None),
        Some(_) => line.millis("leaseMs").map(Some),
    }
}

/// How long a call waits before it asks again for permits that nobody has set.
const ASK_AGAIN: Duration = Duration::from_millis(20);

async fn acquire(semaphore: &Semaphore, permits: u64) -> Result<Permit, Error> {
    loop {
        match semaphore.acquire(permits).await {
            Err(error) if lacks_permits(&error, permits) => tokio::time::sleep(ASK_AGAIN).await,
            answer => return answer,
        }
    }
}

/// Takes permits, or returns `None` once `timeout` is over.
pub(crate) async fn try_acquire(
    semaphore: &Semaphore,
    permits: u64,
    timeout: Duration,
) -> Result<Option<Permit>, Error> {
    let begun = Instant::now();
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        match semaphore.try_acquire(permits, left).await {
            Ok(answer) => return Ok(answer.ok()),
            Err(error) if !lacks_permits(&error, permits) => return Err(error),
            Err(_) if left.is_zero() => return Ok(None),
            Err(_) => tokio::time::sleep(ASK_AGAIN.min(left)).await,
        }
    }
}

/// Whether Redisson would wait until somebody sets more permits, where the crate fails at once.
fn lacks_permits(error: &Error, permits: u64) -> bool {
    match error.kind() {
        ErrorKind::NotInitialized => true,
        // One permit can only be refused like this by a semaphore that has none.
        ErrorKind::InvalidArgument => permits == 1,
        _ => false,
    }
}
