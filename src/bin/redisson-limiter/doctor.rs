//! `doctor`: finds what is wrong with limiters, explains it, and repairs it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use redisson_rate_limiter::admin::StoredPolicy;
use redisson_rate_limiter::{Client, ClockSkew, ErrorKind, Rate, RateLimiter};
use serde_json::{Value, json};

use crate::Session;
use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure, Result};
use crate::findings::{Finding, FindingKind, Repairs, answered, examine};
use crate::found::{View, walk, with_each, with_each_found};
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
    /// What to look at again after a repair: the limiter, and its clients. Its policies, which no repair changes, stay.
    limiter: Option<(RateLimiter, BTreeSet<String>, Vec<StoredPolicy>)>,
    findings: Vec<Finding>,
    left: Option<Vec<Finding>>,
}

pub async fn run(session: &Session<'_>, args: &DoctorArgs) -> Result<Exit> {
    let Session { client, common, out } = session;
    let (mut patients, mut unreadable, mut missing) = (Vec::new(), 0, None);
    if args.all {
        if common.client_id.is_some() {
            return Err(Failure::Usage(
                "--all examines the budgets of all clients: leave --client-id out, or name limiters"
                    .to_owned(),
            ));
        }
        let found;
        (found, unreadable) = walk(session, None, &args.scan).await?;
        let looks = with_each_found(found, out, "examining", async |(name, traces)| {
            let view = View::found(client, &name, &traces, ENTRIES).await;
            Patient::of(name, view, args).await
        });
        patients.extend(looks.await?.into_iter().flatten());
    }
    for name in &args.names {
        match named(session, name, args).await {
            Ok(found) => patients.extend(found),
            // A name without a limiter must not keep the others from being examined.
            Err(failure)
                if matches!(failure.exit(), Exit::NoLimiter | Exit::Damaged | Exit::Usage) =>
            {
                if let Some(earlier) = missing.replace(failure) {
                    out.complain(&earlier.to_string());
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    if patients.is_empty()
        && let Some(failure) = missing
    {
        return Err(failure);
    }
    let skew = skew(&patients);
    if !args.json {
        let noun = if args.semaphore { "semaphore" } else { "limiter" };
        let shown = shown(&patients, unreadable, skew.as_ref(), noun, out);
        out.print(&shown)?;
    }
    let is_fixed = !args.fix || fix(session, &mut patients, args).await?;
    if args.json {
        out.print(&json::text(&as_json(&patients, unreadable, skew.as_ref())))?;
    }
    if let Some(failure) = missing {
        return Err(failure);
    }
    if !is_fixed {
        return Ok(Exit::Usage);
    }
    let left = |patient: &Patient| !patient.left.as_ref().unwrap_or(&patient.findings).is_empty();
    let is_healthy = !patients.iter().any(left) && skew.is_none();
    Ok(if is_healthy { Exit::Done } else { Exit::No })
}

async fn named(session: &Session<'_>, name: &str, args: &DoctorArgs) -> Result<Option<Patient>> {
    let name = name.to_owned();
    if args.semaphore {
        let findings = semaphore::examine(&session.client, &name, args.permits).await?;
        return Ok(Some(Patient { name, findings, ..Patient::default() }));
    }
    let view = View::named(session, &name, ENTRIES, &args.scan).await;
    if let Ok(view) = &view {
        if let Some(note) = view.note {
            session.out.complain(&format!("{}: {note}", quoted(&name)));
        }
        // If the user may not look for the sibling, nothing is removed: see `findings::removal`.
        if !view.hash().exists()
            && let Ok(Some(sibling)) = view.limiter.sibling().await
        {
            return Err(Failure::KeysOfAnother { name, sibling });
        }
    }
    Patient::of(name, view.map(Some), args).await
}

impl Patient {
    /// Examines a limiter, unless it is outside of the key prefix.
    async fn of(
        name: String,
        view: Result<Option<View>>,
        args: &DoctorArgs,
    ) -> Result<Option<Patient>> {
        let view = match view {
            Ok(Some(view)) => view,
            Ok(None) => return Ok(None),
            Err(Failure::Limiter(error))
                if error.kind() == ErrorKind::InvalidArgument && !name.is_empty() =>
            {
                let advice = "give the name a hash tag, as in api:{tenant}";
                let text = "the name has a brace, and no hash tag";
                let findings = vec![Finding::new(FindingKind::Slots, text, advice)];
                return Ok(Some(Patient { name, findings, ..Patient::default() }));
            }
            Err(failure) => return Err(failure),
        };
        let skews = view.budgets.iter().filter_map(|budget| budget.inspection.clock_skew);
        let clients = view.budgets.iter().filter_map(|budget| budget.client_id.clone());
        Ok(Some(Patient {
            name: view.name().to_owned(),
            rate: view.rate().ok().flatten(),
            skew: skews.max_by_key(ClockSkew::at_least),
            findings: examine(&view, args).await?,
            left: None,
            limiter: Some((view.limiter.clone(), clients.collect(), view.policies.clone())),
        }))
    }

    /// Carries out the repairs, and looks again. Each is one step on the server, which checks again before it writes.
    /// A limiter that has changed meanwhile does not keep others from being repaired.
    async fn repair(&mut self, client: &Client, args: &DoctorArgs) -> Result<()> {
        let Some((limiter, clients, policies)) = &self.limiter else { return Ok(()) };
        for finding in &self.findings {
            match &finding.repairs {
                Repairs::None => {}
                Repairs::Repair(budget) => drop(answered(budget.repair().await)?),
                Repairs::Remove(budgets) => {
                    for budget in budgets {
                        answered(budget.remove_unused(args.orphan_age).await)?;
                    }
                }
            }
        }
        let view = View::of(client, limiter.clone(), clients, ENTRIES).await?;
        let view = View { policies: policies.clone(), ..view };
        self.left = Some(examine(&view, args).await?);
        Ok(())
    }
}

/// Repairs what can be repaired, after asking, and looks again; false if the answer was no.
async fn fix(session: &Session<'_>, patients: &mut [Patient], args: &DoctorArgs) -> Result<bool> {
    let Session { client, out, .. } = session;
    let fixes = |patient: &Patient| {
        patient.findings.iter().filter(|finding| finding.can_be_fixed()).count() as u64
    };
    let number = patients.iter().map(fixes).sum();
    if number == 0 {
        return Ok(true);
    }
    if !out.confirm(&format!("Repair {}?", count(number, "finding")), args.yes)? {
        return Ok(false);
    }
    let fixable: Vec<_> = patients.iter_mut().filter(|patient| fixes(patient) > 0).collect();
    with_each(fixable, out, "repairing", async |patient| patient.repair(client, args).await)
        .await?;
    for patient in patients.iter().filter(|_| !args.json) {
        let Some(left) = &patient.left else { continue };
        let said = match left.len() as u64 {
            0 => out.paint(Tone::Good, "repaired"),
            left => out.paint(Tone::Doubtful, format!("{} left", count(left, "finding"))),
        };
        out.print(&format!("{}: {said}\n", quoted(&patient.name)))?;
    }
    Ok(true)
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
    is_large.then(|| Finding::new(FindingKind::Skew, text, advice))
}

fn shown(
    patients: &[Patient],
    unreadable: u64,
    skew: Option<&Finding>,
    noun: &str,
    out: &Out,
) -> String {
    let mut text = String::new();
    let mut ill = 0;
    for patient in patients.iter().filter(|patient| !patient.findings.is_empty()) {
        ill += 1;
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
    let said = match ill {
        0 => out.paint(Tone::Good, "nothing found"),
        ill => out.paint(Tone::Bad, format!("{} with findings", count(ill, noun))),
    };
    let _ = writeln!(text, "{} examined: {said}", count(patients.len() as u64, noun));
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
    let label = if finding.can_be_fixed() { "fix" } else { "do" };
    let _ = writeln!(text, "    {label}: {}", finding.fix);
}

fn as_json(patients: &[Patient], unreadable: u64, skew: Option<&Finding>) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "kind": finding.kind.word(),
            "client_id": finding.client_id,
            "text": finding.text,
            "why": finding.kind.why(),
            "can_be_fixed": finding.can_be_fixed(),
            "fix": finding.fix,
        })
    };
    let findings = |findings: &Vec<Finding>| findings.iter().map(finding).collect::<Vec<_>>();
    let patient = |patient: &Patient| {
        json!({
            "limiter": patient.name,
            "rate": patient.rate.map(|rate| rate.to_string()),
            "findings": findings(&patient.findings),
            "left": patient.left.as_ref().map(findings),
        })
    };
    let ill = patients.iter().filter(|patient| !patient.findings.is_empty());
    json!({
        "schema": SCHEMA,
        "examined": patients.len(),
        "unreadable_keys": unreadable,
        "machine": skew.map(finding),
        "limiters": ill.map(patient).collect::<Vec<_>>(),
    })
}
