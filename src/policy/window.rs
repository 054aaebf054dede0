//! Fixed windows on a grid, and windows that the first grant opens.
//!
//! The twin of `lua/policy/window.lua`.

use super::frame::{Bad, Mark, Rules, is_permits, is_span, numbers, parameters};

/// Where windows begin and end.
pub(crate) trait Grid: Clone + PartialEq {
    /// The letter, the version and what else is before the numbers.
    fn text(&self, limit: u64) -> String;
    fn parse(text: &str) -> Option<(u64, Self)>;

    /// The end of the window that opens now, or is open.
    fn end(&self, now: i64) -> i64;

    /// The width of the window that ends then.
    fn width(&self, now: i64) -> i64;

    /// Whether a window opens with a grant.
    const OPENS: bool = false;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window<G> {
    pub(crate) limit: u64,
    pub(crate) grid: G,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Count {
    /// The end of the window; 0 if none is open.
    end: i64,
    used: u64,
}

impl<G: Grid> Rules for Window<G> {
    const NAMES: &'static [&'static str] = &["e", "n"];
    type State = Count;

    fn text(&self) -> String {
        self.grid.text(self.limit)
    }

    fn parse(text: &str) -> Option<Self> {
        let (limit, grid) = G::parse(text)?;
        is_permits(limit).then_some(Window { limit, grid })
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.grid.width(0) as u64
    }

    fn read(&self, texts: &[&str]) -> Result<Count, Bad> {
        let [end, used] = numbers(texts)?;
        Ok(Count { end: end as i64, used })
    }

    fn write(&self, state: &Count) -> Vec<String> {
        vec![state.end.to_string(), state.used.to_string()]
    }

    fn roll(&self, state: Option<Count>, now: i64) -> Count {
        match state.filter(|count| now < count.end) {
            None => Count { end: if G::OPENS { 0 } else { self.grid.end(now) }, used: 0 },
            // The clock went back.
            Some(count) if count.end - now > 2 * self.grid.width(now) => {
                Count { end: self.grid.end(now), ..count }
            }
            Some(count) => count,
        }
    }

    fn available(&self, state: &Count, _: i64) -> u64 {
        self.limit.saturating_sub(state.used)
    }

    fn take(&self, state: &mut Count, now: i64, permits: u64) {
        if state.end == 0 && permits > 0 {
            state.end = self.grid.end(now);
        }
        state.used += permits;
    }

    fn wait(&self, state: &Count, now: i64, _: u64) -> i64 {
        state.end - now
    }

    fn mark(&self, state: &Count) -> Mark {
        (state.end, 0)
    }

    fn give(&self, state: &mut Count, _: i64, (end, _): Mark, permits: u64) -> u64 {
        let credit = if end == state.end { permits.min(state.used) } else { 0 };
        state.used -= credit;
        credit
    }

    fn ttl(&self, state: &Count, now: i64) -> i64 {
        state.end - now
    }

    fn change(&self, _: &Self, state: &mut Count, now: i64, scaled: &dyn Fn(u64) -> u64) {
        state.end = match (G::OPENS, state.end) {
            (true, end) => end.min(self.grid.end(now)),
            (false, _) => self.grid.end(now),
        };
        state.used = scaled(state.used);
    }
}

/// Windows of one width, one of which begins at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Even {
    pub(crate) width: u64,
    pub(crate) offset: u64,
}

impl Grid for Even {
    fn text(&self, limit: u64) -> String {
        format!("f1:{limit},{},{}", self.width, self.offset)
    }

    fn parse(text: &str) -> Option<(u64, Self)> {
        let [limit, width, offset] = parameters(text, "f1:")?;
        (is_span(width) && offset < width).then_some((limit, Even { width, offset }))
    }

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

    fn text(&self, limit: u64) -> String {
        format!("a1:{limit},{}", self.width)
    }

    fn parse(text: &str) -> Option<(u64, Self)> {
        let [limit, width] = parameters(text, "a1:")?;
        is_span(width).then_some((limit, Anchored { width }))
    }

    fn end(&self, now: i64) -> i64 {
        now + self.width as i64
    }

    fn width(&self, _: i64) -> i64 {
        self.width as i64
    }
}
