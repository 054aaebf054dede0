//! `replay`: decides a log's grants again, under other rates, by the crate's own rules.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use redisson_rate_limiter::{Client, Clock, Decision, ErrorKind, InProcessStore, Mode, Rate};
use serde_json::{Value, json};

use crate::args::ReplayArgs;
use crate::exit::{Exit, Failure, Result};
use crate::json;
use crate::out::{Out, Tone};
use crate::text::{count, duration};

/// A request, as far as the log shows it.
struct ReplayRequest {
    date_ms: i64,
    permits: u64,
    /// The budget in the file: each client in the mode PER_CLIENT has one.
    budget: usize,
}

/// The requests that one rate refuses.
struct Replayed<'a> {
    rate: Rate,
    refused: Vec<&'a ReplayRequest>,
}

pub async fn run(args: &ReplayArgs, out: &Out) -> Result<Exit> {
    let name = args.file.display().to_string();
    let mut bytes = Vec::new();
    let read = match name.as_str() {
        "-" => std::io::stdin().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(&args.file).map(|read| bytes = read),
    };
    read.map_err(|error| Failure::Io(name.clone(), error))?;
    let text = String::from_utf8_lossy(&bytes);
    let requests = match text.trim_start().starts_with('{') {
        true => exported(&text, |note| out.complain(&format!("{name}: {note}"))),
        false => listed(&text),
    };
    let mut requests = requests.map_err(|why| Failure::Usage(format!("{name}: {why}")))?;
    requests.sort_by_key(|request| request.date_ms);
    let mut outcomes = Vec::new();
    for rate in &args.rate {
        outcomes.push(decide(&requests, *rate).await?);
    }
    let text = || shown(&requests, &outcomes, out);
    out.show(args.json, || as_json(&requests, &outcomes), text)?;
    let any_refused = outcomes.iter().any(|outcome| !outcome.refused.is_empty());
    Ok(if any_refused { Exit::No } else { Exit::Done })
}

/// Reads lines of a date and a number of permits.
fn listed(text: &str) -> Result<Vec<ReplayRequest>, String> {
    let request = |line: &str| {
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let date_ms = words.next()?.parse().ok()?;
        let permits = words.next().map_or(Some(1), |word| word.parse().ok())?;
        words.next().is_none().then_some(ReplayRequest { date_ms, permits, budget: 0 })
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .map(|(at, line)| {
            request(line)
                .ok_or_else(|| format!("line {}: not a date in ms and a number of permits", at + 1))
        })
        .collect()
}

/// Reads the output of `inspect --json`, which may have a note why something is missing.
fn exported(text: &str, noted: impl FnOnce(&str)) -> Result<Vec<ReplayRequest>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value["schema"] != json::SCHEMA {
        return Err("not what `inspect --json` prints".to_owned());
    }
    let budgets = value["budgets"].as_array().ok_or("it has no budgets")?;
    let mut requests = Vec::new();
    for (budget, log) in budgets.iter().map(|budget| &budget["log"]).enumerate() {
        let entries = log["entries"].as_array().map_or(&[][..], Vec::as_slice);
        if log["is_complete"] == false {
            return Err(format!(
                "only the {} oldest of {} entries of a log are here, and what is missing would count as \
                 never asked for: inspect with --entries {1}, or more if the limiter is in use",
                entries.len(),
                log["length"]
            ));
        }
        requests.extend(entries.iter().filter_map(|entry| {
            let (date_ms, permits) = (entry["date_ms"].as_i64()?, entry["permits"].as_u64()?);
            // Nobody has requested a debt or a pause.
            let is_request = permits > 0 && entry["writer"] != "debt" && entry["writer"] != "pause";
            is_request.then_some(ReplayRequest { date_ms, permits, budget })
        }));
    }
    if let Some(note) = value["note"].as_str() {
        noted(note);
    }
    Ok(requests)
}

/// Decides with one limiter; under a rate per client, with one for each budget.
async fn decide(requests: &[ReplayRequest], rate: Rate) -> Result<Replayed<'_>> {
    let (clock, clock_handle) = Clock::manual(0);
    let store = InProcessStore::with_clock(clock.clone());
    let client = Client::builder().clock(clock).in_process(&store)?;
    let mut refused = Vec::new();
    for request in requests {
        clock_handle.set(request.date_ms);
        let limiter = match rate.mode() {
            Mode::PerClient => client.limiter(&format!("replay {}", request.budget))?,
            Mode::Overall => client.limiter("replay")?,
        };
        match limiter.with_rate(rate).try_acquire_now(request.permits).await {
            Ok(Decision::Granted(_)) => {}
            Ok(Decision::Denied(_)) => refused.push(request),
            Err(error) if matches!(error.kind(), ErrorKind::ExceedsRate { .. }) => {
                refused.push(request);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Replayed { rate, refused })
}

fn permits_of<'a>(requests: impl IntoIterator<Item = &'a ReplayRequest>) -> u64 {
    requests.into_iter().fold(0, |sum, request| sum.saturating_add(request.permits))
}

fn shown(requests: &[ReplayRequest], outcomes: &[Replayed<'_>], out: &Out) -> String {
    let since = |request: Option<&ReplayRequest>| {
        let dates = request.zip(requests.first()).map(|(one, first)| (one.date_ms, first.date_ms));
        let ms = dates.map_or(0, |(date, first)| date.saturating_sub(first).unsigned_abs());
        duration(Duration::from_millis(ms))
    };
    let calls_of_permits = |calls: usize, one, permits| {
        format!("{} of {}", count(calls as u64, one), count(permits, "permit"))
    };
    let budgets: BTreeSet<usize> = requests.iter().map(|request| request.budget).collect();
    let clients = match budgets.len() as u64 {
        0 | 1 => String::new(),
        number => format!(" of {}", count(number, "client")),
    };
    let grants = calls_of_permits(requests.len(), "grant", permits_of(requests));
    let mut text = format!("{grants}{clients} within {}\n", since(requests.last()));
    for Replayed { rate, refused } in outcomes {
        let said = match refused.first() {
            None => out.paint(Tone::Good, "nothing is refused"),
            Some(first) => {
                let calls =
                    calls_of_permits(refused.len(), "call", permits_of(refused.iter().copied()));
                let after = since(Some(first));
                out.paint(Tone::Bad, format!("{calls} refused, the first after {after}"))
            }
        };
        text.push_str(&format!("{:<12} {said}\n", rate.to_string()));
    }
    text
}

fn as_json(requests: &[ReplayRequest], outcomes: &[Replayed<'_>]) -> Value {
    let rate = |Replayed { rate, refused }: &Replayed<'_>| {
        let refused_permits = permits_of(refused.iter().copied());
        json!({
            "rate": json::rate(*rate),
            "granted": requests.len() - refused.len(),
            "granted_permits": permits_of(requests) - refused_permits,
            "refused": refused.len(),
            "refused_permits": refused_permits,
            "first_refused_ms": refused.first().map(|first| first.date_ms),
        })
    };
    let rates: Vec<Value> = outcomes.iter().map(rate).collect();
    json!({ "schema": json::SCHEMA, "requests": requests.len(), "rates": rates })
}
