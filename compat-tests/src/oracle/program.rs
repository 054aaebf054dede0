//! Random programs: what clients do to limiters, and when.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::ops::{Condition, Extra, Mode, Op, Rate};

/// A sequence of operations. It shrinks to fewer and simpler ones.
#[derive(Clone, Debug)]
pub struct Program {
    /// The names of the limiters. The first is renamed to the second, and the
    /// other way round.
    pub names: [String; 2],
    /// The steps.
    pub steps: Vec<Step>,
}

/// One operation, and the time that passes before it.
#[derive(Clone, Debug)]
pub struct Step {
    /// How the time advances first.
    pub clock: Clock,
    /// How many milliseconds the client's own clock is ahead.
    pub skew: i64,
    /// Which client.
    pub client: usize,
    /// Which of the names.
    pub name: usize,
    /// What it does.
    pub op: Op,
}

impl Program {
    /// The same with limiters of other names.
    pub fn with_names(mut self, names: &[String; 2]) -> Program {
        for step in &mut self.steps {
            if let Op::Rename(to) = &mut step.op {
                let nth = usize::from(*to == self.names[1]);
                names[nth].clone_into(to);
            }
        }
        self.names.clone_from(names);
        self
    }
}

/// How time advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Not at all.
    Stays,
    /// By this many milliseconds.
    By(u64),
    /// By this many intervals of the limiter.
    Intervals(u64),
    /// To the moment at which a grant expires, plus `off` milliseconds; `back`
    /// counts grants from the last one. Not at all if that is in the past.
    Edge {
        /// 0 is the last grant.
        back: usize,
        /// -1, 0 or 1.
        off: i64,
    },
}

/// What can occur in a program.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// How many clients there are.
    pub clients: usize,
    /// Two limiters instead of one.
    pub both_names: bool,
    /// The mode of all rates, if they share one.
    pub mode: Option<Mode>,
    /// All rates are the same.
    pub one_rate: bool,
    /// `setRate(args)` and `updateRate`.
    pub rate_args: bool,
    /// Clients whose clocks are ahead or behind, by changing amounts.
    pub skew: bool,
    /// 0 permits and fewer, keep-alives shorter than the interval.
    pub edges: bool,
    /// `release`.
    pub release: bool,
    /// `availablePermits`, which writes.
    pub available: bool,
    /// `expire`, `expireAt`, `clearExpire` and keep-alives.
    pub lifetimes: bool,
    /// `rename`.
    pub rename: bool,
    /// Only client 1, which is this crate, releases, sets rates with arguments,
    /// pauses and settles: Redisson does not get these right, or lacks them.
    pub leave_to_1: bool,
    /// The longest program.
    pub steps: usize,
}

impl Profile {
    /// Everything.
    pub const EVERYTHING: Profile = Profile {
        clients: 3,
        both_names: true,
        mode: None,
        one_rate: false,
        rate_args: true,
        skew: true,
        edges: true,
        release: true,
        available: true,
        lifetimes: true,
        rename: true,
        leave_to_1: false,
        steps: 60,
    };

    /// What preserves value + log = rate in Redisson, in both modes: a limiter
    /// that is created, used, removed and created again. [`Profile::sound`]
    /// adds more to it.
    const PLAIN: Profile = Profile {
        clients: 3,
        both_names: false,
        mode: None,
        one_rate: true,
        rate_args: false,
        skew: false,
        edges: false,
        release: false,
        available: false,
        lifetimes: false,
        rename: false,
        leave_to_1: false,
        steps: 60,
    };

    /// Beside a Redisson this crate may do more: its releases and its changes
    /// of the rate keep the state sound.
    pub const BESIDE_REDISSON: Profile = Profile {
        mode: Some(Mode::Overall),
        one_rate: false,
        rate_args: true,
        release: true,
        available: true,
        leave_to_1: true,
        ..Profile::PLAIN
    };

    /// The profiles in which Redisson's state stays sound: each leaves out
    /// what would lead to one of the divergences.
    pub fn sound() -> Vec<Profile> {
        let mut profiles = Vec::new();
        for mode in [Mode::Overall, Mode::PerClient] {
            let base =
                Profile { mode: Some(mode), one_rate: mode == Mode::PerClient, ..Profile::PLAIN };
            profiles.extend([
                Profile { available: true, ..base },
                Profile { lifetimes: true, ..base },
                Profile { skew: true, ..base },
            ]);
        }
        profiles
    }

    /// Programs of this profile.
    pub fn programs(self) -> BoxedStrategy<Program> {
        let start = (self.rates(), names());
        start
            .prop_flat_map(move |(rate, names)| {
                let rates = match self.one_rate {
                    true => Just(rate).boxed(),
                    false => self.rates(),
                };
                let step = self.step(rates, &names);
                (Just(rate), Just(names), vec(step, 1..=self.steps))
            })
            .prop_map(|(rate, names, mut steps)| {
                let create = Step {
                    clock: Clock::Stays,
                    skew: 0,
                    client: 0,
                    name: 0,
                    op: Op::TrySetRate(rate),
                };
                steps.insert(0, create);
                Program { names, steps }
            })
            .boxed()
    }

