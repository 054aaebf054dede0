//! Acquire: a batch of requests decided as one step, once.
//!
//! The rule is in `store/memory/acquire.rs`, the twin of `lua/acquire.lua`.

use super::*;
use crate::options::Fraction;
use crate::store::memory::acquire::acquire;
use crate::wire::entry::EntryId;

mod wire;

#[cfg(test)]
pub(crate) use wire::pack_groups;

script!(ACQUIRE, AtEither: "part/hash", "part/clock", "part/arguments", "part/limits", "part/grant_usual",
    "part/numbers", "part/config", "part/lifetime", "part/entry", "part/live_log", "part/settle",
    "part/trim", "part/heal", "part/wait", "part/grant", "part/attempt", "part/share", "part/reserve",
    "part/decide", "acquire");

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
    /// This part of the rate must be left after each grant.
    pub(crate) headroom: Option<Fraction>,
    pub(crate) groups: Vec<RequestGroup>,
}

impl StoreCall for AcquireCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<AcquireReply, Error> {
        acquire(space, keys, self)
    }

    /// With all keys, or those of the mode that was last seen.
    ///
    /// In a cluster with all: while a slot is being moved its owner carries out a call whose keys are all
    /// there, and may refuse a write in the middle of it. Of all five one is nearly always missing, and
    /// the call goes the way of redis/nodes/open_slot.rs.
    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        match self.seen.filter(|_| !in_cluster) {
            Some(seen) => wire::command(&ACQUIRE, &keys.of_mode(seen.rate().mode()), self),
            None => wire::command(&ACQUIRE, &keys.all(), self),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        wire::read(self, answer)
    }

    /// Another mode is in force than that whose keys it named, and nothing has been done. It is dated as
    /// if it had named the right keys at once.
    fn with_all_keys(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let date = answer.integer(1).filter(|_| answer.integer(0) == Some(-7))?;
        Some(AcquireCall { now: Now::At(date), ..self.clone() })
    }
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
    /// It asks for more than the rate without the headroom. It blocks nobody.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> impl Iterator<Item = &str> {
        source.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("--"))
    }

    /// How many names a statement declares in the chunk; a list that goes on in the next line ends with a comma.
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

    /// Each function that a script makes, and each name that it declares, is made anew at each call; Lua takes
    /// 200 of them. What goes beyond this is better left out than raised.
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
