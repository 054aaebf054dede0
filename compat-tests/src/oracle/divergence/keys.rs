//! Divergences in keys and their lifetimes.

use super::Difference;
use crate::keys::Keys;
use crate::oracle::ops::{ErrorKind, Mode, Op, Outcome};
use crate::oracle::state::{Compare, Key, State};

/// A time to live of over five years counts as none.
const FAR_MS: u64 = 5 * 365 * 86_400_000;

fn is_far(ttl: Option<u64>) -> bool {
    ttl.is_some_and(|ms| ms > FAR_MS)
}

/// 8: the time to live of a keep-alive is removed with it; in PER_CLIENT it
/// becomes a very long one.
pub fn keep_alive_ends(d: &Difference<'_>) -> bool {
    d.only_lifetimes() && keep_alive_ended(d)
}

/// The same, in addition to other differences.
pub fn keep_alive_ended(d: &Difference<'_>) -> bool {
    let (Op::SetRate(rate) | Op::SetRateArgs(rate, _) | Op::UpdateRate(rate, _)) = d.call.op else {
        return false;
    };
    let own = (rate.mode == Mode::PerClient).then_some(d.client);
    let keys = Keys::new(d.name());
    let touched = [keys.hash().to_owned(), keys.value(own), keys.log(own)];
    let ended = |ttl: Option<u64>| match rate.mode {
        Mode::Overall => ttl.is_none(),
        Mode::PerClient => is_far(ttl),
    };
    let is_touched =
        |line: &String| touched.iter().any(|key| line.starts_with(&format!("{key}: ")));
    d.outcomes[0] == d.outcomes[1]
        && d.number("keepAliveTime").is_some_and(|ms| ms > 0)
        && rate.keep_alive_ms.is_none()
        && d.after[1].0.iter().filter(|(name, _)| touched.contains(name)).all(|(_, k)| ended(k.ttl))
        && d.lines.iter().filter(|line| line.contains(": ttl ")).all(is_touched)
}

/// 8, 17: a very long time to live is reported as none.
pub fn far_is_endless(d: &Difference<'_>) -> bool {
    *d.call.op == Op::RemainTimeToLive
        && *d.outcomes[1] == Outcome::Count(-1)
        && matches!(d.outcomes[0], Outcome::Count(ms) if is_far(u64::try_from(*ms).ok()))
        && d.lines.is_empty()
}

/// 9: a `trySetRate` that returns false leaves the hash unchanged.
pub fn refused_rate_writes_nothing(d: &Difference<'_>) -> bool {
    matches!(d.call.op, Op::TrySetRate(_))
        && d.field("type").is_some()
        && d.field("keepAliveTime").is_none()
        && d.outcomes == [&Outcome::Flag(false); 2]
        && d.nothing_written()
}

/// 10: all keys of the limiter, or a clear refusal.
pub fn all_keys_move(d: &Difference<'_>) -> bool {
    let keys = Keys::new(d.name());
    let of = |keys: &Keys, client| [keys.value(client), keys.log(client)];
    let there = |name: &String| d.before.0.contains_key(name);
    let ours = d.outcomes[1];
    let to = match d.call.op {
        Op::Rename(to) => Keys::new(to.as_str()),
        Op::Touch => {
            let any = there(&keys.hash().to_owned())
                || of(&keys, None).iter().any(there)
                || of(&keys, Some(d.client)).iter().any(there);
            return *ours == Outcome::Flag(any) && d.nothing_written();
        }
        _ => return false,
    };
    if !there(&keys.hash().to_owned()) {
        return ours.failure() == Some(ErrorKind::NotInitialized) && d.nothing_written();
    }
    if d.field("type") == Some("1") {
        return ours.failure() == Some(ErrorKind::InvalidArgument) && d.nothing_written();
    }
    let mut expected: State = d.before.clone();
    for key in of(&to, Some(d.client)) {
        expected.0.remove(&key);
    }
    let from = of(&keys, None).into_iter().chain([keys.hash().to_owned()]);
    let onto = of(&to, None).into_iter().chain([to.hash().to_owned()]);
    for (from, onto) in from.zip(onto) {
        expected.0.remove(&onto);
        if let Some(key) = expected.0.remove(&from) {
            expected.0.insert(onto, key);
        }
    }
    *ours == Outcome::Done && Compare::ALL.diff(&expected, d.after[1]).is_empty()
}

/// 17: in PER_CLIENT a very long time to live means none.
pub fn expiry_is_far(d: &Difference<'_>) -> bool {
    let keys = Keys::new(d.name());
    let own = [keys.hash().to_owned(), keys.value(Some(d.client)), keys.log(Some(d.client))];
    let overall = [keys.value(None), keys.log(None)];
    let ttl = |name: &String| d.before.0.get(name).and_then(|key| key.ttl);
    let near = |name: &String| ttl(name).is_some_and(|ms| !is_far(Some(ms)));
    let expires = |name: &String| ttl(name).is_some();
    // If all keys already have a very long time to live or none, nothing changes.
    let became_far = |(name, key): (&String, &Key)| {
        is_far(key.ttl) || !own.iter().any(near) && key.ttl.is_none() && !expires(name)
    };
    *d.call.op == Op::ClearExpire
        && d.field("type") == Some("1")
        && d.only_lifetimes()
        && d.after[1].0.iter().filter(|(name, _)| own.contains(name)).all(became_far)
        && *d.outcomes[1] == Outcome::Flag(own.iter().any(near) || overall.iter().any(expires))
        && d.lines.iter().all(|line| own.iter().any(|key| line.starts_with(&format!("{key}: "))))
}
