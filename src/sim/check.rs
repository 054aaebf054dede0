//! Judges a run by what its callers saw.

use super::history::{GrantSeen, History, Ms, Records};
use super::scenario::SimScenario;

pub(super) fn check(scenario: &SimScenario, history: &History) {
    let found: Vec<String> = {
        let records = history.records();
        let judge = Judge { scenario, records: &records };
        let windows = judge.windows_by_use().into_iter().chain(judge.windows_by_date());
        windows
            .chain(judge.late_uses())
            .chain(judge.overtaken())
            .chain(judge.leases_of_replaced_limiters())
            .collect()
    };
    for violation in found {
        history.violation(violation);
    }
}

struct Judge<'a> {
    scenario: &'a SimScenario,
    records: &'a Records,
}

impl Judge<'_> {
    /// How much later than its date a client may use a grant.
    fn allowed_ms(&self, client: usize) -> Ms {
        let of_client = self.records.grants.iter().filter(|grant| grant.client == client);
        of_client.map(|grant| grant.allowed_ms).max().unwrap_or(0)
    }

    /// When a grant was dated, by the true time.
    fn dated(&self, grant: &GrantSeen) -> Option<Ms> {
        let skew = match self.scenario.uses_server_clock {
            true => 0,
            false => self.scenario.clients[grant.client].skew_ms,
        };
        Some(grant.date?.saturating_sub(skew))
    }

    /// A grant whose answer came late was confirmed.
    fn late_uses(&self) -> Option<String> {
        let late = |grant: &&GrantSeen| {
            let allowed = self.allowed_ms(grant.client);
            self.dated(grant).is_some_and(|date| grant.at > date + allowed)
        };
        let grant = self.records.grants.iter().find(late)?;
        Some(format!(
            "a grant is used later than the {} ms allowed: {grant:?}",
            self.allowed_ms(grant.client)
        ))
    }

    /// By the time of use: grants are dated up to `shift` before, so that the windows are as much
    /// shorter.
    fn windows_by_use(&self) -> Option<String> {
        let allowed = (0..self.scenario.clients.len()).map(|client| self.allowed_ms(client)).max();
        let shift = allowed.unwrap_or(0) + self.scenario.skew_ms();
        let window = self.scenario.interval_ms.checked_sub(shift).filter(|window| *window > 0)?;
        let uses = self.records.grants.iter().map(|grant| (grant.at, grant.kept)).collect();
        self.exceeded(uses, window, shift).map(|found| format!("by use, {found}"))
    }

    /// By the date in the log: exact, if dates are those at which calls were carried out. By the
    /// clients' clocks a call that is longer on its way than another is as one of a clock that is behind.
    fn windows_by_date(&self) -> Option<String> {
        if !self.scenario.uses_server_clock {
            return None;
        }
        let dated = |grant: &GrantSeen| Some((grant.date?, grant.kept));
        let dates = self.records.grants.iter().filter_map(dated).collect();
        self.exceeded(dates, self.scenario.interval_ms, 0).map(|found| format!("by date, {found}"))
    }

    /// The first window of this length in which more was used than the rates in force allow, which
    /// may have been in force up to `earlier` before it.
    fn exceeded(&self, mut uses: Vec<(Ms, u64)>, window: Ms, earlier: Ms) -> Option<String> {
        uses.sort_unstable();
        let (mut first, mut used) = (0, 0);
        for (at, permits) in &uses {
            used += permits;
            while uses[first].0 + window <= *at {
                used -= uses[first].1;
                first += 1;
            }
            // Permits that were leased at a higher rate are used until their hold ends.
            let from = uses[first].0.saturating_sub(earlier + self.scenario.longest_hold_ms());
            let limit = self.limit(from, *at);
            if used > limit {
                let from = uses[first].0;
                return Some(format!(
                    "{used} used from {from} to {at} ms, where {limit} are allowed"
                ));
            }
        }
        None
    }

    /// The highest rate in force, and what nobody can know of any more.
    fn limit(&self, from: Ms, to: Ms) -> u64 {
        let rates = &self.records.rates;
        let ends = rates.iter().skip(1).map(|(at, _)| *at).chain([Ms::MAX]);
        let in_force = rates.iter().zip(ends).filter(|((at, _), end)| *at <= to && *end >= from);
        let highest = in_force.map(|((_, rate), _)| *rate).max().unwrap_or(0);
        let forgotten = self.records.forgotten.iter().filter(|(at, _)| (from..=to).contains(at));
        highest + forgotten.map(|(_, permits)| permits).sum::<u64>()
    }

    /// Of the calls of one client that wait without end, the first to come is the first served.
    fn overtaken(&self) -> Option<String> {
        for client in 0..self.scenario.clients.len() {
            if self.scenario.clients[client].lease.is_some() {
                // Permits of a lease go to whoever finds them.
                continue;
            }
            let mut last = 0;
            let of_client = |grant: &&GrantSeen| grant.client == client && grant.is_unbounded;
            for grant in self.records.grants.iter().filter(of_client) {
                if grant.call < last {
                    return Some(format!(
                        "client {client}: call {} was served before {}",
                        last, grant.call
                    ));
                }
                last = grant.call;
            }
        }
        None
    }

    /// While a client replaces the limiter it uses nothing that it has taken ahead.
    fn leases_of_replaced_limiters(&self) -> Option<String> {
        let of_old = |grant: &&GrantSeen| {
            let during = |(client, begun, ended): &(usize, Ms, Ms)| {
                *client == grant.client && *begun < grant.at && grant.at < *ended
            };
            grant.is_leased && self.records.resets.iter().any(during)
        };
        let grant = self.records.grants.iter().find(of_old)?;
        Some(format!("leased permits are used while their client replaces the limiter: {grant:?}"))
    }
}
