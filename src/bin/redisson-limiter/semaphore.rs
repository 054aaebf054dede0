//! Semaphores: what `inspect` and `top` show of them, and what `doctor` finds.

use std::time::Duration;

use redisson_rate_limiter::Client;
use redisson_rate_limiter::admin::{StoredKey, StoredPermit, StoredSemaphore};
use serde_json::{Value, json};

use crate::Session;
use crate::args::{InspectArgs, TopArgs};
use crate::exit::{Exit, Failure, Result};
use crate::findings::{Finding, FindingKind, of_another_type};
use crate::found::with_each;
use crate::inspect::{key, lifetime, line};
use crate::json::{self, SCHEMA};
use crate::list::percent;
use crate::out::{Out, Tone};
use crate::text::{count, duration, excerpt, quoted, table};

/// The most permits that are looked at. Redisson's counting calls fail with fewer.
const PERMITS: u64 = 10_000;
const TOO_MANY_EXPIRED: u64 = 8_000;

/// The permits that are listed.
const ROWS: usize = 10;

pub async fn inspect(session: &Session<'_>, args: &InspectArgs) -> Result<Exit> {
    let Session { client, out, .. } = session;
    let semaphore = read(client, &args.name, args.entries).await?;
    let text = || shown(&args.name, &semaphore, out);
    out.show(args.json, || as_json(&args.name, &semaphore), text)?;
    let is_readable = (semaphore.free().is_some() || !semaphore.value.exists())
        && semaphore.out != StoredKey::WrongType;
    Ok(if is_readable { Exit::Done } else { Exit::Damaged })
}

async fn read(client: &Client, name: &str, permits: u64) -> Result<StoredSemaphore> {
    let semaphore = client.inspect_semaphore(name, permits).await?;
    match semaphore.is_missing() {
        true => Err(Failure::Missing("semaphore", name.to_owned())),
        false => Ok(semaphore),
    }
}

fn shown(title: &str, semaphore: &StoredSemaphore, out: &Out) -> String {
    let title = out.paint(Tone::Strong, quoted(title));
    let kind = match &semaphore.out {
        StoredKey::Missing => "no permit with a lease is out",
        _ => "with leases",
    };
    let mut text = format!("{title}  semaphore, {kind}\n");
    let value = match (semaphore.value.content(), semaphore.free()) {
        (Some(content), None) => {
            out.paint(Tone::Bad, format!("{} is no number of permits", excerpt(content)))
        }
        (_, free) => free.map_or(String::new(), |free| format!("{free} free")),
    };
    line(&mut text, "value", &key(&value, &semaphore.value));
    let expired = match semaphore.expired() {
        0 => String::new(),
        expired => format!(" ({expired} expired)"),
    };
    let number = format!("{}{expired}", count(semaphore.out(), "permit"));
    line(&mut text, "out", &key(&number, &semaphore.out));
    if let Some(total) = semaphore.total().filter(|_| semaphore.out.exists()) {
        line(&mut text, "total", &count(u64::try_from(total).unwrap_or(0), "permit"));
    }
    for permit in semaphore.permits().iter().take(ROWS) {
        line(&mut text, "", &format!("{}  {}", permit.id, end(permit, semaphore.now_ms)));
    }
    let more = semaphore.out().saturating_sub(semaphore.permits().len().min(ROWS) as u64);
    if more > 0 {
        line(&mut text, "", &format!("and {more} more"));
    }
    text
}

fn end(permit: &StoredPermit, now_ms: i64) -> String {
    let left = permit.ends_ms - now_ms as f64;
    let time = || duration(Duration::from_millis(left.abs() as u64));
    match permit.is_regular() {
        _ if permit.is_endless() => "no lease".to_owned(),
        // Not `{}`: that writes 1e300 with 300 digits.
        false => format!("a lease that ends at {:?}", permit.ends_ms),
        true if left > 0.0 => format!("ends in {}", time()),
        true => format!("ended {} ago", time()),
    }
}

fn as_json(name: &str, semaphore: &StoredSemaphore) -> Value {
    let permit = |permit: &StoredPermit| {
        json!({
            "id": permit.id,
            // JSON has no infinity.
            "ends_ms": Some(permit.ends_ms).filter(|end| end.is_finite() && !permit.is_endless()),
            "has_lease": !permit.is_endless(),
            "is_regular": permit.is_regular(),
        })
    };
    json!({
        "schema": SCHEMA,
        "semaphore": name,
        "now_ms": semaphore.now_ms,
        "free": semaphore.free(),
        "out": semaphore.out(),
        "expired": semaphore.expired(),
        "total": semaphore.total(),
        "value": json::key(&semaphore.value, json!({ "text": semaphore.value.content() })),
        "permits": json::key(&semaphore.out, json!({
            "length": semaphore.out.content().map(|out| out.len),
            "entries": semaphore.permits().iter().map(permit).collect::<Vec<_>>(),
        })),
    })
}

/// Semaphores with the largest part of their permits out come first.
pub async fn top(session: &Session<'_>, args: &TopArgs) -> Result<Exit> {
    let Session { client, out, .. } = session;
    let rows = with_each(&args.names, out, "looking", async |name: &String| {
        Ok((name.as_str(), read(client, name, PERMITS).await?))
    });
    let mut rows = rows.await?;
    let part = |row: &StoredSemaphore| {
        let (held, total) = used(row);
        held as f64 / total as f64
    };
    rows.sort_by(|(_, a), (_, b)| part(b).total_cmp(&part(a)));
    rows.truncate(args.limit);
    let listed = || {
        let rows: Vec<_> = rows.iter().map(|(name, row)| as_json(name, row)).collect();
        json!({ "schema": SCHEMA, "semaphores": rows })
    };
    out.show(args.json, listed, || table_of(&rows, out))?;
    Ok(Exit::Done)
}

