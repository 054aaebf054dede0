//! Which keys of other services a call names.

use super::*;
use crate::policy::{Kind, Policy};
use crate::store::redis::check_same_slot;

/// The policy for a call in the window of this time, if it has a key for each window.
pub(super) fn around(policy: &Policy, at: i64) -> Policy {
    match &policy.0 {
        Kind::Foreign(foreign) => Policy(Kind::Foreign(foreign.around(at))),
        _ => policy.clone(),
    }
}

/// Fails unless the keys of the others and our own are in one slot.
pub(super) fn check_foreign(policy: &Policy, keys: &Keys) -> Result<(), Error> {
    let Kind::Foreign(foreign) = &policy.0 else { return Ok(()) };
    let names = foreign.keys(&keys.hash, None);
    let mut names = names.iter().map(|name| Keys::new(name, ""));
    let Some(first) = names.next() else { return Ok(()) };
    names.try_for_each(|other| check_same_slot(&first, &other))
}
