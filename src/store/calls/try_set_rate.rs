//! Setting the rate if there is no limiter yet.
//!
//! `lua/try_set_rate.lua` is its twin.

use super::*;
use crate::store::memory::config::{create, missing};
use crate::store::refusal;
use crate::wire::TYPE;

script!(TRY_SET_RATE, AtReceiver: "part/hash", "try_set_rate");

/// Sets the rate if there is no limiter yet; the reply is whether it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrySetRateCall(pub(crate) Rate);

impl StoreCall for TrySetRateCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        if let Some(fields) = space.hash(&keys.hash)?
            && fields.contains_key(TYPE)
        {
            return match missing(fields) {
                [false, false, false] => Ok(false),
                missing => Err(refusal::incomplete(missing)),
            };
        }
        create(space, keys, &self.0)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&TRY_SET_RATE, keys).rate(&self.0)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}
