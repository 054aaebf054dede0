//! A client's leases, as `engine::opt_ins` keeps them: the current one, and the next for when that is
//! used up.

use super::LeaseRule;
use crate::queue::Time;
use crate::store::{RefundCall, RequestGroup};
use crate::wire::entry::EntryId;

/// How often in its hold a lease is looked at.
const LOOKS: Time = 4;

pub(super) struct HeldLease {
    pub(super) id: EntryId,
    pub(super) date: i64,
    /// The permits that its entry was written with, those of the call's callers included.
    pub(super) written: u64,
    pub(super) left: u64,
    pub(super) end: Time,
}

impl HeldLease {
    /// Gives back what is left.
    fn refund(&self) -> Option<RefundCall> {
        let refund = RefundCall {
            id: self.id,
            entry_date: self.date,
            granted: self.written,
            returned: self.left,
        };
        (self.left > 0).then_some(refund)
    }
}

pub(super) struct ClientLeases {
    terms: LeaseRule,
    current: Option<HeldLease>,
    next: Option<HeldLease>,
    last_take: Time,
    /// The requests since the beginning of this hold, and in the one before.
    counted: (Time, u64, u64),
    /// The part of the demand that is asked for, after refusals.
    part: f64,
}

impl ClientLeases {
    pub(super) fn new(terms: LeaseRule) -> Self {
        let part = 1.0;
        ClientLeases { terms, current: None, next: None, last_take: 0, counted: (0, 0, 0), part }
    }

    pub(super) fn hold_ms(&self) -> u64 {
        match self.terms {
            LeaseRule::Fixed { hold_ms, .. } | LeaseRule::Following { hold_ms } => hold_ms,
        }
    }

    fn hold(&self) -> Time {
        self.hold_ms() * 1000
    }

    /// How many permits are wanted ahead.
    fn wanted(&self) -> u64 {
        match self.terms {
            LeaseRule::Fixed { permits, .. } => permits,
            LeaseRule::Following { .. } => {
                let demand = self.counted.1.max(self.counted.2);
                (demand as f64 * self.part).ceil() as u64
            }
        }
    }

    /// A request arrives.
    pub(super) fn count(&mut self, now: Time) {
        let hold = self.hold();
        if now >= self.counted.0 + 2 * hold {
            self.counted = (now, 0, 0);
        } else if now >= self.counted.0 + hold {
            self.counted = (self.counted.0 + hold, 0, self.counted.1);
        }
        self.counted.1 += 1;
    }

    /// Takes a permit; `Some(true)`: it is time for another lease.
    pub(super) fn take(&mut self, now: Time, refunds: &mut Vec<RefundCall>) -> Option<bool> {
        let is_usable = |lease: &HeldLease| lease.left > 0 && now < lease.end;
        if !self.current.as_ref().is_some_and(is_usable) {
            let next = self.next.take().filter(is_usable)?;
            self.end_current(refunds);
            self.current = Some(next);
        }
        let low = self.wanted().div_ceil(2);
        let lease = self.current.as_mut()?;
        lease.left -= 1;
        self.last_take = now;
        Some(lease.left < low && lease.left + 1 >= low)
    }

    fn held(&self, now: Time) -> u64 {
        self.current.as_ref().filter(|lease| now < lease.end).map_or(0, |lease| lease.left)
    }

    pub(super) fn holds_any(&self) -> bool {
        self.current.is_some() || self.next.is_some()
    }

    /// What a call may take ahead.
    pub(super) fn request(&self, now: Time, rate: u64) -> Option<RequestGroup> {
        let (all, held) = (self.wanted(), self.held(now));
        if self.next.is_some() || held * 2 > all {
            return None;
        }
        let count = (all - held).min(rate);
        // A lease of the next request alone saves nothing.
        let least = if matches!(self.terms, LeaseRule::Following { .. }) { 2 } else { 1 };
        (count >= least).then_some(RequestGroup { permits: 1, max_wait_ms: 0, count })
    }

    /// A call was answered that asked for `requested` permits, and brought this lease.
    pub(super) fn answered(
        &mut self,
        now: Time,
        requested: u64,
        lease: HeldLease,
        has_waiters: bool,
        refunds: &mut Vec<RefundCall>,
    ) {
        self.part = match lease.left < requested {
            true => (self.part / 2.0).max(0.01),
            false => (self.part * 1.5).min(1.0),
        };
        if has_waiters {
            self.end_all(refunds);
        }
        if lease.left == 0 {
            return;
        }
        if has_waiters || lease.end <= now || self.next.is_some() {
            refunds.extend(lease.refund());
        } else if self.held(now) > 0 {
            self.next = Some(lease);
        } else {
            self.end_current(refunds);
            self.current = Some(lease);
            self.last_take = now;
        }
    }

    fn end_current(&mut self, refunds: &mut Vec<RefundCall>) {
        refunds.extend(self.current.take().and_then(|lease| lease.refund()));
    }

    pub(super) fn end_all(&mut self, refunds: &mut Vec<RefundCall>) {
        self.end_current(refunds);
        refunds.extend(self.next.take().and_then(|lease| lease.refund()));
    }

    /// Ends what has come to its end, or has not been used for half its hold. Returns when to look
    /// again.
    pub(super) fn look(&mut self, now: Time, refunds: &mut Vec<RefundCall>) -> Option<Time> {
        if now.saturating_sub(self.last_take) >= self.hold() / 2
            || self.next.as_ref().is_some_and(|next| next.end <= now)
        {
            self.end_all(refunds);
        }
        if self.current.as_ref().is_some_and(|lease| lease.end <= now || lease.left == 0) {
            self.end_current(refunds);
            self.current = self.next.take();
        }
        let ends = self.current.iter().chain(&self.next).map(|lease| lease.end);
        ends.min().map(|end| end.min(now + self.hold() / LOOKS))
    }
}
