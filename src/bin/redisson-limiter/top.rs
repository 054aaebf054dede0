//! `top`: the busiest limiters on the servers.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use redisson_rate_limiter::Client;
use serde_json::json;

use crate::Session;
use crate::args::TopArgs;
use crate::exit::{Exit, Failure};
use crate::found::{BudgetView, look_at, walk, with_each};
use crate::json::SCHEMA;
use crate::out::{Out, Tone};
use crate::text::{bar, quoted};
use crate::watch::Sample;

/// The most log entries that are read; more would tell little more.
const ENTRIES: u64 = 2_000;

struct TopRow {
    name: String,
    client_id: Option<String>,
    rate: String,
    sample: Sample,
}

pub async fn run(session: &Session<'_>, args: &TopArgs) -> Result<Exit, Failure> {
    let Session { client, out, .. } = session;
    let found = walk(session, None, &args.scan).await?;
    let total = found.limiters.len();
    let found = found.limiters.into_iter().collect();
    let rows = with_each(found, out, "looking", async |(name, clients)| {
        rows_of(client, &name, &clients).await
    });
    let mut rows: Vec<TopRow> = rows.await?.into_iter().flatten().collect();
    rows.sort_by(|a, b| {
        let (a, b) = (a.sample.granted_per_second, b.sample.granted_per_second);
        b.total_cmp(&a)
    });
    rows.truncate(args.limit);
    out.show(args.json, || as_json(&rows, total), || shown(&rows, total, out))?;
    Ok(Exit::Done)
}

/// A row for each budget.
async fn rows_of(
    client: &Client,
    name: &str,
    clients: &BTreeSet<String>,
) -> Result<Vec<TopRow>, Failure> {
    // A name that no client can use on a cluster; doctor explains it.
    let Ok(limiter) = client.limiter(name) else { return Ok(Vec::new()) };
    let Some(view) = look_at(client, limiter, clients, ENTRIES).await? else {
        return Ok(Vec::new());
    };
    let Ok(Some(rate)) = view.rate() else { return Ok(Vec::new()) };
    let row = |budget: &BudgetView| {
        Some(TopRow {
            name: view.name().to_owned(),
            client_id: budget.client_id.clone(),
            rate: rate.to_string(),
            sample: Sample::of(&budget.inspection, Duration::MAX)?,
        })
    };
    Ok(view.views.iter().filter_map(row).collect())
}

fn shown(rows: &[TopRow], total: usize, out: &Out) -> String {
    let title = |row: &TopRow| match &row.client_id {
        Some(id) => {
            format!("{} ({})", quoted(&row.name), quoted(&id.chars().take(8).collect::<String>()))
        }
        None => quoted(&row.name),
    };
    let names = rows.iter().map(|row| title(row).chars().count()).max().unwrap_or(0).clamp(7, 40);
    let rates = rows.iter().map(|row| row.rate.chars().count()).max().unwrap_or(0).max(4);
    let heading = format!("{:<names$}  {:<rates$}  {:>10}  in use", "limiter", "rate", "granted/s");
    let mut text = out.paint(Tone::Quiet, heading);
    text.push('\n');
    for row in rows {
        let Sample { free, rate, granted_per_second, .. } = row.sample;
        let used = rate.saturating_sub(free.unwrap_or(rate));
        let percent = (used as f64 * 100.0 / rate.max(1) as f64).round();
        let line = format!(
            "{:<names$}  {:<rates$}  {granted_per_second:>10.1}  {percent:>3} % {}",
            title(row),
            row.rate,
            out.paint(Tone::Good, bar(used, rate, 20)),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    // A limiter in the mode PER_CLIENT has a row for each client.
    let limiters: BTreeSet<&str> = rows.iter().map(|row| &*row.name).collect();
    let _ = writeln!(text, "{} of {total} limiters with a value or a log", limiters.len());
    text
}

fn as_json(rows: &[TopRow], total: usize) -> serde_json::Value {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "limiter": row.name,
                "client_id": row.client_id,
                "rate": row.rate,
                "granted_per_second": row.sample.granted_per_second,
                "available": row.sample.free,
                "permits": row.sample.rate,
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "found": total, "limiters": rows })
}
