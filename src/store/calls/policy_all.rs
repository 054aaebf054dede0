//! Acquire from several limiters with a policy: a batch of requests decided as one step, each of which takes from all
//! limiters or from none.
//!
//! The rule is in `src/policy/decide.rs`, the twin of `lua/policy/decide.lua`.

use super::policy::{PolicyReply, corrected, opened, read_decision};
use super::policy_script::script_together;
use super::*;
use crate::policy::decide::decide;
use crate::rate::MAX_EXACT;

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
        let limiters = self.0.iter().map(|(keys, call)| {
            opened(call.parameters(), space, keys, Some(&call.lane))
                .map_err(|error| error.in_limiter(&keys.hash))
        });
        let mut limiters = limiters.collect::<Result<Vec<_>, Error>>()?;

        // Decide.
        let groups: Vec<_> = self.0.iter().map(|(_, call)| &*call.groups).collect();
        let (outcomes, shares) = decide(&mut limiters, &groups);
        let is_replay = limiters.iter().any(|it| it.replay.is_some());
        let after = limiters.iter().map(|it| match it.replay.is_some() == is_replay {
            true => PolicyReply::of(it),
            // A limiter that has lost the record has nothing to give back.
            false => PolicyReply { mark: Default::default(), ..PolicyReply::of(it) },
        });
        let reply = self.reply(outcomes, after.collect());

        // Write.
        for ((limiter, share), (keys, call)) in limiters.iter_mut().zip(&shares).zip(&self.0) {
            if !is_replay {
                limiter.write_taken(space, keys, share, call.groups.is_empty())?;
            }
        }
        Ok(reply)
    }

    fn command(&self, _: &Keys, _: bool) -> ServerCommand {
        let keys: Vec<&str> = self.0.iter().map(|(keys, _)| &*keys.hash).collect();
        let arguments = self.0.iter().flat_map(|(_, call)| call.arguments());
        arguments.fold(ServerCommand::script(script_together(), &keys), ServerCommand::arg)
    }

    /// The answer names one limiter, and its time is for the calendars of all.
    fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let mut calls = self.0.clone();
        let key = answer.bytes(3)?;
        let (_, named) = calls.iter_mut().find(|(keys, _)| keys.hash.as_bytes() == key)?;
        named.policy = corrected(&named.policy, answer)?;
        for (_, call) in &mut calls {
            if let Some(calendar) = call.policy.calendar_mut() {
                calendar.around = answer.integer(1);
            }
        }
        Some(PolicyAllCall(calls))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let (limits, outcomes) = read_decision(answer)?;
        (limits.len() == self.0.len()).then(|| self.reply(outcomes, limits))
    }
}

impl PolicyAllCall {
    fn reply(&self, outcomes: Vec<OutcomeGroup>, limits: Vec<PolicyReply>) -> AcquireReply {
        let now = limits[0].now;
        let limits = self.0.iter().zip(limits).map(|((_, call), limit)| LimitReply {
            rate: call.policy.rate(),
            left: limit.left.min(MAX_EXACT) as i64,
            repaired: 0,
            mark: Some(limit.mark),
            notes: limit.notes,
        });
        AcquireReply::of_group(now / 1000, outcomes, limits.collect())
    }
}
