//! `inspect`: everything that is stored of a limiter.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use redisson_rate_limiter::Rate;
use redisson_rate_limiter::admin::{LogEntry, Repair, StoredKey, Writer};

use crate::Session;
use crate::args::InspectArgs;
use crate::exit::{Exit, Result};
use crate::findings::{answered, drift};
use crate::found::{BudgetView, View};
use crate::json;
use crate::out::{Out, Tone};
use crate::text::{bar, count, duration, excerpt, in_ms, name, quoted, visible};

/// The rows in the chart of ages.
const ROWS: u64 = 10;
const WIDTH: u64 = 40;

pub async fn run(session: &Session<'_>, args: &InspectArgs) -> Result<Exit> {
    let view = View::named(session, &args.name, args.entries, &args.scan).await?;
    // A user without the right to this still gets everything else.
    let memory = view.limiter.size_in_memory().await.ok();
    let mut repairs = Vec::new();
    if !args.json {
        for budget in &view.budgets {
            repairs.push(answered(budget.stored.preview_repair().await)?);
        }
    }
    let text = || shown(&view, &repairs, memory, session);
    session.out.show(args.json, || json::limiter(&view, memory), text)?;
    Ok(match view.rate() {
        Ok(None) if !view.is_missing() => Exit::NoLimiter,
        Ok(_) => Exit::Done,
        Err(_) => Exit::Damaged,
    })
}

fn shown(
    view: &View,
    repairs: &[Option<Repair>],
    memory: Option<u64>,
    session: &Session<'_>,
) -> String {
    let mut text = match view.is_missing() {
        true => format!("{}\n", quoted(view.name())),
        false => shown_limiter(view, repairs, memory, session),
    };
    for policy in &view.policies {
        line(&mut text, "policy", &format!("{}: {} left", policy.policy, policy.available));
    }
    text
}

fn shown_limiter(
    view: &View,
    repairs: &[Option<Repair>],
    memory: Option<u64>,
    Session { common, out, .. }: &Session<'_>,
) -> String {
    let mut text = String::new();
    let title = out.paint(Tone::Strong, quoted(view.name()));
    let rate = match view.rate() {
        Ok(Some(rate)) => format!("{rate}  ({})", rate.mode()),
        Ok(None) => out.paint(Tone::Bad, "no hash: there is no limiter of this name any more"),
        Err(why) => out.paint(Tone::Bad, format!("the hash cannot be read: {}", visible(&why))),
    };
    let _ = writeln!(text, "{title}  {rate}");
    if let Some(note) = view.note {
        line(&mut text, "note", &out.paint(Tone::Doubtful, note));
    }
    line(&mut text, "hash", &lifetime(view.hash()));
    for (budget, repair) in view.budgets.iter().zip(repairs) {
        shown_budget(&mut text, budget, repair.as_ref(), out);
    }
    if let Some(skew) = view.inspection().clock_skew {
        line(&mut text, "clock", &format!("this machine's clock is {skew}"));
    }
    if let Some(bytes) = memory {
        let of = match view.budgets.iter().any(|budget| budget.client_id.is_some()) {
            true if common.client_id.is_some() => ", without the budgets of other clients",
            true => ", without the budgets of clients",
            false => "",
        };
        line(&mut text, "memory", &format!("{}{of}", count(bytes, "byte")));
    }
    text
}

pub fn line(text: &mut String, label: &str, value: &str) {
    let _ = writeln!(text, "  {label:<10} {}", value.trim_end());
}

/// Lines of which the first has the label.
fn lines(text: &mut String, label: &str, values: impl Iterator<Item = String>) {
    for (at, value) in values.enumerate() {
        line(text, if at == 0 { label } else { "" }, &value);
    }
}

