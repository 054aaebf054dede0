//! The wait of the crate's denials: exact, unlike Redisson's.

use super::Difference;
use crate::oracle::ops::{Op, Outcome};

/// Both deny the request and write the same state, and by that state the wait
/// ends in the very millisecond in which the permits are free.
pub fn is_exact(d: &Difference<'_>) -> bool {
    let (Op::TryAcquire(permits), [Outcome::Denied(_), Outcome::Denied(ours)]) =
        (d.call.op, d.outcomes)
    else {
        return false;
    };
    d.lines.is_empty() && exact(d, *permits) == Some(*ours)
}

fn exact(d: &Difference<'_>, permits: i64) -> Option<i64> {
    let (rate, interval) = (d.number("rate")?, d.number("interval")?);
    let mut budget = d.after[1].budget(d.name(), d.client);
    budget.entries.sort_unstable();
    let mut needed = permits - budget.value?;
    // Permits beyond those in the log take whole intervals first.
    let rounds = ((needed - budget.used()).max(0) + rate - 1) / rate;
    needed -= rounds * rate;
    let mut wait = rounds * interval;
    for (at, permits) in budget.entries {
        if needed <= 0 {
            break;
        }
        needed -= i64::from(permits?);
        if needed <= 0 {
            wait += at + interval - d.call.now as i64;
        }
    }
    Some(wait.max(1))
}
