//! Random numbers, and when requests arrive.

use crate::queue::Time;

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1)
    }

    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The time until the next event, at this number of events a second.
    pub(super) fn until_next(&mut self, per_second: f64) -> Time {
        (-(1.0 - self.uniform()).ln() * 1e6 / per_second) as Time + 1
    }
}

/// The requests a second of one client.
pub(super) fn demand(client: usize, clients: usize, mean: f64, uneven: bool) -> f64 {
    match uneven && clients >= 10 {
        false => mean,
        true if client.is_multiple_of(10) => mean * 9.0,
        true => mean / 9.0,
    }
}
