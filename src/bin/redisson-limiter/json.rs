//! Limiters as JSON, for other programs: docs/cli.md describes the format. Fields may be added; existing ones
//! keep their meaning as long as `schema` is 1.

use std::fmt::Write;

use redisson_rate_limiter::admin::{Budget, LogEntry, StoredKey, StoredPolicy, Writer};
use redisson_rate_limiter::{Peek, Rate};
use serde_json::{Value, json};

use crate::found::{BudgetView, View};
use crate::text::{in_ms, is_harmless};

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

pub fn limiter(view: &View, memory: Option<u64>) -> Value {
    let inspection = view.inspection();
    let fields = inspection.hash.content();
    let rate = view.rate();
    json!({
        "schema": SCHEMA,
        "limiter": view.name(),
        "now_ms": inspection.now_ms,
        "clock_skew": inspection.clock_skew.map(|skew| json!({
            "ahead_us": skew.ahead_us(),
            "uncertainty_us": skew.uncertainty().as_micros() as u64,
        })),
        "rate": rate.as_ref().ok().copied().flatten().map(self::rate),
        "problem": rate.as_ref().err(),
        "note": view.note,
        "memory_bytes": memory,
        "hash": key(&inspection.hash, json!({
            "rate": fields.map(|fields| &fields.rate),
            "interval": fields.map(|fields| &fields.interval),
            "type": fields.map(|fields| &fields.mode),
            "keepAliveTime": fields.map(|fields| &fields.keep_alive),
        })),
        "policies": policies(&view.policies),
        "budgets": view.budgets.iter().map(budget).collect::<Vec<_>>(),
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
        "interval_ms": in_ms(rate.interval()),
        "keep_alive_ms": rate.keep_alive().map(in_ms),
    })
}

fn budget(budget: &BudgetView) -> Value {
    let (stored, inspection) = (budget.budget(), &budget.inspection);
    let rate = inspection.in_force().map(|(rate, _)| rate);
    let permits = rate.map(|rate| inspection.permits_in_log(rate, stored));
    let entries = stored.entries().iter().map(|entry| of_entry(entry, inspection.now_ms, rate));
    json!({
        "client_id": budget.client_id,
        "available": inspection.peek.as_ref().ok().map(Peek::available),
        "in_use": permits.map(|(live, _)| live),
        "expired": permits.map(|(_, expired)| expired),
        "paused_until_ms": rate.and_then(|rate| inspection.paused_until_ms(rate, stored)),
        "drift": rate.and_then(|rate| drift(stored, rate)),
        "value": key(&stored.value, json!({
            "text": stored.value.content(),
            "number": stored.number(),
        })),
        "log": key(&stored.log, json!({
            "length": stored.log.content().map(|log| log.len),
            "is_complete": stored.is_complete(),
            "entries": entries.collect::<Vec<_>>(),
        })),
    })
}

/// Value + log − rate.
fn drift(stored: &Budget, rate: Rate) -> Option<i64> {
    let logged: u64 = stored.entries().iter().filter_map(|entry| entry.permits).sum();
    let right = stored.number()?.checked_add_unsigned(logged)?.checked_sub_unsigned(rate.permits());
    right.filter(|_| stored.is_complete())
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
    let state = rate.map(|rate| match u64::try_from(age) {
        Err(_) => "ahead",
        Ok(age) if age >= in_ms(rate.interval()) => "expired",
        Ok(_) => "live",
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

/// A key, with what it holds.
pub fn key<T>(key: &StoredKey<T>, mut content: Value) -> Value {
    let (state, time_to_live) = match key {
        StoredKey::Missing => ("missing", None),
        StoredKey::WrongType => ("wrong_type", None),
        StoredKey::Present { time_to_live, .. } => ("present", *time_to_live),
    };
    content["state"] = state.into();
    content["time_to_live_ms"] = time_to_live.map(in_ms).into();
    content
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
