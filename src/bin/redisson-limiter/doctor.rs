//! `doctor`: finds what is wrong with limiters, explains it, and repairs it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use redisson_rate_limiter::admin::StoredPolicy;
use redisson_rate_limiter::{Client, ClockSkew, ErrorKind, Rate, RateLimiter};
use serde_json::{Value, json};

use crate::Session;
use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::findings::{Finding, FindingKind, Fix, Orphans, answered, examine};
use crate::found::{View, clients_of, look_at, policies_of, walk, with_each};
use crate::json::{self, SCHEMA};
use crate::out::{Out, Tone};
use crate::semaphore;
use crate::text::{count, duration, quoted};

/// The most log entries that are looked at here; the rules look at all of them.
const ENTRIES: u64 = 5_000;

/// A limiter with all its findings, and what is left of them after a repair.
#[derive(Default)]
struct Patient {
    name: String,
    rate: Option<Rate>,
    skew: Option<ClockSkew>,
    limiter: Option<RateLimiter>,
    clients: BTreeSet<String>,
    findings: Vec<Finding>,
    left: Option<Vec<Finding>>,
}

pub async fn run(session: &Session<'_>, args: &DoctorArgs) -> Result<Exit, Failure> {
    let Session { client, out, .. } = session;
    let (names, with_policies, unreadable) = match args.all {
        true => {
            let found = walk(session, None, &args.scan).await?;
            (found.limiters.into_iter().collect(), found.with_policies, found.unreadable)
        }
        false => (named(session, args).await?, BTreeSet::new(), 0),
    };
    let looks = with_each(names, out, "examining", async |(name, clients)| {
        match look(client, name, clients, &with_policies, args).await {
            // A wrong name must not keep the others from being examined.
            Err(failure) if failure.exit() == Exit::NoLimiter => Ok(Err(failure)),
            looked => looked.map(Ok),
        }
    });
    let (mut patients, mut missing) = (Vec::new(), Vec::new());
    for looked in looks.await? {
        match looked {
            Ok(found) => patients.extend(found),
            Err(failure) => missing.push(failure),
        }
    }
    let last_missing = missing.pop();
    for failure in missing {
        out.complain(&failure.to_string());
    }
    if patients.is_empty()
        && let Some(failure) = last_missing
    {
        return Err(failure);
    }
    let skew = skew(&patients);
    if !args.json {
        let noun = if args.semaphore { "semaphore" } else { "limiter" };
        let shown = shown(&patients, unreadable, skew.as_ref(), noun, out);
        out.print(&shown)?;
    }
    let is_fixed = !args.fix || fix(&mut patients, args, out).await?;
    if args.json {
        out.print(&json::text(&as_json(&patients, unreadable, skew.as_ref())))?;
    }
    if let Some(failure) = last_missing {
        return Err(failure);
    }
    if !is_fixed {
        return Ok(Exit::Usage);
    }
    let left = |patient: &Patient| !patient.left.as_ref().unwrap_or(&patient.findings).is_empty();
    let is_healthy = !patients.iter().any(left) && skew.is_none();
    Ok(if is_healthy { Exit::Done } else { Exit::No })
}

/// The limiters that the user named, each with its clients.
async fn named(
    session: &Session<'_>,
    args: &DoctorArgs,
) -> Result<Vec<(String, BTreeSet<String>)>, Failure> {
    let mut names = Vec::new();
    for name in &args.names {
        let mut clients = BTreeSet::new();
        // An invalid name is reported as a finding.
        if !args.semaphore
            && let Ok(limiter) = session.client.limiter(name)
        {
            let (found, note) = clients_of(session, &limiter, &args.scan).await?;
            if let Some(note) = note {
                session.out.complain(&format!("{}: {note}", quoted(name)));
            }
            clients = found;
        }
        names.push((name.clone(), clients));
    }
    Ok(names)
}

