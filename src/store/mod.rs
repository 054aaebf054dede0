//! One trait, two stores: "decide these requests, in order, at this time".
//!
//! [`redis`] asks a server by the scripts in `lua/`; [`memory`] is the same rules as plain Rust,
//! the executable model. Both hold one limiter's state as Redisson lays it out: a hash with the
//! rate, a value (permits left), a log of grants. `docs/semantics.md` has the rules.
//!
//! This file is long, as the calls and the replies of all operations are here, beside the trait: to write a
//! store takes all of them, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt;
use futures::future::BoxFuture;

use crate::clock::Now;
use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::rt::RuntimeId;
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

use inspect::{InspectReply, RepairCall, RepairReply, ScanCall, ScanReply};

pub(crate) mod inspect;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod redis;
mod refusal;

pub(crate) use refusal::wrong_type;

/// What a store returns. The future owns all that it needs, so that it can outlive its caller.
pub(crate) type Reply<T> = BoxFuture<'static, Result<T, Error>>;

/// A place where limiters live.
pub(crate) trait Store: Send + Sync + 'static {
    /// Decides the requests of `call`, one after the other, as one step.
    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply>;

    /// Gives permits of one grant back, exactly.
    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply>;

    /// Takes permits out of the log, oldest grant first, and returns how many there were.
    fn release(&self, keys: &Keys, call: ReleaseCall) -> Reply<ReleaseReply>;

    /// Writes permits into the log that were granted without the store, once, whether they fit or
    /// not.
    fn charge(&self, keys: &Keys, call: ChargeCall) -> Reply<ChargeReply>;

    /// What an acquire would see. Writes nothing.
    fn peek(&self, keys: &Keys, call: PeekCall) -> Reply<PeekReply>;

    /// Sets the rate if there is no limiter yet; returns whether it did.
    fn try_set_rate(&self, keys: &Keys, rate: Rate) -> Reply<bool>;

    /// Sets the rate; returns whether it did (only [`SetRate::only_existing`] can say no).
    fn set_rate(&self, keys: &Keys, call: SetRate) -> Reply<bool>;

    /// Removes the value and the log if the limiter is of this mode, and leaves the hash as it is; the rate
    /// in force, `None` if there is no limiter.
    fn drop_usage(&self, keys: &Keys, mode: Mode) -> Reply<Option<Rate>>;

    /// The rate; `None` if there is no limiter.
    fn config(&self, keys: &Keys) -> Reply<Option<Rate>>;

    /// Sets the time to live of all keys; true if any key's changed.
    fn expire(
        &self,
        keys: &Keys,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    ) -> Reply<bool>;

    /// Takes the time to live away; true if any key had one. For a PER_CLIENT limiter a far
    /// time to live takes its place.
    fn clear_expire(&self, keys: &Keys) -> Reply<bool>;

    /// The remaining time to live of the hash.
    fn time_to_live(&self, keys: &Keys) -> Reply<TimeToLive>;

    /// Whether the limiter's hash exists.
    fn exists(&self, keys: &Keys) -> Reply<bool>;

    /// Removes all keys; true if there was any.
    fn delete(&self, keys: &Keys) -> Reply<bool>;

    /// Renames all keys, replacing a limiter of the new name.
    fn rename(&self, from: &Keys, to: &Keys) -> Reply<()>;

    /// Marks all keys as used now, for the server's eviction; true if there was any.
    fn touch(&self, keys: &Keys) -> Reply<bool>;

    /// The bytes that all keys take in the server's memory.
    fn size_in_memory(&self, keys: &Keys) -> Reply<u64>;

    /// What is stored, as it is: at most this many entries of a log. Writes nothing.
    fn inspect(&self, keys: &Keys, most_entries: u64) -> Reply<InspectReply>;

    /// Fits value and log to the rate, as an audit does, and grants nothing.
    fn repair(&self, keys: &Keys, call: RepairCall) -> Reply<RepairReply>;

    /// Removes value and log if they say nothing; how many keys there were. Without a hash, if the log
    /// has only entries of Redisson and the last is older than `age_ms`, or if there is only an integer.
    /// Removes nothing while there is a limiter that has the same value and log: [`Keys::sibling`].
    fn remove_unused(&self, keys: &Keys, now: Now, age_ms: u64) -> Reply<u64>;

    /// The parts that have keys: the servers, by their addresses.
    fn scan_parts(&self) -> Reply<Vec<Arc<str>>>;

    /// Looks at some of a part's keys, and returns those that look like values and logs.
    fn scan(&self, call: ScanCall) -> Reply<ScanReply>;

    /// An error if it cannot hold a limiter with these keys.
    fn check(&self, _keys: &Keys) -> Result<(), Error> {
        Ok(())
    }

    /// Where the server is, without credentials, as errors name it; `None` if there is no server.
    fn address(&self) -> Option<Arc<str>> {
        None
    }

    /// One round trip.
    fn ping(&self) -> Reply<()> {
        Box::pin(self.server_time().map_ok(drop))
    }

    /// The store's own clock, in microseconds since the Unix epoch.
    fn server_time(&self) -> Reply<i64>;

    /// Finds out whether acquires of this limiter would be carried out now: a write that changes
    /// nothing.
    fn probe(&self, keys: &Keys) -> Reply<()> {
        Box::pin(self.exists(keys).map_ok(drop))
    }

    /// A number for the part of the store that has this limiter now, where parts can be away while
    /// others are not.
    fn part_of(&self, _keys: &Keys) -> u64 {
        0
    }

    /// The clock that dates the grants of this limiter.
    fn server_time_of(&self, _keys: &Keys) -> Reply<i64> {
        self.server_time()
    }

    /// Whether one clock dates all grants, and not one for each part of the store.
    fn has_one_clock(&self) -> bool {
        true
    }

    /// Whether it answers without waiting for anything, so that no call lets other tasks run.
    fn is_in_process(&self) -> bool {
        false
    }

    /// The same store, whose calls take no longer than this.
    fn within(&self, limit: Duration) -> Box<dyn Store>;

    /// A runtime has ended: what the store kept for it can go.
    fn runtime_ended(&self, _runtime: RuntimeId) {}
}

