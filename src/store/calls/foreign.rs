//! The scripts of limits that other services enforce, and which of their keys a call names.

use super::*;
use crate::policy::foreign::Format;
use crate::policy::{Kind, Policy};
use crate::store::redis::{Script, check_same_slot};

/// The script of a format. Of several keys some are usually missing, so in a cluster calls wait while the slot is
/// being moved.
macro_rules! foreign {
    ($name:ident, $($part:literal),+) => {
        script!($name, Waits: "policy/head", "policy/names", $($part),+, "policy/read", "policy/decide", "policy/write");
    };
}

foreign!(REDIS_RATE_GCRA, "policy/pace", "foreign/common", "foreign/redis_rate_gcra");
foreign!(COUNTER, "foreign/common", "foreign/counter");
foreign!(TOKENS, "foreign/common", "foreign/tokens");
foreign!(LOG, "foreign/common", "foreign/log");
foreign!(QUOTA_FIXED, "foreign/common", "foreign/quota_fixed");
foreign!(QUOTA_ROLLING, "foreign/common", "foreign/quota_rolling");

pub(super) fn foreign_script(format: &Format) -> &'static Script {
    match format {
        Format::RedisRateGcra => &REDIS_RATE_GCRA,
        Format::Windows(..) | Format::Seconds | Format::OrgPathCounter => &COUNTER,
        Format::OrgPathFunnel | Format::AllowList => &TOKENS,
        Format::Log => &LOG,
        Format::MixerFixed => &QUOTA_FIXED,
        Format::MixerRolling => &QUOTA_ROLLING,
    }
}

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
