//! Vectors of an independent reference, executed by both stores.

use serde_json::{Value, json};

use super::*;

pub(super) const VECTORS: &str = include_str!("../../../../../compat-tests/vectors/policies.jsonl");

fn us(params: &Value, name: &str) -> Duration {
    Duration::from_micros(params[name].as_u64().unwrap_or(0))
}

/// The policy of a vector, by the reference's names.
fn policy(name: &str, params: &Value) -> Option<Policy> {
    let number = |name: &str| params[name].as_u64();
    let policy = match name {
        "fixed-window" | "lanes" => {
            let windows = Policy::fixed_window(number("limit")?, us(params, "width")).unwrap();
            windows.with_offset(us(params, "offset")).unwrap()
        }
        "bucket" => {
            let (capacity, period) = (number("capacity")?, us(params, "period"));
            let bucket = Policy::bucket(capacity, number("refill")?, period).unwrap();
            bucket.with_initial_tokens(number("initial").unwrap_or(capacity)).unwrap()
        }
        "anchored-window" => {
            Policy::anchored_window(number("limit")?, us(params, "width")).unwrap()
        }
        "calendar" => {
            let bound = params["boundaries"][0].as_i64().unwrap();
            let (unit, zone) = match bound {
                1_761_343_200_000_000 => (CalendarUnit::Day, "Europe/Berlin"),
                1_725_681_600_000_000 => (CalendarUnit::Day, "America/Santiago"),
                _ => (CalendarUnit::Month, "UTC"),
            };
            in_zone(Policy::calendar_window(number("limit")?, unit).unwrap(), zone)?
        }
        "sliding-counter" => {
            Policy::sliding_counter(number("limit")?, us(params, "width")).unwrap()
        }
        "rolling-window" => {
            let windows = Policy::rolling_window(number("limit")?, us(params, "width")).unwrap();
            windows.with_buckets(number("buckets")?).unwrap()
        }
        "bucket-interval" => {
            let (capacity, period) = (number("capacity")?, us(params, "period"));
            let bucket = Policy::interval_bucket(capacity, number("refill")?, period).unwrap();
            let bucket = bucket.with_initial_tokens(number("initial").unwrap_or(capacity)).unwrap();
            match number("aligned") {
                Some(_) => bucket.aligned_at(us(params, "aligned")).unwrap(),
                None => bucket,
            }
        }
        "queue" => {
            let (period, max_delay) = (us(params, "period"), us(params, "max_delay"));
            let queue = Policy::queue(number("refill")?, period, max_delay).unwrap();
            queue.with_slack(number("slack").unwrap_or(0)).unwrap()
        }
        _ => return None,
    };
    Some(policy)
}

/// These windows in another time zone, if there are any.
fn in_zone(windows: Policy, zone: &str) -> Option<Policy> {
    #[cfg(feature = "time-zones")]
    return Some(windows.in_zone(zone).unwrap());
    #[cfg(not(feature = "time-zones"))]
    (zone == "UTC").then_some(windows)
}

/// The state's numbers as the reference names them.
pub(super) fn numbers(state: &Value) -> Hash {
    let object = state.as_object().unwrap();
    let field = |(name, number): (&String, &Value)| match number.as_array() {
        Some(counts) => {
            let used = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
            let counts: Vec<String> = counts[..used].iter().map(Value::to_string).collect();
            ("w".to_owned(), counts.join(","))
        }
        None => (name.clone(), number.to_string()),
    };
    object.iter().map(field).collect()
}

#[test]
fn vectors() {
    let mut world = World::new();
    let (mut current, mut grants, mut checked) = (None, Vec::new(), 0);
    let mut skipped = std::collections::BTreeSet::new();
    for line in VECTORS.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let name = vector["policy"].as_str().unwrap();
        if name == "lanes" {
            continue;
        }
        if vector["step"] == 0 {
            world.clear();
            current = policy(name, &vector["params"]);
            grants.clear();
        }
        let Some(policy_now) = current.clone() else {
            skipped.insert(name.to_owned());
            continue;
        };
        let at = vector["now_us"].as_i64().unwrap();
        let request_of = &vector["request"];
        let answer = match request_of["op"].as_str().unwrap() {
            "take" => take(&mut world, &policy_now, at, &request_of["requests"], &mut grants),
            "peek" => json!(world.peek(&policy_now, at, 0).available),
            "give" => {
                let mark = grants[request_of["grant"].as_u64().unwrap() as usize];
                json!(world.give(&policy_now, at, mark, request_of["permits"].as_u64().unwrap()))
            }
            "change" => {
                let changed = policy(name, &request_of["params"]).unwrap();
                let rule = match request_of["how"].as_str().unwrap() {
                    "keep" => ChangeRule::Keep,
                    "scale" => ChangeRule::Scale,
                    _ => ChangeRule::Reset,
                };
                let call = PolicyChangeCall {
                    of: changed.clone().into(),
                    at: Some(at),
                    rule,
                    keep_alive_ms: 0,
                };
                world.run(&call).unwrap();
                current = Some(changed.clone());
                json!(world.peek(&changed, at, 0).available)
            }
            other => panic!("{other}"),
        };
        assert_eq!(answer, vector["answer"], "{line}");
        // The reference shows the state as of now, and stores do not write it for a denial.
        let stored = world.state();
        if ["granted", "start"].iter().any(|word| answer.to_string().contains(word)) {
            assert_eq!(numbers_of(&policy_now, &stored), numbers(&vector["state"]), "{line}");
        }
        checked += 1;
    }
    println!("{checked} vectors; skipped: {skipped:?}");
}

/// A queue's reference knows no deadline but the longest delay.
fn patience(policy: &Policy) -> u64 {
    match &policy.0 {
        Kind::Queue(rules) => rules.max_delay.div_ceil(1000),
        _ => 0,
    }
}

/// Sends the requests as one call where none is "at most", and one by one otherwise.
fn take(
    world: &mut World,
    policy: &Policy,
    at: i64,
    requests: &Value,
    grants: &mut Vec<(i64, u64)>,
) -> Value {
    let mut answers = Vec::new();
    let mut mark = None;
    for one in requests.as_array().unwrap() {
        let (permits, at_most) = (one[0].as_u64().unwrap(), one[1].as_bool().unwrap());
        let mut asked = permits;
        if at_most {
            let free = world.peek(policy, at, 1).available;
            asked = permits.min(free.max(1));
            if permits > world.peek(policy, at, 1).limit {
                asked = free.max(1);
            }
        }
        let reply = world
            .take(
                policy,
                at,
                vec![RequestGroup { max_wait_ms: patience(policy), ..request(asked) }],
            )
            .unwrap();
        answers.push(match only(&reply) {
            Outcome::Granted => {
                mark = Some(self::mark(&reply));
                json!(["granted", asked])
            }
            Outcome::Scheduled { start, mark: own } => {
                mark = Some(own);
                json!(["start", start])
            }
            Outcome::Refused(wait, _) | Outcome::Waiting(wait) => json!(["denied", wait.us]),
            Outcome::ExceedsRate => json!(["exceeds"]),
            other => panic!("{other:?}"),
        });
    }
    grants.extend(mark);
    json!(answers)
}