/// `None` if the limiter does not have the key prefix.
async fn look(
    client: &Client,
    name: String,
    clients: BTreeSet<String>,
    with_policies: &BTreeSet<String>,
    args: &DoctorArgs,
) -> Result<Option<Patient>, Failure> {
    if args.semaphore {
        let findings = semaphore::examine(client, &name, args.permits).await?;
        return Ok(Some(Patient { name, findings, ..Patient::default() }));
    }
    let limiter = match client.limiter(&name) {
        Ok(limiter) => limiter,
        Err(error) if error.kind() == ErrorKind::InvalidArgument && !name.is_empty() => {
            let advice = "give the name a hash tag, as in api:{tenant}";
            let text = "the name has a brace, and no hash tag";
            let findings = vec![Finding::unfixable(FindingKind::Slots, text, advice)];
            return Ok(Some(Patient { name, findings, ..Patient::default() }));
        }
        Err(error) => return Err(error.into()),
    };
    let view = match args.all {
        true => match look_at(client, limiter, &clients, ENTRIES).await? {
            Some(view) => view,
            None => return Ok(None),
        },
        false => View::of(limiter, &clients, ENTRIES).await?,
    };
    let policies = match args.all {
        true => policies_of(client, &name, with_policies).await?,
        false => client.policies_of(&name).await?.into_iter().collect::<Result<_, _>>()?,
    };
    if view.is_missing() && !args.all && policies.is_empty() {
        return Err(Failure::NoLimiter(name));
    }
    // If the user may not look for the sibling, nothing is removed: see `examine`.
    if !args.all
        && !view.hash().exists()
        && let Ok(Some(sibling)) = view.limiter.sibling().await
    {
        return Err(Failure::KeysOfAnother { name, sibling });
    }
    let mut findings = examine(&view, orphans(args)).await?;
    findings.extend(several_policies(&policies, &view));
    let skews = view.views.iter().filter_map(|budget| budget.inspection.clock_skew);
    Ok(Some(Patient {
        name: view.name().to_owned(),
        rate: view.rate().ok().flatten(),
        skew: skews.max_by_key(ClockSkew::at_least),
        limiter: Some(view.limiter),
        clients,
        findings,
        left: None,
    }))
}

/// A finding if limiters of different rules have this name.
fn several_policies(policies: &[StoredPolicy], view: &View) -> Option<Finding> {
    let mut rules: Vec<String> = policies.iter().map(|it| it.policy.to_string()).collect();
    if view.hash().exists() {
        rules.insert(0, "Redisson's".to_owned());
    }
    let text = format!("{} limiters have this name: {}", rules.len(), rules.join("; "));
    let advice = "follow one policy by one name";
    (rules.len() > 1).then(|| Finding::unfixable(FindingKind::Policies, text, advice))
}

fn orphans(args: &DoctorArgs) -> Orphans {
    Orphans { age: args.orphan_age, is_named: !args.all }
}

/// Repairs what can be repaired, after asking, and looks again; false if the answer was no.
async fn fix(patients: &mut [Patient], args: &DoctorArgs, out: &Out) -> Result<bool, Failure> {
    let is_possible = |finding: &&Finding| finding.fix.is_possible();
    let fixes: usize =
        patients.iter().map(|patient| patient.findings.iter().filter(is_possible).count()).sum();
    if fixes == 0 {
        return Ok(true);
    }
    let question = format!("Repair {}?", count(fixes as u64, "finding"));
    if !out.confirm(&question, args.yes)? {
        return Ok(false);
    }
    let fixable = |patient: &&mut Patient| patient.findings.iter().any(|f| f.fix.is_possible());
    let fixable: Vec<&mut Patient> = patients.iter_mut().filter(fixable).collect();
    let repairs = with_each(fixable, out, "repairing", async |patient| {
        if let Some(limiter) = patient.limiter.clone() {
            for finding in &patient.findings {
                carry_out(&limiter, finding, args.orphan_age).await?;
            }
            let view = View::of(limiter, &patient.clients, ENTRIES).await?;
            patient.left = Some(examine(&view, orphans(args)).await?);
        }
        Ok(())
    });
    repairs.await?;
    if args.json {
        return Ok(true);
    }
    for patient in patients {
        let Some(left) = &patient.left else { continue };
        let said = match left.len() as u64 {
            0 => out.paint(Tone::Good, "repaired"),
            left => out.paint(Tone::Doubtful, format!("{} left", count(left, "finding"))),
        };
        out.print(&format!("{}: {said}\n", quoted(&patient.name)))?;
    }
    Ok(true)
}

