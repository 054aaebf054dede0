//! What the scripts of the others left on a server: we read it, and decide what they decide, but for their defects.

use std::fs;

use serde_json::Value;

use super::*;

/// The policy, the limiter's name and the other's call of a step.
fn step(kind: &str, request: &Value) -> (Policy, String, Other, u64) {
    let number = |field: &str| request[field].as_u64().unwrap_or(1);
    let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
    let (limit, permits, key) = (number("limit"), number("permits"), text("key"));
    let seconds = Duration::from_secs;
    let name = |key: &str| key.to_owned();
    match kind {
        "foreign-redis-rate-gcra" => {
            let (burst, rate, period_s) = (number("burst"), number("rate"), number("period_s"));
            let policy = Policy::redis_rate_gcra(burst, rate, seconds(period_s)).unwrap();
            let other = Other::RedisRateGcra { burst, rate, period_s };
            (policy, key.replacen("rate:", "", 1), other, permits)
        }
        "foreign-redis-rate-fixed" => {
            let policy = match &*text("op") {
                "AllowN" => {
                    Policy::redis_rate_fixed(limit, Duration::from_nanos(number("period_ns")))
                }
                _ => Policy::redis_rate_fixed_rate(request["rate"].as_f64().unwrap()),
            };
            let policy = policy.unwrap();
            let at = request["client_us"].as_i64();
            let key = foreign(&policy).keys(&format!("rate:{}", text("name")), at).remove(0);
            let limit = policy.limit();
            let width = foreign(&policy).window_us / 1_000_000;
            let other = Other::Window { key, limit, life_s: width + number("ttl_extra_s") };
            // AllowRate takes one.
            let permits = if request["op"] == "AllowN" { permits } else { 1 };
            (policy, text("name"), other, permits)
        }
        "foreign-counter" => {
            let other = Other::OrgPathCounter { limit, expire: text("expire") };
            (Policy::org_path_counter(), key.replacen("-/", "/", 1), other, 1)
        }
        "foreign-funnel" => (Policy::org_path_funnel(), key, Other::OrgPathFunnel, 1),
        "foreign-sliding-log" => {
            let interval_ms = number("interval_ms");
            let policy = Policy::sliding_log(limit, Duration::from_millis(interval_ms)).unwrap();
            (policy, key, Other::SlidingLog { limit, interval_ms, id: text("id") }, 1)
        }
        "foreign-multi-zset" => {
            let period_s = number("period_s");
            let policy = Policy::multi_window(limit, seconds(period_s)).unwrap();
            (policy, key, Other::MultiWindow { limit, period_s }, 1)
        }
        "foreign-seconds-minutes" => {
            let (policy, life_s) = match &*text("unit") {
                "SECONDS" => (Policy::seconds_counter(limit), 2),
                _ => (Policy::minutes_counter(limit), 120),
            };
            (policy.unwrap(), key, Other::Living { limit, life_s }, 1)
        }
        "foreign-hmget-bucket" => {
            let app = text("app");
            (Policy::allow_list_bucket(&app).unwrap(), key, Other::AllowList { app }, permits)
        }
        "foreign-quota-fixed" | "foreign-quota-rolling" => {
            let (limit, window_ns, bucket_ns) =
                (number("credit"), number("window_ns"), number("bucket_ns"));
            let nanos = Duration::from_nanos;
            match kind {
                "foreign-quota-fixed" => {
                    let policy =
                        Policy::mixer_fixed(limit, nanos(window_ns / 1_000_000 * 1_000_000));
                    (policy.unwrap(), name(&key), Other::MixerFixed { limit, window_ns }, permits)
                }
                _ => {
                    let policy = Policy::mixer_rolling(limit, nanos(window_ns), nanos(bucket_ns));
                    let other = Other::MixerRolling { limit, window_ns, bucket_ns };
                    (policy.unwrap(), name(&key), other, permits)
                }
            }
        }
        other => panic!("{other}"),
    }
}

