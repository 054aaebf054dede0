//! `list`: the limiters on the servers, with their rates.

use std::collections::BTreeSet;
use std::fmt::Write;

use redisson_rate_limiter::{Client, Rate};
use serde_json::{Value, json};

use crate::Session;
use crate::args::ListArgs;
use crate::exit::{Exit, Failure};
use crate::found::{look_at, walk, with_each};
use crate::json::{self, SCHEMA};
use crate::out::{Out, Tone};
use crate::text::{count, quoted};

struct ListRow {
    name: String,
    /// The rate, or why it cannot be read; `None` if the limiter is gone and has left a value or a log
    /// behind.
    rate: Result<Option<Rate>, String>,
    /// The number of clients that have a budget of their own.
    clients: usize,
}

pub async fn run(session: &Session<'_>, args: &ListArgs) -> Result<Exit, Failure> {
    let Session { client, out, .. } = session;
    let found = walk(session, None, &args.scan).await?.limiters.into_iter().collect();
    let rows = with_each(found, out, "looking", async |(name, clients): (String, BTreeSet<_>)| {
        row_of(client, name, clients.len()).await
    });
    let mut rows: Vec<ListRow> = rows.await?.into_iter().flatten().collect();
    // Sorted again, because the walk reports `{api}` as `api`.
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    out.show(args.json, || as_json(&rows), || shown(&rows, out))?;
    Ok(Exit::Done)
}

async fn row_of(client: &Client, name: String, clients: usize) -> Result<Option<ListRow>, Failure> {
    let limiter = match client.limiter(&name) {
        Ok(limiter) => limiter,
        // This happens on a cluster; doctor explains it.
        Err(error) => return Ok(Some(ListRow { name, rate: Err(error.to_string()), clients })),
    };
    let view = look_at(client, limiter, &BTreeSet::new(), 0).await?;
    Ok(view.map(|view| ListRow { name: view.name().to_owned(), rate: view.rate(), clients }))
}

fn shown(rows: &[ListRow], out: &Out) -> String {
    let mut text = String::new();
    let names = rows.iter().map(|row| quoted(&row.name).chars().count());
    let width = names.max().unwrap_or(0).clamp(7, 60);
    if !rows.is_empty() {
        let _ =
            writeln!(text, "{}", out.paint(Tone::Quiet, format!("{:<width$}  rate", "limiter")));
    }
    for row in rows {
        let rate = match &row.rate {
            Ok(Some(rate)) => rate.to_string(),
            Ok(None) => out.paint(Tone::Doubtful, "no limiter any more: see doctor"),
            Err(_) => out.paint(Tone::Bad, "cannot be read: see doctor"),
        };
        let _ = writeln!(text, "{:<width$}  {rate}", quoted(&row.name));
    }
    let _ = writeln!(text, "{} with a value or a log", count(rows.len() as u64, "limiter"));
    text
}

fn as_json(rows: &[ListRow]) -> Value {
    let row = |row: &ListRow| {
        json!({
            "limiter": row.name,
            "rate": row.rate.as_ref().ok().copied().flatten().map(json::rate),
            "problem": row.rate.as_ref().err(),
            "clients": row.clients,
        })
    };
    let limiters: Vec<Value> = rows.iter().map(row).collect();
    json!({ "schema": SCHEMA, "found": rows.len(), "limiters": limiters })
}
