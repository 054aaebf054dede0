//! Forgetting the usage: the value and the log go, the hash stays.
//!
//! `lua/drop_usage.lua` is its twin.

use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::store::memory::config::{Pair, config};
use crate::store::memory::keyspace::Keyspace;
use crate::wire::keys::Keys;

pub(super) fn drop_usage(
    space: &mut Keyspace,
    keys: &Keys,
    mode: Mode,
) -> Result<Option<Rate>, Error> {
    let rate = config(space, keys)?;
    if rate.is_some_and(|rate| rate.mode() == mode) {
        let pair = Pair::of(keys, mode);
        space.remove(pair.value);
        space.remove(pair.log);
    }
    Ok(rate)
}
