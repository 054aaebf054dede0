//! Problems that a limiter can have, their causes, and their repairs.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::ValueEnum;
use redisson_rate_limiter::admin::{Budget, ClientBudget, LogEntry, Repair, StoredKey, Writer};
use redisson_rate_limiter::{Error, ErrorKind, Rate};

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure, Result};
use crate::found::{BudgetView, View, expires_in, has_keys};
use crate::text::{count, duration, excerpt, quoted, visible};

/// The kinds of problems. Scripts read their names, and people what is written at each: the cause and the consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FindingKind {
    /// a client whose clock was wrong, or something else, wrote them; their permits are denied to everybody until then.
    /// No lease, reservation or pause of a clock is dated so far ahead
    DatedAhead,
    /// an eviction, a lost answer that was counted twice, a changed rate, or permits that Redisson's release gave back;
    /// a limiter that is used heals by itself, one of Redisson alone may not
    Drift,
    /// Redisson's availablePermits and tryAcquire may write a value without a time to live; it outlives its limiter,
    /// and counts again for the next one of that name
    Endless,
    /// a Redisson before 3.17.0, or something else, writes to this log; calls that read such an entry fail until it has
    /// expired
    Foreign,
    /// Redisson cannot read such an end: its waiting calls fail, those of 3.17.0 to 3.23.3 take permits that do not
    /// exist, and permits with a negative end never come back
    LeaseEnds,
    /// if their holder has died, they are lost for ever; Redisson's acquire without a lease time takes such
    NoLease,
    /// the value was renamed, evicted or has expired without the permits that are out; the next one that Redisson takes
    /// back begins a semaphore with a wrong total
    NoValue,
    /// the hash was deleted, renamed or has expired, and value and log were left behind; a new limiter of that name
    /// would go on with them
    Orphaned,
    /// Redisson takes back all of them at once when it counts or renews, which fails from 8,000 on
    Overdue,
    /// released more often than acquired, lost with a holder without a lease, or taken by an RSemaphore of the same
    /// name
    Permits,
    /// limiters of different rules have this name; none knows of the others, and each grants by itself
    Policies,
    /// the log may end before its entries expire, and the rate is exceeded then
    ShortKeepAlive,
    /// clients date their grants by their machines' clocks; one that is ahead lets the permits of others come back too
    /// early
    Skew,
    /// the keys of this name are in different slots: no call can succeed
    Slots,
    /// one key will end before the other, and permits are lost, or there are too many
    TimesToLive,
    /// every call fails
    Unreadable,
    /// each client of the mode PER_CLIENT has keys of its own, which it leaves behind when it ends; with all permits
    /// available they say nothing
    UnusedClients,
    /// something else uses the name of this key; every call fails
    WrongType,
}

impl FindingKind {
    pub fn word(self) -> String {
        self.to_possible_value().map_or(String::new(), |kind| kind.get_name().to_owned())
    }

    pub fn why(self) -> String {
        let why = self.to_possible_value().and_then(|kind| Some(kind.get_help()?.to_string()));
        why.unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub kind: FindingKind,
    /// In the mode PER_CLIENT, the client whose budget it concerns.
    pub client_id: Option<String>,
    pub text: String,
    /// The remedy: by `--fix`, or by people.
    pub fix: String,
    pub repairs: Repairs,
}

/// The calls that `--fix` makes.
#[derive(Clone, Debug)]
pub enum Repairs {
    None,
    Repair(ClientBudget),
    Remove(Vec<ClientBudget>),
}

impl Finding {
    /// A problem of the whole limiter that people have to solve.
    pub fn new(kind: FindingKind, text: impl Into<String>, advice: impl Into<String>) -> Self {
        let (text, fix) = (text.into(), advice.into());
        Finding { kind, client_id: None, text, fix, repairs: Repairs::None }
    }

    pub fn can_be_fixed(&self) -> bool {
        !matches!(self.repairs, Repairs::None)
    }

    fn of(self, budget: &BudgetView) -> Self {
        Finding { client_id: budget.client_id.clone(), ..self }
    }

    /// One that [`ClientBudget::repair`] repairs.
    fn repaired(kind: FindingKind, text: String, fix: String, budget: &BudgetView) -> Self {
        let repairs = Repairs::Repair(budget.stored.clone());
        Finding { repairs, ..Finding::new(kind, text, fix).of(budget) }
    }
}

const NAME_IS_TAKEN: &str = "choose another name for one of the two, or delete that key";

/// Looks for all problems of a limiter. Changes nothing.
pub async fn examine(view: &View, args: &DoctorArgs) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for budget in &view.budgets {
        let Budget { value, log, .. } = budget.budget();
        let keys =
            [("value", *value == StoredKey::WrongType), ("log", *log == StoredKey::WrongType)];
        let wrong = of_another_type(keys, NAME_IS_TAKEN).into_iter();
        findings.extend(wrong.map(|finding| finding.of(budget)));
    }
    match view.rate() {
        Ok(Some(rate)) => findings.extend(with_rate(view, rate).await?),
        Ok(None) if view.is_missing() => {}
        Ok(None) => findings.push(orphaned(view, args).await?),
        Err(why) => {
            let (kind, advice) = match view.hash() {
                StoredKey::WrongType => (FindingKind::WrongType, NAME_IS_TAKEN),
                _ => (
                    FindingKind::Unreadable,
                    "if it is a rate limiter, write the rate again with `set`",
                ),
            };
            findings.push(Finding::new(kind, visible(&why), advice));
        }
    }
    findings.extend(several_policies(view));
    Ok(findings)
}

