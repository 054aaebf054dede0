//! Runs of Redisson itself: each step begins with the keys that Redisson found, and the scripts give the same answer,
//! and leave the same keys.
//!
//! This crate announces each permit that became free by itself, and nothing else (4, 7, 22 and 23 in the list of what
//! goes wrong in Redisson). Other differences are listed in [`differs`], with their numbers there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

const VECTORS: &str = include_str!("../../../../../compat-tests/vectors/semaphores.jsonl");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// A [`super::State`], and which of its keys have times to live.
struct State {
    value: Option<String>,
    out: Vec<(i64, Vec<u8>)>,
    ends: [bool; 2],
}

/// The state that a vector shows; `None` if scores are not integers.
fn state(keys: &Value, name: &Keys) -> Option<State> {
    let [value, out] = [&keys[&*name.hash], &keys[&*name.value]];
    let member = |one: &Value| Some((one[1].as_str()?.parse().ok()?, bytes(one[0].as_str()?)));
    Some(State {
        value: value["string"].as_str().map(str::to_owned),
        out: out["zset"].as_array().into_iter().flatten().map(member).collect::<Option<_>>()?,
        ends: [value, out].map(|key| key["expires_at"].is_number()),
    })
}

impl World {
    fn restore(&self, state: &State) {
        let mut raw = self.raw.borrow_mut();
        redis::cmd("FLUSHALL").exec(&mut raw).unwrap();
        if let Some(value) = &state.value {
            redis::cmd("SET").arg(&*self.keys.hash).arg(value).exec(&mut raw).unwrap();
        }
        for (end, id) in &state.out {
            redis::cmd("ZADD").arg(&*self.keys.value).arg(*end).arg(id).exec(&mut raw).unwrap();
        }
        for key in
            [&self.keys.hash, &self.keys.value].into_iter().zip(state.ends).filter(|key| key.1)
        {
            redis::cmd("PEXPIRE").arg(&**key.0).arg(600_000).exec(&mut raw).unwrap();
        }
    }

    fn found(&self) -> State {
        let super::State { value, out } = self.on_the_server();
        let ends = [&self.keys.hash, &self.keys.value].map(|key| {
            let left: i64 =
                redis::cmd("PTTL").arg(&**key).query(&mut self.raw.borrow_mut()).unwrap();
            left >= 0
        });
        State { value, out, ends }
    }
}

/// Why this crate decides otherwise than Redisson. The numbers are those of the list of what goes wrong in Redisson.
fn differs(
    step: &Value,
    is_list: bool,
    before: &State,
    expired: usize,
    asked: i64,
) -> Option<&'static str> {
    let call = step["call"].as_str().unwrap();
    let (is_plain, no_value) = (step["object"] == "semaphore", before.value.is_none());
    let is_forged = |answer: &str| answer.starts_with("3a");
    match call {
        _ if is_plain && !before.out.is_empty() => {
            Some("27: a plain call where permits have leases is refused")
        }
        _ if step["answer"].as_str().is_some_and(is_forged) => {
            Some("16: a permit that was never granted")
        }
        "release" if is_plain && no_value => Some("20: a release creates no semaphore"),
        "availablePermits" | "acquiredPermits" | "getPermits" if expired > 0 => {
            Some("30: reading writes nothing")
        }
        _ if no_value && !before.out.is_empty() => Some("19, 20: the permits that are out count"),
        "tryAcquire" if expired as i64 > asked => Some("more is taken back than asked for"),
        "updateLeaseTime" if expired > 0 => Some("a lease that has ended can be renewed"),
        "addPermits" | "drainPermits" if step["keys"] != Value::Null && before.ends[0] => {
            Some("17: the time to live stays")
        }
        "release" | "tryRelease" if is_list && expired > 0 => {
            Some("24: each permit comes back by itself")
        }
        "release" | "tryRelease"
            if is_list && (step["answer"] == 0 || !step["error"].is_null()) =>
        {
            Some("24: each permit comes back by itself")
        }
        _ => None,
    }
}

