//! `list`: the limiters on the servers, with their rates.

use std::fmt::Write;

use redisson_rate_limiter::admin::StoredPolicy;
use redisson_rate_limiter::{Client, Rate};
use serde_json::{Value, json};

use crate::Session;
use crate::args::ListArgs;
use crate::exit::{Exit, Failure};
use crate::found::{Traces, View, walk, with_each};
use crate::json::{self, SCHEMA};
use crate::out::{Out, Tone};
use crate::text::{count, quoted};

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

pub async fn run(session: &Session<'_>, args: &ListArgs) -> Result<Exit, Failure> {
    let Session { client, out, .. } = session;
    let found = walk(session, None, &args.scan).await?;
    let rows = with_each(found.limiters, out, "looking", async |(name, traces)| {
        row_of(client, name, traces).await
    });
    let mut rows: Vec<ListRow> = rows.await?.into_iter().flatten().collect();
    // Sorted again, because the walk reports `{api}` as `api`.
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    out.show(args.json, || as_json(&rows), || shown(&rows, out))?;
    Ok(Exit::Done)
}

async fn row_of(
    client: &Client,
    name: String,
    mut traces: Traces,
) -> Result<Option<ListRow>, Failure> {
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
        let name = quoted(&row.name);
        if !row.has_policies_only {
            let _ = writeln!(text, "{name:<width$}  {rate}");
        }
        for StoredPolicy { policy, .. } in &row.policies {
            let _ = writeln!(text, "{name:<width$}  {policy}");
        }
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
            "policies": json::policies(&row.policies),
        })
    };
    let limiters: Vec<Value> = rows.iter().map(row).collect();
    json!({ "schema": SCHEMA, "found": rows.len(), "limiters": limiters })
}