/// Carries out repairs. Each is one step on the server, which checks again before it writes. A limiter that
/// has changed meanwhile does not keep others from being repaired.
async fn carry_out(
    limiter: &RateLimiter,
    finding: &Finding,
    orphan_age: Duration,
) -> Result<(), Failure> {
    match &finding.fix {
        Fix::Repair { .. } => {
            answered(match &finding.client_id {
                Some(id) => limiter.budget_of(id).repair().await,
                None => limiter.repair().await,
            })?;
        }
        Fix::Remove { clients } => {
            for client in clients {
                answered(match client {
                    Some(id) => limiter.budget_of(id).remove_unused(orphan_age).await,
                    None => limiter.remove_unused(orphan_age).await,
                })?;
            }
        }
        Fix::None { .. } => {}
    }
    Ok(())
}

/// A finding if this machine's clock is off by more than a hundredth of the shortest interval.
fn skew(patients: &[Patient]) -> Option<Finding> {
    let most =
        patients.iter().filter_map(|patient| patient.skew).max_by_key(ClockSkew::at_least)?;
    let intervals = patients.iter().filter_map(|patient| Some((patient.rate?.interval(), patient)));
    let (interval, patient) = intervals.min_by_key(|(interval, _)| *interval)?;
    let is_large = most.at_least() > (interval / 100).max(Duration::from_millis(1));
    let (name, interval) = (quoted(&patient.name), duration(interval));
    let text = format!("this machine's clock is {most}, and {name} has an interval of {interval}");
    let advice = "synchronize the clocks; it matters if this machine runs a client";
    is_large.then(|| Finding::unfixable(FindingKind::Skew, text, advice))
}

fn shown(
    patients: &[Patient],
    unreadable: u64,
    skew: Option<&Finding>,
    noun: &str,
    out: &Out,
) -> String {
    let mut text = String::new();
    for patient in patients.iter().filter(|patient| !patient.findings.is_empty()) {
        let rate = patient.rate.map_or(String::new(), |rate| format!("  {rate}"));
        let name = out.paint(Tone::Strong, quoted(&patient.name));
        let _ = writeln!(text, "{name}{rate}");
        for finding in &patient.findings {
            shown_finding(&mut text, finding, out);
        }
    }
    if let Some(skew) = skew {
        let _ = writeln!(text, "{}", out.paint(Tone::Strong, "this machine"));
        shown_finding(&mut text, skew, out);
    }
    if unreadable > 0 {
        let keys = count(unreadable, "key");
        let _ = writeln!(text, "{keys} left out, whose names are not UTF-8");
    }
    let ill = patients.iter().filter(|patient| !patient.findings.is_empty()).count();
    let tone = if ill == 0 { Tone::Good } else { Tone::Bad };
    let said = match ill {
        0 => "nothing found".to_owned(),
        ill => format!("{} with findings", count(ill as u64, noun)),
    };
    let examined = count(patients.len() as u64, noun);
    let _ = writeln!(text, "{examined} examined: {}", out.paint(tone, said));
    text
}

fn shown_finding(text: &mut String, finding: &Finding, out: &Out) {
    let of = match &finding.client_id {
        Some(id) => format!(" of client {}", quoted(id)),
        None => String::new(),
    };
    let kind = out.paint(Tone::Bad, finding.kind.word());
    let _ = writeln!(text, "  {kind}{of}: {}", finding.text);
    let _ = writeln!(text, "    why: {}", out.paint(Tone::Quiet, finding.kind.why()));
    let label = if finding.fix.is_possible() { "fix" } else { "do" };
    let _ = writeln!(text, "    {label}: {}", finding.fix.text());
}

fn as_json(patients: &[Patient], unreadable: u64, skew: Option<&Finding>) -> Value {
    let of_patient = |patient: &Patient| {
        let findings: Vec<Value> = patient.findings.iter().map(of_finding).collect();
        let left = patient.left.as_ref();
        json!({
            "limiter": patient.name,
            "rate": patient.rate.map(|rate| rate.to_string()),
            "findings": findings,
            "left": left.map(|left| left.iter().map(of_finding).collect::<Vec<_>>()),
        })
    };
    json!({
        "schema": SCHEMA,
        "examined": patients.len(),
        "unreadable_keys": unreadable,
        "machine": skew.map(of_finding),
        "limiters": patients
            .iter()
            .filter(|patient| !patient.findings.is_empty())
            .map(of_patient)
            .collect::<Vec<_>>(),
    })
}

fn of_finding(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind.word(),
        "client_id": finding.client_id,
        "text": finding.text,
        "why": finding.kind.why(),
        "can_be_fixed": finding.fix.is_possible(),
        "fix": finding.fix.text(),
    })
}