/// `repair` is what a repair of it would do.
fn shown_budget(text: &mut String, budget: &BudgetView, repair: Option<&Repair>, out: &Out) {
    let (stored, inspection) = (budget.budget(), &budget.inspection);
    if let Some(id) = &budget.client_id {
        let _ = writeln!(text, "  {}", out.paint(Tone::Strong, format!("client {}", name(id))));
    }
    let value = match stored.value.content() {
        Some(content) if stored.number().is_none() => {
            out.paint(Tone::Bad, format!("{} is not an integer", excerpt(content)))
        }
        content => content.cloned().unwrap_or_default(),
    };
    line(text, "value", &key(&value, &stored.value));
    let length = stored.log.content().map_or(String::new(), |log| count(log.len, "entry"));
    line(text, "log", &key(&length, &stored.log));
    let Some((rate, _)) = inspection.in_force() else { return };
    if let Ok(peek) = &inspection.peek {
        line(text, "available", &format!("{} of {}", peek.available(), rate.permits()));
    }
    if let Some(until) = inspection.paused_until_ms(rate, stored) {
        let left = u64::try_from(until.saturating_sub(inspection.now_ms)).unwrap_or(0);
        let left = duration(Duration::from_millis(left));
        line(text, "paused", &out.paint(Tone::Doubtful, format!("for another {left}")));
    }
    let (live, expired) = inspection.permits_in_log(rate, stored);
    let complete = if stored.is_complete() { "" } else { " in the oldest entries" };
    let expired = match expired {
        0 => String::new(),
        _ => format!(", {expired} expired and not yet given back"),
    };
    line(text, "in use", &format!("{}{complete}{expired}", count(live, "permit")));
    if let Some(repair) = repair {
        line(text, "invariant", &invariant(budget, repair, out));
    }
    let mut live: Vec<&LogEntry> = inspection.live(rate, stored).collect();
    live.retain(|entry| entry.writer != Writer::Pause);
    writers(text, &live, out);
    ages(text, &live, inspection.now_ms, rate, out);
}

/// Says whether value + log = rate.
fn invariant(budget: &BudgetView, repair: &Repair, out: &Out) -> String {
    match drift(budget, repair) {
        Some((problem, _)) => out.paint(Tone::Doubtful, format!("{problem}: see doctor")),
        None if repair.before.is_some() => out.paint(Tone::Good, "value + log = rate"),
        None => "nothing is in use".to_owned(),
    }
}

fn writers(text: &mut String, live: &[&LogEntry], out: &Out) {
    let mut by_writer: BTreeMap<Writer, (u64, u64)> = BTreeMap::new();
    for entry in live {
        let (count, permits) = by_writer.entry(entry.writer).or_default();
        *count += 1;
        *permits = permits.saturating_add(entry.permits.unwrap_or(0));
    }
    let mut writers: Vec<_> = by_writer.into_iter().collect();
    writers.sort_by_key(|(_, (_, permits))| std::cmp::Reverse(*permits));
    let row = |(writer, (number, permits)): &(Writer, (u64, u64))| {
        let who = match writer {
            Writer::Redisson => "Redisson".to_owned(),
            Writer::Client { tag, weight: 1 } => format!("client {tag:08x} of this crate"),
            Writer::Client { tag, weight } => {
                format!("client {tag:08x} of this crate, weight {weight}")
            }
            Writer::Debt => "nobody: a debt, which comes back".to_owned(),
            _ => out.paint(Tone::Bad, "foreign: see doctor"),
        };
        format!("{permits:>6}  in {:<12} {who}", count(*number, "entry"))
    };
    lines(text, "held by", writers.iter().take(12).map(row));
    if writers.len() > 12 {
        line(text, "", &format!("and {} more", writers.len() - 12));
    }
}

fn ages(text: &mut String, live: &[&LogEntry], now_ms: i64, rate: Rate, out: &Out) {
    if live.is_empty() {
        return;
    }
    let interval = in_ms(rate.interval());
    let step = interval.div_ceil(ROWS).max(1);
    let last = interval.div_ceil(step) - 1;
    // `None` is what is dated ahead.
    let mut rows: BTreeMap<_, u64> = (0..=last).map(|at| (Some(at), 0)).collect();
    for entry in live {
        let age = u64::try_from(now_ms.saturating_sub(entry.date_ms)).ok();
        let permits = rows.entry(age.map(|age| (age / step).min(last))).or_default();
        *permits = permits.saturating_add(entry.permits.unwrap_or(0));
    }
    let top = rows.values().copied().max().unwrap_or(0);
    let row = |(at, permits): (&Option<u64>, &u64)| {
        let age = at.map(|at| duration(Duration::from_millis(step * at)));
        let age = age.unwrap_or_else(|| "ahead".to_owned());
        let bar = out.paint(Tone::Good, bar(*permits, top, WIDTH));
        format!("{age:>8}  {bar} {permits}")
    };
    lines(text, "age", rows.iter().map(row));
}

/// The content of a key, and how long it lives.
pub fn key<T>(content: &str, key: &StoredKey<T>) -> String {
    let comma = if content.is_empty() { "" } else { ", " };
    format!("{content}{comma}{}", lifetime(key))
}

pub fn lifetime<T>(key: &StoredKey<T>) -> String {
    match key {
        StoredKey::Missing => "none".to_owned(),
        StoredKey::WrongType => "of another type".to_owned(),
        StoredKey::Present { time_to_live: None, .. } => "no time to live".to_owned(),
        StoredKey::Present { time_to_live: Some(time), .. } => {
            format!("lives for {}", duration(*time))
        }
    }
}
