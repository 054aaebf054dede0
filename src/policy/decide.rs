//! Requests that take from one or several limiters, one after the other: each gets what it asks for from all of them,
//! or nothing from any.
//!
//! The twin of `lua/policy/decide.lua`.

use super::frame::Limiter;
use crate::store::{Outcome, OutcomeGroup, PolicyCall, RequestGroup, Wait, push_outcome};

/// The number of requests behind a waiting one whose waits are exact.
const EXACT_WAITS: u32 = 16;

#[derive(Clone, Default)]
pub(crate) struct Share {
    pub(crate) granted: u64,
    /// The permits of the requests that wait.
    queued: u64,
    /// A request was denied that it could not have granted even if no other waited before.
    pub(crate) is_short: bool,
}

/// Decides the requests of a call for these limiters. Of a call that was decided before, what it was granted is granted
/// again: each limiter that still has the record has that much.
pub(crate) fn decide(
    limiters: &mut [Limiter],
    PolicyCall { limits, is_group, .. }: &PolicyCall,
) -> (Vec<OutcomeGroup>, Vec<Share>) {
    let (mut outcomes, mut shares) = (Vec::new(), vec![Share::default(); limiters.len()]);
    // A queue by itself grants requests with their starts, up to its longest delay.
    let max_delay =
        limiters[0].policy.as_queue().filter(|_| !is_group).map(|queue| queue.max_delay);
    // What the records still have.
    let mut rests: Vec<Option<u64>> =
        limiters.iter().map(|it| Some(it.replay.as_ref()?.total)).collect();
    let is_replay = rests.iter().any(Option::is_some);
    // Whether a request waits, its wait and the limiter with the longest one, and the number of waits computed for
    // those behind.
    let (mut waits, mut blocked, mut exact) = (false, (Wait::of_ms(0, true), 0), 0);
    for (k, &RequestGroup { max_wait_ms, mut count, .. }) in limits[0].groups.iter().enumerate() {
        let cost = |at: usize| limits[at].groups[k].permits;
        let longest = max_wait_ms.saturating_mul(1000);
        let delay = max_delay.map_or(0, |most| longest.min(most));
        while max_delay.is_some() && !waits && count > 0 {
            let requests = RequestGroup { permits: cost(0), max_wait_ms, count };
            let granted = limiters[0].schedule(&mut rests[0], requests, delay);
            if granted.is_empty() {
                break;
            }
            count -= granted.len() as u64;
            shares[0].granted += granted.len() as u64 * cost(0);
            outcomes.extend(granted);
        }
        loop {
            let fits = limiters.iter().zip(&rests).enumerate().map(|(at, (limiter, rest))| {
                let free = if is_replay { rest.unwrap_or(u64::MAX) } else { limiter.available() };
                let fit = free / cost(at);
                // Each grant of a queue delays the next one.
                if limiter.policy.is_queue() && !is_replay { fit.min(1) } else { fit }
            });
            let fit = fits.fold(if waits || max_delay.is_some() { 0 } else { count }, u64::min);
            if fit == 0 {
                break;
            }
            for (at, (limiter, share)) in limiters.iter_mut().zip(&mut shares).enumerate() {
                match &mut rests[at] {
                    Some(rest) => *rest -= fit * cost(at),
                    None if is_replay => {}
                    None => limiter.take(fit * cost(at)),
                }
                share.granted += fit * cost(at);
            }
            push_outcome(&mut outcomes, fit, Outcome::Granted);
            count -= fit;
        }
        if limiters.iter().enumerate().any(|(at, it)| cost(at) > it.rules().limit()) {
            push_outcome(&mut outcomes, count, Outcome::ExceedsRate);
            continue;
        }
        // With grants to follow it did not wait the first time, or it would have blocked them.
        let is_granted_later = rests.iter().flatten().any(|rest| *rest > 0);
        while count > 0 {
            let mut limits = shares.iter().zip(&*limiters);
            let is_exact = exact < EXACT_WAITS
                && limits.all(|(share, limiter)| share.queued < limiter.rules().limit());
            let (mut wait, mut by) = (Wait { at_least: true, ..blocked.0 }, blocked.1);
            if is_exact {
                (wait, by) = (Wait { us: 0, at_least: false }, 0);
                exact += u32::from(waits);
                for (at, (limiter, share)) in limiters.iter().zip(&mut shares).enumerate() {
                    let own = limiter.wait(cost(at), share.queued);
                    // Others may delay those before it.
                    let is_unsure = *is_group && limiter.policy.is_queue() && share.queued > 0;
                    wait.at_least |= own.at_least || is_unsure;
                    share.is_short |= cost(at) > limiter.available();
                    if own.us > wait.us {
                        (wait.us, by) = (own.us, at as u8);
                    }
                }
            }
            let until = Wait { us: wait.us.saturating_sub(delay).max(1), ..wait };
            if until.us > longest - delay || is_granted_later {
                push_outcome(&mut outcomes, count, Outcome::Refused(until, by));
                break;
            }
            let n = if is_exact { 1 } else { count };
            push_outcome(&mut outcomes, n, Outcome::Waiting(until));
            for (at, share) in shares.iter_mut().enumerate() {
                share.queued = share.queued.saturating_add(n.saturating_mul(cost(at)));
            }
            (waits, blocked, count) = (true, (wait, by), count - n);
        }
    }
    (outcomes, shares)
}
