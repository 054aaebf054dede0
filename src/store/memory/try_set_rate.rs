//! Setting the rate if there is no limiter yet.
//!
//! `lua/try_set_rate.lua` is its twin.

use crate::error::Error;
use crate::rate::Rate;
use crate::store::memory::config::{TYPE, create, missing};
use crate::store::memory::keyspace::Keyspace;
use crate::store::refusal;
use crate::wire::keys::Keys;

pub(super) fn try_set_rate(space: &mut Keyspace, keys: &Keys, rate: &Rate) -> Result<bool, Error> {
    if let Some(fields) = space.hash(&keys.hash)?
        && fields.contains_key(TYPE)
    {
        return match missing(fields) {
            [false, false, false] => Ok(false),
            missing => Err(refusal::incomplete(missing)),
        };
    }
    create(space, keys, rate)
}
