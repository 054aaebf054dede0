//! Windows: fixed ones on a grid, those of the calendar, and those that the first grant opens.
//!
//! The twin of `lua/policy/window.lua`.

use super::calendar::Calendar;
use super::frame::{Mark, Rules, State};
use super::packed::WIDE;

/// State: the window ends at `x`, 0 if none is open; `y` permits are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) limit: u64,
    pub(crate) grid: Grid,
}

/// Where windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Grid {
    /// Windows of one width, one of which begins at `offset`.
    Even { width: u64, offset: u64 },
    /// Windows of one width, each of which begins with the first grant.
    Anchored { width: u64 },
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

    /// Whether a window opens with a grant.
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
                State { x: self.end(now), ..state }
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
