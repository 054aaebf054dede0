//! What callers saw, and what happened to the server: all that a run is judged by.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use super::policy::PolicyRecords;
use super::semaphore::SemaphoreRecords;
use crate::decision::Grant;
use crate::options::Fraction;
use crate::wire::entry::EntryId;

/// Milliseconds since the run began.
pub(super) type Ms = u64;

/// Beyond its deadline a call may take as long as it is behind a call that is not known to be slow
/// yet, until the next look at deadlines, and a tick of the clock.
const SLACK_MS: Ms = 5 + 20 + 2;

pub(super) struct History {
    began: Instant,
    /// Shows events while they happen.
    is_verbose: bool,
    records: Mutex<Records>,
}

#[derive(Default)]
pub(super) struct Records {
    pub(super) grants: Vec<GrantSeen>,
    /// What settled grants used beyond what they had acquired, by their callers.
    pub(super) lacked: Vec<u64>,
    /// What was written of it: nothing where the limiter was lost.
    pub(super) charges: HashMap<EntryId, ChargeSeen>,
    pub(super) pauses: Vec<PauseSeen>,
    /// Each answer to a call for a key.
    pub(super) of_keys: Vec<KeySeen>,
    /// Calls that wait for permits, by the order of their arrival: permits, and what they leave.
    pub(super) waiting: BTreeMap<u64, (u64, Option<Fraction>)>,
    calls: u64,
    /// When the server decided each acquire for the first time.
    decided: HashMap<EntryId, Ms>,
    /// By the time from which they were in force.
    pub(super) rates: Vec<(Ms, u64)>,
    /// The live permits that a log has lost: nobody can know that they were used.
    pub(super) forgotten: Vec<(Ms, u64)>,
    /// When a pause was ended, or its entry lost.
    pub(super) unpaused: Vec<Ms>,
    /// Calls of a client that replace or pause the limiter.
    pub(super) resets: Vec<(usize, Ms, Ms)>,
    pub(super) semaphore: SemaphoreRecords,
    pub(super) policy: PolicyRecords,
    pub(super) violations: Vec<String>,
    /// Of all events: equal for two runs of one seed.
    digest: DefaultHasher,
}

/// A grant, as its caller saw it.
#[derive(Clone, Debug)]
pub(super) struct GrantSeen {
    pub(super) client: usize,
    /// The part of the rate that it leaves to others.
    pub(super) headroom: Option<Fraction>,
    /// It is that of a key, which others may have too.
    pub(super) is_of_key: bool,
    /// The order of its call's arrival.
    pub(super) call: u64,
    /// Whether its call waits without end.
    pub(super) is_unbounded: bool,
    /// It is out of a lease, without a call.
    pub(super) is_leased: bool,
    /// When its caller had it, and used it.
    pub(super) at: Ms,
    /// The date in the log by the clock of its client; `None` for one out of a lease.
    pub(super) date: Option<Ms>,
    /// The call that granted it was not decided before; one that is confirmed is dated later than that. `None` for
    /// one out of a lease.
    pub(super) decided_after: Option<Ms>,
    /// How much later than its date it may be used.
    pub(super) allowed_ms: u64,
    /// Those that were not given back.
    pub(super) kept: u64,
}

/// The entry of a settlement with more permits than were acquired.
#[derive(Clone, Debug)]
pub(super) struct ChargeSeen {
    /// In the log, by the clock of its client.
    pub(super) date: Ms,
    pub(super) written: Ms,
    /// The difference.
    pub(super) permits: u64,
}

/// A pause, as the one who asked for it saw it.
#[derive(Clone, Debug)]
pub(super) struct PauseSeen {
    pub(super) client: usize,
    pub(super) begun: Ms,
    /// When its caller was told.
    pub(super) told: Ms,
    pub(super) ends: Ms,
}

/// What a key was granted.
#[derive(Clone, Debug)]
pub(super) struct KeySeen {
    pub(super) key: u64,
    /// The date in the log.
    pub(super) date: Ms,
    pub(super) permits: u64,
    /// When its caller was told.
    pub(super) told: Ms,
}

