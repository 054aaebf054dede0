//! What callers were told, written down by themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redisson_rate_limiter::{DecidedBy, Decision, Error, ErrorKind};

/// Acquires and their permits, by result and by who decided.
pub type Counts = BTreeMap<(&'static str, &'static str), (u64, u64)>;

#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Counts>>);

impl Ledger {
    /// An acquire has ended; `None`: it was dropped after its first poll.
    pub fn ended(&self, permits: u64, answer: Option<&Result<Decision, Error>>) {
        let entry = match answer {
            Some(Ok(Decision::Granted(grant))) => ("granted", name(grant.decided_by())),
            Some(Ok(Decision::Denied(denial))) => ("denied", name(denial.decided_by())),
            Some(Err(error)) if error.kind() == ErrorKind::Timeout => ("timed_out", "none"),
            Some(Err(_)) => ("failed", "none"),
            None => ("cancelled", "none"),
        };
        let mut counts = self.0.lock().unwrap();
        let (acquires, sum) = counts.entry(entry).or_default();
        *acquires += 1;
        *sum += permits;
    }

    pub fn counts(&self) -> Counts {
        self.0.lock().unwrap().clone()
    }
}

fn name(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Store => "store",
        DecidedBy::Queue => "queue",
        DecidedBy::Memory => "memory",
        DecidedBy::Lease => "lease",
        DecidedBy::Outage => "outage",
        _ => unreachable!("a decider that is counted nowhere"),
    }
}
