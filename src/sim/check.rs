//! Judges a run by what its callers saw.

use super::history::{GrantSeen, History, KeySeen, Ms, Records};
use super::scenario::SimScenario;
use crate::options::Fraction;

pub(super) fn check(scenario: &SimScenario, history: &History) {
    let found: Vec<String> = {
        let records = history.records();
        let judge = Judge { scenario, records: &records };
        let windows = judge.windows_by_use().into_iter().chain(judge.windows_by_date());
        windows
            .chain(judge.late_uses())
            .chain(judge.overtaken())
            .chain(judge.leases_of_replaced_limiters())
            .chain(judge.beyond_what_was_left())
            .chain(judge.granted_in_a_pause())
            .chain(judge.granted_twice())
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

    /// How far the clock of the client that is furthest ahead is ahead.
    fn furthest_ahead_ms(&self) -> Ms {
        match self.scenario.uses_server_clock {
            true => 0,
            false => self.scenario.clients.iter().map(|it| it.skew_ms).max().unwrap_or(0),
        }
    }

    /// A grant whose answer came late was confirmed.
    fn late_uses(&self) -> Option<String> {
        let late = |grant: &&GrantSeen| {
            let allowed = self.allowed_ms(grant.client);
            !grant.is_of_key && self.dated(grant).is_some_and(|date| grant.at > date + allowed)
        };
        let grant = self.records.grants.iter().find(late)?;
        Some(format!(
            "a grant is used later than the {} ms allowed: {grant:?}",
            self.allowed_ms(grant.client)
        ))
    }

    /// How long before its use a grant may be dated, by any clock; and what that leaves of an interval, unless it is
    /// nothing.
    fn window_by_use(&self) -> Option<(Ms, Ms)> {
        let allowed = (0..self.scenario.clients.len()).map(|client| self.allowed_ms(client)).max();
        let shift = allowed.unwrap_or(0) + self.scenario.skew_ms();
        let window = self.scenario.interval_ms.checked_sub(shift).filter(|window| *window > 0)?;
        Some((shift, window))
    }

    /// By the time of use: grants are dated up to `shift` before, so that the windows are as much
    /// shorter. Those of keys are used at any time until they expire.
    fn windows_by_use(&self) -> Option<String> {
        let (shift, window) = self.window_by_use()?;
        let grants = self.records.grants.iter().filter(|grant| !grant.is_of_key);
        let uses = grants.map(|grant| (grant.at, grant.kept)).collect();
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
            let limit = self.limit(from, *at, None);
            if used > limit {
                let from = uses[first].0;
                return Some(format!(
                    "{used} used from {from} to {at} ms, where {limit} are allowed"
                ));
            }
        }
        None
    }

    /// The highest rate in force without the headroom, and what nobody can know of any more.
    fn limit(&self, from: Ms, to: Ms, headroom: Option<Fraction>) -> u64 {
        let highest = self.records.highest_rate(from, to);
        let highest = highest - headroom.map_or(0, |part| part.headroom(highest));
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
            for class in [None, self.scenario.headroom] {
                let mut last = 0;
                let of_queue = |grant: &&GrantSeen| {
                    (grant.client, grant.headroom) == (client, class) && grant.is_unbounded
                };
                for grant in self.records.grants.iter().filter(of_queue) {
                    if grant.call < last {
                        return Some(format!(
                            "client {client}: call {} was served before {}",
                            last, grant.call
                        ));
                    }
                    last = grant.call;
                }
            }
        }
        None
    }

    /// A grant leaves what its class leaves to others, of what those and the charges before it have left.
    fn beyond_what_was_left(&self) -> Option<String> {
        let (shift, window) = self.window_by_use()?;
        let grants = &self.records.grants;
        for (number, grant) in grants.iter().enumerate().filter(|(_, grant)| !grant.is_of_key) {
            let Some(decided_after) = grant.decided_after else { continue };
            let first = grant.at.saturating_sub(window) + 1;
            let same_call = |other: &GrantSeen| {
                (other.client, other.date, other.headroom)
                    == (grant.client, grant.date, grant.headroom)
            };
            let earlier = grants[..number].iter().filter(|other| {
                other.at >= first
                    && !other.is_of_key
                    && (other.at < decided_after || same_call(other))
            });
            let charges = self.records.charges.values();
            // At the latest begun then, by a clock that is ahead.
            let from_date = first + self.furthest_ahead_ms();
            let charged = charges.filter(|it| it.date >= from_date && it.written < decided_after);
            let used =
                earlier.map(|it| it.kept).sum::<u64>() + charged.map(|it| it.permits).sum::<u64>();
            let from = first.saturating_sub(shift + self.scenario.longest_hold_ms());
            let limit = self.limit(from, grant.at, grant.headroom);
            if grant.kept > 0 && used + grant.kept > limit {
                return Some(format!(
                    "{used} permits of {limit} were used since {first} ms before {grant:?}"
                ));
            }
        }
        None
    }

    /// From when a pause is known until it ends by the clock that is furthest ahead, nobody is granted anything,
    /// and its own client uses nothing that it has taken ahead.
    fn granted_in_a_pause(&self) -> Option<String> {
        let furthest_ahead = self.furthest_ahead_ms();
        for pause in &self.records.pauses {
            let ends = pause.ends.saturating_sub(furthest_ahead);
            let is_granted = |grant: &&GrantSeen| {
                let decided_after = match grant.is_leased {
                    true => (grant.client == pause.client).then_some(grant.at),
                    false => grant.decided_after,
                };
                decided_after.is_some_and(|after| after > pause.told) && grant.at < ends
            };
            for grant in self.records.grants.iter().filter(is_granted) {
                let mut ended = self.records.unpaused.iter();
                if !ended.any(|at| (pause.begun..=grant.at).contains(at)) {
                    return Some(format!("granted in a pause, {pause:?}: {grant:?}"));
                }
            }
        }
        None
    }

    /// For an interval, a key gets one grant with the same permits.
    fn granted_twice(&self) -> Option<String> {
        let of_keys = &self.records.of_keys;
        let live_until = |seen: &KeySeen| {
            (seen.date + self.scenario.interval_ms).saturating_sub(self.furthest_ahead_ms())
        };
        for (number, one) in of_keys.iter().enumerate() {
            for other in of_keys[..number].iter().filter(|other| other.key == one.key) {
                // A call that was long under way may have been decided after the other entry had expired.
                let both_live = one.told.max(other.told) < live_until(one).min(live_until(other));
                let first = one.date.min(other.date).saturating_sub(self.scenario.interval_ms);
                let mut forgotten = self.records.forgotten.iter();
                if both_live
                    && (one.date, one.permits) != (other.date, other.permits)
                    && !forgotten.any(|(at, _)| (first..=one.told).contains(at))
                {
                    return Some(format!("a key has two grants: {other:?}, {one:?}"));
                }
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
