//! Problems that a limiter can have, their causes, and their repairs.

use std::time::Duration;

use redisson_rate_limiter::admin::{Budget, LogEntry, Repair, StoredKey, Writer};
use redisson_rate_limiter::{Error, ErrorKind, Mode, Rate};

use crate::exit::Failure;
use crate::found::{BudgetView, View, expires_in, has_keys};
use crate::text::{count, duration, name, quoted};

/// The kinds of problems: the word that scripts read, the cause and the consequences.
macro_rules! kinds {
    ($($kind:ident, $word:literal: $why:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FindingKind {
            $($kind,)*
        }

        impl FindingKind {
            pub fn word(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $word,)*
                }
            }

            pub fn why(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $why,)*
                }
            }
        }
    };
}

kinds! {
    DatedAhead, "dated-ahead":
        "a client whose clock was wrong, or something else, wrote them; their permits are denied to everybody until \
        then. No lease, reservation or pause of a clock is dated so far ahead";
    Drift, "drift":
        "an eviction, a lost answer that was counted twice, a changed rate, or permits that Redisson's release gave \
        back; a limiter that is used heals by itself, one of Redisson alone may not";
    Endless, "endless":
        "Redisson's availablePermits and tryAcquire may write a value without a time to live; it outlives its \
        limiter, and counts again for the next one of that name";
    Foreign, "foreign":
        "a Redisson before 3.17.0, or something else, writes to this log; calls that read such an entry fail until \
        it has expired";
    LeaseEnds, "lease-ends":
        "Redisson cannot read such an end: its waiting calls fail, those of 3.17.0 to 3.23.3 take permits that do \
        not exist, and permits with a negative end never come back";
    NoLease, "no-lease":
        "if their holder has died, they are lost for ever; Redisson's acquire without a lease time takes such";
    NoValue, "no-value":
        "the value was renamed, evicted or has expired without the permits that are out; the next one that Redisson \
        takes back begins a semaphore with a wrong total";
    Orphaned, "orphaned":
        "the hash was deleted, renamed or has expired, and value and log were left behind; a new limiter of that \
        name would go on with them";
    Overdue, "overdue": "Redisson takes back all of them at once when it counts or renews, which fails from 8,000 on";
    Permits, "permits":
        "released more often than acquired, lost with a holder without a lease, or taken by an RSemaphore of the \
        same name";
    Policies, "policies":
        "limiters of different rules have this name; none knows of the others, and each grants by itself";
    ShortKeepAlive, "short-keep-alive": "the log may end before its entries expire, and the rate is exceeded then";
    Skew, "skew":
        "clients date their grants by their machines' clocks; one that is ahead lets the permits of others come back \
        too early";
    Slots, "slots": "the keys of this name are in different slots: no call can succeed";
    TimesToLive, "times-to-live": "one key will end before the other, and permits are lost, or there are too many";
    Unreadable, "unreadable": "every call fails";
    UnusedClients, "unused-clients":
        "each client of the mode PER_CLIENT has keys of its own, which it leaves behind when it ends; with all \
        permits available they say nothing";
    WrongType, "wrong-type": "something else uses the name of this key; every call fails";
}

/// A problem that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    pub kind: FindingKind,
    /// In the mode PER_CLIENT, the client whose budget it concerns.
    pub client_id: Option<String>,
    pub text: String,
    pub fix: Fix,
}

/// How to repair it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// By `RateLimiter::repair`.
    Repair { text: String },
    /// By `RateLimiter::remove_unused`, for these clients or for the limiter.
    Remove { clients: Vec<Option<String>> },
    /// By a person, or by waiting.
    None { advice: String },
}

/// The conditions for removing keys without a hash.
#[derive(Clone, Copy, Debug)]
pub struct Orphans {
    /// How old the last grant must be.
    pub age: Duration,
    /// Whether the user named the limiter. Otherwise only the names of its keys say that it is one, and other
    /// programs may use such names.
    pub is_named: bool,
}

impl Finding {
    /// A problem of the whole limiter that people have to solve.
    pub fn unfixable(kind: FindingKind, text: impl Into<String>, advice: &str) -> Self {
        let fix = Fix::None { advice: advice.to_owned() };
        Finding { kind, client_id: None, text: text.into(), fix }
    }
}

impl Fix {
    pub fn is_possible(&self) -> bool {
        !matches!(self, Fix::None { .. })
    }

    pub fn text(&self) -> String {
        match self {
            Fix::Repair { text } => text.clone(),
            Fix::Remove { .. } => "value and log are removed".to_owned(),
            Fix::None { advice } => advice.clone(),
        }
    }
}

