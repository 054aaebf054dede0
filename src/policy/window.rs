//! Windows: fixed ones on a grid, those of the calendar, those that the first grant opens, and two that slide.
//!
//! The twin of `window.lua`, `sliding.lua` and `rolling.lua` in `lua/policy`.

use std::iter::repeat_n;

use super::calendar::Calendar;
use super::frame::{Mark, Rules, State};
use super::packed::{PERMITS, WIDE};

/// One window after the other.
///
/// State: the window ends at `x`, 0 if none is open; `y` permits are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) limit: u64,
    pub(crate) grid: Grid,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Grid {
    /// Windows of one width, one of which begins at `offset`.
    Even {
        width: u64,
        offset: u64,
    },
    /// Windows of one width, each of which begins with the first grant.
    Anchored {
        width: u64,
    },
    Calendar(Calendar),
}

impl Window {
    /// The end and the width of the window that this time is in, or that a grant would open now.
    fn bounds(&self, now: i64) -> (i64, i64) {
        match &self.grid {
            Grid::Even { width, offset } => {
                let (width, offset) = (*width as i64, *offset as i64);
                (((now - offset).div_euclid(width) + 1) * width + offset, width)
            }
            Grid::Anchored { width } => (now + *width as i64, *width as i64),
            Grid::Calendar(calendar) => {
                let (from, to) = calendar.window(now);
                (to, to - from)
            }
        }
    }

    fn end(&self, now: i64) -> i64 {
        self.bounds(now).0
    }

    fn opens(&self) -> bool {
        matches!(self.grid, Grid::Anchored { .. })
    }
}

impl Rules for Window {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.bounds(0).1 as u64
    }

    fn sizes(&self) -> Vec<usize> {
        vec![WIDE; 2]
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        match state.filter(|state| now < state.x) {
            None => State { x: if self.opens() { 0 } else { self.end(now) }, ..State::default() },
            // The clock went back.
            Some(state) if state.x - now > 2 * self.bounds(now).1 => {
                State { x: self.end(now), is_behind: true, ..state }
            }
            Some(state) => state,
        }
    }

    fn available(&self, state: &State, _: i64) -> u64 {
        self.limit.saturating_sub(state.y)
    }

    fn take(&self, state: &mut State, now: i64, permits: u64) {
        if state.x == 0 && permits > 0 {
            state.x = self.end(now);
        }
        state.y += permits;
    }

    fn wait(&self, state: &State, now: i64, _: u64) -> i64 {
        state.x - now
    }

    fn give(&self, state: &mut State, _: i64, (end, _): Mark, permits: u64) -> u64 {
        let credit = if end == state.x { permits.min(state.y) } else { 0 };
        state.y -= credit;
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        state.x
    }

    fn change(&self, _: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let end = self.end(now);
        state.x = if self.opens() { state.x.min(end) } else { end };
        state.y = scaled(state.y);
    }
}

/// The sliding counter: the window before counts by the part of it that still overlaps.
///
/// State: `x` is the start of the current window; `y` permits were used in the one before, `z` in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sliding {
    pub(crate) limit: u64,
    pub(crate) width: u64,
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

    /// The permits that count of the window before, times the ticks of a window.
    fn overlap(&self, state: &State, now: i64) -> u128 {
        let over = (now - state.x).max(0) as u64 / self.tick();
        u128::from(state.y) * u128::from(self.ticks().saturating_sub(over))
    }

    fn weighed(&self, permits: u64, part: u64, whole: u64) -> i64 {
        let part = (u128::from(permits) * u128::from(part)) / u128::from(whole.max(1));
        part.min(1 << 60) as i64
    }
}

