//! The rolling window: permits are counted in buckets, each of which leaves when its youngest permit is as old as
//! the window.
//!
//! The twin of `lua/policy/rolling.lua`.

use super::frame::{Bad, Mark, Rules, is_permits, is_span, parameters, whole};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rolling {
    pub(crate) limit: u64,
    pub(crate) width: u64,
    /// 1 to 100, and a divisor of the width.
    pub(crate) buckets: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The number of the newest bucket since 1970.
    newest: i64,
    /// The permits used in each, the newest first, without zeros at the end.
    counts: Vec<u64>,
}

impl Counts {
    fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn trim(&mut self) {
        let used = self.counts.iter().rposition(|count| *count > 0);
        self.counts.truncate(used.map_or(0, |last| last + 1));
    }
}

impl Rolling {
    pub(crate) fn is_valid(&self) -> bool {
        is_permits(self.limit)
            && is_span(self.width)
            && (1..=100).contains(&self.buckets)
            && self.width.is_multiple_of(self.buckets)
    }

    fn length(&self) -> i64 {
        (self.width / self.buckets) as i64
    }

    /// The buckets that count: those that the window overlaps.
    fn live(&self) -> i64 {
        self.buckets as i64 + 1
    }
}

impl Rules for Rolling {
    const NAMES: &'static [&'static str] = &["i", "w"];
    type State = Counts;

    fn text(&self) -> String {
        format!("r1:{},{},{}", self.limit, self.width, self.buckets)
    }

    fn parse(text: &str) -> Option<Self> {
        let [limit, width, buckets] = parameters(text, "r1:")?;
        Some(Rolling { limit, width, buckets }).filter(Rolling::is_valid)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.width
    }

    fn read(&self, texts: &[&str]) -> Result<Counts, Bad> {
        let newest = whole(texts[0]).ok_or(0_usize)? as i64;
        let counts = texts[1].split(',').filter(|_| !texts[1].is_empty()).map(whole);
        match counts.collect::<Option<Vec<u64>>>() {
            Some(counts) if counts.len() as i64 <= self.live() => Ok(Counts { newest, counts }),
            _ => Err(1),
        }
    }

    fn write(&self, state: &Counts) -> Vec<String> {
        let counts: Vec<String> = state.counts.iter().map(u64::to_string).collect();
        vec![state.newest.to_string(), counts.join(",")]
    }

    fn roll(&self, state: Option<Counts>, now: i64) -> Counts {
        let newest = now.div_euclid(self.length());
        let Some(mut state) = state else { return Counts { newest, counts: Vec::new() } };
        let ahead = newest - state.newest;
        if ahead > 0 {
            let empty = ahead.min(self.live()) as usize;
            state.counts.splice(..0, std::iter::repeat_n(0, empty));
            state.counts.truncate(self.live() as usize);
        }
        if ahead > 0 || ahead < -self.live() {
            // The latter if the clock went back.
            state.newest = newest;
        }
        state.trim();
        state
    }

    fn available(&self, state: &Counts, _: i64) -> u64 {
        self.limit.saturating_sub(state.sum())
    }

    fn take(&self, state: &mut Counts, _: i64, permits: u64) {
        if state.counts.is_empty() {
            state.counts.push(0);
        }
        state.counts[0] += permits;
        state.trim();
    }

    fn wait(&self, state: &Counts, now: i64, permits: u64) -> i64 {
        let (mut left, mut age) = (state.sum(), state.counts.len().saturating_sub(1));
        while age > 0 && left - state.counts[age] + permits > self.limit {
            left -= state.counts[age];
            age -= 1;
        }
        (state.newest - age as i64 + self.live()) * self.length() - now
    }

    fn mark(&self, state: &Counts) -> Mark {
        (state.newest, 0)
    }

    fn give(&self, state: &mut Counts, _: i64, (bucket, _): Mark, permits: u64) -> u64 {
        let age = usize::try_from(state.newest - bucket).ok();
        let Some(count) = age.and_then(|age| state.counts.get_mut(age)) else { return 0 };
        let credit = permits.min(*count);
        *count -= credit;
        state.trim();
        credit
    }

    fn ttl(&self, state: &Counts, now: i64) -> i64 {
        (state.newest + self.live()) * self.length() - now
    }

    fn change(&self, old: &Self, state: &mut Counts, now: i64, scaled: &dyn Fn(u64) -> u64) {
        if old.length() != self.length() {
            *state = Counts { newest: now.div_euclid(self.length()), counts: vec![state.sum()] };
        }
        state.counts.truncate(self.live() as usize);
        state.counts.iter_mut().for_each(|count| *count = scaled(*count));
        state.trim();
    }
}
