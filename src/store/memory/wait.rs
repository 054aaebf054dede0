//! The wait of a request: reads the log, oldest first, until enough permits have expired.
//!
//! `lua/part/wait.lua` is its twin.

use crate::error::Error;
use crate::store::Wait;
use crate::store::limits::SHORT_LOG;
use crate::store::memory::live_log::LiveLog;

/// The longest wait: the servers' Lua numbers are not exact above it.
const LONGEST: i64 = crate::rate::MAX_EXACT as i64;

/// The result of a search through the entries.
#[derive(Clone, Copy)]
struct Found {
    /// The date at which there are enough permits; `None` if there never are.
    date: Option<i64>,
    /// Whether the date is only that of the last entry looked at.
    is_bound: bool,
    sum: i64,
}

impl LiveLog<'_, '_> {
    /// The time until `permits` more have expired; `granted` is this call's grant, after its date.
    pub(crate) fn wait_for(&self, permits: i64, granted: (i64, i64)) -> Result<Wait, Error> {
        if permits <= 0 {
            return Ok(Wait::of_ms(1, false));
        }
        let Found { date, is_bound, sum } = self.find_score(permits, SHORT_LOG, granted)?;
        if let Some(date) = date {
            return Ok(self.until(date, 0, is_bound));
        }
        // Permits beyond those in the log can only come from later intervals, a full rate each.
        let (over, rate) = (permits.saturating_sub(sum), self.limiter.rate);
        let intervals = over / rate + i64::from(over % rate > 0);
        let left = permits.saturating_sub(intervals.saturating_mul(rate));
        let date = match left > 0 {
            true => self.find_score(left, SHORT_LOG, granted)?.date,
            false => None,
        };
        let now = self.t.saturating_sub(self.limiter.interval);
        Ok(self.until(date.unwrap_or(now), intervals, true))
    }

    /// The date of the entry with which `permits` more expire, without a grant; `None` if there are too few.
    pub(crate) fn date_of(&self, permits: i64) -> Result<Option<i64>, Error> {
        Ok(self.find_score(permits, usize::MAX, (self.t, 0))?.date)
    }

    fn until(&self, score: i64, intervals: i64, at_least: bool) -> Wait {
        let ms = score.saturating_add(self.limiter.interval).saturating_sub(self.t);
        let ms = ms.saturating_add(intervals.saturating_mul(self.limiter.interval));
        Wait::of_ms(ms.clamp(1, LONGEST) as u64, at_least)
    }

    /// The date of the entry that completes `needed` permits, looking at the first `most` entries.
    fn find_score(
        &self,
        needed: i64,
        most: usize,
        (granted_date, granted): (i64, i64),
    ) -> Result<Found, Error> {
        let (mut date, mut sum) = self.find_date(needed, most, 0, i64::MIN)?;
        let is_found = date.is_some();
        // The debt and the grant count from their own dates, which may be later than the date found without
        // them.
        for (more, dated) in [(self.debt, self.t), (self.debt + granted, granted_date)] {
            if self.debt + granted > 0 {
                let (with_more, all) = self.find_date(needed, most, more, dated)?;
                date = with_more.map(|with_more| with_more.min(date.unwrap_or(with_more)));
                sum = all;
            }
        }
        let mut last_and_more = self.iter().skip(most - 1).map(|(score, ..)| score);
        if let (false, Some(last), Some(_)) = (is_found, last_and_more.next(), last_and_more.next())
            && date.is_none_or(|date| date > last)
        {
            return Ok(Found { date: Some(last), is_bound: true, sum });
        }
        Ok(Found { date, is_bound: false, sum })
    }

    /// The date at which the oldest entries (looking at the first `most`) and `more` permits of the date
    /// `dated` reach `needed` together, or `None` if they never do; and the sum that they reach.
    fn find_date(
        &self,
        needed: i64,
        most: usize,
        more: i64,
        dated: i64,
    ) -> Result<(Option<i64>, i64), Error> {
        let (mut sum, mut date) = (more, dated);
        for (score, _, permits) in self.iter().take(most) {
            if sum >= needed {
                break;
            }
            sum += permits?;
            date = score.max(dated);
        }
        Ok(((sum >= needed).then_some(date), sum))
    }
}
