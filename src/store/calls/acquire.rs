//! Acquire: a batch of requests decided as one step, once; each takes from all limiters of the call, or from none.
//!
//! The rule is in `store/memory/acquire.rs`, the twin of `lua/acquire.lua`.

use super::*;
use crate::options::Fraction;
use crate::policy::{Mark, Notes};

mod wire;

pub(crate) use wire::pack_groups;

script!(ACQUIRE, AtEither, acquires: "part/arguments", "part/limits", "part/grant_usual";);
script!(ACQUIRE_ONCE, AtEither, acquires: "part/arguments", "part/limits"; "part/once");
script!(ACQUIRE_ALL, Waits, acquires: "part/arguments_all", "part/limits", "part/grant_usual_all"; "part/turn_to");

/// Requests for one limiter or several, to be decided in this order. One whose id is [that of a key](EntryId::of_key),
/// and which has one request for one limiter only, is answered with the key's earlier grant if there is one.
///
/// A call for several limiters has no hold, share, reservation or headroom.
#[derive(Clone, Debug)]
pub(crate) struct AcquireCall {
    /// The time of the call in ms, which dates its grant; `None`, here and in the other calls: the store's own.
    pub(crate) now: Option<i64>,
    /// The id of the grant, which stays the same when the call is attempted again.
    pub(crate) id: EntryId,
    /// Whether entries are expected to have expired. Only the cost of the call depends on it.
    pub(crate) expects_expired: bool,
    /// An audit unless 0: sum the log if it has no more entries than this. A call without `seen` sums any
    /// log.
    pub(crate) audit_limit: u64,
    /// How far ahead of `now` the grant is dated, in ms: the hold of a lease, otherwise 0.
    pub(crate) hold_ms: u64,
    /// Where in the log an earlier attempt of this call may have left its grant.
    pub(crate) earlier: Earlier,
    /// Limits requests that can wait to their client's share; `None`: they take whatever is free.
    pub(crate) share: Option<ShareTerms>,
    /// Whether the only request is served by a [reservation](Outcome::Reserved) if it does not fit. A
    /// reservation that it already has, under the same id, is given up first: the request is decided anew.
    pub(crate) reserve: bool,
    /// This part of the rate must be left after each grant.
    pub(crate) headroom: Option<Fraction>,
    pub(crate) limits: Vec<LimitCall>,
}

/// What a call asks of one limiter.
#[derive(Clone, Debug)]
pub(crate) struct LimitCall {
    pub(crate) keys: Keys,
    /// The rate that this client last saw in the limiter's hash, and has applied to the value since; `None` if it has
    /// seen none. A store that finds it unchanged need not send it back.
    pub(crate) seen: Option<Rate>,
    /// The rate to create the limiter with if there is none yet and a request fits within the rate.
    pub(crate) create: Option<Rate>,
    /// Each limiter of a call has equally many requests, with the same waits.
    pub(crate) groups: Vec<RequestGroup>,
}

impl StoreCall for AcquireCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, _: &Keys) -> Result<AcquireReply, Error> {
        acquire(space, self)
    }

    /// Names all keys, or of a limiter alone only those of the mode that was last seen.
    ///
    /// In a cluster it names all: while a slot is being moved, its owner carries out a call whose keys are
    /// all there, and may refuse a write in the middle of it. Of all five keys one is nearly always missing,
    /// and the call is sent as redis/nodes/open_slot.rs describes.
    fn command(&self, _: &Keys, in_cluster: bool) -> ServerCommand {
        let [LimitCall { keys, seen, .. }] = &self.limits[..] else {
            return wire::command_all(&ACQUIRE_ALL, self);
        };
        if self.id.is_of_key() {
            return wire::command(&ACQUIRE_ONCE, &keys.all(), self);
        }
        match seen.filter(|_| !in_cluster) {
            Some(seen) => {
                wire::command(&ACQUIRE, &keys.of_mode(seen.mode()).map(|key| &**key), self)
            }
            None => wire::command(&ACQUIRE, &keys.all(), self),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        wire::read(self, answer)
    }

    /// The call with all keys, if another mode is in force than the one whose keys it named: then nothing has
    /// been done. It gets the date that it would have had with the right keys at once.
    fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let date = answer.integer(1).filter(|_| answer.integer(0) == Some(-7))?;
        Some(AcquireCall { now: Some(date), ..self.clone() })
    }
}

