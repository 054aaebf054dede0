//! `list`: the limiters on the servers, with their rates.

use redisson_rate_limiter::admin::StoredPolicy;
use redisson_rate_limiter::{Client, Rate};
use serde_json::{Value, json};

use crate::Session;
use crate::args::ListArgs;
use crate::exit::{Exit, Failure};
use crate::found::{LimiterTraces, View, walk, with_each};
use crate::json::{self, SCHEMA};
use crate::out::{Out, Tone};
use crate::text::{count, quoted, table};

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
    mut traces: LimiterTraces,
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
