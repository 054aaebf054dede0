//! Peek: an acquire without its writes.
//!
//! `lua/peek.lua` is its twin.

use std::time::Duration;

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

/// The state that an acquire would find now, returned by [`RateLimiter::peek`](crate::RateLimiter::peek).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    pub(crate) available: u64,
    pub(crate) rate: Rate,
    pub(crate) wait: Wait,
}

impl Peek {
    /// The permits that are available now, from 0 to the rate.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The time after which the requested permits are available; zero if they are available now. In whole milliseconds;
    /// for limiters with a policy, in microseconds.
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait.us)
    }

    /// Whether the wait may be longer than [`wait`](Peek::wait) says.
    pub fn is_lower_bound(&self) -> bool {
        self.wait.at_least
    }
}

impl StoreCall for PeekCall {
    type Reply = Peek;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Peek, Error> {
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
        Ok(Peek { rate: live.limiter.to_rate(), available, wait })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&PEEK, keys)
            .opt(self.now)
            .arg(self.permits.min(MAX_EXACT))
            .seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Peek> {
        let wait = Wait::of_ms(answer.unsigned(5)?, answer.integer(6) == Some(1));
        Some(Peek { rate: answer.rate()?, available: answer.unsigned(1)?, wait })
    }
}
