//! Permits that are taken without a request: charged, as they were granted without the store; or withheld by a pause.
//!
//! `lua/charge.lua` and `lua/pause.lua` are its twins.

use super::*;

script!(CHARGE, AtReceiver, of a limiter: "charge");
script!(PAUSES, AtReceiver, of a limiter: "pause");

/// Permits that were granted without the store. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeCall {
    pub(crate) now: Option<i64>,
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
        limiter.write(space, before, new, live.changes, |log| {
            if permits > 0 {
                log.add(self.date, pack(self.id, permits));
            }
        })?;
        Ok(ChargeReply { counts, left: new.v, rate: limiter.to_rate() })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&CHARGE, keys)
            .opt(self.now)
            .arg(pack(self.id, self.permits as u32))
            .arg(self.date)
            .seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<ChargeReply> {
        let (counts, left) = (answer.integer(5)? == 1, answer.integer(1)?);
        Some(ChargeReply { counts, left, rate: answer.rate()? })
    }
}

/// Pauses a limiter, or ends its pause. If it is paused already, the later end counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseCall {
    pub(crate) now: Option<i64>,
    /// How long the pause lasts from now on; 0 ends it.
    pub(crate) ms: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<Rate>,
}

fn part(number: u16) -> Vec<u8> {
    pack(PAUSE.part(number), MAX_ENTRY_PERMITS as u32)
}

impl StoreCall for PauseCall {
    type Reply = ();

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<(), Error> {
        let (before, live) = read_all(space, keys, self.now)?;
        let (limiter, now, cutoff) = (live.limiter, live.t, live.cutoff());
        let settled = settle(self.seen, before, &live)?;
        let (mut parts, mut ends) = (0, now + self.ms as i64);
        while let Some(score) = live.log.score(&part(parts)).filter(|score| *score > cutoff) {
            (parts, ends) = (parts + 1, ends.max(score + limiter.interval));
        }
        let after = match self.ms {
            0 => 0,
            _ => {
                (limiter.rate as u64).div_ceil(MAX_ENTRY_PERMITS).min(MAX_PAUSE_PARTS.into()) as u16
            }
        };
        let freed = (i64::from(parts) - i64::from(after)) * MAX_ENTRY_PERMITS as i64;

        // Write.
        let value = NewValue { v: settled.v + freed, ..settled };
        limiter.write(space, before, value, live.changes, |log| {
            (0..after).for_each(|number| log.add(ends - limiter.interval, part(number)));
            for number in after..parts {
                log.remove(&part(number));
            }
        })?;
        if after > 0 && limiter.keep_alive > 0 {
            // Otherwise the limiter would be gone, and the pause with it, if nobody called for a keep-alive.
            for key in [limiter.hash, limiter.value, limiter.log] {
                space.expire_in(key, (ends - now).min(FAR_TTL_MS) + limiter.keep_alive);
            }
        }
        Ok(())
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&PAUSES, keys).opt(self.now).arg(self.ms).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<()> {
        answer.integer(0).map(drop)
    }
}