/// Puts the state of a step on the server.
fn put(world: &mut World, state: &Value, line: &str) {
    let server = &mut world.raw;
    cmd("FLUSHALL").exec(server).unwrap();
    world.ends.clear();
    for (key, content) in state.as_object().unwrap() {
        let value = &content["value"];
        match content["type"].as_str().unwrap() {
            "string" => cmd("SET").arg(key).arg(value.as_str().unwrap()).exec(server).unwrap(),
            "hash" => {
                // In the order of the line, which the funnel depends on.
                let (_, line) = line.split_once("\"state\":").unwrap();
                let mut fields: Vec<_> = value.as_object().unwrap().iter().collect();
                fields.sort_by_key(|(field, _)| line.find(&format!("\"{field}\":")));
                for (field, text) in fields {
                    let text = text.as_str().unwrap();
                    cmd("HSET").arg(key).arg(field).arg(text).exec(server).unwrap();
                }
            }
            "zset" => {
                for entry in value.as_array().unwrap() {
                    let (member, score) = (entry[0].as_str().unwrap(), entry[1].as_str().unwrap());
                    cmd("ZADD").arg(key).arg(score).arg(member).exec(server).unwrap();
                }
            }
            other => panic!("{other}"),
        }
        let ms = content["ttl_ms"].as_i64().unwrap();
        if ms >= 0 {
            let end_ms = world.now.div_euclid(1000) + ms;
            world.ends.insert(key.clone(), End { end_ms, set_ms: ms });
        }
    }
    world.set_ends();
}

/// The state as the vectors have it, with times to live.
fn state(world: &mut World) -> Value {
    world.note_ends();
    let mut state = serde_json::Map::new();
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut world.raw).unwrap();
    for key in keys {
        let kind: String = cmd("TYPE").arg(&key).query(&mut world.raw).unwrap();
        let value: Value = match &*kind {
            "string" => cmd("GET").arg(&key).query::<String>(&mut world.raw).unwrap().into(),
            "hash" => {
                let fields: Vec<(String, String)> =
                    cmd("HGETALL").arg(&key).query(&mut world.raw).unwrap();
                fields.into_iter().map(|(name, text)| (name, Value::from(text))).collect()
            }
            _ => {
                let range = cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES").clone();
                let entries: Vec<(String, f64)> = range.query(&mut world.raw).unwrap();
                entries
                    .into_iter()
                    .map(|(member, score)| serde_json::json!([member, score]))
                    .collect()
            }
        };
        let end = world.ends.get(&key);
        let end = end.map_or(-1, |end| end.end_ms - world.now.div_euclid(1000));
        state.insert(key, serde_json::json!({"type": kind, "value": value, "ttl_ms": end}));
    }
    state.into()
}

/// Compares a state with a vector's. Times to live may be off by the time that passed meanwhile.
fn assert_alike(state: Value, expected: &Value, line: &str) {
    let mut expected = expected.clone();
    for (key, content) in expected.as_object_mut().unwrap() {
        for entry in content["value"].as_array_mut().into_iter().flatten() {
            entry[1] = entry[1].as_str().unwrap().parse::<f64>().unwrap().into();
        }
        let ms = |content: &Value| content["ttl_ms"].as_i64().unwrap_or(-1);
        let (found, told) = (ms(&state[key]), ms(content));
        assert!((found - told).abs() <= 100 && (found < 0) == (told < 0), "{found}: {line}");
        content["ttl_ms"] = found.into();
    }
    assert_eq!(state, expected, "{line}");
}

/// Whether the other granted everything that was asked for.
fn is_granted(answer: &Value, permits: u64) -> bool {
    match answer {
        Value::Null => false,
        Value::Number(number) if number.as_i64() > Some(1_000_000) => {
            number.as_i64().unwrap() % 10 == 1
        }
        Value::Number(number) => number.as_i64() > Some(0),
        Value::Array(numbers) => numbers[0].as_u64() == Some(permits),
        answer => answer["allowed"].as_bool().unwrap(),
    }
}

