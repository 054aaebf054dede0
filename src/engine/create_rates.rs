//! The rates that handles create limiters with, each with a number that a request carries.

use crate::rate::Rate;

#[derive(Default)]
pub(super) struct CreateRates(Vec<Rate>);

impl CreateRates {
    pub(super) fn number_of(&mut self, rate: Rate) -> u16 {
        let known = self.0.iter().position(|known| *known == rate);
        let number = known.unwrap_or_else(|| {
            // Handles do not carry thousands of rates for one limiter; if so, the last ones share
            // a number.
            if self.0.len() > usize::from(u16::MAX) {
                self.0.pop();
            }
            self.0.push(rate);
            self.0.len() - 1
        });
        number as u16
    }

    pub(super) fn rate(&self, number: u16) -> Rate {
        self.0[usize::from(number)]
    }

    /// In the order of their numbers.
    pub(super) fn rates(&self) -> impl Iterator<Item = Rate> {
        self.0.iter().copied()
    }
}
