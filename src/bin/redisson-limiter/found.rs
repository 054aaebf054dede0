//! Limiters as commands look at them: by name, or found by a walk over all keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use redisson_rate_limiter::admin::{Budget, Inspection, StoredKey, StoredPolicy};
use redisson_rate_limiter::{Client, ErrorKind, Mode, Rate, RateLimiter};

use crate::Session;
use crate::args::ScanArgs;
use crate::exit::Failure;
use crate::out::Out;

/// How many limiters are looked at together, so that a distant server does not take a round trip for each; it
/// also bounds what other clients' calls wait for.
const TOGETHER: usize = 32;

/// The limiters found, each with the ids of the clients that have a budget of their own.
#[derive(Debug, Default)]
pub struct FoundLimiters {
    pub limiters: BTreeMap<String, BTreeSet<String>>,
    /// Those of these names that have the key of a policy.
    pub with_policies: BTreeSet<String>,
    /// The number of keys left out because their names are not UTF-8.
    pub unreadable: u64,
}

/// Walks over all keys, and collects all limiters or just one.
pub async fn walk(
    session: &Session<'_>,
    only: Option<&str>,
    args: &ScanArgs,
) -> Result<FoundLimiters, Failure> {
    let out = session.out;
    let mut found = FoundLimiters::default();
    let mut scan = session.client.scan_limiters(args.scan_count);
    while let Some(keys) = scan.next().await? {
        for key in keys {
            // Limiters called `api` and `{api}` have the same values and logs.
            let is_wanted = only
                .is_none_or(|name| name == key.limiter || name == format!("{{{}}}", key.limiter));
            if is_wanted {
                if key.is_policy {
                    found.with_policies.insert(key.limiter.clone());
                }
                found.limiters.entry(key.limiter).or_default().extend(key.client_id);
            }
        }
        let (servers, done) = scan.servers();
        out.progress(&format!(
            "scanning: {} keys, {} limiters, server {} of {servers}",
            scan.looked_at(),
            found.limiters.len(),
            (done + 1).min(servers)
        ));
        if done < servers {
            tokio::time::sleep(args.scan_pause).await;
        }
    }
    out.end_progress();
    found.unreadable = scan.unreadable();
    Ok(found)
}

/// Runs an action on each limiter, several at a time, and returns the results in order.
pub async fn with_each<I, T, F>(
    limiters: Vec<I>,
    out: &Out,
    doing: &str,
    with_one: impl FnMut(I) -> F,
) -> Result<Vec<T>, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let total = limiters.len();
    let mut results = Vec::with_capacity(total);
    let mut running = futures::stream::iter(limiters).map(with_one).buffered(TOGETHER);
    while let Some(result) = running.next().await {
        results.push(result?);
        out.progress(&format!("{doing}: {} of {total} limiters", results.len()));
    }
    out.end_progress();
    Ok(results)
}

/// Looks at a limiter that a walk has found by its values and logs; `None` if they belong to a limiter
/// outside the client's key prefix.
pub async fn look_at(
    client: &Client,
    limiter: RateLimiter,
    clients: &BTreeSet<String>,
    entries: u64,
) -> Result<Option<View>, Failure> {
    let view = View::of(limiter, clients, entries).await?;
    if view.hash().exists() {
        return Ok(Some(view));
    }
    // Limiters called `api` and `{api}` have the same values and logs, and the walk reports `api`.
    match view.limiter.sibling().await? {
        None => Ok(Some(view)),
        Some(full_name) if full_name == format!("{{{}}}", view.name()) => {
            View::of(client.limiter(&full_name)?, clients, entries).await.map(Some)
        }
        // With the prefix `p:` no name stands for `{p:api}`.
        Some(_) => Ok(None),
    }
}

/// The limiters of this name that follow a policy, if the walk has found a key of one. A key that cannot be read may be
/// another program's.
pub async fn policies_of(
    client: &Client,
    name: &str,
    with_policies: &BTreeSet<String>,
) -> Result<Vec<StoredPolicy>, Failure> {
    if !with_policies.contains(name) {
        return Ok(Vec::new());
    }
    Ok(client.policies_of(name).await?.into_iter().flatten().collect())
}