#[test]
fn what_the_others_left_is_understood() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/compat-tests/vectors/foreign.jsonl");
    let vectors = fs::read_to_string(path).unwrap();
    let mut world = World::new();
    let (mut alike, mut replayed) = (0, 0);
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let (kind, run) = (vector["policy"].as_str().unwrap(), vector["run"].as_str().unwrap());
        let (request, answer) = (&vector["request"], &vector["answer"]);
        let at = vector["now_us"].as_i64().unwrap();
        if vector["step"] == 0 {
            world.begin(at);
        }
        world.go_to(at);
        if request["op"] != "setup" && answer["error"].is_null() {
            let (policy, name, other, permits) = step(kind, request);
            let mut keys = foreign(&policy).keys(&foreign(&policy).key(&name).unwrap(), Some(at));
            keys.remove(1);
            if kind == "foreign-counter" {
                keys.truncate(1);
                let (limit, expire) = (&request["limit"], request["expire"].as_str().unwrap());
                let mut config = cmd("HSET");
                config.arg(&name).arg("limitReq").arg(limit.to_string()).arg("expire").arg(expire);
                config.exec(&mut world.raw).unwrap();
            }
            let grants = is_granted(answer, permits);
            let before = state(&mut world);
            let is_defect = is_defect(kind, run, request, &before, at);
            match world.peek(&policy, &name, at, permits) {
                Ok(peek) if is_defect => drop(peek),
                Ok(peek) => {
                    assert_eq!(peek.available >= permits, grants, "{peek:?}: {line}");
                    alike += 1;
                }
                // The application is not listed.
                Err(error) if kind == "foreign-hmget-bucket" => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}: {line}");
                    assert_eq!(answer, 0, "{line}");
                }
                Err(error) => {
                    assert!(is_defect, "{error}: {line}");
                    assert_eq!(error.kind(), ErrorKind::ForeignFormat, "{error}: {line}");
                }
            }
            if kind == "foreign-counter" {
                cmd("DEL").arg(&name).exec(&mut world.raw).unwrap();
            }
            // The scripts that the random programs run are those that wrote the vectors.
            let is_plain = request["op"] != "AllowAtMost"
                && request["best_effort"] != true
                && request["dedup"].as_str().unwrap_or_default().is_empty()
                && !is_skewed(request, at);
            if is_plain && run != "window-not-whole-ms" {
                let granted = other.take(&mut world.raw, &keys, at, permits).unwrap();
                assert_eq!(granted, grants, "{other:?}: {line}");
                assert_alike(state(&mut world), &vector["state"], line);
                replayed += 1;
            }
        }
        put(&mut world, &vector["state"], line);
    }
    assert!(alike > 500 && replayed > 500, "{alike} alike, {replayed} replayed");
}

/// Whether the caller's clock differs from the server's.
fn is_skewed(request: &Value, at: i64) -> bool {
    let differs =
        |field: &str, us: fn(i64) -> i64| request[field].as_i64().is_some_and(|it| us(it) != at);
    differs("client_us", |us| us)
        || differs("client_ns", |ns| ns / 1000)
        || request["client_ms"].as_i64().is_some_and(|ms| ms != at / 1000)
}

/// Whether the other decides by a defect that is not ours.
fn is_defect(kind: &str, run: &str, request: &Value, before: &Value, at: i64) -> bool {
    let after_now = |text: &Value, us: f64| {
        text.as_str().is_some_and(|text| text.parse::<f64>().unwrap() * us > at as f64)
    };
    match kind {
        // It grants half an interval early.
        "foreign-redis-rate-gcra" => true,
        // An id that has been granted moves, and one permit is one id.
        "foreign-sliding-log" => {
            let entries = before["k"]["value"].as_array();
            entries.is_some_and(|entries| entries.iter().any(|entry| entry[0] == request["id"]))
        }
        // A millisecond is one entry.
        "foreign-multi-zset" => {
            let entries = before["hist:u:a"]["value"].as_array();
            is_skewed(request, at)
                || entries.is_some_and(|entries| {
                    entries.iter().any(|entry| entry[1].as_f64() == Some((at / 1000) as f64))
                })
        }
        // Time that goes back takes tokens away.
        "foreign-hmget-bucket" => {
            is_skewed(request, at) || after_now(&before["k"]["value"]["last_mill_second"], 1000.0)
        }
        "foreign-funnel" => run == "fields-in-another-order",
        "foreign-counter" => run == "expire-not-an-integer",
        "foreign-quota-fixed" | "foreign-quota-rolling" => {
            is_skewed(request, at)
                || run == "window-not-whole-ms"
                || request["best_effort"] == true
                || request["dedup"] != ""
        }
        _ => is_skewed(request, at),
    }
}
