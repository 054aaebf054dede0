//! The vectors of other services' formats: their keys on a server, in the vectors' time, and our decisions in the form
//! of the others' answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Client, Decision, Error, ErrorKind, Policy};
use serde_json::{Map, Value, json};

use super::{Skip, skipped};

/// A key's time to live on the server is at least this long, so that none ends because a step takes real time.
const LEAST_MS: i64 = 500;

/// A run of steps on the keys of one format.
pub(super) struct ForeignRun {
    /// Without a key prefix: the vectors name the keys.
    client: Client,
    server: MultiplexedConnection,
    /// What the run's keys begin with.
    names: BTreeSet<String>,
    /// When keys end in the vectors' time, and the time to live that was set on the server for it.
    ends: BTreeMap<String, (i64, i64)>,
}

impl ForeignRun {
    pub(super) fn new(client: Client, server: MultiplexedConnection) -> Self {
        ForeignRun { client, server, names: BTreeSet::new(), ends: BTreeMap::new() }
    }

    /// Carries a step out; returns the answer, and the state after it.
    pub(super) async fn step(
        &mut self,
        kind: &str,
        line: &Value,
        now_us: i64,
    ) -> Result<(Value, Value), Skip> {
        let (request, now_ms) = (&line["request"], now_us.div_euclid(1000));
        if line["step"] == 0 {
            self.remove(self.keys().await?).await?;
            self.names.clear();
            self.ends.clear();
        }
        let fields: Vec<&str> =
            request["hset"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let name =
            match (fields.first().copied(), request["key"].as_str(), request["name"].as_str()) {
                (Some(name), ..) | (None, Some(name), _) => name.to_owned(),
                (None, None, Some(name)) => format!("rate:{name}"),
                (None, None, None) => return Err("the request names no key".to_owned()),
            };
        if self.names.insert(name.clone()) {
            // What an earlier run of another peer has left.
            self.remove(self.keys_of(&name).await?).await?;
        }
        self.set_ends(now_ms).await?;
        let answer = match request["op"] == "setup" {
            true => self.tell::<()>("HSET", &fields).await.map(|()| Value::Null)?,
            false => self.ask(kind, &name, request, now_us).await?,
        };
        self.note_ends(now_ms).await?;
        Ok((answer, self.state(now_ms).await?))
    }

    /// Our decision about a request, in the form of the other's answer.
    async fn ask(
        &self,
        kind: &str,
        name: &str,
        request: &Value,
        now_us: i64,
    ) -> Result<Value, Skip> {
        let error = |error: Error| match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::ForeignFormat | ErrorKind::CorruptState => {
                Ok(json!({ "error": error.to_string() }))
            }
            _ => Err(skipped(error)),
        };
        let (policy, limiter, limit) = match of_request(kind, name, request) {
            Ok(asked) => asked,
            Err(refused) => return error(refused),
        };
        let number = |field: &str, without| request[field].as_u64().unwrap_or(without);
        if kind == "foreign-counter" {
            let expire = request["expire"].as_str().unwrap_or_default();
            let limit = limit.to_string();
            self.tell::<()>("HSET", &[&*limiter, "limitReq", &limit, "expire", expire]).await?;
        }
        let of = self.client.limiter_of(&limiter, policy).map_err(skipped)?;
        let permits = if request["op"] == "AllowRate" { 1 } else { number("permits", 1) };
        let up_to = request["best_effort"] == true || request["op"] == "AllowAtMost";
        let decision = match request["dedup"].as_str().filter(|id| !id.is_empty()) {
            Some(_) if up_to => return Err("no call for a key takes what there is".to_owned()),
            Some(id) => of.try_acquire_once(id, permits).await,
            None if up_to => of.try_acquire_up_to(permits).await,
            None => of.try_acquire_now(permits).await,
        };
        let left = of.available_permits().await;
        if kind == "foreign-counter" {
            self.tell::<()>("DEL", &[&limiter]).await?;
        }
        let (granted, wait) = match decision {
            Ok(Decision::Granted(grant)) => (grant.permits(), Duration::ZERO),
            Ok(Decision::Denied(denial)) => (0, denial.retry_after()),
            Err(exceeds) if matches!(exceeds.kind(), ErrorKind::ExceedsRate { .. }) => {
                (0, Duration::ZERO)
            }
            // The application is not listed.
            Err(unlisted)
                if kind == "foreign-hmget-bucket"
                    && unlisted.kind() == ErrorKind::InvalidArgument =>
            {
                return Ok(0.into());
            }
            Err(refused) => return error(refused),
        };
        let left = left.map_err(skipped)?;
        let (allowed, used) = (granted > 0, limit.saturating_sub(left));
        Ok(match (kind, request["op"].as_str()) {
            ("foreign-sliding-log", _) => Some(1).filter(|_| allowed).into(),
            ("foreign-counter", _) => u8::from(allowed).into(),
            ("foreign-multi-zset", _) => json!({ "count": used, "allowed": allowed }),
            ("foreign-seconds-minutes", _) => if allowed { used } else { 0 }.into(),
            ("foreign-hmget-bucket", _) => if allowed { 1 } else { -1 }.into(),
            ("foreign-funnel", _) => (now_us.div_euclid(1000) * 10 + i64::from(allowed)).into(),
            ("foreign-redis-rate-fixed", Some("AllowN")) => {
                let width = (number("period_ns", 0) / 1_000_000_000 * 1_000_000).max(1) as i64;
                let delay_ns = (width - now_us.rem_euclid(width)) * 1000;
                json!({ "count": used, "delay_ns": delay_ns, "allowed": allowed })
            }
            ("foreign-redis-rate-fixed", _) => {
                json!({ "delay_ns": wait.as_nanos() as u64, "allowed": allowed })
            }
            ("foreign-redis-rate-gcra", Some("AllowAtMost")) => json!([granted, left]),
            ("foreign-redis-rate-gcra", _) => {
                let retry = if allowed { "-1".to_owned() } else { wait.as_secs_f64().to_string() };
                // The key has the time in seconds since 2017.
                let full = self.tell::<Option<f64>>("GET", &[name]).await?.unwrap_or(0.0);
                let reset = (full - (now_us as f64 / 1e6 - 1_483_228_800.0)).max(0.0);
                json!([granted, left, retry, reset.to_string()])
            }
            _ if !allowed => json!([0, 0]),
            (_, _) => {
                let (field, more) = match kind {
                    "foreign-quota-fixed" => ("expire", 0),
                    _ => ("bucket.timestamp", number("window_ns", 0)),
                };
                let time =
                    self.tell::<Option<f64>>("HGET", &[&format!("{name}.meta"), field]).await?;
                let left_ns = time.unwrap_or(0.0) + more as f64 - now_us as f64 * 1000.0;
                json!([granted, left_ns as i64])
            }
        })
    }

