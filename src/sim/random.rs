//! Random numbers that depend on the seed of a run alone.

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[derive(Debug)]
pub(super) struct SeededRandom(StdRng);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        SeededRandom(StdRng::seed_from_u64(seed))
    }

    /// Numbers of its own for a part of the world: what one part draws does not change another.
    pub(super) fn fork(&mut self) -> Self {
        SeededRandom::new(self.0.random())
    }

    pub(super) fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// True this many times in a thousand.
    pub(super) fn per_mille(&mut self, chance: u64) -> bool {
        self.between(0..=999) < chance
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0..=choices.len() as u64 - 1) as usize]
    }
}
