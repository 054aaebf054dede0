//! Repair: fits value and log to the rate as an audit does, and gives them the lifetime of the hash.
//!
//! `lua/repair.lua` is its twin.

use std::sync::Arc;

use super::*;

script!(REPAIR, AtReceiver, of a limiter: "repair");

/// Fits value and log to the rate. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairCall {
    pub(crate) now: Option<i64>,
    /// The id from which those of debts are derived.
    pub(crate) id: EntryId,
    pub(crate) only_look: bool,
}

/// The result of [`RateLimiter::repair`](crate::RateLimiter::repair), done or only previewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The rate in force.
    pub rate: Rate,
    /// The value that was found; `None` if there was no readable one.
    pub before: Option<i64>,
    /// The correct value, including what has expired; it may be negative.
    pub after: i64,
    /// The permits in expired entries, which every call gives back to the value.
    pub expired: u64,
    /// The permits that were neither left nor in the log; they come back an interval after the repair.
    pub debt: u64,
    /// How many of the hash, the value and the log live for ever although the limiter does not; they get its
    /// time to live.
    pub endless_keys: u64,
    /// The permits that are both left and in the log, as Redisson's `release` leaves them; they are taken out
    /// of the log.
    pub excess: u64,
    /// The number of entries dated more than 25 hours ahead. No lease is held for more than a day, so such
    /// dates are mistakes, which would withhold their permits until then. The repair dates them now, so they
    /// expire an interval later.
    pub dated_ahead: u64,
}

impl Repair {
    /// Whether there is anything to repair.
    pub fn is_needed(&self) -> bool {
        let counts = [self.debt, self.endless_keys, self.excess, self.dated_ahead];
        self.value_is_off() || counts.iter().any(|count| *count > 0)
    }

    /// Whether the repair changes the value for any reason other than expired permits.
    pub fn value_is_off(&self) -> bool {
        let unused = self.before.is_none() && i64::try_from(self.rate.permits()) == Ok(self.after);
        let right = self.before.map(|before| before.saturating_add_unsigned(self.expired));
        !unused && right != Some(self.after)
    }
}

impl StoreCall for RepairCall {
    type Reply = Repair;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Repair, Error> {
        let (before, mut live) = read_all(space, keys, self.now)?;
        let (limiter, t, log) = (live.limiter, live.t, live.log);
        let (mut value, mut deficit, mut is_off) = (None, 0, false);
        // A limiter that was not used has nothing to fit.
        if before.is_some() || !log.is_empty() {
            let mut fitted = settle(None, before, &live)?;
            deficit = heal(&mut fitted, &mut live, false, u64::MAX)?;
            is_off = deficit != 0 || before.is_none_or(|before| fitted.v != before + live.credit);
            value = Some(NewValue { set: true, ..fitted });
        }
        let far_ahead = t.saturating_add(MOST_AHEAD_MS);
        // A pause may last longer.
        let read_ahead = |log: &Log| -> Vec<Vec<u8>> {
            let ahead = log.later_than(far_ahead).filter(|(_, member)| !is_pause(member));
            ahead.map(|(_, member)| member.to_vec()).collect()
        };
        let ends = limiter.keep_alive > 0
            || space.expires_at(limiter.hash).is_some_and(|at| at > space.now());
        let is_endless =
            |key: &&Arc<str>| ends && space.has(key) && space.expires_at(key).is_none();
        let own = [limiter.hash, limiter.value, limiter.log];
        let endless = own.into_iter().filter(is_endless).count() as u64;
        let reply = Repair {
            rate: limiter.to_rate(),
            before,
            after: value.map_or(limiter.rate, |value| value.v),
            expired: live.credit as u64,
            debt: live.changes.debt as u64,
            endless_keys: endless,
            excess: deficit.min(0).unsigned_abs(),
            dated_ahead: read_ahead(log).len() as u64,
        };
        if self.only_look {
            return Ok(reply);
        }

        // Write.
        if let Some(value) = value.filter(|_| is_off) {
            let (debt, changes) = (live.changes.debt, live.changes);
            space.with_log(limiter.log, |log| {
                changes.write(log);
                write_entries(log, debt, |number| self.id.debt(number), t);
            })?;
            space.write_value(limiter.value, before, value);
        }
        // These permits may be in use, so they come back an interval from now; but for those just taken out.
        space.with_log(limiter.log, |log| {
            read_ahead(log).into_iter().for_each(|member| log.add(t, member));
        })?;
        if is_off || endless > 0 || reply.dated_ahead > 0 {
            limiter.refresh_lifetime(space);
        }
        Ok(reply)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&REPAIR, keys)
            .opt(self.now)
            .arg(&pack(self.id, 0)[..17])
            .arg(u8::from(self.only_look))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Repair> {
        Some(Repair {
            rate: answer.rate()?,
            debt: answer.unsigned(1)?,
            before: answer.integer(6).filter(|_| answer.integer(5) == Some(1)),
            after: answer.integer(7)?,
            expired: answer.unsigned(8)?,
            endless_keys: answer.unsigned(9)?,
            excess: answer.unsigned(10)?,
            dated_ahead: answer.unsigned(11)?,
        })
    }
}
