//! How long a request has to wait: the log read oldest first until enough permits have expired.
//!
//! `lua/part/wait.lua` is its twin.

use crate::error::Error;
use crate::store::Wait;
use crate::store::limits::SHORT_LOG;

/// No wait is longer: the servers' Lua numbers are not exact above it.
const LONGEST: i64 = crate::rate::MAX_EXACT as i64;

/// Reads the log once, as far as the waits of one call need it.
pub(crate) struct WaitScan<I> {
    entries: I,
    /// What was read: score and permits.
    read: Vec<(i64, i64)>,
    ended: bool,
    /// There are more entries than one call reads.
    cut: bool,
    t: i64,
    interval: i64,
    rate: i64,
}

impl<I: Iterator<Item = Result<(i64, i64), Error>>> WaitScan<I> {
    /// `entries` are the scores and permits in the log, oldest first, without this call's own.
    pub(crate) fn new(entries: I, t: i64, interval: i64, rate: i64) -> Self {
        WaitScan { entries, read: Vec::new(), ended: false, cut: false, t, interval, rate }
    }

    /// When `permits` more will have expired; `own` is what this call grants, with its date.
    pub(crate) fn wait_for(&mut self, permits: i64, own: (i64, i64)) -> Result<Wait, Error> {
        if permits <= 0 {
            return Ok(Wait { ms: 1, at_least: false });
        }
        let sum = match self.find_score(permits, own)? {
            Found::At(score) => return Ok(self.until(score, 0, false)),
            Found::After(score) => return Ok(self.until(score, 0, true)),
            Found::Sum(sum) => sum,
        };
        // More than the log holds can only come from later intervals, a full rate each.
        let over = permits.saturating_sub(sum);
        let intervals = over / self.rate + i64::from(over % self.rate > 0);
        let left = permits.saturating_sub(intervals.saturating_mul(self.rate));
        Ok(match self.find_score(left, own)? {
            Found::At(score) | Found::After(score) if left > 0 => {
                self.until(score, intervals, true)
            }
            _ => self.until(self.t.saturating_sub(self.interval), intervals, true),
        })
    }

    fn until(&self, score: i64, intervals: i64, at_least: bool) -> Wait {
        let ms = score.saturating_add(self.interval).saturating_sub(self.t);
        let ms = ms.saturating_add(intervals.saturating_mul(self.interval));
        Wait { ms: ms.clamp(1, LONGEST) as u64, at_least }
    }

    /// The entry with which the sum of the oldest reaches `permits`.
    fn find_score(&mut self, permits: i64, (own_score, own): (i64, i64)) -> Result<Found, Error> {
        let mut sum = 0;
        let mut own = Some(own).filter(|own| *own > 0);
        for at in 0.. {
            let next = self.entry(at)?;
            if let Some(permits_of_own) = own
                && next.map_or(self.ended, |(score, _)| own_score <= score)
            {
                own = None;
                sum += permits_of_own;
                if sum >= permits {
                    return Ok(Found::At(own_score));
                }
            }
            match next {
                Some((score, permits_of_next)) => {
                    sum += permits_of_next;
                    if sum >= permits {
                        return Ok(Found::At(score));
                    }
                }
                None if self.ended => break,
                None => return Ok(Found::After(self.read[at - 1].0)),
            }
        }
        Ok(Found::Sum(sum))
    }

    /// The entry at this place; `None` behind the last one, or where the scan stops.
    fn entry(&mut self, at: usize) -> Result<Option<(i64, i64)>, Error> {
        if at == self.read.len() && !self.ended && !self.cut {
            match self.entries.next() {
                None => self.ended = true,
                Some(_) if at == SHORT_LOG => self.cut = true,
                Some(entry) => self.read.push(entry?),
            }
        }
        Ok(self.read.get(at).copied())
    }
}

enum Found {
    At(i64),
    /// Later than this, the score of the last entry that one call reads.
    After(i64),
    /// It is more than the whole log holds.
    Sum(i64),
}