/// Carries the step out: the answer of this crate, as Redisson would give it. An error is why there is none to compare.
fn answer(world: &World, step: &Value, number: u64, before: &State) -> Result<Value, &'static str> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    let is_plain = text("object") == "semaphore";
    let kind = if is_plain { Plain } else { Expirable };
    let arguments = step["args"].as_array().unwrap();
    let first = arguments.first().and_then(Value::as_str).unwrap_or("i:1");
    // Without a number of permits, the first argument of an acquire is its wait.
    let one = (text("call") == "tryAcquire").then_some(1);
    let amount = first.strip_prefix("i:").map(|n| n.parse::<i64>().unwrap()).or(one);
    let list = first.strip_prefix("L:").map(|ids| ids.split(',').collect::<Vec<_>>());
    let is_list = list.is_some();
    let ids = list.or(first.strip_prefix("s:").map(|id| vec![id]));
    let ids = || {
        let ids = ids.iter().flatten().map(|id| PermitId::parse(id));
        ids.collect::<Option<Vec<_>>>().ok_or("an id is 16 bytes")
    };
    let now = step["now"].as_i64().unwrap_or(T0);
    let expired = before.out.iter().filter(|(end, _)| (0..=now).contains(end)).count();
    if let Some(reason) = differs(step, is_list, before, expired, amount.unwrap_or(1)) {
        return Err(reason);
    }
    let lease_ms = match step["lease_end"].as_i64().unwrap_or(NO_END) {
        NO_END => None,
        end => Some(u64::try_from(end - now).map_err(|_| "15: a lease is positive")?),
    };
    let at = Some(now);
    let set = |rule| -> Result<Value, &'static str> {
        let permits = amount.ok_or("a time to live is a call of its own")?;
        if arguments.len() > 1 {
            return Err("a time to live is a call of its own");
        }
        let answer = world.on_server(&SetPermitsCall { kind, rule, permits }).unwrap();
        Ok(match rule {
            SetPermits::Try => (answer == 1).into(),
            SetPermits::Drain => answer.into(),
            SetPermits::Set | SetPermits::Add => Value::Null,
        })
    };
    Ok(match text("call") {
        "tryAcquire" => {
            let permits = amount
                .filter(|n| *n > 0)
                .ok_or("no permits are refused before anything is sent")?;
            let call = acquire(kind, number, vec![request(permits as u64)]);
            let call = SemaphoreAcquireCall { at, lane: None, ..leased(call, lease_ms) };
            world.on_server(&call).is_ok_and(|reply| granted(&call, &reply) > 0).into()
        }
        "release" | "releaseIfExists" if is_plain => {
            let count = amount
                .filter(|n| *n > 0)
                .ok_or("no permits are refused before anything is sent")?;
            let back = world.on_server(&release(kind, vec![], count as u64)).unwrap();
            match text("call") {
                "release" => Value::Null,
                _ => (back.returned == [Returned::InTime]).into(),
            }
        }
        "release" | "tryRelease" => {
            let call = SemaphoreReleaseCall { at, ..release(kind, ids()?, 0) };
            let back = world.on_server(&call).unwrap().returned;
            let in_time = back.iter().filter(|one| **one == Returned::InTime).count();
            match text("call") {
                "release" => Value::Null,
                _ if is_list => in_time.into(),
                _ => (in_time == 1).into(),
            }
        }
        "updateLeaseTime" => {
            let call =
                RenewCall { at, lease_ms, may_shorten: true, keep_alive_ms: None, permits: ids()? };
            (world.on_server(&call).unwrap() == [true]).into()
        }
        "trySetPermits" => set(SetPermits::Try)?,
        "setPermits" => set(SetPermits::Set)?,
        "addPermits" => set(SetPermits::Add)?,
        "drainPermits" => set(SetPermits::Drain)?,
        count @ ("availablePermits" | "acquiredPermits" | "getPermits") => {
            let counts = world.on_server(&SemaphoreCountsCall { kind, at }).unwrap();
            match count {
                "availablePermits" => counts.available.into(),
                "acquiredPermits" => counts.acquired.into(),
                _ => counts.total.into(),
            }
        }
        _ => return Err("a call on keys, the same for all objects"),
    })
}

#[test]
fn runs_of_redisson() {
    let mut world = World::new();
    let mut listener = world.server.raw();
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut channel = listener.as_pubsub();
    channel.psubscribe("redisson_sc:*").unwrap();
    let (mut compared, mut exceptions) = (0, BTreeMap::<&str, BTreeMap<String, u32>>::new());
    let mut previous = (String::new(), Value::Null);
    for (number, line) in (1..).zip(VECTORS.lines().skip(1)) {
        let step: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let case = format!("{}/{}", text("case"), text("release"));
        let before = if previous.0 == case { previous.1.clone() } else { Value::Null };
        previous = (case.clone(), step["keys"].clone());
        if step["call"].is_null() {
            continue;
        }
        world.keys = Keys::of_semaphore(text("name"));
        let outcome = match (state(&before, &world.keys), state(&step["keys"], &world.keys)) {
            (Some(before), Some(after)) => {
                world.restore(&before);
                answer(&world, &step, number, &before).map(|answer| (answer, before, after))
            }
            _ => Err("16: a score is an integer"),
        };
        redis::cmd("PUBLISH").arg("redisson_sc:").arg("end").exec(&mut world.server.raw()).unwrap();
        let messages = std::iter::from_fn(|| Some(channel.get_message().unwrap()));
        let messages: Vec<String> = messages
            .take_while(|message| message.get_channel_name() != "redisson_sc:")
            .map(|message| message.get_payload().unwrap())
            .collect();
        let (ours, before, after) = match outcome {
            Ok(outcome) => outcome,
            Err(reason) => {
                *exceptions.entry(reason).or_default().entry(case).or_default() += 1;
                continue;
            }
        };
        let theirs = match &step["answer"] {
            ids if text("call") == "tryAcquire" => {
                (!matches!(ids, Value::Null | Value::Bool(false))
                    && ids.as_array().is_none_or(|ids| !ids.is_empty()))
                .into()
            }
            _ if ours.is_null() => Value::Null,
            answer => answer.clone(),
        };
        assert_eq!(ours, theirs, "{line}");
        // New ids are random.
        let known = |state: &State| {
            let is_old = |id: &Vec<u8>| before.out.iter().any(|(_, old)| old == id);
            let mut out: Vec<_> =
                state.out.iter().map(|(end, id)| (*end, is_old(id).then(|| id.clone()))).collect();
            out.sort();
            (state.value.clone(), out, state.ends)
        };
        assert_eq!(known(&world.found()), known(&after), "{line}");
        let free = |state: &State| {
            let value = state.value.as_ref().map_or(0, |value| value.parse::<i64>().unwrap());
            value.max(0)
        };
        let freed = (free(&after) - free(&before)).max(0);
        let announced: i64 = messages.iter().map(|message| message.parse::<i64>().unwrap()).sum();
        assert_eq!(announced, freed, "{line}");
        compared += 1;
    }
    println!("{compared} steps compared; exceptions: {exceptions:#?}");
    assert!(compared > 350);
}
