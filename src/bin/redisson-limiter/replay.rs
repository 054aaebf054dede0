//! `replay`: decides a log's grants again, under other rates, by the crate's own rules.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use redisson_rate_limiter::{Client, Clock, Decision, ErrorKind, InProcessStore, Mode, Rate};
use serde_json::{Value, json};

use crate::args::ReplayArgs;
use crate::exit::{Exit, Failure};
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

/// The outcome of all requests under one rate.
struct Replayed {
    rate: Rate,
    granted: u64,
    granted_permits: u64,
    refused: u64,
    refused_permits: u64,
    first_refused_ms: Option<i64>,
}

pub async fn run(args: &ReplayArgs, out: &Out) -> Result<Exit, Failure> {
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
    let any_refused = outcomes.iter().any(|outcome| outcome.refused > 0);
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
async fn decide(requests: &[ReplayRequest], rate: Rate) -> Result<Replayed, Failure> {
    let (clock, clock_handle) = Clock::manual(0);
    let store = InProcessStore::with_clock(clock.clone());
    let client = Client::builder().clock(clock).in_process(&store)?;
    let mut outcome = Replayed {
        rate,
        granted: 0,
        granted_permits: 0,
        refused: 0,
        refused_permits: 0,
        first_refused_ms: None,
    };
    for request in requests {
        clock_handle.set(request.date_ms);
        let limiter = match rate.mode() {
            Mode::PerClient => client.limiter(&format!("replay {}", request.budget))?,
            Mode::Overall => client.limiter("replay")?,
        };
        let limiter = limiter.with_rate(rate);
        let is_granted = match limiter.try_acquire_now(request.permits).await {
            Ok(Decision::Granted(_)) => true,
            Ok(Decision::Denied(_)) => false,
            Err(error) if matches!(error.kind(), ErrorKind::ExceedsRate { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if is_granted {
            outcome.granted += 1;
            outcome.granted_permits += request.permits;
        } else {
            outcome.refused += 1;
            outcome.refused_permits += request.permits;
            outcome.first_refused_ms.get_or_insert(request.date_ms);
        }
    }
    Ok(outcome)
}

fn shown(requests: &[ReplayRequest], outcomes: &[Replayed], out: &Out) -> String {
    let begin = requests.first().map_or(0, |first| first.date_ms);
    let permits = requests.iter().fold(0, |sum: u64, request| sum.saturating_add(request.permits));
    let since = |date_ms: Option<i64>| {
        let ms = date_ms.map_or(0, |date_ms| date_ms.saturating_sub(begin).unsigned_abs());
        duration(Duration::from_millis(ms))
    };
    let budgets: BTreeSet<usize> = requests.iter().map(|request| request.budget).collect();
    let clients = match budgets.len() as u64 {
        0 | 1 => String::new(),
        number => format!(" of {}", count(number, "client")),
    };
    let mut text = format!(
        "{} of {}{clients} within {}\n",
        count(requests.len() as u64, "grant"),
        count(permits, "permit"),
        since(requests.last().map(|last| last.date_ms))
    );
    for outcome in outcomes {
        let refused = match outcome.refused {
            0 => out.paint(Tone::Good, "nothing is refused"),
            number => {
                let (calls, permits) =
                    (count(number, "call"), count(outcome.refused_permits, "permit"));
                let after = since(outcome.first_refused_ms);
                let text = format!("{calls} of {permits} refused, the first after {after}");
                out.paint(Tone::Bad, text)
            }
        };
        text.push_str(&format!("{:<12} {refused}\n", outcome.rate.to_string()));
    }
    text
}

fn as_json(requests: &[ReplayRequest], outcomes: &[Replayed]) -> Value {
    let rate = |outcome: &Replayed| {
        json!({
            "rate": json::rate(outcome.rate),
            "granted": outcome.granted,
            "granted_permits": outcome.granted_permits,
            "refused": outcome.refused,
            "refused_permits": outcome.refused_permits,
            "first_refused_ms": outcome.first_refused_ms,
        })
    };
    let rates: Vec<Value> = outcomes.iter().map(rate).collect();
    json!({ "schema": json::SCHEMA, "requests": requests.len(), "rates": rates })
}