impl AcquireCall {
    /// A first attempt for one limiter that asks for nothing special.
    pub(crate) fn usual(now: Option<i64>, id: EntryId, limit: LimitCall) -> Self {
        AcquireCall {
            now,
            id,
            expects_expired: false,
            audit_limit: 0,
            hold_ms: 0,
            earlier: Earlier::default(),
            share: None,
            reserve: false,
            headroom: None,
            limits: vec![limit],
        }
    }

    /// An error about this limiter, which it names if it is one of several.
    pub(crate) fn named(&self, limit: &LimitCall, error: Error) -> Error {
        if self.limits.len() > 1 { error.in_limiter(&limit.keys.hash) } else { error }
    }
}

/// Equal requests, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestGroup {
    /// The permits of each request: 1..=2^32-1.
    pub(crate) permits: u64,
    /// The longest wait of each request, in ms; 0 if it does not wait.
    pub(crate) max_wait_ms: u64,
    pub(crate) count: u64,
}

pub(crate) fn total_permits(groups: &[RequestGroup]) -> u64 {
    let permits = groups.iter().map(|group| group.permits.saturating_mul(group.count));
    permits.fold(0, u64::saturating_add)
}

pub(crate) fn request_count(groups: &[RequestGroup]) -> u64 {
    groups.iter().map(|group| group.count).sum()
}

/// The requests with their outcomes: the permits of each, the number of equal ones, and their outcome.
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

/// Facts known to a client limited to its share that are not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// The least number of other parties: they held permits not long ago, or are presumed to exist.
    pub(crate) others: u64,
    /// The permits that everybody has left for long enough: anybody may take them.
    pub(crate) unclaimed: u64,
    /// The time until there may be more to take, in ms, unless some of the client's own permits come back
    /// before.
    pub(crate) retry_after_ms: u64,
    /// Whether a request for more than the whole share passes if the client holds less than the share.
    pub(crate) may_exceed: bool,
}

/// The holders of permits, found by a call that was limited to its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// The number of parties that the other clients of this crate count as.
    pub(crate) others: u64,
    pub(crate) redisson: bool,
    pub(crate) share: u64,
    pub(crate) entries: u64,
}

impl ShareTerms {
    /// The terms as an argument for `lua/part/share.lua`.
    pub(super) fn text(&self) -> String {
        let [unclaimed, after] =
            [self.unclaimed, self.retry_after_ms].map(|number| number.min(MAX_EXACT));
        let (others, may_exceed) = (self.others.min(MAX_OTHERS), u8::from(self.may_exceed));
        format!("{others},{unclaimed},{after},{may_exceed}")
    }
}

impl Holders {
    pub(super) fn read(answer: ServerAnswer<'_>) -> Option<Self> {
        Some(Holders {
            others: answer.unsigned(0)?,
            redisson: answer.unsigned(1)? == 1,
            share: answer.unsigned(2)?,
            entries: answer.unsigned(3)?,
        })
    }
}

/// What an attempt of a call says of the earlier ones, as the script's arguments do. By default it is the first, by the
/// client's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// Attempted before, with unknown outcome. A first attempt still detects that its own retry has overtaken it, by an
    /// entry of its id.
    pub(crate) is_again: bool,
    /// The last server time seen before the first attempt, if the server dates them: an entry of the call's id with a
    /// later date is the call's own, and a new grant must have a later one. `None`: one dated no earlier than this
    /// attempt.
    pub(crate) since: Option<i64>,
    /// The dates of what earlier attempts by the client's clock were granted, holds included.
    pub(crate) dates: Vec<i64>,
    /// The date of the request's reservation, which no attempt of this call has made.
    pub(crate) reserved: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireReply {
    /// The time at which it was decided, epoch ms.
    pub(crate) now: i64,
    /// The rate in force.
    pub(crate) rate: Rate,
    /// The date of the grant's entry: `now` + hold. Meaningless if nothing was granted.
    pub(crate) entry_date: i64,
    /// The permits left after the call; negative after a rate was lowered.
    pub(crate) left: i64,
    /// The outcomes in the order of the requests; their counts add up to the number of requests.
    pub(crate) outcomes: Vec<OutcomeGroup>,
    /// The holders of permits, if the call was limited to a share.
    pub(crate) holders: Option<Holders>,
    /// The permits by which value and log together fell short of the rate before this call repaired them;
    /// negative if they exceeded it. [`exact`](crate::rate::exact).
    pub(crate) repaired: i64,
    /// The permits of an earlier grant: that a key has, instead of those that the call asked for, or that an earlier
    /// attempt was granted under a policy.
    pub(crate) granted_before: Option<u64>,
    /// The reply of each limiter, in the call's order; none for a limiter alone, whose reply this is.
    pub(crate) limits: Vec<AcquireReply>,
    /// What a limiter with a policy says of the call's grant.
    pub(crate) mark: Option<Marked>,
    pub(crate) notes: Notes,
}

