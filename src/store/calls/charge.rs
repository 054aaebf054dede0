//! Charge: writes permits that were granted without the store into its log.
//!
//! `lua/charge.lua` is its twin.

use super::*;
use crate::store::memory::config::read_all;
use crate::store::memory::settle::{NewValue, settle};
use crate::wire::entry::{EntryId, pack};

script!(CHARGE, AtReceiver, of a limiter: "charge");

/// Permits that were granted without the store. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeCall {
    pub(crate) now: Now,
    pub(crate) id: EntryId,
    /// The date of the entry. An expired entry is not written.
    pub(crate) date: i64,
    /// 1..=2^32-1
    pub(crate) permits: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargeReply {
    /// Whether the entry is in the log now.
    pub(crate) counts: bool,
    /// The permits left; negative if more are in use than the rate allows.
    pub(crate) left: i64,
    /// The rate in force.
    pub(crate) rate: Rate,
}

impl StoreCall for ChargeCall {
    type Reply = ChargeReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<ChargeReply, Error> {
        let (before, live) = read_all(space, keys, self.now)?;
        let (limiter, counts) = (live.limiter, self.date > live.cutoff());
        let new = settle(self.seen, before, &live)?;
        let is_there = live.log.of_id(self.id).iter().any(|part| part.score == self.date);
        let permits = if counts && !is_there { self.permits as u32 } else { 0 };
        let new = NewValue { v: new.v - i64::from(permits), ..new };

        // Write.
        let changes = live.into_changes();
        limiter.write(space, before, new, |log| {
            changes.write(log);
            if permits > 0 {
                log.add(self.date, pack(self.id, permits));
            }
        })?;
        Ok(ChargeReply { counts, left: new.v, rate: limiter.to_rate() })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&CHARGE, keys)
            .time(self.now)
            .arg(pack(self.id, self.permits as u32))
            .arg(self.date)
            .seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<ChargeReply> {
        let (counts, left) = (answer.integer(5)? == 1, answer.integer(1)?);
        Some(ChargeReply { counts, left, rate: answer.rate()? })
    }
}
