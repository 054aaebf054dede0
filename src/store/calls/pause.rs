//! Pause: nobody is granted anything until a time.
//!
//! `lua/pause.lua` is its twin.

use super::*;
use crate::store::limits::{FAR_TTL_MS, MAX_PAUSE_PARTS};
use crate::store::memory::config::read_all;
use crate::store::memory::settle::{NewValue, settle};
use crate::wire::entry::{MAX_ENTRY_PERMITS, PAUSE, pack};

script!(PAUSES, AtReceiver, of a limiter: "pause");

/// Pauses a limiter, or ends its pause. If it is paused already, the later end counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseCall {
    pub(crate) now: Now,
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
        let changes = live.into_changes();
        let value = NewValue { v: settled.v + freed, ..settled };
        limiter.write(space, before, value, |log| {
            changes.write(log);
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
        ServerCommand::of_limiter(&PAUSES, keys).time(self.now).arg(self.ms).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<()> {
        answer.integer(0).map(drop)
    }
}
