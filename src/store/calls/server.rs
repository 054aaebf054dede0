//! Questions about the server that has a limiter.

use super::*;

/// The clock that dates the grants of this limiter, in microseconds since the Unix epoch.
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
            // TIME has no key by which it could be routed.
            true => ServerCommand::plain("EVAL", &["return redis.call('TIME')", "1", &keys.hash]),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<i64> {
        let part = |at| answer.parsed(at).or_else(|| answer.integer(at));
        let (seconds, micros): (i64, i64) = (part(0)?, part(1)?);
        seconds.checked_mul(1_000_000)?.checked_add(micros)
    }
}

/// Finds out whether acquires of this limiter would be carried out now: a write that changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeCall;

impl StoreCall for ProbeCall {
    type Reply = ();

    fn decide(&self, _: &mut Keyspace, _: &Keys) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        // Of the log, which there need not be: a script, as an acquire is, with a write that memory
        // is needed for.
        let script = "redis.call('ZADD', KEYS[1], 'XX', '0', '') return 0";
        ServerCommand::plain("EVAL", &[script, "1", &keys.permits])
    }

    fn read(&self, _: ServerAnswer<'_>) -> Option<()> {
        Some(())
    }
}
