//! The calls of the protocol, each on a task of its own.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::{AbortHandle, Abortable};
use redisson_rate_limiter::{
    Client, Decision, Grant, ManualClock, Mode, RateLimiter, RemainingTime, Usage,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::load;
use crate::protocol::{Failure, Line};
use crate::semaphores::Semaphores;

type Answer = Result<Value, Failure>;

/// How long calls may continue after standard input has closed.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Peer(Arc<Inner>);

struct Inner {
    client: Client,
    clock: ManualClock,
    replies: UnboundedSender<Value>,
    /// Keyed by the ids of the calls, as JSON text.
    running: Mutex<HashMap<String, Running>>,
    grants: Mutex<Grants>,
    semaphores: Semaphores,
}

struct Running {
    handle: AbortHandle,
    /// The ids of the calls of `cancel` that are waiting for its end.
    cancels: Vec<Value>,
}

/// The granted calls that can be refunded and settled.
struct Grants {
    by_call: HashMap<String, Arc<tokio::sync::Mutex<Grant>>>,
    /// In the order in which they were granted, if only the last ones are kept.
    order: VecDeque<String>,
    most: usize,
}

impl Peer {
    /// `kept_grants` is how many calls can be refunded, the last ones.
    pub(crate) fn new(
        client: Client,
        clock: ManualClock,
        replies: UnboundedSender<Value>,
        kept_grants: usize,
    ) -> Self {
        let (by_call, order) = Default::default();
        Peer(Arc::new(Inner {
            client,
            clock,
            replies,
            running: Mutex::default(),
            grants: Mutex::new(Grants { by_call, order, most: kept_grants }),
            semaphores: Semaphores::default(),
        }))
    }

    /// Starts a call. Operations that take effect when their line is read are executed here.
    pub(crate) fn run(&self, line: Line) {
        let inner = self.0.clone();
        match line.op.as_str() {
            "setClock" => inner.reply(&line.id, inner.set_clock(&line)),
            "cancel" => inner.cancel(&line),
            _ => self.start(line.id.clone(), async move { inner.call(line).await }),
        }
    }

    /// Runs a call on a task of its own, which answers it, and those that cancel it.
    pub(crate) fn start(&self, id: Value, call: impl Future<Output = Answer> + Send + 'static) {
        let inner = self.0.clone();
        let key = id.to_string();
        let (handle, registration) = AbortHandle::new_pair();
        match lock(&inner.running).entry(key.clone()) {
            Entry::Occupied(_) => {
                let message = format!("call {key} is still running");
                return inner.reply(&id, Err(Failure::invalid(message)));
            }
            Entry::Vacant(entry) => entry.insert(Running { handle, cancels: Vec::new() }),
        };
        tokio::spawn(async move {
            let call = AssertUnwindSafe(call).catch_unwind();
            let end = Abortable::new(call, registration).await;
            let is_cancelled = end.is_err();
            let answer = match end {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    let message = "the call panicked: see standard error".to_owned();
                    Err(Failure { kind: "Other", message })
                }
                Err(_) => {
                    let message = "the call was cancelled".to_owned();
                    Err(Failure { kind: "Cancelled", message })
                }
            };
            let running = lock(&inner.running).remove(&key);
            for cancel in running.into_iter().flat_map(|running| running.cancels) {
                inner.reply(&cancel, Ok(json!(is_cancelled)));
            }
            inner.reply(&id, answer);
        });
    }

    /// Gives running calls a moment to answer, then drops them.
    pub(crate) async fn finish(&self) {
        let last = Instant::now() + SHUTDOWN_GRACE;
        while Instant::now() < last && !lock(&self.0.running).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for running in lock(&self.0.running).values() {
            running.handle.abort();
        }
    }
}

impl Inner {
    fn reply(&self, id: &Value, answer: Answer) {
        let _ = self.replies.send(match answer {
            Ok(result) => json!({"id": id, "result": result}),
            Err(failure) => failure.reply(id),
        });
    }