async fn with_rate(view: &View, rate: Rate) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if rate.keep_alive().is_some_and(|keep_alive| keep_alive < rate.interval()) {
        let text = format!("the keep-alive is shorter than the interval: {rate}");
        let advice = "set a rate with a keep-alive that is no shorter than the interval";
        findings.push(Finding::new(FindingKind::ShortKeepAlive, text, advice));
    }
    let mut unused = Vec::new();
    for budget in &view.budgets {
        if let Some(text) = foreign(budget, rate) {
            let advice = "update that Redisson, and wait until it has expired";
            findings.push(Finding::new(FindingKind::Foreign, text, advice).of(budget));
            continue;
        }
        let Some(repair) = answered(budget.stored.preview_repair().await)? else { continue };
        let mut found =
            |kind, (text, fix)| findings.push(Finding::repaired(kind, text, fix, budget));
        if let Some(drift) = drift(budget, &repair) {
            found(FindingKind::Drift, drift);
        } else if budget.client_id.is_some() && is_litter(budget, &repair) {
            unused.push(budget.stored.clone());
        }
        if repair.dated_ahead > 0 {
            let entries = count(repair.dated_ahead, "entry");
            let text = format!("{entries} dated more than 25 hours ahead");
            let interval = duration(rate.interval());
            let fix = format!("they are dated now, and expire within {interval}");
            found(FindingKind::DatedAhead, (text, fix));
        }
        if repair.endless_keys > 0 {
            let keys = count(repair.endless_keys, "key");
            let text = format!("{keys} without a time to live, though the limiter has one");
            let fix = "value and log get the time to live of the limiter".to_owned();
            found(FindingKind::Endless, (text, fix));
        }
    }
    if !unused.is_empty() {
        let clients = count(unused.len() as u64, "client");
        let text = format!("the keys of {clients} with all permits available, and no time to live");
        findings.push(removal(view, FindingKind::UnusedClients, text, unused).await?);
    }
    Ok(findings)
}

/// The keys that are of another type.
pub fn of_another_type(keys: [(&str, bool); 2], advice: &str) -> Vec<Finding> {
    let wrong = keys.into_iter().filter(|(_, is_wrong)| *is_wrong);
    let text = wrong.map(|(key, _)| format!("the key of the {key} is of another type"));
    text.map(|text| Finding::new(FindingKind::WrongType, text, advice)).collect()
}

