//! The vectors of policies, one after the other, through the public API.

use std::time::{Duration, SystemTime};

use futures::future::join_all;
use redisson_rate_limiter::{
    ChangeRule, Client, Clock, Decision, ErrorKind, Grant, InProcessStore, ManualClock, Policy,
    RateLimiter,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

mod foreign;
mod guava;

use foreign::ForeignRun;

/// Why a line has no answer.
type Skip = String;

/// A run of steps on one limiter.
struct Run {
    client: Client,
    clock: ManualClock,
    limiter: Option<RateLimiter>,
    /// For each call that was granted something, its grants.
    granted: Vec<Vec<Grant>>,
    /// The lines so far, of a limiter of Guava's.
    guava: Vec<Value>,
}

/// Answers lines until standard input closes.
pub(crate) async fn answer(redis: Option<String>) -> Result<(), String> {
    let (clock, time) = Clock::manual(0);
    let builder = Client::builder().clock(clock.clone()).key_prefix("vectors:");
    let client = match &redis {
        Some(url) => builder.connect(url).await,
        None => builder.in_process(&InProcessStore::new()),
    };
    let client = client.map_err(skipped)?;
    let mut foreign = match redis {
        Some(url) => {
            let plain = Client::builder().clock(clock).connect(&url).await.map_err(skipped)?;
            let server = redis::Client::open(url).map_err(|error| error.to_string())?;
            let server = server.get_multiplexed_async_connection().await;
            Some(ForeignRun::new(plain, server.map_err(|error| error.to_string())?))
        }
        None => None,
    };
    let mut run =
        Run { client, clock: time, limiter: None, granted: Vec::new(), guava: Vec::new() };
    let mut lines = BufReader::new(stdin()).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line: Value = match serde_json::from_slice(&line) {
            Ok(line) => line,
            Err(error) => {
                println!("{}", json!({"id": null, "skip": format!("not JSON: {error}")}));
                continue;
            }
        };
        let kind = line["policy"].as_str().unwrap_or_default();
        let reply = match &mut foreign {
            Some(foreign) if kind.starts_with("foreign-") => match line["now_us"].as_i64() {
                Some(now) => {
                    run.clock.set_micros(now);
                    foreign.step(kind, &line, now).await
                }
                None => Err("now_us is missing".to_owned()),
            },
            _ => run.step(&line).await.map(|answer| (answer, Value::Null)),
        };
        let reply = match reply {
            Ok((answer, Value::Null)) => json!({"id": line["id"], "answer": answer}),
            Ok((answer, state)) => json!({"id": line["id"], "answer": answer, "state": state}),
            Err(why) => json!({"id": line["id"], "skip": why}),
        };
        println!("{reply}");
    }
    Ok(())
}

impl Run {
    async fn step(&mut self, line: &Value) -> Result<Value, Skip> {
        let (kind, request) = (line["policy"].as_str().unwrap_or_default(), &line["request"]);
        if kind.starts_with("guava-") {
            if line["step"] == 0 {
                self.guava.clear();
            }
            self.guava.push(line.clone());
            return guava::answer(self.guava.clone()).await;
        }
        let now = line["now_us"].as_i64().ok_or("now_us is missing")?;
        self.clock.set_micros(now);
        if line["step"] == 0 {
            self.limiter = None;
            let limiter = self.follow(kind, &line["params"])?;
            limiter.delete().await.map_err(skipped)?;
            self.limiter = Some(limiter);
            self.granted.clear();
        }
        let limiter = self.limiter.clone().ok_or("the run has not begun")?;
        match request["op"].as_str() {
            Some("take") => self.take(&limiter, &request["requests"], kind == "queue").await,
            Some("give") => self.give(request).await,
            Some("peek") => limiter.available_permits().await.map(Value::from).map_err(skipped),
            Some("change") => {
                let rule = match request["how"].as_str() {
                    Some("scale") => ChangeRule::Scale,
                    Some("reset") => ChangeRule::Reset,
                    _ => ChangeRule::Keep,
                };
                let policy = policy(kind, &request["params"])?;
                let limiter = self.follow(kind, &request["params"])?;
                limiter.set_policy(policy, rule, None).await.map_err(skipped)?;
                let left = limiter.available_permits().await.map_err(skipped)?;
                self.limiter = Some(limiter);
                Ok(left.into())
            }
            op => Err(format!("the operation {op:?} has no call in the public API")),
        }
    }

