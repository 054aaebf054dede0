//! Random programs of several clients on one limiter.

use proptest::prelude::*;

use super::*;

/// The clients of this crate.
pub(super) const CRATE: usize = 3;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Sleep(i64),
    Take {
        by: usize,
        groups: Vec<RequestGroup>,
    },
    /// Single permits, one call each: a log that may be longer than a short one.
    Singles {
        by: usize,
        count: u32,
    },
    /// A large request is asked for, or asked for again.
    Reserve {
        by: usize,
        permits: u64,
    },
    /// A call whose answer is lost; whether it was carried out.
    Lost {
        by: usize,
        permits: u64,
        carried_out: bool,
    },
    Retry {
        by: usize,
    },
    /// The attempt before a retry arrives after it.
    Late {
        by: usize,
    },
    Refund {
        by: usize,
        pick: usize,
        permits: u64,
    },
    Release {
        by: usize,
        pick: usize,
        permits: u64,
    },
    Rate {
        by: usize,
        /// `None`: as it is.
        rate: Option<u64>,
        other_mode: bool,
        state: StateRule,
        /// All clients are new afterwards, as in a rollout.
        restart: bool,
    },
    /// A new process with the same id, or a client that has forgotten the limiter: it has seen
    /// nothing.
    Forget {
        by: usize,
    },
    Peek {
        by: usize,
    },
    Repair {
        by: usize,
    },
    RemoveUnused {
        by: usize,
    },
    LoseValue {
        of: usize,
    },
    LoseLog {
        of: usize,
    },
    JavaTake {
        permits: i64,
        twice: bool,
    },
    JavaAvailable,
    JavaRelease {
        pick: usize,
        permits: u64,
    },
    JavaRate {
        rate: i64,
    },
}

pub(super) fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(4u64), 2 => Just(10), 1 => Just(90), 2 => Just(120)]
}

fn step() -> impl Strategy<Value = Step> {
    let by = || 0..CRATE;
    let sleep = prop_oneof![3 => 1..50i64, 3 => 50..500i64, 1 => 500..1500i64, 1 => Just(I)];
    let state = prop_oneof![
        4 => Just(StateRule::Keep),
        1 => Just(StateRule::Drop),
        1 => Just(StateRule::DropNewMode),
    ];
    let one = (prop_oneof![3 => 1..5u64, 1 => 5..12u64], 1..3u64, prop_oneof![Just(0), 1..900u64])
        .prop_map(|(permits, count, max_wait_ms)| group_of(permits, max_wait_ms, count));
    prop_oneof![
        10 => sleep.prop_map(Step::Sleep),
        12 => (by(), prop::collection::vec(one, 1..3)).prop_map(|(by, groups)| Step::Take { by, groups }),
        2 => (by(), 1..6u64, any::<bool>())
            .prop_map(|(by, permits, carried_out)| Step::Lost { by, permits, carried_out }),
        4 => (by(), 2..12u64).prop_map(|(by, permits)| Step::Reserve { by, permits }),
        3 => by().prop_map(|by| Step::Retry { by }),
        1 => by().prop_map(|by| Step::Late { by }),
        2 => (by(), 0..9usize, 1..6u64)
            .prop_map(|(by, pick, permits)| Step::Refund { by, pick, permits }),
        2 => (by(), 0..9usize, 1..6u64)
            .prop_map(|(by, pick, permits)| Step::Release { by, pick, permits }),
        6 => (by(), prop::option::of(rates()), prop::bool::weighted(0.6), state, prop::bool::weighted(0.2))
            .prop_map(|(by, rate, other_mode, state, restart)| {
                Step::Rate { by, rate, other_mode, state, restart }
            }),
        2 => by().prop_map(|by| Step::Forget { by }),
        2 => (by(), 30..110u32).prop_map(|(by, count)| Step::Singles { by, count }),
        1 => by().prop_map(|by| Step::Peek { by }),
        2 => by().prop_map(|by| Step::Repair { by }),
        2 => by().prop_map(|by| Step::RemoveUnused { by }),
        1 => by().prop_map(|of| Step::LoseValue { of }),
        1 => by().prop_map(|of| Step::LoseLog { of }),
        4 => (1..8i64, prop::bool::weighted(0.2))
            .prop_map(|(permits, twice)| Step::JavaTake { permits, twice }),
        1 => Just(Step::JavaAvailable),
        2 => (0..9usize, 1..6u64).prop_map(|(pick, permits)| Step::JavaRelease { pick, permits }),
        1 => rates().prop_map(|rate| Step::JavaRate { rate: rate as i64 }),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..70)
}
