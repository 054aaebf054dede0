//! Requests that take from several limiters, one after the other: each gets what it asks for from all of them, or
//! nothing from any.
//!
//! The twin of `lua/policy/all.lua`.

use super::frame::{EXACT_WAITS, Limiter, Mark, Record, Rules};
use crate::error::Error;
use crate::store::memory::keyspace::Keyspace;
use crate::store::{Outcome, OutcomeGroup, RequestGroup, Wait, push_outcome};
use crate::wire::keys::Keys;

/// A limiter of any rules.
pub(crate) trait Member {
    fn now(&self) -> i64;
    fn limit(&self) -> u64;
    fn available(&self) -> u64;
    /// The wait for so many permits, which may be more than the limit.
    fn wait(&self, permits: u64) -> Wait;
    fn take(&mut self, permits: u64);
    fn mark(&self) -> Mark;
    /// Whether each grant delays the next one, so that no more than one can be decided at once.
    fn is_queue(&self) -> bool;
    /// What the call was granted if it was decided before.
    fn replay(&self) -> Option<&Record>;
    fn write(
        &mut self,
        space: &mut Keyspace,
        keys: &Keys,
        share: &Share,
        is_empty: bool,
    ) -> Result<(), Error>;
}

impl<R: Rules> Member for Limiter<R> {
    fn now(&self) -> i64 {
        self.now
    }

    fn limit(&self) -> u64 {
        self.limit()
    }

    fn available(&self) -> u64 {
        self.available()
    }

    fn wait(&self, permits: u64) -> Wait {
        self.wait(permits)
    }

    fn take(&mut self, permits: u64) {
        self.take_now(permits);
    }

    fn mark(&self) -> Mark {
        self.mark()
    }

    fn is_queue(&self) -> bool {
        R::IS_QUEUE
    }

    fn replay(&self) -> Option<&Record> {
        self.replay.as_ref()
    }

    fn write(
        &mut self,
        space: &mut Keyspace,
        keys: &Keys,
        share: &Share,
        is_empty: bool,
    ) -> Result<(), Error> {
        self.write_taken(space, keys, share.granted, share.is_short, is_empty)
    }
}

/// A limiter's part in the decision.
#[derive(Clone, Default)]
pub(crate) struct Share {
    granted: u64,
    /// The permits of the requests that wait.
    queued: u64,
    /// A request was denied that it could not have granted even if no other waited before.
    is_short: bool,
}

/// Decides the requests; `groups` has those of each limiter. Of a call that was decided before, what it was granted is
/// granted again: each limiter that still has the record has that much.
pub(crate) fn decide_all(
    members: &mut [Box<dyn Member>],
    groups: &[&[RequestGroup]],
) -> (Vec<OutcomeGroup>, Vec<Share>) {
    let (mut outcomes, mut shares) = (Vec::new(), vec![Share::default(); members.len()]);
    // What the records still have.
    let records = members.iter().map(|member| member.replay());
    let mut rests: Vec<Option<u64>> = records.map(|record| Some(record?.total)).collect();
    let is_replay = rests.iter().any(Option::is_some);
    // Whether a request waits, its wait and the limiter with the longest one, and the number of waits computed for
    // those behind.
    let (mut waits, mut blocked, mut exact) = (false, (Wait::of_ms(0, true), 0), 0);
    for (k, &RequestGroup { max_wait_ms, mut count, .. }) in groups[0].iter().enumerate() {
        let cost = |at: usize| groups[at][k].permits;
        if members.iter().enumerate().any(|(at, member)| cost(at) > member.limit()) {
            push_outcome(&mut outcomes, count, Outcome::ExceedsRate);
            continue;
        }
        loop {
            let fits = members.iter().zip(&rests).enumerate().map(|(at, (member, rest))| {
                let free = if is_replay { rest.unwrap_or(u64::MAX) } else { member.available() };
                let fit = free / cost(at);
                if member.is_queue() && !is_replay { fit.min(1) } else { fit }
            });
            let fit = fits.fold(if waits { 0 } else { count }, u64::min);
            if fit == 0 {
                break;
            }
            for (at, (member, share)) in members.iter_mut().zip(&mut shares).enumerate() {
                match &mut rests[at] {
                    Some(rest) => *rest -= fit * cost(at),
                    None if is_replay => {}
                    None => member.take(fit * cost(at)),
                }
                share.granted += fit * cost(at);
            }
            push_outcome(&mut outcomes, fit, Outcome::Granted);
            count -= fit;
        }
        // With grants to follow it did not wait the first time, or it would have blocked them.
        let is_granted_later = rests.iter().flatten().any(|rest| *rest > 0);
        while count > 0 {
            let mut limits = shares.iter().zip(&*members);
            let is_exact =
                exact < EXACT_WAITS && limits.all(|(share, member)| share.queued < member.limit());
            let (mut wait, mut by) = (Wait { at_least: true, ..blocked.0 }, blocked.1);
            if is_exact {
                (wait, by) = (Wait { us: 0, at_least: false }, 0);
                exact += u32::from(waits);
                for (at, (member, share)) in members.iter().zip(&mut shares).enumerate() {
                    let own = member.wait(share.queued + cost(at));
                    wait.at_least |= own.at_least || member.is_queue() && share.queued > 0;
                    share.is_short |= cost(at) > member.available();
                    if own.us > wait.us {
                        (wait.us, by) = (own.us, at as u8);
                    }
                }
                wait.us = wait.us.max(1);
            }
            if wait.us > max_wait_ms.saturating_mul(1000) || is_granted_later {
                push_outcome(&mut outcomes, count, Outcome::RefusedBy(by, wait));
                break;
            }
            let n = if is_exact { 1 } else { count };
            push_outcome(&mut outcomes, n, Outcome::Waiting(wait));
            for (at, share) in shares.iter_mut().enumerate() {
                share.queued = share.queued.saturating_add(n.saturating_mul(cost(at)));
            }
            (waits, blocked, count) = (true, (wait, by), count - n);
        }
    }
    (outcomes, shares)
}
