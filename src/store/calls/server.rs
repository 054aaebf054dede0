//! Questions to the server that has a limiter.

use super::*;

/// Reads the clock that dates this limiter's grants, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerTimeCall;

impl StoreCall for ServerTimeCall {
    type Reply = i64;

    fn decide(&self, space: &mut Keyspace, _: &Keys) -> Result<i64, Error> {
        Ok(space.now().saturating_mul(1000))
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        match in_cluster {
            false => ServerCommand::plain("TIME", &[]),
            // TIME has no key to route it by.
            true => ServerCommand::source("return redis.call('TIME')", &keys.hash),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<i64> {
        let part = |at| answer.parsed(at).or_else(|| answer.integer(at));
        let (seconds, micros): (i64, i64) = (part(0)?, part(1)?);
        seconds.checked_mul(1_000_000)?.checked_add(micros)
    }
}

/// Finds out whether acquires of this limiter would be executed now: a write that changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeCall;

impl StoreCall for ProbeCall {
    type Reply = ();

    fn decide(&self, _: &mut Keyspace, _: &Keys) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        // The write goes to the log, which need not exist. Like an acquire it is a script with a write that
        // needs memory.
        let script = "redis.call('ZADD', KEYS[1], 'XX', '0', '') return 0";
        ServerCommand::source(script, &keys.permits)
    }

    fn read(&self, _: ServerAnswer<'_>) -> Option<()> {
        Some(())
    }
}
