//! The rate in force.
//!
//! `lua/config.lua` is its twin.

use super::*;
use crate::store::memory::config::config;

script!(CONFIG, AtEither, of a limiter: "part/stored_rate", "config");

/// Reads the rate; the reply is `None` if there is no limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigCall;

impl StoreCall for ConfigCall {
    type Reply = Option<Rate>;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Option<Rate>, Error> {
        config(space, keys)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&CONFIG, keys)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Option<Rate>> {
        answer.found_rate()
    }
}
