//! The lifetime of the keys.
//!
//! `lua/part/lifetime.lua` is its twin.

use crate::store::memory::config::StoredLimiter;
use crate::store::memory::keyspace::Keyspace;

impl StoredLimiter<'_> {
    /// The lifetime step of a call: the keep-alive for all three keys, or else the hash's time to
    /// live for the other two.
    pub(crate) fn refresh_lifetime(&self, space: &mut Keyspace) {
        if self.keep_alive > 0 {
            for key in [self.hash, self.value, self.log] {
                space.expire_in(key, self.keep_alive);
            }
        } else if let Some(at) = space.expires_at(self.hash).filter(|at| *at > space.now()) {
            space.expire_at(self.value, at);
            space.expire_at(self.log, at);
        }
    }
}
