//! Deciding the requests of a call, one after the other.
//!
//! `lua/part/decide.lua` is its twin.

use super::*;

/// Decides the requests, each of which takes from all limiters or from none. `share` limits those that can wait.
/// `is_overtaken`: another attempt was granted what is free; those that got nothing from it are refused again. If an
/// expired entry is left in a log, requests that do not fit are left undecided.
pub(super) fn decide(
    limits: &mut [OpenLimiter<'_, '_>],
    mut share: Option<ClientShare>,
    is_overtaken: bool,
) -> Result<Vec<OutcomeGroup>, Error> {
    let mut outcomes = Vec::new();
    let is_settled = is_overtaken || limits.iter().all(|limit| limit.live.is_settled);
    let (mut waiting, mut undecided) = (0, false);
    let (mut last, mut by) = (Wait::of_ms(1, true), 0);
    for k in 0..limits[0].asked.groups.len() {
        let RequestGroup { max_wait_ms, mut count, .. } = limits[0].asked.groups[k];
        if !undecided && limits.iter().any(|limit| limit.permits(k) > limit.most()) {
            push_outcome(&mut outcomes, count, Outcome::ExceedsRate);
            continue;
        }
        // Behind requests that wait although they fit there may be room for requests that cannot wait that long.
        let queued = limits[0].queued;
        if !undecided && (queued == 0 || share.is_some() && queued < limits[0].free) {
            let mut fit = fitting(limits, k, count);
            if let Some(share) = share.as_mut().filter(|share| max_wait_ms >= share.hold_ms) {
                fit = if queued > 0 { 0 } else { share.take(limits[0].permits(k), fit) };
            }
            for limit in &mut *limits {
                let permits = limit.permits(k) * fit as i64;
                (limit.free, limit.granted) = (limit.free - permits, limit.granted + permits);
            }
            push_outcome(&mut outcomes, fit, Outcome::Granted);
            count -= fit;
            undecided = count > 0 && !is_settled;
            if let Some(share) = &share {
                // Requests that fit but exceed the share.
                let held = fitting(limits, k, count);
                let wait = Wait::of_ms(share.hold_ms, true);
                push_outcome(&mut outcomes, held, Outcome::Waiting(wait));
                limits.iter_mut().for_each(|limit| limit.queue(k, held));
                count -= held;
            }
        }
        if undecided {
            push_outcome(&mut outcomes, count, Outcome::Undecided);
            continue;
        }
        while count > 0 {
            let is_exact = waiting < EXACT_WAITS;
            let wait = match is_exact {
                _ if is_overtaken => Wait::of_ms(1, true),
                true => longest_wait(limits, k, &mut by)?,
                false => Wait { at_least: true, ..last },
            };
            if max_wait_ms < wait.ms() || is_overtaken {
                // A refused request blocks no others, so the next one like it has the same wait.
                push_outcome(&mut outcomes, count, Outcome::Refused(wait, by));
                break;
            }
            let several = if is_exact { 1 } else { count };
            push_outcome(&mut outcomes, several, Outcome::Waiting(wait));
            limits.iter_mut().for_each(|limit| limit.queue(k, several));
            (last, waiting, count) = (wait, waiting + 1, count - several);
        }
    }
    Ok(outcomes)
}

/// How many of the requests fit behind the waiting ones.
fn fitting(limits: &[OpenLimiter<'_, '_>], k: usize, count: u64) -> u64 {
    let fit = |limit: &OpenLimiter<'_, '_>| {
        ((limit.free - limit.queued) / limit.permits(k)).max(0) as u64
    };
    limits.iter().map(fit).fold(count, u64::min)
}

/// How long a request has to wait until all limiters have its permits, and for which longest. It may take longer
/// if one of them may.
fn longest_wait(limits: &[OpenLimiter<'_, '_>], k: usize, by: &mut u8) -> Result<Wait, Error> {
    let mut longest = Wait::of_ms(0, false);
    for (at, limit) in limits.iter().enumerate() {
        let lacking = limit.queued.saturating_add(limit.permits(k)).saturating_sub(limit.free);
        if lacking > 0 {
            let wait = limit.live.wait_for(lacking, (limit.date, limit.granted));
            let wait = wait.map_err(|error| limit.call.named(limit.asked, error))?;
            longest.at_least |= wait.at_least;
            if wait.us > longest.us {
                (longest.us, *by) = (wait.us, at as u8);
            }
        }
    }
    Ok(Wait { us: longest.us.max(1000), ..longest })
}

impl OpenLimiter<'_, '_> {
    /// The most permits that a request can be granted.
    pub(super) fn most(&self) -> i64 {
        self.live.limiter.rate - self.headroom
    }

    /// What each request of the k-th group asks of this limiter.
    fn permits(&self, k: usize) -> i64 {
        i64::try_from(self.asked.groups[k].permits).unwrap_or(i64::MAX)
    }

    fn queue(&mut self, k: usize, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.queued = self.queued.saturating_add(self.permits(k).saturating_mul(count));
    }
}