    async fn tell<T: FromRedisValue>(&self, command: &str, words: &[&str]) -> Result<T, Skip> {
        let answer = redis::cmd(command).arg(words).query_async(&mut self.server.clone()).await;
        answer.map_err(|error| error.to_string())
    }

    /// The keys of the run that are on the server, our own records among them.
    async fn keys(&self) -> Result<BTreeSet<String>, Skip> {
        let mut keys = BTreeSet::new();
        for name in &self.names {
            keys.extend(self.keys_of(name).await?);
        }
        Ok(keys)
    }

    async fn keys_of(&self, name: &str) -> Result<BTreeSet<String>, Skip> {
        let mut keys = BTreeSet::new();
        for pattern in [format!("{name}*"), format!("{{{name}*"), format!("*-{name}*")] {
            keys.extend(self.tell::<Vec<String>>("KEYS", &[&pattern]).await?);
        }
        Ok(keys)
    }

    async fn remove(&self, keys: BTreeSet<String>) -> Result<(), Skip> {
        for key in keys {
            self.tell::<()>("DEL", &[&key]).await?;
        }
        Ok(())
    }

    /// Sets the times to live that are left at this time, and removes keys whose time is over.
    async fn set_ends(&mut self, now_ms: i64) -> Result<(), Skip> {
        for (key, (end_ms, set_ms)) in std::mem::take(&mut self.ends) {
            // A key is gone a millisecond after its time to live.
            if end_ms < now_ms {
                self.tell::<()>("DEL", &[&key]).await?;
                continue;
            }
            let left_ms = (end_ms - now_ms).max(LEAST_MS);
            if left_ms != set_ms {
                self.tell::<()>("PEXPIRE", &[&key, &left_ms.to_string()]).await?;
            }
            self.ends.insert(key, (end_ms, left_ms));
        }
        Ok(())
    }

