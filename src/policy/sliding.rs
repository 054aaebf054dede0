//! The sliding counter: the window before counts by the part of it that still overlaps.
//!
//! The twin of `lua/policy/sliding.lua`.

use super::frame::{Bad, Mark, Rules, is_permits, is_span, numbers, parameters};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sliding {
    pub(crate) limit: u64,
    pub(crate) width: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The start of the current window.
    start: i64,
    /// The permits used in the window before.
    before: u64,
    used: u64,
}

impl Sliding {
    /// The microseconds of a tick, by which parts of a window are counted: limit times ticks stays below 2^52, so
    /// that it is exact on a server.
    pub(crate) fn tick(&self) -> u64 {
        let is_exact = |tick: &u64| {
            u128::from(self.limit) * u128::from(self.width) < (1 << 52) * u128::from(*tick)
        };
        (0..).map(|power| 10_u64.pow(power)).find(is_exact).expect("it grows")
    }

    fn ticks(&self) -> u64 {
        self.width / self.tick()
    }

    fn start(&self, now: i64) -> i64 {
        now - now.rem_euclid(self.width as i64)
    }

    fn weighed(&self, permits: u64, part: u64, whole: u64) -> i64 {
        let part = (u128::from(permits) * u128::from(part)) / u128::from(whole.max(1));
        part.min(1 << 60) as i64
    }
}

impl Rules for Sliding {
    const NAMES: &'static [&'static str] = &["s", "a", "n"];
    type State = Counts;

    fn text(&self) -> String {
        format!("s1:{},{}", self.limit, self.width)
    }

    fn parse(text: &str) -> Option<Self> {
        let [limit, width] = parameters(text, "s1:")?;
        let rules = Sliding { limit, width };
        (is_permits(limit) && is_span(width) && width.is_multiple_of(rules.tick())).then_some(rules)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.width
    }

    fn read(&self, texts: &[&str]) -> Result<Counts, Bad> {
        let [start, before, used] = numbers(texts)?;
        Ok(Counts { start: start as i64, before, used })
    }

    fn write(&self, state: &Counts) -> Vec<String> {
        vec![state.start.to_string(), state.before.to_string(), state.used.to_string()]
    }

    fn roll(&self, state: Option<Counts>, now: i64) -> Counts {
        let (start, width) = (self.start(now), self.width as i64);
        match state {
            Some(counts) if start - counts.start == width => {
                Counts { start, before: counts.used, used: 0 }
            }
            // The clock went back.
            Some(counts) if counts.start - now > width => {
                Counts { start, before: 0, used: counts.before + counts.used }
            }
            Some(counts) if start <= counts.start => counts,
            _ => Counts { start, before: 0, used: 0 },
        }
    }

    fn available(&self, state: &Counts, now: i64) -> u64 {
        let ticks = self.ticks();
        let over = (now - state.start).max(0) as u64 / self.tick();
        let overlap = u128::from(state.before) * u128::from(ticks - over.min(ticks));
        let free = (u128::from(self.limit) * u128::from(ticks)).saturating_sub(overlap);
        ((free / u128::from(ticks)) as u64).saturating_sub(state.used)
    }

    fn take(&self, state: &mut Counts, _: i64, permits: u64) {
        state.used += permits;
    }

    fn wait(&self, state: &Counts, now: i64, permits: u64) -> i64 {
        let (tick, ticks) = (self.tick() as i64, self.ticks());
        let ticks_until = |room: u64, used: u64| ticks as i64 - self.weighed(room, ticks, used);
        match self.limit.checked_sub(state.used.saturating_add(permits)) {
            Some(room) => state.start + ticks_until(room, state.before) * tick - now,
            None => {
                let next = ticks_until(self.limit - permits, state.used).max(0);
                state.start + self.width as i64 + next * tick - now
            }
        }
    }

    fn mark(&self, state: &Counts) -> Mark {
        (state.start, 0)
    }

    fn give(&self, state: &mut Counts, _: i64, (start, _): Mark, permits: u64) -> u64 {
        let used = match state.start - start {
            0 => &mut state.used,
            width if width == self.width as i64 => &mut state.before,
            _ => return 0,
        };
        let credit = permits.min(*used);
        *used -= credit;
        credit
    }

    fn ttl(&self, state: &Counts, now: i64) -> i64 {
        state.start + 2 * self.width as i64 - now
    }

    fn change(&self, old: &Self, state: &mut Counts, now: i64, scaled: &dyn Fn(u64) -> u64) {
        if old.width == self.width {
            // Exact up to here; more than twice the limit can be no fuller.
            let most = ((1 << 53) - 1) / self.ticks();
            (state.before, state.used) =
                (scaled(state.before).min(most), scaled(state.used).min(most));
        } else {
            let used = scaled(old.limit - old.available(state, now));
            *state = Counts { start: self.start(now), before: 0, used };
        }
    }
}
