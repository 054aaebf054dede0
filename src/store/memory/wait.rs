//! The wait of a request: reads the log, oldest first, until enough permits have expired; and permits set aside for a
//! large request, as otherwise others would take them one by one as they come back.
//!
//! `lua/part/wait.lua` and `lua/part/reserve.lua` are its twins.

use super::*;

/// The longest wait: the servers' Lua numbers are not exact above it.
const LONGEST: i64 = MAX_EXACT as i64;

impl LiveLog<'_, '_> {
    /// The time until `permits` more have expired; `granted` is this call's grant, after its date.
    pub(crate) fn wait_for(&self, permits: i64, granted: (i64, i64)) -> Result<Wait, Error> {
        if permits <= 0 {
            return Ok(Wait::of_ms(1, false));
        }
        let (date, is_bound, sum) = self.find_score(permits, SHORT_LOG, granted)?;
        if let Some(date) = date {
            return Ok(self.until(date, 0, is_bound));
        }
        // Permits beyond those in the log can only come from later intervals, a full rate each.
        let (over, rate) = (permits.saturating_sub(sum), self.limiter.rate);
        let intervals = over / rate + i64::from(over % rate > 0);
        let left = permits.saturating_sub(intervals.saturating_mul(rate));
        let date = match left > 0 {
            true => self.find_score(left, SHORT_LOG, granted)?.0,
            false => None,
        };
        let now = self.t.saturating_sub(self.limiter.interval);
        Ok(self.until(date.unwrap_or(now), intervals, true))
    }

    fn until(&self, score: i64, intervals: i64, at_least: bool) -> Wait {
        let ms = score.saturating_add(self.limiter.interval).saturating_sub(self.t);
        let ms = ms.saturating_add(intervals.saturating_mul(self.limiter.interval));
        Wait::of_ms(ms.clamp(1, LONGEST) as u64, at_least)
    }

    /// The date at which `needed` permits have expired, looking at the first `most` entries. The debt and the grant
    /// count from their own dates, which may be later than those of entries. `None` if there are too few. Then whether
    /// it is only the date of the last entry looked at, and the sum of all permits.
    fn find_score(
        &self,
        needed: i64,
        most: usize,
        granted: (i64, i64),
    ) -> Result<(Option<i64>, bool, i64), Error> {
        let (mut dated, mut in_log) = (vec![(self.t, self.changes.debt), granted], 0);
        for (score, _, permits) in self.iter().take(most) {
            if in_log >= needed {
                break;
            }
            let permits = permits?;
            in_log += permits;
            dated.push((score, permits));
        }
        dated.sort_unstable();
        let mut sum = 0;
        let completing = dated.into_iter().find(|(_, permits)| {
            sum += permits;
            sum >= needed
        });
        let date = completing.map(|(date, _)| date);
        let mut last_and_more = self.iter().skip(most - 1).map(|(score, ..)| score);
        if let (true, Some(last), Some(_)) =
            (in_log < needed, last_and_more.next(), last_and_more.next())
            && date.is_none_or(|date| date > last)
        {
            return Ok((Some(last), true, sum));
        }
        Ok((date, false, sum))
    }
}

/// The time in ms until the permits to be reserved are free, of which only `free` are now. `None` if somebody else
/// has a reservation, or it would take too long: longer than the request can wait, or longer than an interval, with
/// some allowance for clients whose clocks are ahead.
pub(super) fn find_reservation(
    live: &LiveLog<'_, '_>,
    permits: i64,
    free: i64,
    max_wait_ms: u64,
) -> Result<Option<i64>, Error> {
    let (t, interval) = (live.t, live.limiter.interval);
    let is_reserved = |member: &[u8]| unpack(member).is_some_and(|(id, _)| is_reserved(id));
    let kept_since = t.saturating_sub(RESERVATION_KEPT_MS.min(interval));
    let is_kept = live.iter().any(|(score, member, _)| score > kept_since && is_reserved(member));
    if free < 0 || is_kept {
        return Ok(None);
    }
    let (date, ..) = live.find_score(permits - free, usize::MAX, (t, 0))?;
    let longest = interval.saturating_add(interval / 8).min(LONGEST_RESERVATION_MS);
    let longest = longest.min(i64::try_from(max_wait_ms).unwrap_or(i64::MAX));
    let wait = date.map(|date| date.saturating_add(interval).saturating_sub(t));
    Ok(wait.filter(|wait| *wait <= longest))
}
