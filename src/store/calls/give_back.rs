//! Permits that come back: of one grant, exactly; or the oldest in the log.
//!
//! `lua/refund.lua` and `lua/release.lua` are its twins.

use super::*;

script!(REFUND, AtReceiver, of a limiter: "refund");
script!(RELEASE, AtReceiver, of a limiter: "release");

/// Returns permits of the grant with this id. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefundCall {
    pub(crate) id: EntryId,
    pub(crate) entry_date: i64,
    /// The number of permits that the entry was written with.
    pub(crate) granted: u64,
    /// The number of permits returned so far, including by this call.
    pub(crate) returned: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefundReply {
    /// The permits that were still in the entry and are free again: the amount by which this call lowered it.
    pub(crate) credited: u64,
    /// The permits left in the entry; 0 if there is none.
    pub(crate) left: u64,
}

impl StoreCall for RefundCall {
    type Reply = RefundReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<RefundReply, Error> {
        if space.hash(&keys.hash)?.is_none() {
            return Ok(RefundReply { credited: 0, left: 0 });
        }
        let limiter = StoredLimiter::read(space, keys, None)?;
        let value = limiter.read_value(space)?;
        let log = space.log_or_empty(limiter.log)?;
        let mut parts = log.of_id(self.id);
        parts.retain(|part| part.score == self.entry_date);
        if parts.is_empty() {
            return Ok(RefundReply { credited: 0, left: 0 });
        }
        let held: i64 = parts.iter().map(|part| part.permits).sum();
        let may_keep =
            i64::try_from(self.granted.saturating_sub(self.returned)).unwrap_or(i64::MAX);
        let credit = held - held.min(may_keep);
        let raised = value.filter(|_| credit > 0).map(|v| {
            let is_short = log.len() <= SHORT_LOG;
            let most = if is_short { limiter.rate - (log.sum() - credit) } else { limiter.rate };
            v.max(most.min(v + credit))
        });

        // Write.
        space.with_log(limiter.log, |log| {
            // The last part first.
            parts.sort_by_key(|part| {
                let number = self.id.part_number(&part.member[1..=ID_LEN]);
                std::cmp::Reverse((number, part.permits))
            });
            let mut rest = credit;
            for part in parts {
                let taken = part.permits.min(rest);
                if taken > 0 {
                    log.lower(part.score, &part.member, part.permits - taken);
                }
                rest -= taken;
            }
        })?;
        if let Some(v) = raised.filter(|v| value != Some(*v)) {
            space.change_number(limiter.value, v);
        }
        limiter.refresh_lifetime(space);
        Ok(RefundReply { credited: credit as u64, left: (held - credit) as u64 })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&REFUND, keys)
            .arg(&pack(self.id, 0)[..17])
            .arg(self.entry_date)
            .arg(self.granted)
            .arg(self.returned)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<RefundReply> {
        Some(RefundReply { credited: answer.unsigned(1)?, left: answer.unsigned(2)? })
    }
}

/// Returns the oldest permits in the log; the reply is how many these were, and the rate in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseCall {
    pub(crate) now: Option<i64>,
    pub(crate) permits: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<Rate>,
}

impl StoreCall for ReleaseCall {
    type Reply = (u64, Rate);

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<(u64, Rate), Error> {
        // Everything that has expired is dropped: the oldest permits taken must be live ones.
        let (before, mut live) = read_all(space, keys, self.now)?;
        let new = settle(self.seen, before, &live)?;
        let (limiter, is_short) = (live.limiter, live.is_short());
        if is_short {
            live.sum_log()?;
        }
        let wanted = i64::try_from(self.permits).unwrap_or(i64::MAX);
        let taken = live.trim(wanted)?.min(wanted);
        // After a release by Java there may be too many permits: do not add to the excess.
        let most = if is_short { limiter.rate - live.sum } else { limiter.rate };
        let new = NewValue { v: new.v.max(most.min(new.v + taken)), ..new };

        // Write.
        limiter.write(space, before, new, live.changes, |_| {})?;
        Ok((taken as u64, limiter.to_rate()))
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&RELEASE, keys).opt(self.now).arg(self.permits).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<(u64, Rate)> {
        Some((answer.unsigned(1)?, answer.rate()?))
    }
}