/// The answer; `None` if the limiter has changed since it was looked at, which the next look will show.
pub fn answered<T>(answer: Result<T, Error>) -> Result<Option<T>> {
    match answer.map_err(Failure::from) {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if matches!(failure.exit(), Exit::NoLimiter | Exit::Damaged) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A finding that is repaired by removing these keys, unless they are another limiter's too: those called `api` and
/// `{api}` have the same values and logs.
async fn removal(
    view: &View,
    kind: FindingKind,
    text: String,
    budgets: Vec<ClientBudget>,
) -> Result<Finding> {
    let advice = match view.limiter.sibling().await {
        Ok(None) => {
            let repairs = Repairs::Remove(budgets);
            return Ok(Finding { repairs, ..Finding::new(kind, text, "value and log are removed") });
        }
        Ok(Some(sibling)) => {
            format!("left alone, as the limiter {} has the same values and logs", quoted(&sibling))
        }
        Err(error) if error.kind() == ErrorKind::Auth => {
            "left alone, as another limiter may have the same values and logs: the user may not look for the \
             name with other braces"
                .to_owned()
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Finding::new(kind, text, advice))
}

/// Describes keys without a hash, and checks whether they are a limiter's and old enough to remove.
async fn orphaned(view: &View, args: &DoctorArgs) -> Result<Finding> {
    // The keys of all clients are removed together with those of one client.
    let budgets: Vec<&Budget> = view
        .budgets
        .iter()
        .flat_map(|budget| [&budget.inspection.overall, &budget.inspection.per_client])
        .filter(|budget| has_keys(budget))
        .collect();
    let dates = budgets.iter().flat_map(|budget| budget.entries()).map(|entry| entry.date_ms);
    let now = view.inspection().now_ms;
    let age = dates.max().map(|newest| {
        Duration::from_millis(u64::try_from(now.saturating_sub(newest)).unwrap_or(0))
    });
    let text = match age {
        None => "a value without a hash and a log".to_owned(),
        Some(age) => {
            // The oldest entries were read.
            let at_most = if budgets.iter().all(|it| it.is_complete()) { "" } else { "at most " };
            let age = duration(age);
            format!("value and log without a hash; the last grant is {at_most}{age} old")
        }
    };
    let has_no_log = budgets.iter().any(|budget| !budget.log.exists());
    let advice = if budgets.iter().any(|budget| is_strange(budget)) {
        "left alone, as it may be another program's: no rate limiter holds that".to_owned()
    } else if has_no_log && args.all {
        // Only the names of the keys say that this is a limiter, and other programs may use such names.
        format!("if this is a rate limiter's key, name it: doctor {} --fix", quoted(view.name()))
    } else if age.is_some_and(|age| age < args.orphan_age) {
        let least = duration(args.orphan_age);
        format!("left alone until the last grant is {least} old (--orphan-age)")
    } else {
        let budgets = view.budgets.iter().map(|budget| budget.stored.clone()).collect();
        return removal(view, FindingKind::Orphaned, text, budgets).await;
    };
    Ok(Finding::new(FindingKind::Orphaned, text, advice))
}

/// A finding if limiters of different rules have this name.
fn several_policies(view: &View) -> Option<Finding> {
    let redissons = view.hash().exists().then(|| "Redisson's".to_owned());
    let policies = view.policies.iter().map(|it| it.policy.to_string());
    let rules: Vec<String> = redissons.into_iter().chain(policies).collect();
    let text = format!("{} limiters have this name: {}", rules.len(), rules.join("; "));
    let advice = "follow one policy by one name";
    (rules.len() > 1).then(|| Finding::new(FindingKind::Policies, text, advice))
}

/// Whether a budget holds something that no limiter writes, so that it may be another program's.
fn is_strange(budget: &Budget) -> bool {
    budget.value.exists() && budget.number().is_none()
        || budget.log == StoredKey::WrongType
        || budget.entries().iter().any(|entry| entry.writer == Writer::Foreign)
}

/// The live entries that cannot be read.
fn foreign(budget: &BudgetView, rate: Rate) -> Option<String> {
    let live = budget.inspection.live(rate, budget.budget());
    let foreign: Vec<&LogEntry> = live.filter(|entry| entry.writer == Writer::Foreign).collect();
    let last = foreign.iter().map(|entry| entry.date_ms).max()?;
    let sizes: BTreeSet<usize> = foreign.iter().map(|entry| entry.member.len()).collect();
    let releases: Vec<&str> = sizes
        .into_iter()
        .map(|size| match size {
            20 => "Redisson 3.16.4 to 3.16.8",
            8 => "Redisson 3.13.3 to 3.16.3",
            _ => "nothing that is known",
        })
        .collect();
    Some(format!(
        "{} of a foreign format, as written by {}; the last expires in {}",
        count(foreign.len() as u64, "entry"),
        releases.join(" and "),
        duration(expires_in(&budget.inspection, rate, last))
    ))
}

/// The problem in the value and the log that a repair would mend, and what becomes of them.
pub fn drift(budget: &BudgetView, repair: &Repair) -> Option<(String, String)> {
    if !repair.value_is_off() && repair.debt == 0 && repair.excess == 0 {
        return None;
    }
    let permits = |number: u64| count(number, "permit");
    let mut fix = format!("the value becomes {}", repair.after);
    if repair.excess > 0 {
        fix += &format!(", and {} are taken out of the log", permits(repair.excess));
    }
    let Some(before) = repair.before else {
        let Budget { value, log, .. } = budget.budget();
        let text = match value.content() {
            Some(content) => format!("the value {} is not an integer", excerpt(content)),
            None => {
                let entries = count(log.content().map_or(0, |log| log.len), "entry");
                format!("there is no value, but a log of {entries}")
            }
        };
        return Some((text, fix));
    };
    if repair.debt > 0 {
        let (debt, interval) = (permits(repair.debt), duration(repair.rate.interval()));
        let fix = format!(
            "a debt of {debt} is written into the log, so that they come back within {interval}"
        );
        return Some((format!("{debt} in neither the value nor the log"), fix));
    }
    let right = before.saturating_add_unsigned(repair.expired);
    let difference = permits(right.abs_diff(repair.after).saturating_add(repair.excess));
    let text = match repair.after < right || repair.excess > 0 {
        true => format!("{difference} too many in value and log together"),
        false => format!("{difference} missing, and nothing is in use"),
    };
    Some((text, fix))
}

/// Whether a client's budget, in which nothing is wrong, is as if it had no keys, but never expires.
fn is_litter(budget: &BudgetView, repair: &Repair) -> bool {
    let stored = budget.budget();
    (stored.value.is_endless() || stored.log.is_endless())
        && !is_strange(stored)
        && stored.is_complete()
        && i64::try_from(repair.rate.permits()) == Ok(repair.after)
}