impl Rules for Sliding {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.width
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let (start, width) = (self.start(now), self.width as i64);
        let new = |y, z| State { x: start, y, z, ..State::default() };
        match state {
            Some(state) if start - state.x == width => new(state.z, 0),
            // The clock went back.
            Some(state) if state.x - now > width => {
                State { is_behind: true, ..new(0, state.y + state.z) }
            }
            Some(state) if start <= state.x => state,
            _ => new(0, 0),
        }
    }

    fn available(&self, state: &State, now: i64) -> u64 {
        let ticks = u128::from(self.ticks());
        let free = (u128::from(self.limit) * ticks).saturating_sub(self.overlap(state, now));
        ((free / ticks) as u64).saturating_sub(state.z)
    }

    fn used(&self, state: &State, now: i64) -> u64 {
        let counts = self.overlap(state, now);
        // Without a product that is exact on a server all of them count; there are more than twice the limit.
        let is_exact = counts < 1 << 53;
        let before = if is_exact { counts.div_ceil(self.ticks().into()) as u64 } else { state.y };
        before + state.z
    }

    fn take(&self, state: &mut State, _: i64, permits: u64) {
        state.z += permits;
    }

    fn wait(&self, state: &State, now: i64, permits: u64) -> i64 {
        let (tick, ticks) = (self.tick() as i64, self.ticks());
        let ticks_until = |room: u64, used: u64| ticks as i64 - self.weighed(room, ticks, used);
        match self.limit.checked_sub(state.z.saturating_add(permits)) {
            Some(room) => state.x + ticks_until(room, state.y) * tick - now,
            None => {
                let next = ticks_until(self.limit - permits, state.z).max(0);
                state.x + self.width as i64 + next * tick - now
            }
        }
    }

    fn give(&self, state: &mut State, _: i64, (start, _): Mark, permits: u64) -> u64 {
        let used = match state.x - start {
            0 => &mut state.z,
            width if width == self.width as i64 => &mut state.y,
            _ => return 0,
        };
        let credit = permits.min(*used);
        *used -= credit;
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        state.x + 2 * self.width as i64
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        if old.window() != self.width {
            let used = old.used(state, now);
            *state = State { x: self.start(now), z: used, ..State::default() };
        }
        (state.y, state.z) = (scaled(state.y), scaled(state.z));
    }
}

/// The rolling window: permits are counted in buckets, each of which leaves when its youngest permit is as old as the
/// window.
///
/// State: `x` is the number of the newest bucket since 1970; `y` is the sum of all counts; `older` has those of the
/// earlier buckets, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rolling {
    pub(crate) limit: u64,
    pub(crate) width: u64,
    /// 1 to 100, and a divisor of the width.
    pub(crate) buckets: u64,
}

impl Rolling {
    fn length(&self) -> i64 {
        (self.width / self.buckets) as i64
    }

    /// The buckets that count: those that the window overlaps.
    fn live(&self) -> i64 {
        self.buckets as i64 + 1
    }

    /// The state with these counts, the newest first.
    fn state(&self, x: i64, counts: impl IntoIterator<Item = u64>) -> State {
        let mut counts: Vec<u64> = counts.into_iter().collect();
        counts.resize(self.live() as usize, 0);
        State { x, y: counts.iter().sum(), older: counts.split_off(1), ..State::default() }
    }
}

/// All counts, the newest first.
fn counts(state: &State) -> impl Iterator<Item = u64> {
    let newest = state.y - state.older.iter().sum::<u64>();
    [newest].into_iter().chain(state.older.iter().copied())
}

impl Rules for Rolling {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.width
    }

    fn sizes(&self) -> Vec<usize> {
        [WIDE, 5].into_iter().chain(repeat_n(PERMITS, self.older())).collect()
    }

    fn older(&self) -> usize {
        self.buckets as usize
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let newest = now.div_euclid(self.length());
        let Some(state) = state else { return self.state(newest, []) };
        match newest - state.x {
            ahead @ 1.. => {
                let empty = ahead.min(self.live()) as usize;
                self.state(newest, repeat_n(0, empty).chain(counts(&state)))
            }
            // The clock went back.
            ahead if ahead < -self.live() => State { x: newest, is_behind: true, ..state },
            _ => state,
        }
    }

    fn available(&self, state: &State, _: i64) -> u64 {
        self.limit.saturating_sub(state.y)
    }

    fn take(&self, state: &mut State, _: i64, permits: u64) {
        state.y += permits;
    }

    fn wait(&self, state: &State, now: i64, permits: u64) -> i64 {
        let (mut left, mut age) = (state.y, state.older.len());
        while age > 0 && left - state.older[age - 1] + permits > self.limit {
            left -= state.older[age - 1];
            age -= 1;
        }
        (state.x - age as i64 + self.live()) * self.length() - now
    }

    fn give(&self, state: &mut State, _: i64, (bucket, _): Mark, permits: u64) -> u64 {
        let mut counts: Vec<u64> = counts(state).collect();
        let age = usize::try_from(state.x - bucket).ok();
        let Some(count) = age.and_then(|age| counts.get_mut(age)) else { return 0 };
        let credit = permits.min(*count);
        *count -= credit;
        *state = self.state(state.x, counts);
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        (state.x + self.live()) * self.length()
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let length = (old.window() / old.older() as u64) as i64;
        *state = match length == self.length() {
            true => {
                let kept = counts(state).take(self.live() as usize);
                self.state(state.x, kept.map(scaled).collect::<Vec<_>>())
            }
            false => self.state(now.div_euclid(self.length()), [scaled(state.y)]),
        };
    }
}