/// The rate that a client last saw in a limiter's hash, and has applied to the value since.
///
/// It is another one if the permits or the mode are. The mode belongs to it: if OVERALL was in
/// force for a while, the PER_CLIENT value that was left behind fits whatever the rate was before
/// it, even if the number of permits is the same again. The interval and the keep-alive say nothing
/// about the value; a store that finds all of it unchanged need not send it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenRate(Rate);

impl SeenRate {
    pub(crate) fn rate(self) -> Rate {
        self.0
    }

    /// Whether the value has to be computed anew under this rate.
    pub(crate) fn is_another(self, rate: Rate) -> bool {
        (self.0.mode(), self.0.permits()) != (rate.mode(), rate.permits())
    }
}

impl From<Rate> for SeenRate {
    fn from(rate: Rate) -> Self {
        SeenRate(rate)
    }
}

/// Some requests of one limiter, to be decided in this order.
#[derive(Clone, Debug)]
pub(crate) struct AcquireCall {
    /// The date of what is granted.
    pub(crate) now: Now,
    /// The id of what is granted; the same one when the call is attempted again.
    pub(crate) id: EntryId,
    /// What this client last saw in this limiter's hash; `None`: it knows nothing of it.
    pub(crate) seen: Option<SeenRate>,
    /// Entries are expected to have expired. Only what the call costs depends on it.
    pub(crate) expects_expired: bool,
    /// An audit, unless 0: sum the log if it has no more entries than this. A call with nothing `seen`
    /// sums any.
    pub(crate) audit_limit: u64,
    /// The rate to create the limiter with, if there is no limiter yet and a request can be served at it.
    pub(crate) create: Option<Rate>,
    /// How far ahead of `now` the grant is dated: a lease's hold, in ms; else 0.
    pub(crate) hold_ms: u64,
    /// Where in the log an earlier attempt of this very call may have left its grant.
    pub(crate) earlier: Earlier,
    /// Requests that can wait keep to their client's share; `None`: they take whatever is free.
    pub(crate) share: Option<ShareTerms>,
    /// Its only request is served by a [reservation](Outcome::Reserved) if it does not fit. One that
    /// it has already, under the same id, is given up first: the request is decided anew.
    pub(crate) reserve: bool,
    pub(crate) groups: Vec<RequestGroup>,
}

