//! Acquire from several limiters: a batch of requests decided as one step, each of which takes from all limiters
//! or from none.
//!
//! The rule is in `store/memory/acquire.rs`, the twin of `lua/acquire.lua`.

use super::acquire::{entry_of, read_outcomes};
use super::*;

script!(ACQUIRE_ALL, Waits, acquires: "part/arguments_all", "part/limits", "part/grant_usual_all"; "part/turn_to");

/// Requests that take from several limiters, to be decided in this order.
///
/// It has an acquire for each limiter, with that limiter's keys. They all have the same time, id and earlier
/// attempts, and equally many requests with the same waits; the first says these.
#[derive(Clone, Debug)]
pub(crate) struct AcquireAllCall(pub(crate) Vec<(Keys, AcquireCall)>);

impl StoreCall for AcquireAllCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, _: &Keys) -> Result<AcquireReply, Error> {
        acquire_all(space, &self.0)
    }

    fn command(&self, _: &Keys, _: bool) -> ServerCommand {
        let keys: Vec<&str> = self.0.iter().flat_map(|(keys, _)| keys.all()).collect();
        let (_, first) = &self.0[0];
        let command = ServerCommand::script(&ACQUIRE_ALL, &keys)
            .opt(first.now)
            .opt(first.earlier.since)
            .arg(u8::from(first.earlier.is_again))
            .arg(first.earlier.dates_text());
        self.0.iter().fold(command, |command, (_, call)| {
            let total = total_permits(&call.groups);
            command
                .arg(entry_of(call.id, total))
                .arg(total)
                .seen(call.seen)
                .arg(call.create.map_or(String::new(), |rate| texts(&rate).join(" ")))
                .arg(call.audit_limit.min(MAX_EXACT))
                .arg(pack_groups(&call.groups))
        })
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let last = answer.len().checked_sub(1)?;
        let Some(limits) = answer.list(last) else { return self.read_short(answer) };
        let outcomes = read_outcomes(answer, last, request_count(&self.0[0].1.groups))?;
        let now = answer.integer(5)?;
        let limits = (0..limits.len()).map(|at| {
            let limit = limits.list(at)?;
            let reply = AcquireReply::new(now, limit.rate()?, limit.integer(1)?, Vec::new());
            Some(AcquireReply { repaired: exact(limit.integer(5)?), ..reply })
        });
        let limits: Vec<_> = limits.collect::<Option<_>>()?;
        (limits.len() == self.0.len()).then(|| AcquireReply::of_group(limits, outcomes))
    }
}

impl AcquireAllCall {
    /// All requests were granted, and the rates are those that the client last saw.
    fn read_short(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let now = answer.integer(0)?;
        let limits = self.0.iter().enumerate().map(|(at, (_, call))| {
            Some(AcquireReply::new(now, call.seen?, answer.integer(at + 1)?, Vec::new()))
        });
        let limits: Vec<_> = limits.collect::<Option<_>>()?;
        let outcomes = vec![OutcomeGroup {
            count: request_count(&self.0[0].1.groups),
            outcome: Outcome::Granted,
        }];
        Some(AcquireReply::of_group(limits, outcomes))
    }
}
