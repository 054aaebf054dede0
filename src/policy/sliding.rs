//! The sliding counter: the window before counts by the part of it that still overlaps.
//!
//! The twin of `lua/policy/sliding.lua`.

use super::frame::{Mark, Rules, State};

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
            Some(state) if state.x - now > width => new(0, state.y + state.z),
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
        self.overlap(state, now).div_ceil(u128::from(self.ticks())) as u64 + state.z
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
        // Exact up to here; more than twice the limit can be no fuller.
        let most = ((1 << 53) - 1) / self.ticks();
        (state.y, state.z) = (scaled(state.y).min(most), scaled(state.z).min(most));
    }
}
