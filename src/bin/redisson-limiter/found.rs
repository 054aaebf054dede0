//! Limiters as commands look at them: by name, or found by a walk over all keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use redisson_rate_limiter::admin::{
    Budget, ClientBudget, Inspection, StoredKey, StoredPolicy, StoredRate,
};
use redisson_rate_limiter::{Client, ErrorKind, Mode, Rate, RateLimiter};

use crate::Session;
use crate::args::ScanArgs;
use crate::exit::{Exit, Failure, Result};
use crate::out::Out;
use crate::text::{count, in_ms, quoted};

/// How many limiters are looked at together, so that a distant server does not take a round trip for each; it
/// also bounds what other clients' calls wait for.
const TOGETHER: usize = 32;

/// The keys of a limiter, as far as their names tell.
#[derive(Debug, Default)]
pub struct LimiterTraces {
    /// The ids of the clients that have a budget of their own.
    pub clients: BTreeSet<String>,
    pub has_policy: bool,
}

/// Walks over all keys, and collects all limiters or just one. Returns them by name, and the number of keys left out
/// because their names are not UTF-8.
pub async fn walk(
    session: &Session<'_>,
    only: Option<&str>,
    args: &ScanArgs,
) -> Result<(BTreeMap<String, LimiterTraces>, u64)> {
    let out = session.out;
    let mut found = BTreeMap::<String, LimiterTraces>::new();
    let mut scan = session.client.scan_limiters(args.scan_count);
    while let Some(keys) = scan.next().await? {
        for key in keys {
            // Limiters called `api` and `{api}` have the same values and logs.
            let is_wanted = only
                .is_none_or(|name| name == key.limiter || name == format!("{{{}}}", key.limiter));
            if is_wanted {
                let traces = found.entry(key.limiter).or_default();
                traces.clients.extend(key.client_id);
                traces.has_policy |= key.is_policy;
            }
        }
        let (servers, done) = scan.servers();
        out.progress(&format!(
            "scanning: {} keys, {} limiters, server {} of {servers}",
            scan.looked_at(),
            found.len(),
            (done + 1).min(servers)
        ));
        if done < servers {
            tokio::time::sleep(args.scan_pause).await;
        }
    }
    out.end_progress();
    Ok((found, scan.unreadable()))
}