/// Looks for all problems of a limiter. Changes nothing.
pub async fn examine(view: &View, orphans: Orphans) -> Result<Vec<Finding>, Failure> {
    let mut findings = findings_of(view, orphans).await?;
    let is_removal = |finding: &Finding| matches!(finding.fix, Fix::Remove { .. });
    if findings.iter().any(is_removal)
        && let Some(advice) = use_by_another(view).await?
    {
        for finding in findings.iter_mut().filter(|finding| is_removal(finding)) {
            finding.fix = Fix::None { advice: advice.clone() };
        }
    }
    Ok(findings)
}

/// Why nothing may be removed: limiters called `api` and `{api}` have the same values and logs.
async fn use_by_another(view: &View) -> Result<Option<String>, Failure> {
    match view.limiter.sibling().await {
        Ok(sibling) => Ok(sibling.map(|sibling| {
            format!("left alone, as the limiter {} has the same values and logs", quoted(&sibling))
        })),
        Err(error) if error.kind() == ErrorKind::Auth => Ok(Some(
            "left alone, as another limiter may have the same values and logs: the user may not look \
             for the name with other braces"
                .to_owned(),
        )),
        Err(error) => Err(error.into()),
    }
}

async fn findings_of(view: &View, orphans: Orphans) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut found = |kind, client_id: &Option<String>, text: String, fix| {
        findings.push(Finding { kind, client_id: client_id.clone(), text, fix });
    };
    let none = |advice: &str| Fix::None { advice: advice.to_owned() };
    const NAME_IS_TAKEN: &str = "choose another name for one of the two, or delete that key";
    for budget in &view.views {
        let stored = budget.budget();
        for (key, is_wrong) in [
            ("value", stored.value == StoredKey::WrongType),
            ("log", stored.log == StoredKey::WrongType),
        ] {
            if is_wrong {
                let text = format!("the key of the {key} is of another type");
                found(FindingKind::WrongType, &budget.client_id, text, none(NAME_IS_TAKEN));
            }
        }
    }
    let rate = match view.rate() {
        Ok(Some(rate)) => rate,
        Ok(None) => {
            if !view.is_missing() {
                let (text, fix) = orphaned(view, orphans);
                found(FindingKind::Orphaned, &None, text, fix);
            }
            return Ok(findings);
        }
        Err(why) => {
            let (kind, advice) = match view.hash() {
                StoredKey::WrongType => (FindingKind::WrongType, NAME_IS_TAKEN),
                _ => (
                    FindingKind::Unreadable,
                    "if it is a rate limiter, write the rate again with `set`",
                ),
            };
            found(kind, &None, name(&why), none(advice));
            return Ok(findings);
        }
    };
    if rate.keep_alive().is_some_and(|keep_alive| keep_alive < rate.interval()) {
        let text = format!("the keep-alive is shorter than the interval: {rate}");
        let advice = none("set a rate with a keep-alive that is no shorter than the interval");
        found(FindingKind::ShortKeepAlive, &None, text, advice);
    }
    let mut unused = Vec::new();
    for budget in &view.views {
        let (kind, client_id) = (FindingKind::Foreign, &budget.client_id);
        if let Some(text) = foreign(budget, rate) {
            found(
                kind,
                client_id,
                text,
                none("update that Redisson, and wait until it has expired"),
            );
            continue;
        }
        let repair = match client_id {
            Some(id) => view.limiter.budget_of(id).preview_repair().await,
            None => view.limiter.preview_repair().await,
        };
        let Some(repair) = answered(repair)? else { continue };
        if let Some((text, fix)) = drift(budget, &repair) {
            found(FindingKind::Drift, client_id, text, Fix::Repair { text: fix });
        } else if client_id.is_some() && is_litter(budget, rate) {
            unused.push(client_id.clone());
        }
        if repair.dated_ahead > 0 {
            let entries = count(repair.dated_ahead, "entry");
            let text = format!("{entries} dated more than 25 hours ahead");
            let interval = duration(rate.interval());
            let fix = format!("they are dated now, and expire within {interval}");
            found(FindingKind::DatedAhead, client_id, text, Fix::Repair { text: fix });
        }
        if repair.endless_keys > 0 {
            let keys = count(repair.endless_keys, "key");
            let text = format!("{keys} without a time to live, though the limiter has one");
            let fix = "value and log get the time to live of the limiter".to_owned();
            found(FindingKind::Endless, client_id, text, Fix::Repair { text: fix });
        }
    }
    if !unused.is_empty() {
        let clients = count(unused.len() as u64, "client");
        let text = format!("the keys of {clients} with all permits available, and no time to live");
        found(FindingKind::UnusedClients, &None, text, Fix::Remove { clients: unused });
    }
    Ok(findings)
}

