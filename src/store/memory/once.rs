//! The earlier grant of a call whose id says what it is for.
//!
//! `lua/part/once.lua` is its twin.

use crate::error::Error;
use crate::rate::MAX_EXACT;
use crate::store::memory::config::StoredLimiter;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::log::Part;
use crate::store::{AcquireCall, AcquireReply, Outcome, OutcomeGroup};
use crate::wire::entry::ID_LEN;
use crate::wire::keys::Keys;

/// The answer if the log has a live entry of the call's id: what is left of that grant, whatever the call asks for.
pub(super) fn granted_before(
    space: &Keyspace,
    keys: &Keys,
    call: &AcquireCall,
) -> Result<Option<AcquireReply>, Error> {
    let Ok(limiter) = StoredLimiter::read(space, keys, None) else { return Ok(None) };
    let left = limiter.read_value(space)?.unwrap_or(0);
    let now = space.time(call.now);
    let cutoff = limiter.cutoff(now);
    let is_earlier = |part: &Part| {
        part.score > cutoff && part.permits > 0 && part.member[1..=ID_LEN] == call.id.0
    };
    let found = space.log_or_empty(limiter.log)?.of_id(call.id).into_iter().filter(is_earlier);
    let earlier = found.min_by(|a, b| (a.score, &a.member).cmp(&(b.score, &b.member)));
    let granted = vec![OutcomeGroup { count: 1, outcome: Outcome::Granted }];
    Ok(earlier.map(|earlier| AcquireReply {
        entry_date: earlier.score.min(MAX_EXACT as i64),
        granted_before: Some(earlier.permits as u64),
        ..AcquireReply::new(now, limiter.to_rate(), left, granted)
    }))
}