    fn step(self, rates: BoxedStrategy<Rate>, names: &[String; 2]) -> BoxedStrategy<Step> {
        let skews = match self.skew {
            true => prop_oneof![
                12 => Just(0),
                1 => -50i64..=50,
                1 => select(vec![-5_000i64, -1_000, -999, 1_000, 3_000]),
            ]
            .boxed(),
            false => Just(0).boxed(),
        };
        let name = match self.both_names {
            true => prop_oneof![4 => Just(0usize), 1 => Just(1)].boxed(),
            false => Just(0).boxed(),
        };
        let others = [names[1].clone(), names[0].clone()];
        (clock(), skews, 0..self.clients, name, self.ops(rates))
            .prop_map(move |(clock, skew, client, name, op)| Step {
                client: match op {
                    Op::SetRateArgs(..) | Op::UpdateRate(..) | Op::Release(_) | Op::Extra(_)
                        if self.leave_to_1 =>
                    {
                        1
                    }
                    _ => client,
                },
                op: match op {
                    Op::Rename(_) => Op::Rename(others[name].clone()),
                    op => op,
                },
                clock,
                skew,
                name,
            })
            .boxed()
    }

    fn ops(self, rates: BoxedStrategy<Rate>) -> BoxedStrategy<Op> {
        let keep = any::<bool>();
        let permits = match self.edges {
            true => prop_oneof![20 => 1i64..=4, 6 => 5i64..=13, 1 => -2i64..=0].boxed(),
            false => prop_oneof![4 => 1i64..=4, 1 => 5i64..=13].boxed(),
        };
        let acquire = permits.clone().prop_map(Op::TryAcquire).boxed();
        let mut choices = vec![
            (24, acquire),
            (3, rates.clone().prop_map(Op::TrySetRate).boxed()),
            (1, rates.clone().prop_map(Op::SetRate).boxed()),
            (1, select(vec![Op::GetConfig, Op::IsExists, Op::Touch]).boxed()),
            (1, Just(Op::Delete).boxed()),
        ];
        if self.rate_args {
            let args = (rates.clone(), keep);
            choices.push((2, args.clone().prop_map(|(r, k)| Op::SetRateArgs(r, k)).boxed()));
            choices.push((2, args.prop_map(|(r, k)| Op::UpdateRate(r, k)).boxed()));
        }
        if self.available {
            choices.push((4, Just(Op::AvailablePermits).boxed()));
        }
        if self.release {
            choices.push((3, permits.prop_map(Op::Release).boxed()));
        }
        if self.leave_to_1 {
            // Longer than the interval: the pause's entry is the newest one.
            let pause = (1_501i64..=3_000).prop_map(Extra::Pause);
            let settle = (1i64..=13).prop_map(Extra::Settle);
            let extra = prop_oneof![1 => pause, 1 => Just(Extra::Resume), 2 => settle];
            choices.push((3, extra.prop_map(Op::Extra).boxed()));
        }
        if self.rename {
            choices.push((1, Just(Op::Rename(String::new())).boxed()));
        }
        if self.lifetimes {
            choices.push((1, Just(Op::RemainTimeToLive).boxed()));
            // In PER_CLIENT a client's call reaches its own keys and the hash. If the hash then
            // has no time to live, or expires first and is created again, value and log of
            // another client separate: the value is rewritten without a time to live, the log
            // keeps its own (divergence 17).
            if self.mode != Some(Mode::PerClient) {
                let ttl = select(vec![1_000i64, 1_700, 4_400, 9_000, 30_000]);
                let when = prop_oneof![9 => ttl.clone(), 1 => Just(-1_000i64)];
                choices.extend([
                    (2, (ttl, condition()).prop_map(|(t, c)| Op::Expire(t, c)).boxed()),
                    (1, (when, condition()).prop_map(|(t, c)| Op::ExpireAt(t, c)).boxed()),
                    (1, Just(Op::ClearExpire).boxed()),
                ]);
            }
        }
        proptest::strategy::Union::new_weighted(choices).boxed()
    }

    fn rates(self) -> BoxedStrategy<Rate> {
        let mode = match self.mode {
            Some(mode) => Just(mode).boxed(),
            None => prop_oneof![2 => Just(Mode::Overall), 1 => Just(Mode::PerClient)].boxed(),
        };
        // With a longer interval, entries that have expired but are still in the log count
        // again, which the checker does not model.
        let intervals = match self.leave_to_1 {
            true => vec![1_500i64],
            false => vec![1_000, 1_500, 4_000],
        };
        let interval = select(intervals);
        let keep_alive = match (self.lifetimes, self.edges) {
            (false, _) => Just(None).boxed(),
            (true, false) => prop_oneof![2 => Just(None), 1 => (0i64..=3).prop_map(Some)].boxed(),
            (true, true) => prop_oneof![2 => Just(None), 1 => (-1i64..=3).prop_map(Some)].boxed(),
        };
        (mode, 1i64..=10, interval, keep_alive)
            .prop_map(|(mode, rate, interval_ms, keep_alive)| Rate {
                mode,
                rate,
                interval_ms,
                keep_alive_ms: keep_alive.map(|longer| interval_ms + longer * 900),
            })
            .boxed()
    }
}

fn names() -> impl Strategy<Value = [String; 2]> {
    let pairs = [["api", "other"], ["a{p}i", "a{p}j"], ["{api", "b}"], ["z\u{e4}hler 1", "{}x"]];
    select(pairs.map(|pair| pair.map(String::from)).to_vec())
}

fn clock() -> impl Strategy<Value = Clock> {
    prop_oneof![
        6 => Just(Clock::Stays),
        3 => (0u64..=20).prop_map(Clock::By),
        4 => (1u64..=1_600).prop_map(Clock::By),
        1 => (1u64..=4).prop_map(Clock::Intervals),
        6 => (0usize..=6, -1i64..=1).prop_map(|(back, off)| Clock::Edge { back, off }),
    ]
}

fn condition() -> impl Strategy<Value = Option<Condition>> + Clone {
    let all = [Condition::Nx, Condition::Xx, Condition::Gt, Condition::Lt];
    prop_oneof![1 => Just(None), 1 => select(all.map(Some).to_vec())]
}