impl History {
    pub(super) fn new(is_verbose: bool) -> Self {
        History { began: Instant::now(), is_verbose, records: Mutex::default() }
    }

    pub(super) fn now(&self) -> Ms {
        self.began.elapsed().as_millis() as Ms
    }

    pub(super) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap()
    }

    pub(super) fn event(&self, client: usize, what: &str, became: &str, detail: &impl fmt::Debug) {
        let now = self.now();
        (now, client, what, became).hash(&mut self.records().digest);
        if self.is_verbose {
            println!("{now:>6} ms  client {client}: {what} {became} {detail:?}");
        }
    }

    /// What a repeated run shows besides.
    pub(super) fn show(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{:>9}  {}", "", what());
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.records().digest.finish()
    }

    /// A call arrives. If it waits for permits, it may be the first to be served.
    pub(super) fn call_begins(&self, waits_for: Option<(u64, Option<Fraction>)>) -> u64 {
        let mut records = self.records();
        records.calls += 1;
        let call = records.calls;
        records.waiting.extend(waits_for.map(|what| (call, what)));
        call
    }

    pub(super) fn call_ends(&self, call: u64) {
        self.records().waiting.remove(&call);
    }

    /// Answers its number, for what is given back.
    pub(super) fn granted(&self, grant: GrantSeen) -> usize {
        self.event(grant.client, "grant", "used", &grant);
        let mut records = self.records();
        records.grants.push(grant);
        records.grants.len() - 1
    }

    /// The limiter has this rate from now on.
    pub(super) fn rate_in_force(&self, rate: u64) {
        let now = self.now();
        let mut records = self.records();
        if records.rates.last().is_none_or(|(_, last)| *last != rate) {
            records.rates.push((now, rate));
        }
    }

    /// The server decides an acquire with this id.
    pub(super) fn decided(&self, id: EntryId) {
        let now = self.now();
        self.records().decided.entry(id).or_insert(now);
    }

    pub(super) fn decided_after(&self, grant: &Grant) -> Option<Ms> {
        self.records().decided.get(&grant.entry()?.id).copied()
    }

    pub(super) fn charged(&self, id: EntryId, date: Ms, permits: u64) {
        let written = self.now();
        self.records().charges.entry(id).or_insert(ChargeSeen { date, written, permits });
    }

    /// From now on a pause may be over.
    pub(super) fn unpaused(&self) {
        let now = self.now();
        self.records().unpaused.push(now);
    }

    pub(super) fn log_forgotten(&self, permits: u64) {
        if permits > 0 {
            let now = self.now();
            self.event(0, "log", "forgotten", &permits);
            self.records().forgotten.push((now, permits));
        }
    }

    /// A call took longer than promised if it lasted much longer than this.
    pub(super) fn check_time(&self, client: usize, what: &str, begun: Ms, limit_ms: Ms) {
        let took = self.now() - begun;
        if took > limit_ms + SLACK_MS {
            self.violation(format!(
                "client {client}: {what} took {took} ms, where {limit_ms} ms are promised"
            ));
        }
    }

    pub(super) fn violation(&self, what: String) {
        let now = self.now();
        self.event(0, "VIOLATION", "", &what);
        let mut records = self.records();
        // The first ones say it.
        if records.violations.len() < 5 {
            records.violations.push(format!("at {now} ms: {what}"));
        }
    }
}

impl Records {
    /// The highest rate, or the most permits, in force between these times.
    pub(super) fn highest_rate(&self, from: Ms, to: Ms) -> u64 {
        let ends = self.rates.iter().skip(1).map(|(at, _)| *at).chain([Ms::MAX]);
        let in_force = self.rates.iter().zip(ends);
        let in_force = in_force.filter(|((at, _), end)| *at <= to && *end >= from);
        in_force.map(|((_, rate), _)| *rate).max().unwrap_or(0)
    }
}