    fn follow(&self, kind: &str, params: &Value) -> Result<RateLimiter, Skip> {
        self.client.limiter_of(kind, policy(kind, params)?).map_err(skipped)
    }

    /// The requests in one call, because they are made at once.
    async fn take(
        &mut self,
        limiter: &RateLimiter,
        requests: &Value,
        is_queue: bool,
    ) -> Result<Value, Skip> {
        let requests = requests.as_array().ok_or("requests are missing")?;
        let calls = requests.iter().map(async |request| {
            let permits = request[0].as_u64().unwrap_or(0);
            match request[1].as_bool() {
                _ if is_queue => limiter.try_reserve(permits).await,
                Some(true) => limiter.try_acquire_up_to(permits).await,
                _ => limiter.try_acquire_now(permits).await,
            }
        });
        let (mut answers, mut grants) = (Vec::new(), Vec::new());
        for decision in join_all(calls).await {
            answers.push(match decision {
                Ok(Decision::Granted(grant)) => {
                    let answer = match grant.starts_at() {
                        Some(start) => {
                            let start = start.duration_since(SystemTime::UNIX_EPOCH);
                            json!(["start", start.unwrap_or_default().as_micros() as u64])
                        }
                        None => json!(["granted", grant.permits()]),
                    };
                    grants.push(grant);
                    answer
                }
                Ok(Decision::Denied(denial)) => {
                    json!(["denied", denial.retry_after().as_micros() as u64])
                }
                Err(error) => match error.kind() {
                    ErrorKind::ExceedsRate { .. } => json!(["exceeds"]),
                    _ => return Err(skipped(error)),
                },
            });
        }
        if !grants.is_empty() {
            self.granted.push(grants);
        }
        Ok(answers.into())
    }

    async fn give(&mut self, request: &Value) -> Result<Value, Skip> {
        let place = request["grant"].as_u64().ok_or("grant is missing")? as usize;
        let grants = self.granted.get_mut(place).ok_or("there is no such grant")?;
        let (mut left, mut credit) = (request["permits"].as_u64().unwrap_or(0), 0);
        for grant in grants.iter_mut().rev() {
            let part = left.min(grant.permits());
            credit += grant.refund(part).await.map_err(skipped)?;
            left -= part;
        }
        Ok(credit.into())
    }
}

fn skipped(error: redisson_rate_limiter::Error) -> Skip {
    error.to_string()
}

/// The policy of these parameters.
pub(crate) fn policy(kind: &str, params: &Value) -> Result<Policy, Skip> {
    let number = |name: &str| params[name].as_u64();
    let needed = |name: &str| number(name).ok_or(format!("{name} is missing"));
    let time = |name: &str| needed(name).map(Duration::from_micros);
    let policy = match kind {
        "bucket" => {
            let bucket = Policy::bucket(needed("capacity")?, needed("refill")?, time("period")?);
            match number("initial") {
                Some(tokens) => bucket.and_then(|bucket| bucket.with_initial_tokens(tokens)),
                None => bucket,
            }
        }
        "bucket-interval" => {
            let (capacity, refill) = (needed("capacity")?, needed("refill")?);
            let mut bucket = Policy::interval_bucket(capacity, refill, time("period")?);
            if let Some(tokens) = number("initial") {
                bucket = bucket.and_then(|it| it.with_initial_tokens(tokens));
            }
            if let Some(us) = number("aligned") {
                bucket = bucket.and_then(|it| it.aligned_at(Duration::from_micros(us)));
            }
            bucket
        }
        "anchored-window" => Policy::anchored_window(needed("limit")?, time("width")?),
        "sliding-counter" => Policy::sliding_counter(needed("limit")?, time("width")?),
        "rolling-window" => {
            let buckets = needed("buckets")?;
            let window = Policy::rolling_window(needed("limit")?, time("width")?);
            window.and_then(|window| window.with_buckets(buckets))
        }
        "queue" => {
            let queue = Policy::queue(needed("refill")?, time("period")?, time("max_delay")?);
            match number("slack") {
                Some(slack) => queue.and_then(|queue| queue.with_slack(slack)),
                None => queue,
            }
        }
        "fixed-window" => {
            let window = Policy::fixed_window(needed("limit")?, time("width")?);
            match number("offset") {
                Some(us) => window.and_then(|it| it.with_offset(Duration::from_micros(us))),
                None => window,
            }
        }
        _ if kind.starts_with("foreign-") => return Err("it is on a server only".to_owned()),
        _ => return Err(format!("the public API has no policy `{kind}` with such parameters")),
    };
    policy.map_err(skipped)
}