/// What a client that keeps to its share knows, and the log does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// The others are this many parties at least: they held permits not long ago, or are presumed.
    pub(crate) others: u64,
    /// How many permits everybody has left for long enough: anybody may take them.
    pub(crate) unclaimed: u64,
    /// After how long there may be more to take, in ms, if none of the client's own permits come back
    /// before.
    pub(crate) retry_after_ms: u64,
    /// A request for more than the whole share is not held back, if less than the share is held.
    pub(crate) may_exceed: bool,
}

#[cfg(test)]
impl ShareTerms {
    /// Those of a client that knows of nobody else, for tests.
    pub(crate) const KNOWS_NOBODY: ShareTerms =
        ShareTerms { others: 0, unclaimed: 0, retry_after_ms: 125, may_exceed: true };

    /// Those of one that shares with another party.
    pub(crate) const BESIDE_ANOTHER: ShareTerms =
        ShareTerms { others: 1, ..ShareTerms::KNOWS_NOBODY };
}

/// Who holds permits, as a call found it that keeps to its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// As how many parties the other clients of this crate count.
    pub(crate) others: u64,
    /// Whether Redisson holds any.
    pub(crate) redisson: bool,
    /// The client's share.
    pub(crate) share: u64,
    /// How many entries the log has.
    pub(crate) entries: u64,
}

/// Requests that are alike, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestGroup {
    /// 1..=2^32-1 each.
    pub(crate) permits: u64,
    /// How long each can wait, in ms; 0: it does not.
    pub(crate) max_wait_ms: u64,
    pub(crate) count: u64,
}

/// All permits that these ask for.
pub(crate) fn total_permits(groups: &[RequestGroup]) -> u64 {
    let permits = groups.iter().map(|group| group.permits.saturating_mul(group.count));
    permits.fold(0, u64::saturating_add)
}

/// The requests with their outcomes: the permits of each, how many are alike, and what became of them.
pub(crate) fn decided(
    groups: &[RequestGroup],
    outcomes: &[OutcomeGroup],
) -> impl Iterator<Item = (u64, u64, Outcome)> {
    let mut groups = groups.iter().copied();
    let mut outcomes = outcomes.iter().copied();
    let (mut group, mut outcome) = (groups.next(), outcomes.next());
    std::iter::from_fn(move || {
        let (requests, decision) = (group.as_mut()?, outcome.as_mut()?);
        let count = requests.count.min(decision.count);
        let both = (requests.permits, count, decision.outcome);
        requests.count -= count;
        decision.count -= count;
        if requests.count == 0 {
            group = groups.next();
        }
        if decision.count == 0 {
            outcome = outcomes.next();
        }
        Some(both)
    })
}

/// Whether, and with what dates, a call has been attempted before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// A first attempt by the client's clock. It still finds out that its own retry has overtaken
    /// it: by an entry of its id dated no earlier than itself.
    #[default]
    None,
    /// A first attempt by the server's clock: the last server time seen before it. An entry of
    /// its id dated after this means that its own retry has overtaken it.
    FirstSince(i64),
    /// Attempted before, with the outcome unknown, its grants dated so (holds included).
    Dated(Vec<i64>),
    /// Attempted before by the server's clock, after this server time; the new grant must be
    /// dated later than it.
    Since(i64),
    /// Its request has a reservation of this `date`, which is not its own, made after this time.
    Reserved { since: i64, date: i64 },
}

impl Earlier {
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Earlier::None | Earlier::FirstSince(_))
    }
}

/// The answer to an [`AcquireCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireReply {
    /// The time at which it was decided, epoch ms.
    pub(crate) now: i64,
    /// The rate in force.
    pub(crate) rate: Rate,
    /// The date of the grant's entry: `now` + hold. Meaningless if nothing was granted.
    pub(crate) entry_date: i64,
    /// What is left after the call; negative after a rate was lowered.
    pub(crate) left: i64,
    /// The outcomes in the order of the requests; their counts add up to the requests'.
    pub(crate) outcomes: Vec<OutcomeGroup>,
    /// Who holds permits, if the call kept to a share.
    pub(crate) holders: Option<Holders>,
    /// The permits that value and log together lacked of the rate before this call repaired them;
    /// negative: had beyond it. [`exact`](crate::rate::exact).
    pub(crate) repaired: i64,
}