/// The answer; `None` if the limiter has changed since it was looked at, which the next look will show.
pub fn answered<T>(answer: Result<T, Error>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => match error.kind() {
            ErrorKind::NotInitialized
            | ErrorKind::WrongType
            | ErrorKind::CorruptState
            | ErrorKind::ForeignEntry => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Describes keys without a hash, and checks whether they are a limiter's and old enough to remove.
fn orphaned(view: &View, orphans: Orphans) -> (String, Fix) {
    let none = |advice: String| Fix::None { advice };
    // The keys of all clients are removed together with those of one client.
    let budgets: Vec<&Budget> = view
        .views
        .iter()
        .flat_map(|budget| [&budget.inspection.overall, &budget.inspection.per_client])
        .filter(|budget| has_keys(budget))
        .collect();
    let entries = budgets.iter().flat_map(|budget| budget.entries());
    let clients = view.views.iter().map(|budget| budget.client_id.clone()).collect();
    let now = view.inspection().now_ms;
    let age = entries.map(|entry| entry.date_ms).max().map(|newest| {
        Duration::from_millis(u64::try_from(now.saturating_sub(newest)).unwrap_or(0))
    });
    let text = match age {
        None => "a value without a hash and a log".to_owned(),
        Some(age) => {
            format!("value and log without a hash; the last grant is {} old", duration(age))
        }
    };
    let has_no_log = budgets.iter().any(|budget| !budget.log.exists());
    let fix = if budgets.iter().any(|budget| is_strange(budget)) {
        none("left alone, as it may be another program's: no rate limiter holds that".to_owned())
    } else if has_no_log && !orphans.is_named {
        let name = quoted(view.name());
        none(format!("if this is a rate limiter's key, name it: doctor {name} --fix"))
    } else if age.is_some_and(|age| age < orphans.age) {
        let least = duration(orphans.age);
        none(format!("left alone until the last grant is {least} old (--orphan-age)"))
    } else {
        Fix::Remove { clients }
    };
    (text, fix)
}

/// Whether a budget holds something that no limiter writes, so that it may be another program's.
fn is_strange(budget: &Budget) -> bool {
    budget.value.exists() && budget.number().is_none()
        || budget.log == StoredKey::WrongType
        || budget.entries().iter().any(|entry| entry.writer == Writer::Foreign)
}

/// The live entries that cannot be read.
fn foreign(budget: &BudgetView, rate: Rate) -> Option<String> {
    let inspection = &budget.inspection;
    let live = inspection.live(rate, budget.budget());
    let foreign: Vec<&LogEntry> = live.filter(|entry| entry.writer == Writer::Foreign).collect();
    let last = foreign.iter().map(|entry| entry.date_ms).max()?;
    let mut sizes: Vec<usize> = foreign.iter().map(|entry| entry.member.len()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let releases: Vec<&str> = sizes
        .iter()
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
        duration(expires_in(inspection, rate, last))
    ))
}

/// What a repair would change in the value and the log, and why.
fn drift(budget: &BudgetView, repair: &Repair) -> Option<(String, String)> {
    if !repair.value_is_off() && repair.debt == 0 && repair.excess == 0 {
        return None;
    }
    let stored = budget.budget();
    let set = match repair.excess {
        0 => format!("the value becomes {}", repair.after),
        excess => format!(
            "the value becomes {}, and {} are taken out of the log",
            repair.after,
            count(excess, "permit")
        ),
    };
    let interval = duration(repair.rate.interval());
    let Some(before) = repair.before else {
        let text = match stored.value.content() {
            Some(content) => {
                let content: String = content.chars().take(60).collect();
                format!("the value {:?} is not an integer", name(&content))
            }
            None => format!(
                "there is no value, but a log of {}",
                count(stored.log.content().map_or(0, |log| log.len), "entry")
            ),
        };
        return Some((text, set));
    };
    let right = before.saturating_add_unsigned(repair.expired);
    let permits = |number: u64| count(number, "permit");
    let after = repair.after;
    if repair.debt > 0 {
        let fix = format!(
            "a debt of {} is written into the log, so that they come back within {interval}",
            permits(repair.debt)
        );
        return Some((format!("{} in neither the value nor the log", permits(repair.debt)), fix));
    }
    Some(if after < right || repair.excess > 0 {
        let too_many = right.abs_diff(after).saturating_add(repair.excess);
        (format!("{} too many in value and log together", permits(too_many)), set)
    } else {
        (format!("{} missing, and nothing is in use", permits(right.abs_diff(after))), set)
    })
}

/// Whether a client's budget is as if it had no keys, but never expires.
fn is_litter(budget: &BudgetView, rate: Rate) -> bool {
    let stored = budget.budget();
    let inspection = &budget.inspection;
    let is_endless = stored.value.is_endless() || stored.log.is_endless();
    rate.mode() == Mode::PerClient
        && is_endless
        && !is_strange(stored)
        && stored.is_complete()
        && inspection.live(rate, stored).next().is_none()
        && inspection.available() == Some(rate.permits())
}