    fn set_clock(&self, line: &Line) -> Answer {
        if line.has("nowMs") {
            let now_ms = line.signed("nowMs")?;
            if now_ms.unsigned_abs() > 1 << 53 {
                let message = format!("nowMs is {now_ms}; it must be from -2^53 to 2^53");
                return Err(Failure::invalid(message));
            }
            self.clock.set(now_ms);
        } else {
            self.clock.follow_system();
        }
        self.client.recheck_waiters();
        Ok(Value::Null)
    }

    /// The task of a running call answers, since the call may end before it notices that it is cancelled.
    fn cancel(&self, line: &Line) {
        let Some(call) = line.args.get("call") else {
            return self.reply(&line.id, Err(Failure::invalid("call is missing")));
        };
        match lock(&self.running).get_mut(&call.to_string()) {
            Some(running) => {
                running.cancels.push(line.id.clone());
                running.handle.abort();
            }
            None => self.reply(&line.id, Ok(json!(false))),
        }
    }

    async fn call(&self, line: Line) -> Answer {
        match line.op.as_str() {
            "refund" => {
                let grant = self.grant(&line)?;
                let credited = grant.lock().await.refund(line.whole("permits")?).await?;
                return Ok(json!(credited));
            }
            "settle" => {
                let grant = self.grant(&line)?;
                return Ok(json!(grant.lock().await.settle(line.whole("actual")?).await?));
            }
            _ => {}
        }
        if line.op == "tryAcquireAll" {
            return self.try_acquire_all(&line).await;
        }
        if line.op == "governorLoad" {
            return load::governor(&line).await;
        }
        if line.op.starts_with("sem") || line.op.starts_with("pxs") {
            return self.semaphores.call(&self.client, &line).await;
        }
        let limiter = self.client.limiter(line.text("name")?)?;
        match line.op.as_str() {
            "trySetRate" => Ok(json!(limiter.try_set_rate(line.rate()?).await?)),
            "setRate" => Ok(json!(limiter.set_rate(line.rate()?).await?)),
            "setRateArgs" => Ok(json!(limiter.set_rate_with(line.rate()?, state(&line)?).await?)),
            "updateRate" => Ok(json!(limiter.update_rate(line.rate()?, state(&line)?).await?)),
            "tryAcquire" => self.try_acquire(&limiter, &line).await,
            "tryAcquireUpTo" => {
                let decision = limiter.try_acquire_up_to(line.whole("permits")?).await?;
                let Some(grant) = decision.into_grant() else { return Ok(json!(0)) };
                let granted = grant.permits();
                self.keep(&line.id, grant);
                Ok(json!(granted))
            }
            "tryAcquireOnce" => {
                let (key, permits) = (line.text("key")?, line.whole("permits")?);
                let grant = limiter.try_acquire_once(key, permits).await?.into_grant();
                let is_granted = grant.is_some();
                grant.into_iter().for_each(|grant| self.keep(&line.id, grant));
                Ok(json!(is_granted))
            }
            "acquire" => {
                let grant = limiter.acquire(line.whole("permits")?).await?;
                self.keep(&line.id, grant);
                Ok(Value::Null)
            }
            "pauseFor" => Ok(json!(limiter.pause_for(line.millis("ms")?).await?)),
            "resume" => Ok(json!(limiter.resume().await?)),
            "release" => limiter
                .release(line.whole("permits")?)
                .await
                .map(|_| Value::Null)
                .map_err(Failure::from),
            "availablePermits" => Ok(json!(limiter.available_permits().await?)),
            "getConfig" => config(&limiter).await,
            "delete" => Ok(json!(limiter.delete().await?)),
            "isExists" => Ok(json!(limiter.exists().await?)),
            "clearExpire" => Ok(json!(limiter.clear_expire().await?)),
            "expire" => Ok(json!(limiter.expire(line.millis("ttlMs")?, line.condition()?).await?)),
            "expireAt" => {
                let at = UNIX_EPOCH + line.millis("epochMs")?;
                Ok(json!(limiter.expire_at(at, line.condition()?).await?))
            }
            "remainTimeToLive" => Ok(json!(match limiter.remaining_time_to_live().await? {
                RemainingTime::NoLimiter => -2,
                RemainingTime::Endless => -1,
                RemainingTime::Ends(left) => left.as_millis() as i64,
            })),
            "rename" => Ok(json!(limiter.rename(line.text("to")?).await?)),
            "touch" => Ok(json!(limiter.touch().await?)),
            "sizeInMemory" => Ok(json!(limiter.size_in_memory().await?)),
            "load" => load::now(&self.client, &line).await,
            "waitLoad" => load::waiting(limiter, &line).await,
            "arrivalLoad" => load::arrivals(limiter, &line).await,
            other => Err(Failure::invalid(format!("unknown op {other:?}"))),
        }
    }

