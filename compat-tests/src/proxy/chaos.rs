//! What a bad network does to everything that passes, at random.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Fault, Shared};

/// A kind of bad network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaos {
    /// All that can happen to TCP connections: streams are delayed, split anywhere, and end at any
    /// byte; requests are lost, arrive twice, or so late that their retries overtake them; replies
    /// are swallowed, and the connection is closed or falls silent.
    Network,
    /// What TCP rules out, and a broken device in between may do: bytes of the stream are dropped,
    /// doubled, or change places.
    Bytes,
}

/// One in this number of requests meets a fault.
const REQUESTS_PER_FAULT: u32 = 40;
/// One in this number of chunks is delayed, or split.
const CHUNKS_PER_DELAY: u32 = 4;
const CHUNKS_PER_CHANGE: u32 = 40;

/// Longer than an attempt may take, so that a retry overtakes some of what is held.
const LONGEST_HOLD_MS: u64 = 1_500;
const LONGEST_DELAY_MS: u64 = 5;

#[derive(Debug)]
pub(super) struct Dice {
    chaos: Chaos,
    random: SmallRng,
}

impl Dice {
    pub(super) fn new((chaos, seed): (Chaos, u64)) -> Dice {
        Dice { chaos, random: SmallRng::seed_from_u64(seed) }
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_ratio(1, count)
    }
}

impl Shared {
    /// What happens to a request of this length, and how long it is held before.
    pub(super) fn fate(&self, length: usize) -> (Option<Fault>, Duration) {
        let mut chaos = self.chaos.lock().expect("the chaos");
        let Some(dice) = chaos.as_mut().filter(|dice| dice.chaos == Chaos::Network) else {
            return (None, Duration::ZERO);
        };
        let held = match dice.one_in(CHUNKS_PER_DELAY) {
            true => Duration::from_millis(dice.random.random_range(0..=LONGEST_DELAY_MS)),
            false => Duration::ZERO,
        };
        if !dice.one_in(REQUESTS_PER_FAULT) {
            return (None, held);
        }
        let fault = match dice.random.random_range(0..7) {
            0 => Fault::LoseRequest,
            1 => Fault::LoseReply,
            2 => Fault::Silence,
            3 => Fault::Duplicate,
            4 => Fault::TruncateRequest(dice.random.random_range(0..length.max(1))),
            5 => Fault::TruncateReply(dice.random.random_range(0..12)),
            _ => {
                let ms = dice.random.random_range(0..=LONGEST_HOLD_MS);
                return (None, Duration::from_millis(ms));
            }
        };
        (Some(fault), held)
    }

    /// The parts in which a chunk of replies arrives.
    pub(super) fn parts(&self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut chaos = self.chaos.lock().expect("the chaos");
        if let Some(dice) = chaos.as_mut().filter(|dice| dice.chaos == Chaos::Network)
            && dice.one_in(CHUNKS_PER_DELAY)
        {
            let rest = bytes.split_off(dice.random.random_range(0..=bytes.len()));
            return vec![bytes, rest];
        }
        vec![bytes]
    }

    /// A chunk of either direction as it arrives.
    pub(super) fn mangled(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let mut chaos = self.chaos.lock().expect("the chaos");
        let Some(dice) = chaos.as_mut().filter(|dice| dice.chaos == Chaos::Bytes) else {
            return bytes;
        };
        if bytes.is_empty() || !dice.one_in(CHUNKS_PER_CHANGE) {
            return bytes;
        }
        let from = dice.random.random_range(0..bytes.len());
        let to = bytes.len().min(from + dice.random.random_range(1..=8));
        match dice.random.random_range(0..3) {
            0 => drop(bytes.drain(from..to)),
            1 => {
                let twice = bytes[from..to].to_vec();
                bytes.splice(to..to, twice);
            }
            _ => bytes[from..to].reverse(),
        }
        bytes
    }
}