    /// Notes the times to live that the step has set; the formats' are multiples of 100 ms.
    async fn note_ends(&mut self, now_ms: i64) -> Result<(), Skip> {
        let known = std::mem::take(&mut self.ends);
        for key in self.keys().await? {
            let ms: i64 = self.tell("PTTL", &[&key]).await?;
            let same = |(_, set_ms): &&(i64, i64)| (0..=LEAST_MS).contains(&(*set_ms - ms));
            if let Some(end) = known.get(&key).filter(same) {
                self.ends.insert(key, *end);
            } else if ms >= 0 {
                self.ends.insert(key, (now_ms + (ms + 99) / 100 * 100, ms));
            }
        }
        Ok(())
    }

    /// The others' keys: type, content, time to live.
    async fn state(&self, now_ms: i64) -> Result<Value, Skip> {
        let mut state = Map::new();
        for key in self.keys().await?.into_iter().filter(|key| !key.ends_with(":lanes")) {
            let kind: String = self.tell("TYPE", &[&key]).await?;
            let value: Value = match &*kind {
                "string" => self.tell::<String>("GET", &[&key]).await?.into(),
                "hash" => {
                    let fields: Vec<(String, String)> = self.tell("HGETALL", &[&key]).await?;
                    fields.into_iter().map(|(name, text)| (name, Value::from(text))).collect()
                }
                _ => {
                    let range = [&*key, "0", "-1", "WITHSCORES"];
                    let entries: Vec<(String, String)> = self.tell("ZRANGE", &range).await?;
                    entries.into_iter().map(|(member, score)| json!([member, score])).collect()
                }
            };
            let ttl_ms = self.ends.get(&key).map_or(-1, |(end_ms, _)| end_ms - now_ms);
            state.insert(key, json!({ "type": kind, "value": value, "ttl_ms": ttl_ms }));
        }
        Ok(state.into())
    }
}

/// The policy that a request names, the name of its limiter, and its limit if the request has it.
fn of_request(kind: &str, name: &str, request: &Value) -> Result<(Policy, String, u64), Error> {
    let number = |field: &str| request[field].as_u64().unwrap_or(0);
    let nanos = |field: &str| Duration::from_nanos(number(field));
    let (limit, seconds) = (number("limit"), Duration::from_secs(number("period_s")));
    let policy = match kind {
        "foreign-sliding-log" => {
            Policy::sliding_log(limit, Duration::from_millis(number("interval_ms")))
        }
        "foreign-counter" => Ok(Policy::org_path_counter()),
        "foreign-funnel" => Ok(Policy::org_path_funnel()),
        "foreign-multi-zset" => Policy::multi_window(limit, seconds),
        "foreign-seconds-minutes" if request["unit"] == "SECONDS" => Policy::seconds_counter(limit),
        "foreign-seconds-minutes" => Policy::minutes_counter(limit),
        "foreign-hmget-bucket" => {
            Policy::allow_list_bucket(request["app"].as_str().unwrap_or_default())
        }
        "foreign-redis-rate-fixed" if request["op"] == "AllowN" => {
            Policy::redis_rate_fixed(limit, nanos("period_ns"))
        }
        "foreign-redis-rate-fixed" => {
            Policy::redis_rate_fixed_rate(request["rate"].as_f64().unwrap_or(0.0))
        }
        "foreign-redis-rate-gcra" => {
            Policy::redis_rate_gcra(number("burst"), number("rate"), seconds)
        }
        "foreign-quota-fixed" => Policy::mixer_fixed(number("credit"), nanos("window_ns")),
        _ => Policy::mixer_rolling(number("credit"), nanos("window_ns"), nanos("bucket_ns")),
    };
    let limiter = match kind {
        "foreign-counter" => name.replacen("-/", "/", 1),
        _ => name.strip_prefix("rate:").unwrap_or(name).to_owned(),
    };
    Ok((policy?, limiter, limit))
}