    async fn try_acquire(&self, limiter: &RateLimiter, line: &Line) -> Answer {
        let permits = line.whole("permits")?;
        let limiter = &match line.has("headroom") {
            true => limiter.clone().with_headroom(line.fraction("headroom")?)?,
            false => limiter.clone(),
        };
        let decision = if line.has("timeoutMs") {
            limiter.try_acquire(permits, line.millis("timeoutMs")?).await?
        } else {
            limiter.try_acquire_now(permits).await?
        };
        Ok(json!(match decision {
            Decision::Granted(grant) => {
                self.keep(&line.id, grant);
                true
            }
            _ => false,
        }))
    }

    async fn try_acquire_all(&self, line: &Line) -> Answer {
        let limits = line.limits()?;
        let limiters = limits.iter().map(|(name, _)| self.client.limiter(name));
        let limiters = limiters.collect::<Result<Vec<_>, _>>()?;
        let group = self.client.all_of(&limiters)?;
        let costs: Vec<u64> = limits.iter().map(|(_, permits)| *permits).collect();
        let decision = match line.has("timeoutMs") {
            true => group.try_acquire(&costs[..], line.millis("timeoutMs")?).await?,
            false => group.try_acquire_now(&costs[..]).await?,
        };
        Ok(match decision {
            Decision::Granted(grant) => {
                self.keep(&line.id, grant);
                json!({"granted": true})
            }
            Decision::Denied(denial) => json!({
                "granted": false,
                // A denial by the client's own queue, which they all share, names no limiter.
                "refusedBy": denial.refused_by().or(limits.first().map(|(name, _)| *name)),
                "retryAfterMs": millis(denial.retry_after()),
            }),
        })
    }

    fn keep(&self, id: &Value, grant: Grant) {
        let mut grants = lock(&self.grants);
        let id = id.to_string();
        if grants.most < usize::MAX {
            grants.order.push_back(id.clone());
            if grants.order.len() > grants.most
                && let Some(oldest) = grants.order.pop_front()
            {
                grants.by_call.remove(&oldest);
            }
        }
        grants.by_call.insert(id, Arc::new(tokio::sync::Mutex::new(grant)));
    }

    fn grant(&self, line: &Line) -> Result<Arc<tokio::sync::Mutex<Grant>>, Failure> {
        let call = line.args.get("call").ok_or_else(|| Failure::invalid("call is missing"))?;
        let grant = lock(&self.grants).by_call.get(&call.to_string()).cloned();
        grant.ok_or_else(|| Failure::invalid(format!("call {call} was not granted")))
    }
}

fn state(line: &Line) -> Result<Usage, Failure> {
    Ok(if line.flag("keepState")? { Usage::Keep } else { Usage::Reset })
}

async fn config(limiter: &RateLimiter) -> Answer {
    let Some(rate) = limiter.config().await? else { return Ok(Value::Null) };
    let mode = match rate.mode() {
        Mode::Overall => "OVERALL",
        Mode::PerClient => "PER_CLIENT",
    };
    let mut config = json!({
        "mode": mode,
        "rate": rate.permits(),
        "intervalMs": millis(rate.interval()),
    });
    if let Some(keep_alive) = rate.keep_alive() {
        config["keepAliveMs"] = json!(millis(keep_alive));
    }
    Ok(config)
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
