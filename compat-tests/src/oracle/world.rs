//! The virtual world in which a program runs: its clock, its clients, and the
//! lifetimes of its keys.

use std::time::Instant;

use super::ops::{Condition, Op, Outcome};
use super::program::{Clock, Program, Step};
use super::record::now_ms;
use super::state::{State, TTL_TOLERANCE_MS, keys_of};
use super::subject::{Call, Fate};
use super::vtime::Lifetimes;

/// The ids of the clients in random programs.
pub fn client_ids(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("{n}0000000-0000-4000-8000-000000000000")).collect()
}

/// The world of one run of one program.
#[derive(Debug)]
pub struct World<'a> {
    program: &'a Program,
    /// The virtual time of the server.
    pub now: u64,
    /// All keys that the program can touch.
    pub keys: Vec<String>,
    /// The virtual lifetimes of these keys.
    pub lifetimes: Lifetimes,
    /// The state after the last step.
    pub state: State,
    /// The times of grants, for each name.
    grants: [Vec<u64>; 2],
    /// When the step began, in real time.
    began: Instant,
    /// An earlier step took so long that lifetimes may have diverged.
    stalled: bool,
}

/// A step that takes longer than this in real time cannot be used to compare lifetimes.
const STALL_MS: u64 = TTL_TOLERANCE_MS / 2;

/// This crate confirms a grant whose answer takes longer than a part of the interval, here the shortest
/// one, by a second attempt, which moves the entry to a later date.
const LATE_ANSWER_MS: u64 = 1_000 / 50;

impl<'a> World<'a> {
    /// An empty world. Its time starts at the real time.
    pub fn new(program: &'a Program, clients: &[String]) -> World<'a> {
        World {
            program,
            now: now_ms(),
            keys: keys_of(&program.names.each_ref().map(String::as_str), clients),
            lifetimes: Lifetimes::default(),
            state: State::default(),
            grants: Default::default(),
            began: Instant::now(),
            stalled: false,
        }
    }

    /// Advances the time before a step. Returns what happens to the keys.
    pub fn tick(&mut self, step: &Step) -> Vec<(String, Fate)> {
        self.stalled |= self.took_ms() > STALL_MS;
        self.began = Instant::now();
        let interval = self.interval(step);
        let to = match step.clock {
            Clock::Stays => self.now,
            Clock::By(ms) => self.now + ms,
            Clock::Intervals(n) => self.now + n * interval,
            Clock::Edge { back, off } => {
                let granted = self.grants[step.name].iter().rev().nth(back);
                let edge = granted.map(|at| (at + interval).saturating_add_signed(off));
                edge.unwrap_or(self.now).max(self.now)
            }
        };
        if to == self.now {
            return Vec::new();
        }
        self.advance_to(to)
    }

    /// Advances the time. Returns what happens to the keys.
    pub fn advance_to(&mut self, to: u64) -> Vec<(String, Fate)> {
        self.now = to;
        let fates = self.lifetimes.advance(to);
        for (name, fate) in &fates {
            match *fate {
                Fate::Gone => drop(self.state.0.remove(name)),
                Fate::Left(ms) => {
                    if let Some(key) = self.state.0.get_mut(name) {
                        key.ttl = Some(ms);
                    }
                }
            }
        }
        fates
    }

    /// The operation of a step, made independent of real time: the comparison
    /// of two times to live must not depend on a millisecond.
    pub fn resolve(&self, step: &Step) -> Op {
        let (mut ttl, condition) = match step.op {
            Op::Expire(ttl, condition) | Op::ExpireAt(ttl, condition) => (ttl, condition),
            _ => return step.op.clone(),
        };
        if matches!(condition, Some(Condition::Gt | Condition::Lt)) {
            let close = |ttl: i64| {
                let left = self.keys.iter().filter_map(|k| self.lifetimes.left(k, self.now));
                left.into_iter().any(|ms| ttl.abs_diff(ms as i64) <= 2 * TTL_TOLERANCE_MS)
            };
            while close(ttl) {
                ttl += 3 * TTL_TOLERANCE_MS as i64;
            }
        }
        match step.op {
            Op::Expire(..) => Op::Expire(ttl, condition),
            _ => Op::ExpireAt(ttl, condition),
        }
    }

    /// The call of a step; `op` is the result of [`World::resolve`].
    pub fn call<'b>(&self, step: &Step, op: &'b Op) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            client: step.client,
            name: &self.program.names[step.name],
            op,
            now: self.now.saturating_add_signed(step.skew),
        }
    }

    /// Records the outcome of a step.
    pub fn learn(&mut self, step: &Step, outcome: &Outcome, state: State) {
        if *outcome == Outcome::Granted {
            self.grants[step.name].push(self.now.saturating_add_signed(step.skew));
        }
        self.lifetimes.observe(self.now, &state);
        self.state = state;
    }

    /// True if keys expire and a step took so long in real time, on a busy
    /// machine, that its state says nothing about virtual time.
    pub fn real_time_showed(&self, after: [&State; 2]) -> bool {
        let expire = |state: &State| state.0.values().any(|key| key.ttl.is_some());
        let stalled = (self.stalled || self.took_ms() > STALL_MS)
            && (expire(&self.state) || after.into_iter().any(expire));
        let showed = stalled || self.took_ms() > LATE_ANSWER_MS;
        if showed {
            eprintln!("the machine was busy for too long; a program ends there");
        }
        showed
    }

    fn took_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn interval(&self, step: &Step) -> u64 {
        let name = &self.program.names[step.name];
        let interval = self.state.number(name, "interval");
        interval.map_or(1_000, |ms| ms.clamp(1, 60_000) as u64)
    }
}
