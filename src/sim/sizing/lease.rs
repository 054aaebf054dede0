//! A client's leases, as `engine::opt_ins::leases` keeps them: the current one, and the next for when that is
//! used up.

use super::LeaseRule;
use crate::engine::opt_ins::usage::LeaseUsage;
use crate::queue::Time;
use crate::store::RefundCall;
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
    /// A lease with less than this left makes it time for another one.
    low: u64,
    usage: LeaseUsage,
}

impl ClientLeases {
    pub(super) fn new(terms: LeaseRule) -> Self {
        let low = match terms {
            LeaseRule::Fixed { permits, .. } => permits.div_ceil(2),
            LeaseRule::Adaptive { .. } => 0,
        };
        let usage = LeaseUsage::default();
        ClientLeases { terms, current: None, next: None, last_take: 0, low, usage }
    }

    /// How long a lease is held.
    pub(super) fn hold_ms(&self) -> u64 {
        match self.terms {
            LeaseRule::Fixed { hold_ms, .. } | LeaseRule::Adaptive { hold_ms } => hold_ms,
        }
    }

    fn hold(&self) -> Time {
        self.hold_ms() * 1000
    }

    /// Permits were granted by a call.
    pub(super) fn used(&mut self, now: Time, permits: u64) {
        self.usage.add(now, self.hold(), permits);
    }

    /// A lease was granted, in full or not.
    pub(super) fn granted(&mut self, now: Time, in_full: bool) {
        self.usage.answered(now, self.hold(), in_full);
    }

    /// Takes a permit; `Some(true)`: it is time for another lease.
    pub(super) fn take(&mut self, now: Time, refunds: &mut Vec<RefundCall>) -> Option<bool> {
        let is_usable = |lease: &HeldLease| lease.left > 0 && now < lease.end;
        if !self.current.as_ref().is_some_and(is_usable) {
            let next = self.next.take().filter(is_usable)?;
            self.end_current(refunds);
            self.make_current(next);
        }
        let low = self.low;
        let lease = self.current.as_mut()?;
        lease.left -= 1;
        let runs_low = lease.left < low && lease.left + 1 >= low;
        self.last_take = now;
        self.used(now, 1);
        Some(runs_low)
    }

    fn make_current(&mut self, lease: HeldLease) {
        if let LeaseRule::Adaptive { .. } = self.terms {
            self.low = lease.left.div_ceil(4);
        }
        self.current = Some(lease);
    }

    fn held(&self, now: Time) -> u64 {
        self.current.as_ref().filter(|lease| now < lease.end).map_or(0, |lease| lease.left)
    }

    pub(super) fn holds_any(&self) -> bool {
        self.current.is_some() || self.next.is_some()
    }

    /// What a call may take ahead.
    pub(super) fn request(&mut self, now: Time, rate: u64) -> Option<u64> {
        if self.next.is_some() {
            return None;
        }
        let (held, hold) = (self.held(now), self.hold());
        let wanted = match self.terms {
            _ if held > 0 && held >= self.low => 0,
            LeaseRule::Fixed { permits, .. } => permits.saturating_sub(held),
            LeaseRule::Adaptive { .. } => self.usage.wanted(now, hold).saturating_sub(held),
        };
        (wanted > 0).then_some(wanted.min(rate))
    }

    /// A call was answered that asked for a lease, and brought this one.
    pub(super) fn answered(
        &mut self,
        now: Time,
        lease: HeldLease,
        has_waiters: bool,
        refunds: &mut Vec<RefundCall>,
    ) {
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
            self.make_current(lease);
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
            if let Some(next) = self.next.take() {
                self.make_current(next);
            }
        }
        let ends = self.current.iter().chain(&self.next).map(|lease| lease.end);
        ends.min().map(|end| end.min(now + self.hold() / LOOKS))
    }
}
