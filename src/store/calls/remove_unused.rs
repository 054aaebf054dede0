//! Remove unused: removes a value and a log that carry no information.
//!
//! `lua/remove_unused.lua` is its twin.

use std::sync::Arc;

use super::*;

script!(REMOVE_UNUSED, AtReceiver, of a limiter: "remove_unused");

/// Removes a value and a log without information; the reply is the number of removed keys. If there is no
/// hash, removes a log that has only entries of Redisson, the last older than `age_ms`, or a lone integer
/// value. Removes nothing while there is a limiter with the same value and log: [`Keys::sibling`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoveUnusedCall {
    pub(crate) now: Option<i64>,
    pub(crate) age_ms: u64,
}

impl StoreCall for RemoveUnusedCall {
    type Reply = u64;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<u64, Error> {
        let has_hash = space.hash(&keys.hash)?.is_some();
        // `api` and `{api}` have the same values and logs: both are in use if either limiter exists.
        if keys.sibling().is_some_and(|sibling| space.has(&sibling.hash)) {
            return Ok(0);
        }
        if !has_hash {
            // Only their names say that these are a limiter's keys: another program may use the same names.
            let cutoff = space.time(self.now).saturating_sub_unsigned(self.age_ms);
            let mut unused = Vec::new();
            for pair in [(&keys.value, &keys.permits), (&keys.client_value, &keys.client_permits)] {
                let (text, log) = (space.text(pair.0)?, space.log(pair.1)?);
                let number = text.and_then(integer);
                let is_unused = match log {
                    None => number.is_some(),
                    Some(log) => {
                        let newest = log.iter().last().map(|(date, _)| date);
                        text.is_none() == number.is_none()
                            && !log.has_foreign()
                            && newest.is_none_or(|date| date <= cutoff)
                    }
                };
                if is_unused {
                    unused.push(pair);
                }
            }
            return Ok(unused.into_iter().map(|(value, log)| remove(space, value, log)).sum());
        }
        let (before, mut live) = read_all(space, keys, self.now)?;
        let limiter = live.limiter;
        if before.is_none() && (live.log.is_empty() || space.has(limiter.value)) {
            // There is nothing, or a value that is not an integer: its owner is unknown.
            return Ok(0);
        }
        let mut value = settle(None, before, &live)?;
        let deficit = heal(&mut value, &mut live, false, u64::MAX)?;
        let says_nothing = deficit == 0 && value.v == limiter.rate;
        Ok(if says_nothing { remove(space, limiter.value, limiter.log) } else { 0 })
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        // No limiter in another slot of a cluster can use these keys.
        let sibling = keys.sibling().filter(|it| !in_cluster || check_one_slot(it).is_ok());
        let mut names = keys.all().to_vec();
        names.extend(sibling.as_ref().map(|sibling| &*sibling.hash));
        ServerCommand::script(&REMOVE_UNUSED, &names).opt(self.now).arg(self.age_ms.min(MAX_EXACT))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<u64> {
        answer.unsigned(1)
    }
}

/// Removes both keys; returns how many there were.
fn remove(space: &mut Keyspace, value: &Arc<str>, log: &Arc<str>) -> u64 {
    [value, log].into_iter().filter(|key| space.remove(key).is_some()).count() as u64
}
