//! `list` and `top`: the limiters that a walk over all keys finds, by name, and the busiest ones.

use std::collections::BTreeSet;
use std::time::Duration;

use redisson_rate_limiter::admin::StoredPolicy;
use redisson_rate_limiter::{Client, Rate};
use serde_json::{Value, json};

use crate::Session;
use crate::args::{ListArgs, TopArgs};
use crate::exit::{Exit, Result};
use crate::found::{LimiterTraces, View, walk, with_each_found};
use crate::json::{self, SCHEMA};
use crate::out::{Out, Tone};
use crate::text::{bar, count, quoted, table};
use crate::watch::Sample;

/// The most log entries that `top` reads: more would hold up the calls of other clients.
const ENTRIES: u64 = 2_000;

struct ListRow {
    name: String,
    /// The rate, or why it cannot be read; `None` if the limiter is gone and has left a value or a log
    /// behind, or if there are only policies.
    rate: Result<Option<Rate>, String>,
    /// The number of clients that have a budget of their own.
    clients: usize,
    policies: Vec<StoredPolicy>,
    has_policies_only: bool,
}

pub async fn list(session: &Session<'_>, args: &ListArgs) -> Result<Exit> {
    let Session { client, out, .. } = session;
    let (found, _) = walk(session, None, &args.scan).await?;
    let rows = with_each_found(found, out, "looking", async |(name, traces)| {
        row_of(client, name, traces).await
    });
    let mut rows: Vec<ListRow> = rows.await?.into_iter().flatten().collect();
    // Sorted again, because the walk reports `{api}` as `api`.
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    out.show(args.json, || listed_json(&rows), || listed(&rows, out))?;
    Ok(Exit::Done)
}

async fn row_of(
    client: &Client,
    name: String,
    mut traces: LimiterTraces,
) -> Result<Option<ListRow>> {
    // Their number suffices.
    let clients = std::mem::take(&mut traces.clients).len();
    let (name, rate, policies, is_missing) = match View::found(client, &name, &traces, 0).await {
        Ok(Some(view)) => {
            (view.name().to_owned(), view.rate(), view.policies.clone(), view.is_missing())
        }
        Ok(None) => return Ok(None),
        // A name that no client can use on a cluster; doctor explains it.
        Err(failure) if failure.exit() == Exit::Usage => {
            (name, Err(failure.to_string()), Vec::new(), false)
        }
        Err(failure) => return Err(failure),
    };
    let has_policies_only = is_missing && clients == 0;
    let row = ListRow { name, rate, clients, policies, has_policies_only };
    // All of its keys may have expired between the walk and the look.
    Ok((!row.has_policies_only || !row.policies.is_empty()).then_some(row))
}

fn listed(rows: &[ListRow], out: &Out) -> String {
    let mut lines = Vec::new();
    for row in rows {
        let rate = match &row.rate {
            Ok(Some(rate)) => rate.to_string(),
            Ok(None) => out.paint(Tone::Doubtful, "no limiter any more: see doctor"),
            Err(_) => out.paint(Tone::Bad, "cannot be read: see doctor"),
        };
        let rate = Some(rate).filter(|_| !row.has_policies_only);
        let rates = rate.into_iter().chain(row.policies.iter().map(|it| it.policy.to_string()));
        lines.extend(rates.map(|rate| [quoted(&row.name), rate]));
    }
    let table = match lines.as_slice() {
        [] => String::new(),
        lines => table(["limiter", "rate"], lines, out),
    };
    format!("{table}{} with a value or a log\n", count(rows.len() as u64, "limiter"))
}

fn listed_json(rows: &[ListRow]) -> Value {
    let row = |row: &ListRow| {
        json!({
            "limiter": row.name,
            "rate": row.rate.as_ref().ok().copied().flatten().map(json::rate),
            "problem": row.rate.as_ref().err(),
            "clients": row.clients,
            "policies": json::policies(&row.policies),
        })
    };
    let limiters: Vec<Value> = rows.iter().map(row).collect();
    json!({ "schema": SCHEMA, "found": rows.len(), "limiters": limiters })
}

struct TopRow {
    name: String,
    client_id: Option<String>,
    sample: Sample,
}

pub async fn top(session: &Session<'_>, args: &TopArgs) -> Result<Exit> {
    let Session { client, out, .. } = session;
    let (found, _) = walk(session, None, &args.scan).await?;
    let total = found.len();
    let rows = with_each_found(found, out, "looking", async |(name, traces)| {
        match View::found(client, &name, &traces, ENTRIES).await {
            Ok(view) => Ok(view.iter().flat_map(rows_of).collect()),
            // A name that no client can use on a cluster; doctor explains it.
            Err(failure) if failure.exit() == Exit::Usage => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    });
    let mut rows: Vec<TopRow> = rows.await?.into_iter().flatten().collect();
    rows.sort_by(|a, b| {
        let (a, b) = (&a.sample, &b.sample);
        let parts = || b.used_part().total_cmp(&a.used_part());
        b.busyness().total_cmp(&a.busyness()).then_with(parts)
    });
    rows.truncate(args.limit);
    out.show(args.json, || top_json(&rows, total), || top_text(&rows, total, out))?;
    Ok(Exit::Done)
}

/// A row for each budget, and for each policy of the name.
fn rows_of(view: &View) -> Vec<TopRow> {
    let budgets = view.budgets.iter().filter_map(|budget| {
        Some((budget.client_id.clone(), Sample::of(&budget.inspection, Duration::MAX)?))
    });
    let policies = view.policies.iter().map(|policy| (None, Sample::of_policy(policy)));
    let row = |(client_id, sample)| TopRow { name: view.name().to_owned(), client_id, sample };
    budgets.chain(policies).map(row).collect()
}

fn top_text(rows: &[TopRow], total: usize, out: &Out) -> String {
    let line = |row: &TopRow| {
        let sample = &row.sample;
        let id = row.client_id.as_ref().map(|id| quoted(&id.chars().take(8).collect::<String>()));
        [
            quoted(&row.name) + &id.map_or(String::new(), |id| format!(" ({id})")),
            sample.rate.clone(),
            sample.granted(),
            percent(sample.used(), sample.permits, out),
        ]
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let table = table(["limiter", "rate", " granted/s", "in use"], &lines, out);
    // A limiter in the mode PER_CLIENT has a row for each client.
    let limiters: BTreeSet<&str> = rows.iter().map(|row| &*row.name).collect();
    format!("{table}{} of {total} limiters with a value or a log\n", limiters.len())
}

/// A part as a number and as a bar.
pub fn percent(part: u64, whole: u64, out: &Out) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    format!("{percent:>3.0} % {}", out.paint(Tone::Good, bar(part, whole, 20)))
}

fn top_json(rows: &[TopRow], total: usize) -> Value {
    let row = |TopRow { name, client_id, sample }: &TopRow| {
        json!({
            "limiter": name,
            "client_id": client_id,
            "rate": sample.rate,
            "granted_per_second": sample.granted_per_second,
            "available": sample.free,
            "permits": sample.permits,
        })
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({ "schema": SCHEMA, "found": total, "limiters": rows })
}
