//! Fixed windows on a grid, and windows that the first grant opens.
//!
//! The twin of `lua/policy/window.lua`.

use super::frame::{Mark, Rules, State};
use super::packed::WIDE;

/// Where windows begin and end.
pub(crate) trait Grid: Clone + PartialEq {
    /// The end of the window that opens now, or is open.
    fn end(&self, now: i64) -> i64;

    /// The width of the window that ends then.
    fn width(&self, now: i64) -> i64;

    /// Whether a window opens with a grant.
    const OPENS: bool = false;
}

/// State: the window ends at `x`, 0 if none is open; `y` permits are used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window<G> {
    pub(crate) limit: u64,
    pub(crate) grid: G,
}

impl<G: Grid> Rules for Window<G> {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.grid.width(0) as u64
    }

    fn sizes(&self) -> Vec<usize> {
        vec![WIDE; 2]
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        match state.filter(|state| now < state.x) {
            None => State { x: if G::OPENS { 0 } else { self.grid.end(now) }, ..State::default() },
            // The clock went back.
            Some(state) if state.x - now > 2 * self.grid.width(now) => {
                State { x: self.grid.end(now), ..state }
            }
            Some(state) => state,
        }
    }

    fn available(&self, state: &State, _: i64) -> u64 {
        self.limit.saturating_sub(state.y)
    }

    fn take(&self, state: &mut State, now: i64, permits: u64) {
        if state.x == 0 && permits > 0 {
            state.x = self.grid.end(now);
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
        state.x = match (G::OPENS, state.x) {
            (true, end) => end.min(self.grid.end(now)),
            (false, _) => self.grid.end(now),
        };
        state.y = scaled(state.y);
    }
}

/// Windows of one width, one of which begins at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Even {
    pub(crate) width: u64,
    pub(crate) offset: u64,
}

impl Grid for Even {
    fn end(&self, now: i64) -> i64 {
        let (width, offset) = (self.width as i64, self.offset as i64);
        ((now - offset).div_euclid(width) + 1) * width + offset
    }

    fn width(&self, _: i64) -> i64 {
        self.width as i64
    }
}

/// Windows of one width, each of which begins with the first grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Anchored {
    pub(crate) width: u64,
}

impl Grid for Anchored {
    const OPENS: bool = true;

    fn end(&self, now: i64) -> i64 {
        now + self.width as i64
    }

    fn width(&self, _: i64) -> i64 {
        self.width as i64
    }
}