/// What a limiter with a policy says of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    /// What the grant is given back by.
    pub(crate) mark: Mark,
    /// The time of the decision, epoch microseconds, which an earlier attempt may have found.
    pub(crate) at: i64,
    /// The store's time, epoch microseconds.
    pub(crate) now: i64,
}

impl AcquireReply {
    /// The reply of a call that granted only what is dated now, with nothing more to say.
    pub(crate) fn new(now: i64, rate: Rate, left: i64, outcomes: Vec<OutcomeGroup>) -> Self {
        AcquireReply {
            now,
            rate,
            entry_date: now,
            left,
            outcomes,
            holders: None,
            repaired: 0,
            granted_before: None,
            limits: Vec::new(),
            mark: None,
            notes: Notes::default(),
        }
    }

    /// The reply about these limiters, from that of each without outcomes. That about several is with the fewest permits
    /// left, and the rate of the shortest interval, which decides whether an answer is late.
    pub(crate) fn of_limits(mut limits: Vec<AcquireReply>, outcomes: Vec<OutcomeGroup>) -> Self {
        if limits.len() == 1 {
            return AcquireReply { outcomes, ..limits.remove(0) };
        }
        limits.iter_mut().for_each(|limit| limit.outcomes.clone_from(&outcomes));
        let (now, entry_date) = (limits[0].now, limits[0].entry_date);
        let rate = limits.iter().map(|limit| limit.rate).min_by_key(Rate::interval_ms);
        let rate = rate.unwrap_or_else(|| unreachable!("a group has at least one limiter"));
        let left = limits.iter().map(|limit| limit.left).min().unwrap_or(0);
        AcquireReply { entry_date, limits, ..AcquireReply::new(now, rate, left, outcomes) }
    }

    /// The permits that these requests were granted.
    pub(crate) fn granted(&self, groups: &[RequestGroup]) -> u64 {
        let granted = decided(groups, &self.outcomes).filter(|(.., outcome)| outcome.is_grant());
        granted.map(|(permits, count, _)| permits * count).sum()
    }

    /// The reply about each limiter.
    pub(crate) fn limits(&self) -> &[AcquireReply] {
        if self.limits.is_empty() { std::slice::from_ref(self) } else { &self.limits }
    }

