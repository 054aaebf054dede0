//! Limiters as JSON, for other programs: docs/cli.md describes the format. Fields may be added; existing ones
//! keep their meaning as long as `schema` is 1.

use std::fmt::Write;

use redisson_rate_limiter::Rate;
use redisson_rate_limiter::admin::{LogEntry, StoredKey, StoredPolicy, Writer};
use serde_json::{Value, json};

use crate::found::{BudgetView, View};
use crate::text::is_harmless;

/// The version in the field `schema`.
pub const SCHEMA: u64 = 1;

/// A document as text. Characters that a terminal would obey are escaped, because JSON leaves some of them
/// unescaped, such as U+009B. The reader still gets every character.
pub fn text(document: &Value) -> String {
    let mut text = String::new();
    for character in format!("{document:#}\n").chars() {
        if character == '\n' || is_harmless(character) {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

pub fn limiter(
    view: &View,
    note: Option<&str>,
    memory: Option<u64>,
    policies: &[StoredPolicy],
) -> Value {
    let inspection = view.inspection();
    let hash = view.hash();
    let field = |read: fn(&redisson_rate_limiter::admin::StoredRate) -> &Option<String>| {
        hash.content().and_then(|content| read(content).clone())
    };
    json!({
        "schema": SCHEMA,
        "limiter": view.name(),
        "now_ms": inspection.now_ms,
        "clock_skew": inspection.clock_skew.map(|skew| json!({
            "ahead_us": skew.ahead_us(),
            "uncertainty_us": skew.uncertainty().as_micros() as u64,
        })),
        "rate": view.rate().ok().flatten().map(rate),
        "problem": view.rate().err(),
        "note": note,
        "memory_bytes": memory,
        "hash": merged(key(hash), json!({
            "rate": field(|hash| &hash.rate),
            "interval": field(|hash| &hash.interval),
            "type": field(|hash| &hash.mode),
            "keepAliveTime": field(|hash| &hash.keep_alive),
        })),
        "policies": self::policies(policies),
        "budgets": view.views.iter().map(|budget| of_budget(view, budget)).collect::<Vec<_>>(),
    })
}

pub fn policies(policies: &[StoredPolicy]) -> Value {
    let policy =
        |it: &StoredPolicy| json!({"policy": it.policy.to_string(), "available": it.available});
    policies.iter().map(policy).collect()
}

pub fn rate(rate: Rate) -> Value {
    json!({
        "text": rate.to_string(),
        "mode": rate.mode().to_string(),
        "permits": rate.permits(),
        "interval_ms": rate.interval().as_millis() as u64,
        "keep_alive_ms": rate.keep_alive().map(|time| time.as_millis() as u64),
    })
}

fn of_budget(view: &View, budget: &BudgetView) -> Value {
    let (stored, inspection) = (budget.budget(), &budget.inspection);
    let rate = view.rate().ok().flatten();
    let permits = rate.map(|rate| inspection.permits_in_log(rate, stored));
    let entries: Vec<Value> =
        stored.entries().iter().map(|entry| of_entry(entry, inspection.now_ms, rate)).collect();
    json!({
        "client_id": budget.client_id,
        "available": inspection.available(),
        "in_use": permits.map(|(live, _)| live),
        "expired": permits.map(|(_, expired)| expired),
        "paused_until_ms": rate.and_then(|rate| inspection.paused_until_ms(rate, stored)),
        "drift": inspection.drift(),
        "value": merged(key(&stored.value), json!({
            "text": stored.value.content(),
            "number": stored.number(),
        })),
        "log": merged(key(&stored.log), json!({
            "length": stored.log.content().map(|log| log.len),
            "is_complete": stored.is_complete(),
            "entries": entries,
        })),
    })
}

fn of_entry(entry: &LogEntry, now_ms: i64, rate: Option<Rate>) -> Value {
    let (writer, client, weight) = match entry.writer {
        Writer::Redisson => ("redisson", None, None),
        Writer::Client { tag, weight } => ("client", Some(format!("{tag:08x}")), Some(weight)),
        Writer::Debt => ("debt", None, None),
        Writer::Pause => ("pause", None, None),
        _ => ("foreign", None, None),
    };
    let age = now_ms.saturating_sub(entry.date_ms);
    let state = rate.map(|rate| match i64::try_from(rate.interval().as_millis()) {
        _ if age < 0 => "ahead",
        Ok(interval) if age >= interval => "expired",
        _ => "live",
    });
    json!({
        "date_ms": entry.date_ms,
        "permits": entry.permits,
        "writer": writer,
        "client": client,
        "weight": weight,
        "state": state,
        "bytes": entry.member.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    })
}

pub fn key<T>(key: &StoredKey<T>) -> Value {
    let (state, time_to_live) = match key {
        StoredKey::Missing => ("missing", None),
        StoredKey::WrongType => ("wrong_type", None),
        StoredKey::Present { time_to_live, .. } => ("present", *time_to_live),
    };
    json!({ "state": state, "time_to_live_ms": time_to_live.map(|time| time.as_millis() as u64) })
}

pub fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_character_of_a_document_and_its_reader_gets_each() {
        let name: String = ('\0'..='\u{10ffff}').collect();
        let document = json!({ "limiter": name });
        let text = text(&document);
        let obeyed =
            |c: &char| c.is_control() && *c != '\n' || "\u{202e}\u{2066}\u{200b}".contains(*c);
        assert_eq!(text.chars().find(obeyed), None);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }
}