/// Runs an action on each limiter, several at a time, and returns the results in order.
pub async fn with_each<I: IntoIterator, T, F>(
    limiters: I,
    out: &Out,
    doing: &str,
    with_one: impl FnMut(I::Item) -> F,
) -> Result<Vec<T>>
where
    I::IntoIter: ExactSizeIterator,
    F: Future<Output = Result<T>>,
{
    let limiters = limiters.into_iter();
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

/// Like [`with_each`], for limiters that a walk has found. Those that the user may not read are left out, unless that is
/// all of them.
pub async fn with_each_found<T, F: Future<Output = Result<T>>>(
    found: BTreeMap<String, LimiterTraces>,
    out: &Out,
    doing: &str,
    mut with_one: impl FnMut((String, LimiterTraces)) -> F,
) -> Result<Vec<T>> {
    let looks = with_each(found, out, doing, |one| {
        with_one(one).map(|looked| match looked {
            Err(failure) if failure.exit() == Exit::Access => Ok(Err(failure)),
            looked => looked.map(Ok),
        })
    });
    let (mut seen, mut refused) = (Vec::new(), Vec::new());
    for looked in looks.await? {
        match looked {
            Ok(one) => seen.push(one),
            Err(failure) => refused.push(failure),
        }
    }
    let number = count(refused.len() as u64, "limiter");
    match refused.pop() {
        Some(failure) if seen.is_empty() => return Err(failure),
        Some(_) => {
            out.complain(&format!("{number} left out: the user may not read all of the keys"))
        }
        None => {}
    }
    Ok(seen)
}

/// A limiter at one moment; in the mode PER_CLIENT, each budget at a moment of its own.
pub struct View {
    pub limiter: RateLimiter,
    pub budgets: Vec<BudgetView>,
    /// The limiters of the name that follow a policy.
    pub policies: Vec<StoredPolicy>,
    /// Why something is missing here.
    pub note: Option<&'static str>,
}

/// A budget, with the hash as it was at the same moment.
pub struct BudgetView {
    /// The client, in the mode PER_CLIENT.
    pub client_id: Option<String>,
    pub stored: ClientBudget,
    pub inspection: Inspection,
}

impl View {
    /// Looks at a limiter that the user has named, and at the budgets of all its clients, or of the one that the user has
    /// named too.
    pub async fn named(
        session: &Session<'_>,
        name: &str,
        entries: u64,
        scan: &ScanArgs,
    ) -> Result<View> {
        let client = &session.client;
        let limiter = client.limiter(name)?;
        let mut clients = BTreeSet::from([client.id().to_owned()]);
        let mut note = None;
        if !is_shared(&limiter.inspect(0).await?) {
            match walk(session, Some(name), scan).await {
                Ok((found, _)) => {
                    clients.extend(found.into_values().flat_map(|traces| traces.clients));
                }
                Err(failure) if failure.exit() == Exit::Access => {
                    note = Some(
                        "the clients of this limiter cannot be listed: the user needs +scan, or name one \
                         with --client-id",
                    );
                }
                Err(failure) => return Err(failure),
            }
        }
        let mut view = View::of(client, limiter, &clients, entries).await?;
        if let Some(id) = &session.common.client_id {
            view.budgets
                .retain(|budget| budget.client_id.as_ref().is_none_or(|client| client == id));
            if view.budgets.is_empty() {
                return Err(Failure::Usage(format!(
                    "the limiter {name:?} has no budget of the client {id:?}; without --client-id all are looked at"
                )));
            }
        }
        let mut policies = client.policies_of(name).await?;
        // A key that cannot be read may be another program's, and fails this only if there is nothing else.
        if !view.is_missing() || policies.iter().any(Result::is_ok) {
            policies.retain(Result::is_ok);
        }
        let policies = policies.into_iter().collect::<Result<_, _>>()?;
        let view = View { policies, note, ..view };
        match view.is_missing() && view.policies.is_empty() {
            true => Err(Failure::no_limiter(name)),
            false => Ok(view),
        }
    }

    /// Looks at a limiter that a walk has found; `None` if its keys belong to a limiter outside of the client's key
    /// prefix. On a cluster there may be names that no client can use: those fail with [`Exit::Usage`].
    pub async fn found(
        client: &Client,
        name: &str,
        traces: &LimiterTraces,
        entries: u64,
    ) -> Result<Option<View>> {
        let mut view = View::of(client, client.limiter(name)?, &traces.clients, entries).await?;
        if !view.hash().exists() {
            // Limiters called `api` and `{api}` have the same values and logs, and the walk reports `api`.
            match view.limiter.sibling().await? {
                None => {}
                Some(full_name) if full_name == format!("{{{name}}}") => {
                    let limiter = client.limiter(&full_name)?;
                    view = View::of(client, limiter, &traces.clients, entries).await?;
                }
                // With the prefix `p:` no name stands for `{p:api}`.
                Some(_) => return Ok(None),
            }
        }
        if traces.has_policy {
            // A key that cannot be read may be another program's.
            view.policies = client.policies_of(name).await?.into_iter().flatten().collect();
        }
        Ok(Some(view))
    }

    /// Looks at a limiter and, unless its mode is OVERALL, at the budget of each of these clients.
    pub async fn of(
        client: &Client,
        limiter: RateLimiter,
        clients: &BTreeSet<String>,
        entries: u64,
    ) -> Result<View> {
        let own = limiter.budget_of(client.id());
        let inspection = own.inspect(entries).await?;
        let mut budgets = Vec::new();
        if !is_shared(&inspection) {
            for id in clients {
                let stored = limiter.budget_of(id);
                let inspection = stored.inspect(entries).await?;
                if has_keys(&inspection.per_client) {
                    budgets.push(BudgetView { client_id: Some(id.clone()), stored, inspection });
                }
            }
        }
        let has_rate = matches!(inspection.rate, Ok(Some(_)));
        if budgets.is_empty() || !has_rate && has_keys(&inspection.overall) {
            budgets.insert(0, BudgetView { client_id: None, stored: own, inspection });
        }
        Ok(View { limiter, budgets, policies: Vec::new(), note: None })
    }

    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    pub fn inspection(&self) -> &Inspection {
        &self.budgets[0].inspection
    }

    /// The rate, or why there is none.
    pub fn rate(&self) -> Result<Option<Rate>, String> {
        self.inspection().rate.clone().map_err(|error| match error.kind() {
            ErrorKind::WrongType => {
                "the key of its name is not a hash (if it is a semaphore: --semaphore)".to_owned()
            }
            _ => match error.to_string().split_once("cannot be read (") {
                // The library's advice is for programmers, so it is left out.
                Some((_, rest)) => rest.split("): ").next().unwrap_or(rest).to_owned(),
                None => error.to_string(),
            },
        })
    }

    pub fn hash(&self) -> &StoredKey<StoredRate> {
        &self.inspection().hash
    }

    /// Whether no key of the limiter is there. Policies have keys of their own.
    pub fn is_missing(&self) -> bool {
        !self.hash().exists() && !self.budgets.iter().any(|budget| has_keys(budget.budget()))
    }
}

/// Why a command has found no limiter of this name.
pub async fn why_missing(client: &Client, name: &str) -> Failure {
    let config = async { client.limiter(name)?.config().await };
    match (config.await, policies_of(client, name).await) {
        // Acquires take a hash that lacks fields for none, as Redisson does.
        (Err(error), _) if error.kind() == ErrorKind::CorruptState => error.into(),
        (_, Some(policies)) => Failure::Usage(format!(
            "{} follows a policy ({policies}): this command is for Redisson's limiters",
            quoted(name)
        )),
        _ => Failure::no_limiter(name),
    }
}

/// The policies that limiters of this name follow, as text; `None` if none is found.
pub async fn policies_of(client: &Client, name: &str) -> Option<String> {
    let found = client.policies_of(name).await.unwrap_or_default().into_iter().flatten();
    let texts: Vec<String> = found.map(|it| it.policy.to_string()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

impl BudgetView {
    pub fn budget(&self) -> &Budget {
        match (&self.client_id, self.inspection.in_force()) {
            (Some(_), _) => &self.inspection.per_client,
            (None, Some((_, budget))) => budget,
            (None, None) => &self.inspection.overall,
        }
    }
}

/// Whether all clients have one budget.
fn is_shared(inspection: &Inspection) -> bool {
    matches!(inspection.rate, Ok(Some(rate)) if rate.mode() == Mode::Overall)
}

/// Whether there is a value or a log.
pub fn has_keys(budget: &Budget) -> bool {
    budget.value.exists() || budget.log.exists()
}

/// The time until an entry of this date expires.
pub fn expires_in(inspection: &Inspection, rate: Rate, date_ms: i64) -> Duration {
    let ms =
        date_ms.saturating_sub(inspection.now_ms).saturating_add_unsigned(in_ms(rate.interval()));
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