/// The clients of a limiter that may have their own budgets, and why some could not be found.
pub async fn clients_of(
    session: &Session<'_>,
    limiter: &RateLimiter,
    scan: &ScanArgs,
) -> Result<(BTreeSet<String>, Option<String>), Failure> {
    let mut clients = BTreeSet::from([session.client.id().to_owned()]);
    if matches!(limiter.inspect(0).await?.rate, Ok(Some(rate)) if rate.mode() == Mode::Overall) {
        return Ok((clients, None));
    }
    match walk(session, Some(limiter.name()), scan).await {
        Ok(found) => clients.extend(found.limiters.into_values().flatten()),
        Err(Failure::Limiter(error)) if error.kind() == ErrorKind::Auth => {
            let note = "the clients of this limiter cannot be listed: the user needs +scan, or name one \
                        with --client-id";
            return Ok((clients, Some(note.to_owned())));
        }
        Err(failure) => return Err(failure),
    }
    Ok((clients, None))
}

/// A limiter at one moment; in the mode PER_CLIENT, each budget at a moment of its own.
pub struct View {
    pub limiter: RateLimiter,
    pub views: Vec<BudgetView>,
}

/// A budget, with the hash as it was at the same moment.
pub struct BudgetView {
    /// The client, in the mode PER_CLIENT.
    pub client_id: Option<String>,
    pub inspection: Inspection,
}

/// Whether there is a value or a log.
pub fn has_keys(budget: &Budget) -> bool {
    budget.value.exists() || budget.log.exists()
}

/// The time until an entry of this date expires.
pub fn expires_in(inspection: &Inspection, rate: Rate, date_ms: i64) -> Duration {
    let ms = date_ms.saturating_sub(inspection.now_ms).saturating_add_unsigned(interval_ms(rate));
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub fn interval_ms(rate: Rate) -> u64 {
    u64::try_from(rate.interval().as_millis()).unwrap_or(u64::MAX)
}

impl View {
    /// Looks at a limiter and, in the mode PER_CLIENT, at the budget of each of these clients.
    pub async fn of(
        limiter: RateLimiter,
        clients: &BTreeSet<String>,
        entries: u64,
    ) -> Result<View, Failure> {
        let inspection = limiter.inspect(entries).await?;
        let is_shared = matches!(&inspection.rate, Ok(Some(rate)) if rate.mode() == Mode::Overall);
        let mut views = Vec::new();
        if !is_shared {
            for id in clients {
                let inspection = limiter.budget_of(id).inspect(entries).await?;
                if has_keys(&inspection.per_client) {
                    views.push(BudgetView { client_id: Some(id.clone()), inspection });
                }
            }
        }
        let is_used = has_keys(&inspection.overall);
        if is_shared || views.is_empty() || !matches!(inspection.rate, Ok(Some(_))) && is_used {
            views.insert(0, BudgetView { client_id: None, inspection });
        }
        Ok(View { limiter, views })
    }

    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    fn first(&self) -> &Inspection {
        &self.views[0].inspection
    }

    /// The rate, or why there is none.
    pub fn rate(&self) -> Result<Option<Rate>, String> {
        self.first().rate.clone().map_err(|error| {
            match error.kind() {
                ErrorKind::WrongType => "the key of its name is not a hash".to_owned(),
                _ => match error.to_string().split_once("cannot be read (") {
                    // The library's advice is for programmers, so it is left out.
                    Some((_, rest)) => rest.split("): ").next().unwrap_or(rest).to_owned(),
                    None => error.to_string(),
                },
            }
        })
    }

    pub fn hash(&self) -> &StoredKey<redisson_rate_limiter::admin::StoredRate> {
        &self.first().hash
    }

    pub fn inspection(&self) -> &Inspection {
        self.first()
    }

    /// Whether nothing at all is stored.
    pub fn is_missing(&self) -> bool {
        !self.hash().exists() && !self.views.iter().any(|view| has_keys(view.budget()))
    }
}

impl BudgetView {
    pub fn budget(&self) -> &Budget {
        match self.client_id {
            Some(_) => &self.inspection.per_client,
            None => match self.inspection.in_force() {
                Some((_, budget)) => budget,
                None => &self.inspection.overall,
            },
        }
    }
}
