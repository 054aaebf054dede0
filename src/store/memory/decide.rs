//! Deciding the requests of a call, one after the other.
//!
//! `lua/part/decide.lua` is its twin.

use crate::error::Error;
use crate::store::limits::EXACT_WAITS;
use crate::store::memory::share::Share;
use crate::store::memory::wait::WaitScan;
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait, push_outcome};

/// The permits that the requests may take, and those that they took.
pub(super) struct Budget {
    /// Permits free for the requests of this call.
    pub(super) free: i64,
    /// Other free permits, not for this call's requests: they count only for waits.
    pub(super) beyond: i64,
    pub(super) granted: i64,
    /// The date of the grant.
    pub(super) date: i64,
    /// The share that limits requests that can wait.
    pub(super) share: Option<Share>,
}

/// Answers all requests with one outcome.
pub(super) fn all(groups: &[RequestGroup], outcome: Outcome) -> Vec<OutcomeGroup> {
    let count = groups.iter().map(|group| group.count).sum();
    vec![OutcomeGroup { count, outcome }]
}

/// The previous answer to requests that come again, given the permits granted then, each for no more than `most`.
pub(super) fn answer_as_before(
    groups: &[RequestGroup],
    most: i64,
    permits: i64,
) -> Vec<OutcomeGroup> {
    let wait = Wait::of_ms(1, true);
    let mut outcomes: Vec<OutcomeGroup> = Vec::new();
    let mut left = permits;
    for group in groups {
        let each = i64::try_from(group.permits).unwrap_or(i64::MAX);
        if each > most {
            push_outcome(&mut outcomes, group.count, Outcome::ExceedsRate);
            continue;
        }
        let fit = group.count.min((left / each).max(0) as u64);
        left -= each * fit as i64;
        push_outcome(&mut outcomes, fit, Outcome::Granted);
        push_outcome(&mut outcomes, group.count - fit, Outcome::Refused(wait));
    }
    outcomes
}

/// Decides the requests, each for no more than `most`. `is_settled`: no expired entry is left in the log; otherwise
/// requests that do not fit are left undecided.
pub(super) fn decide(
    groups: &[RequestGroup],
    most: i64,
    is_settled: bool,
    budget: &mut Budget,
    scan: WaitScan<'_>,
) -> Result<Vec<OutcomeGroup>, Error> {
    let mut queue =
        RequestQueue { budget, scan, queued: 0, waiting: 0, last: None, outcomes: Vec::new() };
    let mut undecided = false;
    for group in groups {
        let permits = i64::try_from(group.permits).unwrap_or(i64::MAX);
        let mut count = group.count;
        if !undecided && permits > most {
            queue.answer(count, Outcome::ExceedsRate);
            continue;
        }
        if !undecided && (queue.queued == 0 || queue.holds_back()) {
            count -= queue.grant(permits, group.max_wait_ms, count);
            undecided = count > 0 && !is_settled;
            count -= queue.hold_back(permits, count);
        }
        if undecided {
            queue.answer(count, Outcome::Undecided);
        } else if count > 0 {
            queue.refuse_or_queue(permits, group.max_wait_ms, count)?;
        }
    }
    Ok(queue.outcomes)
}

struct RequestQueue<'a> {
    budget: &'a mut Budget,
    scan: WaitScan<'a>,
    /// The permits of waiting requests, which come first.
    queued: i64,
    /// The number of waiting requests whose wait was computed by a scan.
    waiting: usize,
    last: Option<Wait>,
    outcomes: Vec<OutcomeGroup>,
}

impl RequestQueue<'_> {
    /// Whether requests wait although they fit: behind them there may be room for requests that cannot wait
    /// that long.
    fn holds_back(&self) -> bool {
        self.budget.share.is_some() && self.queued < self.budget.free
    }

    /// How many requests fit behind the waiting ones.
    fn fit(&self, permits: i64, count: u64) -> u64 {
        count.min(((self.budget.free - self.queued) / permits).max(0) as u64)
    }

    /// Grants as many requests as fit, and returns how many.
    fn grant(&mut self, permits: i64, max_wait_ms: u64, count: u64) -> u64 {
        let mut fit = self.fit(permits, count);
        if let Some(share) = &mut self.budget.share
            && max_wait_ms >= share.hold_ms
        {
            fit = if self.queued > 0 { 0 } else { share.take(permits, fit) };
        }
        self.budget.free -= permits * fit as i64;
        self.budget.granted += permits * fit as i64;
        self.answer(fit, Outcome::Granted);
        fit
    }

    /// Makes requests wait that fit but exceed the share; returns how many.
    fn hold_back(&mut self, permits: i64, count: u64) -> u64 {
        let Some(share) = &self.budget.share else { return 0 };
        let wait = Wait::of_ms(share.hold_ms, true);
        let held = self.fit(permits, count);
        self.answer(held, Outcome::Waiting(wait));
        self.queued += permits * held as i64;
        held
    }

    /// Answers requests that do not fit, or come after a waiting one.
    fn refuse_or_queue(&mut self, permits: i64, max_wait_ms: u64, count: u64) -> Result<(), Error> {
        let mut left = count;
        while left > 0 {
            let exact = self.waiting < EXACT_WAITS;
            let wait = match self.last {
                Some(last) if !exact => Wait { at_least: true, ..last },
                _ => self.wait(permits)?,
            };
            if max_wait_ms < wait.ms() {
                // A refused request blocks no others, so the next one like it has the same wait.
                self.answer(left, Outcome::Refused(wait));
                return Ok(());
            }
            let n = if exact { 1 } else { left };
            self.answer(n, Outcome::Waiting(wait));
            self.last = Some(wait);
            self.waiting += 1;
            let more = permits.saturating_mul(i64::try_from(n).unwrap_or(i64::MAX));
            self.queued = self.queued.saturating_add(more);
            left -= n;
        }
        Ok(())
    }

    fn wait(&mut self, permits: i64) -> Result<Wait, Error> {
        let free = self.budget.free.saturating_add(self.budget.beyond);
        let lacking = self.queued.saturating_add(permits).saturating_sub(free);
        self.scan.wait_for(lacking, (self.budget.date, self.budget.granted))
    }

    fn answer(&mut self, count: u64, outcome: Outcome) {
        push_outcome(&mut self.outcomes, count, outcome);
    }
}
