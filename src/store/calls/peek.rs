//! Peek: an acquire without its writes.
//!
//! `lua/peek.lua` is its twin.

use super::*;

script!(PEEK, AtEither, of a limiter: "part/peek", "peek");

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeekCall {
    pub(crate) now: Option<i64>,
    /// The number of permits to compute the wait for; 0 for none.
    pub(crate) permits: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeekReply {
    pub(crate) rate: Rate,
    /// The free permits, within 0..=rate.
    pub(crate) available: u64,
    /// The time until `PeekCall::permits` are available; 0 ms if they are now.
    pub(crate) wait: Wait,
}

impl StoreCall for PeekCall {
    type Reply = PeekReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<PeekReply, Error> {
        let (before, mut live) = read_all(space, keys, self.now)?;
        live.look_at_oldest()?;
        let mut value = settle(self.seen, before, &live)?;
        let permits = self.permits.min(MAX_EXACT) as i64;
        let refuses = permits > value.v.max(0);
        heal(&mut value, &mut live, refuses, audit_limit(self.seen, 0))?;

        let wait = if permits <= value.v.max(0) {
            Wait::of_ms(0, false)
        } else {
            live.wait_for(permits - value.v, (live.t, 0))?
        };
        let available = value.v.clamp(0, live.limiter.rate) as u64;
        Ok(PeekReply { rate: live.limiter.to_rate(), available, wait })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&PEEK, keys)
            .opt(self.now)
            .arg(self.permits.min(MAX_EXACT))
            .seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<PeekReply> {
        let wait = Wait::of_ms(answer.unsigned(5)?, answer.integer(6) == Some(1));
        Some(PeekReply { rate: answer.rate()?, available: answer.unsigned(1)?, wait })
    }
}