    /// The rate that the client has now seen; `None` if no more than before. A call whose requests all exceed
    /// the rate reports that rate but does not apply it: if it counted as seen, the next call would believe a
    /// value that was never fitted to it.
    pub(crate) fn seen(&self) -> Option<Rate> {
        let is_decided = |group: &OutcomeGroup| {
            !matches!(group.outcome, Outcome::ExceedsRate | Outcome::Reserved(_))
        };
        // A reply that repeats an earlier grant or reservation was made without reading the value.
        let is_applied = self.granted_before.is_none() && self.outcomes.iter().any(is_decided);
        is_applied.then_some(self.rate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeGroup {
    pub(crate) count: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    /// The request did not fit, and its longest wait is shorter than this. Of several limiters, the one of this number
    /// is to be waited for longest.
    Refused(Wait, u8),
    /// The request does not fit and can wait: it stays in the queue, and so do all requests behind it.
    Waiting(Wait),
    /// The request does not fit and can wait. So that nobody takes its permits one by one as they come back,
    /// its entry is already in the log, dated with the end of this wait, and the value is negative until
    /// then. A later call grants it.
    Reserved(Wait),
    /// Granted from this time on, epoch microseconds. Only a queue answers so, each request by itself; the mark is
    /// what the permits are given back by.
    Scheduled {
        start: i64,
        mark: Mark,
    },
    /// The request asks for more than the rate without the headroom. It does not block others.
    ExceedsRate,
    /// The log has more expired entries than one call drops: ask again at once. All requests behind an
    /// undecided one are undecided.
    Undecided,
}

impl Outcome {
    pub(crate) fn is_grant(self) -> bool {
        matches!(self, Outcome::Granted | Outcome::Scheduled { .. })
    }
}

/// Adds what became of so many requests.
pub(crate) fn push_outcome(outcomes: &mut Vec<OutcomeGroup>, count: u64, outcome: Outcome) {
    match outcomes.last_mut() {
        _ if count == 0 => {}
        Some(group) if group.outcome == outcome => group.count += count,
        _ => outcomes.push(OutcomeGroup { count, outcome }),
    }
}

/// The time until a request can be granted, counting the requests before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) us: u64,
    /// Whether the true wait may be longer. It can be shorter only if permits come back.
    pub(crate) at_least: bool,
}

impl Wait {
    pub(crate) fn of_ms(ms: u64, at_least: bool) -> Self {
        Wait { us: ms.saturating_mul(1000), at_least }
    }

    /// The wait in whole milliseconds, rounded up.
    pub(crate) fn ms(self) -> u64 {
        self.us.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(shuttle))]
    impl AcquireCall {
        /// The call with a change to what it asks of its first limiter.
        pub(crate) fn with(mut self, change: impl FnOnce(&mut LimitCall)) -> Self {
            change(&mut self.limits[0]);
            self
        }
    }

    impl Earlier {
        pub(crate) fn first_since(since: i64) -> Self {
            Earlier { since: Some(since), ..Earlier::default() }
        }

        pub(crate) fn since(since: i64) -> Self {
            Earlier { is_again: true, ..Earlier::first_since(since) }
        }

        pub(crate) fn dated(dates: Vec<i64>) -> Self {
            Earlier { is_again: true, dates, ..Earlier::default() }
        }

        pub(crate) fn reserved(since: i64, date: i64) -> Self {
            Earlier { reserved: Some(date), ..Earlier::since(since) }
        }
    }

    fn code(source: &str) -> impl Iterator<Item = &str> {
        source.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("--"))
    }

    /// The number of names that the chunk declares. A list that continues on the next line ends with a comma.
    fn locals(source: &str) -> usize {
        let lines: Vec<&str> = code(source).collect();
        let mut count = 0;
        for (at, line) in lines.iter().enumerate() {
            let Some(names) = line.strip_prefix("local ") else { continue };
            count += match names.split_once('=') {
                _ if names.starts_with("function ") => 1,
                Some((names, _)) => names.split(',').count(),
                None if names.ends_with(',') => {
                    let rest = lines[at + 1].split('=').next().unwrap();
                    names.split(',').count() - 1 + rest.split(',').count()
                }
                None => names.split("--").next().unwrap().split(',').count(),
            };
        }
        count
    }

    /// Each function that a script makes and each name that it declares is created anew at each call, and Lua
    /// allows 200 of them. Rather leave code out than raise these numbers.
    #[test]
    fn an_acquire_stays_small() {
        let source = ACQUIRE.source();
        let (lines, locals) = (code(source).count(), locals(source));
        assert!(lines <= 700 && locals <= 80, "{lines} lines, {locals} locals");
        let usual = code(include_str!("../../../lua/part/grant_usual.lua")).count();
        assert!(usual <= 80, "{usual} lines");
    }

    #[test]
    fn locals_are_counted() {
        let source = "local a, b = 1, 2\nlocal c -- d, e\nlocal function f(g)\n  local h\nend\n\
            local i, j,\n  k = unpack(l)\n-- local m\n";
        assert_eq!(locals(source), 7);
    }
}
