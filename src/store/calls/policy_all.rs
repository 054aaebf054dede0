//! Acquire from several limiters with a policy: a batch of requests decided as one step, each of which takes from all
//! limiters or from none.
//!
//! The rule is in `src/policy/all.rs`, the twin of `lua/policy/all.lua`.

use std::sync::LazyLock;

use super::policy::corrected;
use super::*;
use crate::policy::all::{Member, decide_all};
use crate::policy::{Kind, Mark};
use crate::rate::MAX_EXACT;
use crate::store::redis::{OpenSlot, Script};

/// A function opens a limiter by the rules of its policy, which are parts of the limiter's own script too.
macro_rules! opened_by {
    ($($code:literal: $($part:literal),*;)+) => {
        concat!($($code, "\n", $(include_str!(concat!("../../../lua/policy/", $part, ".lua")),)*)+)
    };
}

static POLICY_ALL: LazyLock<Script> = LazyLock::new(|| {
    let source = opened_by! {
        "local function open(KEYS, ARGV)": "head", "fields", "names";
        "if kind == 'b' then": "pace", "bucket";
        "elseif kind == 'q' then": "pace", "queue";
        "elseif kind == 's' then": "sliding";
        "elseif kind == 'r' then": "rolling";
        "elseif kind == 'i' then": "interval";
        "else": "window";
        "end": "read", "open", "write";
        "end }":;
        "end": "all";
    };
    Script::new(source, OpenSlot::Waits)
});

/// Requests that take from several limiters with a policy, to be decided in this order.
///
/// It has a call for each limiter, with that limiter's keys. They all have the same time and place in a lane, and
/// equally many requests with the same waits; the first says these.
#[derive(Clone, Debug)]
pub(crate) struct PolicyAllCall(pub(crate) Vec<(Keys, PolicyCall)>);

impl StoreCall for PolicyAllCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, _: &Keys) -> Result<AcquireReply, Error> {
        // Read.
        let opened = self.0.iter().map(|(keys, call)| {
            call.open(space, keys).map_err(|error| error.in_limiter(&keys.hash))
        });
        let mut members = opened.collect::<Result<Vec<_>, Error>>()?;

        // Decide.
        let groups: Vec<_> = self.0.iter().map(|(_, call)| &*call.groups).collect();
        let (outcomes, shares) = decide_all(&mut members, &groups);
        let is_replay = members.iter().any(|it| it.replay().is_some());
        let mark = |it: &dyn Member| match it.replay() {
            Some(record) => record.mark,
            // A limiter that has lost the record has nothing to give back.
            None if is_replay => Mark::default(),
            None => it.mark(),
        };
        let states = members.iter().map(|it| (it.available(), mark(&**it))).collect();

        // Write.
        for ((member, share), (keys, call)) in members.iter_mut().zip(&shares).zip(&self.0) {
            if !is_replay {
                member.write(space, keys, share, call.groups.is_empty())?;
            }
        }
        Ok(self.reply(members[0].now(), outcomes, states))
    }

    fn command(&self, _: &Keys, _: bool) -> ServerCommand {
        let keys: Vec<&str> = self.0.iter().map(|(keys, _)| &*keys.hash).collect();
        let arguments = self.0.iter().flat_map(|(_, call)| call.arguments());
        arguments.fold(ServerCommand::script(&POLICY_ALL, &keys), ServerCommand::arg)
    }

    /// The answer names one limiter, and its time is for the calendars of all.
    fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let mut calls = self.0.clone();
        let key = answer.bytes(3)?;
        let (_, named) = calls.iter_mut().find(|(keys, _)| keys.hash.as_bytes() == key)?;
        named.policy = corrected(&named.policy, answer)?;
        for (_, call) in &mut calls {
            if let Kind::Calendar(window) = &mut call.policy.0 {
                window.grid.around = answer.integer(1);
            }
        }
        Some(PolicyAllCall(calls))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let found = answer.list(2).filter(|found| found.len() == self.0.len())?;
        let states = (0..found.len()).map(|at| {
            let state = found.list(at)?;
            Some((state.unsigned(0)?, (state.integer(1)?, state.unsigned(2)?)))
        });
        let mut outcomes = Vec::new();
        for at in (3..answer.len()).step_by(3) {
            let [count, kind, us] = [at, at + 1, at + 2].map(|at| answer.unsigned(at));
            let (count, kind) = (count?, kind?);
            let wait = Wait { us: us?, at_least: kind % 2 == 0 };
            let outcome = match kind % 10 {
                0 => Outcome::Granted,
                1 | 2 => Outcome::RefusedBy(u8::try_from(kind / 10).ok()?, wait),
                3 | 4 => Outcome::Waiting(wait),
                5 => Outcome::ExceedsRate,
                _ => return None,
            };
            push_outcome(&mut outcomes, count, outcome);
        }
        Some(self.reply(answer.integer(1)?, outcomes, states.collect::<Option<_>>()?))
    }
}

impl PolicyAllCall {
    /// The reply at this time in microseconds; `states`: the permits left of each limiter, and its mark.
    fn reply(
        &self,
        now: i64,
        outcomes: Vec<OutcomeGroup>,
        states: Vec<(u64, Mark)>,
    ) -> AcquireReply {
        let limits = self.0.iter().zip(states).map(|((_, call), (left, mark))| LimitReply {
            rate: call.policy.rate(),
            left: left.min(MAX_EXACT) as i64,
            repaired: 0,
            mark: Some(mark),
        });
        AcquireReply::of_group(now / 1000, outcomes, limits.collect())
    }
}