/// The permits that are out, and all of them. Those whose lease has ended are free for whoever comes next.
fn used(semaphore: &StoredSemaphore) -> (u64, u64) {
    let total = semaphore.total().unwrap_or(0).max(1).unsigned_abs();
    (semaphore.out() - semaphore.expired(), total)
}

fn table_of(rows: &[(&str, StoredSemaphore)], out: &Out) -> String {
    let line = |(name, row): &(&str, StoredSemaphore)| {
        let number = |number: Option<i64>| number.map_or("-".to_owned(), |it| it.to_string());
        let (held, total) = used(row);
        let first = row.permits().iter().find(|permit| permit.ends_ms > row.now_ms as f64);
        [
            quoted(name),
            number(row.free().map(|free| free.saturating_add_unsigned(row.expired()))),
            held.to_string(),
            number(row.total()),
            first.map_or("-".to_owned(), |permit| end(permit, row.now_ms)),
            percent(held, total, out),
        ]
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let headings = ["semaphore", "   free", "    out", "    all", "first lease     ", "in use"];
    table(headings, &lines, out)
}

/// Looks for all problems of a semaphore that should have so many permits. Changes nothing.
pub async fn examine(client: &Client, name: &str, permits: Option<u32>) -> Result<Vec<Finding>> {
    let semaphore = read(client, name, PERMITS).await?;
    let StoredSemaphore { value, out, .. } = &semaphore;
    let keys = [("value", *value == StoredKey::WrongType), ("set", *out == StoredKey::WrongType)];
    let mut findings = of_another_type(keys, "choose another name for one of the two");
    let mut found =
        |kind, text: String, advice: &str| findings.push(Finding::new(kind, text, advice));
    const SET_PERMITS: &str =
        "set the permits again (setPermits, Semaphore::set_permits): those that are out stay out";
    match (value, semaphore.free()) {
        (StoredKey::Present { content, .. }, None) => {
            let text = format!("the value {} is no number of permits below 1e17", excerpt(content));
            found(FindingKind::Unreadable, text, "delete the value, and set the permits again");
        }
        (StoredKey::Missing, _) if semaphore.out() > 0 => {
            let text = format!("{} out, and no value", count(semaphore.out(), "permit"));
            found(FindingKind::NoValue, text, SET_PERMITS);
        }
        _ => {}
    }
    if !end_together(value, out) {
        let (value, out) = (lifetime(value), lifetime(out));
        let text = format!("the value: {value}; the permits that are out: {out}");
        let advice = "call expire again, which sets both, or clearExpire";
        found(FindingKind::TimesToLive, text, advice);
    }
    let number =
        |which: fn(&&StoredPermit) -> bool| semaphore.permits().iter().filter(which).count() as u64;
    let irregular = number(|permit| !permit.is_regular());
    if irregular > 0 {
        let permits = count(irregular, "permit");
        let text = format!("{permits} out with a lease that ends at no usual time");
        found(
            FindingKind::LeaseEnds,
            text,
            "release them by their ids, which `inspect` shows, in Java if those do not have 32 digits",
        );
    }
    let endless = number(|permit| permit.is_endless());
    if endless > 0 {
        let text = format!("{} out without a lease", count(endless, "permit"));
        let advice = "release those of dead holders by their ids, and acquire with leases";
        found(FindingKind::NoLease, text, advice);
    }
    if semaphore.expired() >= TOO_MANY_EXPIRED {
        let text = format!("{} or more expired permits", semaphore.expired());
        let advice = "acquire one with this crate, which takes back a part at a time";
        found(FindingKind::Overdue, text, advice);
    }
    match (semaphore.total(), permits.map(i64::from)) {
        (Some(total), Some(set)) if total != set => {
            let difference = count(total.abs_diff(set), "permit");
            let (text, advice) = if total > set {
                (format!("{difference} more than {set}, free or out"), SET_PERMITS)
            } else if out.exists() {
                (format!("{difference} fewer than {set}, free or out"), SET_PERMITS)
            } else {
                (
                    format!("{difference} fewer than {set} free, and none out with a lease"),
                    "if nobody holds one as an RSemaphore, they are lost: set the permits again",
                )
            };
            found(FindingKind::Permits, text, advice);
        }
        _ => {
            if let Some(free) = semaphore.free().filter(|free| *free < 0) {
                let advice = "wait, if fewer were set than were out: so many must come back first; else set \
                              them again";
                found(FindingKind::Permits, format!("{free} permits are free"), advice);
            }
        }
    }
    Ok(findings)
}

/// Whether neither key outlives the other; they are read one after the other.
fn end_together<T, U>(one: &StoredKey<T>, other: &StoredKey<U>) -> bool {
    use StoredKey::Present;
    match (one, other) {
        (Present { time_to_live: Some(one), .. }, Present { time_to_live: Some(other), .. }) => {
            one.abs_diff(*other) <= Duration::from_millis(10)
        }
        (Present { time_to_live: one, .. }, Present { time_to_live: other, .. }) => one == other,
        _ => true,
    }
}
