//! A server of one core: calls wait for it in the order of their arrival, and take it the measured
//! time.

use std::collections::VecDeque;

use crate::queue::Time;
use crate::rate::Rate;
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::store::memory::InProcessStore;
use crate::store::{AcquireCall, AcquireReply, Outcome, RefundCall, TrySetRateCall};
use crate::wire::keys::Keys;

/// From a client to the server, in µs: half a round trip within a data centre.
pub const ONE_WAY_US: u64 = 250;

/// A log of no more entries than this is summed by a refusal.
const SHORT_LOG: usize = crate::store::limits::SHORT_LOG;

/// What calls cost the server, in µs. The defaults are those of `docs/benchmarks.md`, and of
/// `docs/sizing.md` for what is outside of the script.
#[derive(Clone, Copy, Debug)]
pub struct ServerCosts {
    /// A call that is granted.
    pub granted: f64,
    /// A call that is denied, behind a log of five entries.
    pub denied: f64,
    /// Each entry that is read: by a denial, an audit, or a share; each expired one.
    pub entry: f64,
    /// A call that the script has no short way for: one that reads the log for an audit or a share, or has
    /// requests of several kinds that do not all fit.
    pub unusual: f64,
    /// Each entry dated later than a call for several permits, as those of leases are: the call looks for
    /// its own grant among them.
    pub ahead: f64,
    /// The same for each permit, if that costs less.
    pub lookup: f64,
    /// Reading the call from its connection and writing the answer, with up to 50 connections, with
    /// 1,000, and with 8,000.
    pub connection: [f64; 3],
}

impl Default for ServerCosts {
    fn default() -> Self {
        ServerCosts {
            granted: 9.5,
            denied: 27.0,
            entry: 0.2,
            unusual: 30.0,
            ahead: 0.15,
            lookup: 1.5,
            connection: [4.3, 11.0, 14.5],
        }
    }
}

impl ServerCosts {
    fn of_connection(&self, connections: usize) -> f64 {
        let [few, thousand, many] = self.connection;
        let at = |(from, low): (f64, f64), (to, high): (f64, f64)| {
            let part = ((connections as f64 / from).ln() / (to / from).ln()).clamp(0.0, 1.0);
            low + part * (high - low)
        };
        match connections {
            0..1000 => at((50.0, few), (1000.0, thousand)),
            _ => at((1000.0, thousand), (8000.0, many)),
        }
    }
}

struct Limiter {
    keys: Keys,
    /// When each entry of its log was written, and when it expires, in epoch ms; in the order of the
    /// first.
    log: VecDeque<(i64, i64)>,
}

pub(super) struct Server {
    store: InProcessStore,
    limiters: Vec<Limiter>,
    rate: Rate,
    costs: ServerCosts,
    per_call: f64,
    longest_hold: i64,
    /// In nanoseconds, as all below.
    busy_until: u64,
    pub(super) busy: u64,
    pub(super) auditing: u64,
    pub(super) audits: u64,
    pub(super) calls: u64,
}

pub(super) fn keys(limiter: usize) -> Keys {
    Keys::new(&format!("limiter:{limiter}"), "client")
}

impl Server {
    pub(super) fn new(limiters: usize, rate: Rate, connections: usize, costs: ServerCosts) -> Self {
        let store = InProcessStore::new();
        let limiters = (0..limiters).map(|number| {
            let keys = keys(number);
            let set = store.run(&keys, &TrySetRateCall(rate));
            assert!(matches!(set, Ok(true)), "{set:?}");
            Limiter { keys, log: VecDeque::new() }
        });
        Server {
            limiters: limiters.collect(),
            store,
            rate,
            per_call: costs.of_connection(connections),
            costs,
            longest_hold: 0,
            busy_until: 0,
            busy: 0,
            auditing: 0,
            audits: 0,
            calls: 0,
        }
    }

    /// Forgets what was measured.
    pub(super) fn measure_from_now(&mut self) {
        (self.busy, self.auditing, self.audits, self.calls) = (0, 0, 0, 0);
    }

    /// A call arrives; answers it, and when the answer leaves.
    pub(super) fn acquire(
        &mut self,
        now: Time,
        limiter: usize,
        call: AcquireCall,
        at: i64,
    ) -> (AcquireReply, Time) {
        let reads_all = call.share.is_some();
        let audit_limit = if call.limits[0].seen.is_some() { call.audit_limit } else { u64::MAX };
        let groups = &call.limits[0].groups;
        let has_groups = groups.len() > 1;
        let permits: u64 = groups.iter().map(|group| group.count).sum();
        let date = at + call.hold_ms as i64;
        let interval = self.rate.interval_ms() as i64;
        self.longest_hold = self.longest_hold.max(call.hold_ms as i64);
        let Limiter { keys, log } = &mut self.limiters[limiter];
        let reply = self.store.run(keys, &call);
        let Ok(reply) = reply else { panic!("{reply:?}") };
        let before = log.len();
        while log.front().is_some_and(|(_, expires)| *expires <= at) {
            log.pop_front();
        }
        let expired = (before - log.len()) as f64;
        let is_granted = reply.outcomes.iter().any(|group| group.outcome == Outcome::Granted);
        let is_denied = reply.outcomes.iter().any(|group| group.outcome != Outcome::Granted);
        let is_audit = audit_limit > 0 && log.len() as u64 <= audit_limit;
        let read = if is_audit || reads_all && log.len() <= LONGEST_SHARED_LOG {
            log.len()
        } else if is_denied {
            log.len().clamp(5, SHORT_LOG) - 5
        } else {
            0
        };
        let ahead = if permits > 1 {
            entries_after(log, date + interval, at - self.longest_hold)
        } else {
            0
        };
        let script = if reads_all || is_audit || is_denied && has_groups {
            self.costs.unusual
        } else if is_denied {
            self.costs.denied
        } else {
            self.costs.granted
        };
        let summed = self.costs.entry * read as f64;
        let cost = self.per_call
            + script
            + summed
            + self.costs.entry * expired
            + (self.costs.ahead * ahead as f64).min(self.costs.lookup * permits as f64);
        if is_granted {
            log.push_back((at, reply.entry_date + interval));
        }
        if is_audit {
            self.audits += 1;
            self.auditing += nanos(summed);
        }
        (reply, self.serve(now, cost))
    }

    pub(super) fn refund(&mut self, now: Time, limiter: usize, call: RefundCall) {
        let reply = self.store.run(&self.limiters[limiter].keys, &call);
        assert!(reply.is_ok(), "{reply:?}");
        self.serve(now, self.per_call + self.costs.granted);
    }

    fn serve(&mut self, now: Time, cost: f64) -> Time {
        self.calls += 1;
        self.busy += nanos(cost);
        self.busy_until = self.busy_until.max(now * 1000) + nanos(cost);
        self.busy_until.div_ceil(1000)
    }

    /// The work that is left, in ns.
    pub(super) fn backlog(&self, now: Time) -> u64 {
        self.busy_until.saturating_sub(now * 1000)
    }
}

/// How many entries expire after `expires`, of those written since `since`.
fn entries_after(log: &VecDeque<(i64, i64)>, expires: i64, since: i64) -> usize {
    let recent = log.iter().rev().take_while(|(written, _)| *written >= since);
    recent.filter(|entry| entry.1 > expires).count()
}

fn nanos(us: f64) -> u64 {
    (us * 1000.0) as u64
}
