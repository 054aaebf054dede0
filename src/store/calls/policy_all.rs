//! Acquire from several limiters with a policy: a batch of requests decided as one step, each of which takes from all
//! limiters or from none.
//!
//! The rule is in `src/policy/decide.rs`, the twin of `lua/policy/decide.lua`.

use super::policy::{after, corrected, read_decision};
use super::policy_script::TOGETHER;
use super::*;
use crate::policy::decide::decide;
use crate::policy::frame::Limiter;
use crate::policy::{ChangeRule, Mark};

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
            Limiter::read(space, keys, call.at, &call.of, ChangeRule::Keep, Some(&call.lane))
                .map_err(|error| error.in_limiter(&keys.hash))
        });
        let mut limiters = limiters.collect::<Result<Vec<_>, Error>>()?;

        // Decide.
        let groups: Vec<_> = self.0.iter().map(|(_, call)| &*call.groups).collect();
        let (outcomes, shares) = decide(&mut limiters, &groups);
        let is_replay = limiters.iter().any(|it| it.replay.is_some());
        let replies = limiters.iter().zip(&self.0).map(|(limiter, (_, call))| {
            let mut reply = after(limiter, call.of.rate());
            if let Some(it) = reply.mark.as_mut().filter(|_| limiter.replay.is_some() != is_replay)
            {
                // A limiter that has lost the record has nothing to give back.
                it.mark = Mark::default();
            }
            reply
        });
        let reply = AcquireReply::of_group(replies.collect(), outcomes);

        // Write.
        for ((limiter, share), (keys, call)) in limiters.iter_mut().zip(&shares).zip(&self.0) {
            match is_replay {
                false => limiter.write_taken(space, keys, share, call.groups.is_empty())?,
                true => limiter.confirm(space, keys)?,
            }
        }
        Ok(reply)
    }

    fn command(&self, _: &Keys, _: bool) -> ServerCommand {
        let keys: Vec<&str> = self.0.iter().map(|(keys, _)| &*keys.hash).collect();
        let arguments = self.0.iter().flat_map(|(_, call)| call.arguments());
        arguments.fold(ServerCommand::script(&TOGETHER, &keys), ServerCommand::arg)
    }

    /// The answer names one limiter, and its time is for the calendars of all.
    fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let mut calls = self.0.clone();
        let key = answer.bytes(3)?;
        let (_, named) = calls.iter_mut().find(|(keys, _)| keys.hash.as_bytes() == key)?;
        named.of = corrected(&named.of, answer)?;
        for (_, call) in &mut calls {
            if let Some(calendar) = call.of.rules.calendar_mut() {
                calendar.around = answer.integer(1);
            }
        }
        Some(PolicyAllCall(calls))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let rates = self.0.iter().map(|(_, call)| call.of.rate());
        let (limits, outcomes) = read_decision(answer, rates)?;
        Some(AcquireReply::of_group(limits, outcomes))
    }
}
