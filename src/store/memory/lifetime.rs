//! The lifetime of the keys.
//!
//! `lua/part/lifetime.lua` is its twin.

use crate::store::memory::config::Pair;
use crate::store::memory::keyspace::Keyspace;
use crate::wire::keys::Keys;

/// The lifetime step of a call: the keep-alive for all three keys, or else the hash's time to
/// live for the other two.
pub(crate) fn refresh_lifetime(
    space: &mut Keyspace,
    keys: &Keys,
    pair: &Pair<'_>,
    keep_alive: i64,
) {
    if keep_alive > 0 {
        for key in [&keys.hash, pair.value, pair.log] {
            space.expire_in(key, keep_alive);
        }
    } else if let Some(at) = space.expires_at(&keys.hash).filter(|at| *at > space.now()) {
        space.expire_at(pair.value, at);
        space.expire_at(pair.log, at);
    }
}