impl AcquireReply {
    /// What the client has now seen; `None`: no more than before. A call whose requests all ask
    /// for more than the rate tells that rate but does not apply it: taken as seen, the next call
    /// would believe a value that nobody has fitted to it.
    pub(crate) fn seen(&self) -> Option<SeenRate> {
        let is_decided = |group: &OutcomeGroup| group.outcome != Outcome::ExceedsRate;
        self.outcomes.iter().any(is_decided).then(|| self.rate.into())
    }
}

/// Requests one after the other that have the same outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeGroup {
    pub(crate) count: u64,
    pub(crate) outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    /// It did not fit and does not wait that long.
    Refused(Wait),
    /// It does not fit and can wait: it stays in the queue, and all behind it with it.
    Waiting(Wait),
    /// It does not fit and can wait. So that nobody takes its permits one by one as they come back,
    /// its entry is in the log already, dated with the end of this wait, and the value is negative
    /// until then. It is granted by a call after that.
    Reserved(Wait),
    /// It asks for more than the rate. It blocks nobody.
    ExceedsRate,
    /// More expired entries stand in the log than one call drops: ask again at once. All requests
    /// behind an undecided one are undecided.
    Undecided,
}

/// After how long a request can be granted, counting the requests before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) ms: u64,
    /// The true wait may be longer than `ms`; it is not shorter unless permits come back.
    pub(crate) at_least: bool,
}

/// Gives back permits of the grant with this id. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefundCall {
    pub(crate) id: EntryId,
    /// The date of the grant's entry.
    pub(crate) entry_date: i64,
    /// The permits that the entry was written with.
    pub(crate) granted: u64,
    /// The permits given back so far, this call's included.
    pub(crate) returned: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefundReply {
    /// The permits that were still in the entry and are free again: the size by which this call
    /// lowered the entry.
    pub(crate) credited: u64,
    /// The permits left in the entry; 0 if it is not there.
    pub(crate) left: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseCall {
    pub(crate) now: Now,
    pub(crate) permits: u64,
    /// What this client last saw in this limiter's hash.
    pub(crate) seen: Option<SeenRate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseReply {
    /// The permits taken out of the log.
    pub(crate) taken: u64,
    /// The rate in force.
    pub(crate) rate: Rate,
}

/// Permits that were granted without the store. Repeating a call changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeCall {
    pub(crate) now: Now,
    pub(crate) id: EntryId,
    /// The date of the entry. One that has expired is not written.
    pub(crate) date: i64,
    /// 1..=2^32-1
    pub(crate) permits: u64,
    /// What this client last saw in this limiter's hash.
    pub(crate) seen: Option<SeenRate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargeReply {
    /// Whether the entry is in the log now.
    pub(crate) counts: bool,
    /// What is left; negative if more is in use than the rate allows.
    pub(crate) left: i64,
    /// The rate in force.
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeekCall {
    pub(crate) now: Now,
    /// The permits whose wait is asked for; 0 for none.
    pub(crate) permits: u64,
    /// What this client last saw in this limiter's hash.
    pub(crate) seen: Option<SeenRate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeekReply {
    pub(crate) rate: Rate,
    /// Within 0..=rate.
    pub(crate) available: u64,
    /// After how long `PeekCall::permits` can be had; 0 ms if they can be had now.
    pub(crate) wait: Wait,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetRate {
    pub(crate) now: Now,
    pub(crate) rate: Rate,
    /// Do nothing if the hash does not exist.
    pub(crate) only_existing: bool,
    pub(crate) state: StateRule,
}

/// What becomes of the value and the log when a rate is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateRule {
    /// Redisson's `setRate(mode, rate, interval)`: those of the new mode are deleted.
    DropNewMode,
    /// `setRate(args)`: deleted; all four if the mode changes.
    Drop,
    /// With keep-state: kept and fitted to the new rate; all four deleted if the mode changes.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// From now, in ms.
    In(u64),
    /// Until this time, epoch ms by the server's clock.
    At(i64),
}

/// When `expire` is to have an effect; a key without time to live counts as endless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpireCondition {
    /// Only if there is no time to live yet (`NX`).
    IfNotSet,
    /// Only if there is one (`XX`).
    IfSet,
    /// Only if the new one is longer (`GT`).
    IfGreater,
    /// Only if the new one is shorter (`LT`).
    IfLess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeToLive {
    NoLimiter,
    /// None, or one of over five years.
    Endless,
    Ms(u64),
}
