//! The calls of limiters with a [`Policy`].
//!
//! The rules are in `src/policy`, whose twins are in `lua/policy`. A store counts each call once, by its place in a
//! lane.

use std::sync::Arc;

use super::policy_script::script;
use super::*;
use crate::clock::system_ms;
use crate::policy::frame::Limiter;
use crate::policy::packed;
use crate::policy::window::{Grid, Window};
use crate::policy::{ChangeRule, Followed, Kind, Mark, Policy};
use crate::rt;

mod acquire;

script!(SET_RGCRA, AtReceiver: "policy/set_rgcra");

/// Requests for limiters with a policy, decided in this order: each takes from all of them, or from none.
#[derive(Clone, Debug)]
pub(crate) struct PolicyCall {
    /// The time in epoch microseconds; `None` for the store's own clock.
    pub(crate) at: Option<i64>,
    pub(crate) lane: LaneCall,
    pub(crate) limits: Vec<PolicyLimit>,
    /// Whether the limiters are those of a group: in one, even by itself, a queue grants only what starts at once.
    pub(crate) is_group: bool,
}

/// What a call asks of one limiter.
#[derive(Clone, Debug)]
pub(crate) struct PolicyLimit {
    pub(crate) keys: Keys,
    pub(crate) of: Followed,
    /// Each limiter of a call has equally many requests, with the same waits.
    pub(crate) groups: Vec<RequestGroup>,
}

/// A numbered call of a lane: it counts once. A lane belongs to one client and one limiter or group, and has one call in
/// flight.
#[derive(Clone, Debug)]
pub(crate) struct LaneCall {
    pub(crate) name: Arc<str>,
    /// From 1.
    pub(crate) number: u64,
    /// The number of the call's first attempt. Each that may give back what an earlier one was granted has a number of
    /// its own: if it came after a later one, it would otherwise give back permits that are in use. 0 for a key: what it
    /// was granted earlier is in use.
    pub(crate) first: u64,
    /// The lowest number of a call whose grant nobody uses: it is given back.
    pub(crate) abandon: Option<u64>,
    /// An earlier grant of this very call is no longer its grant if it is older than this, in microseconds: it is
    /// given back, but for a key's.
    pub(crate) max_age_us: Option<u64>,
}

impl LaneCall {
    pub(crate) fn new(name: Arc<str>, number: u64) -> Self {
        LaneCall { name, number, first: number, abandon: None, max_age_us: None }
    }

    /// The first call of a new lane, with a name that no other has, in whatever client: `lua/foreign/log.lua` reads its
    /// beginning as a number.
    pub(crate) fn first() -> Self {
        LaneCall::new(format!("{:016x}", rt::random()).into(), 1)
    }

    /// The lane's next call.
    pub(crate) fn next(&self) -> Self {
        LaneCall::new(self.name.clone(), self.number + 1)
    }

    /// The call's next attempt, if an earlier one may have been carried out.
    pub(crate) fn again(&self, max_age_us: u64) -> Self {
        LaneCall { number: self.number + 1, max_age_us: Some(max_age_us), ..self.clone() }
    }

    /// The only call of the lane of this id.
    pub(crate) fn only(id: EntryId) -> Self {
        LaneCall::new(format!("{:032x}", u128::from_be_bytes(id.0)).into(), 1)
    }

    /// A call for the key of this id, which has its grant for so long.
    pub(crate) fn of_key(id: EntryId, lasts_us: u64) -> Self {
        // Sent in seven bytes.
        let max_age_us = Some(lasts_us.min(1 << 50));
        LaneCall { first: 0, max_age_us, ..LaneCall::only(id) }
    }
}

/// The numbers in the form in which a call sends them.
pub(super) fn sent(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| number.to_le_bytes().into_iter().take(7)).collect()
}

/// The arguments of a call, by the names in `lua/policy/head.lua`.
fn arguments(
    Followed { rules: policy, is_stored }: &Followed,
    at: Option<i64>,
    action: &str,
    lane: Option<&LaneCall>,
    requests: Vec<u8>,
) -> [Vec<u8>; 9] {
    let text =
        |number: Option<u64>| number.map_or(Vec::new(), |number| number.to_string().into_bytes());
    let bounds = match &policy.0 {
        Kind::Window(Window { grid: Grid::Calendar(calendar), .. }) => {
            let around = at.or(calendar.around).unwrap_or_else(|| system_ms() * 1000);
            calendar.bounds(around).to_vec()
        }
        Kind::Foreign(foreign) => foreign.bounds(at).map_or(Vec::new(), |bounds| bounds.to_vec()),
        _ => Vec::new(),
    };
    let field = |lane: &LaneCall| match &policy.0 {
        Kind::Foreign(foreign) if foreign.dedup.is_some() => b"token".into(),
        _ => format!("@{}", lane.name).into(),
    };
    let number = sent(lane.map(|lane| lane.number));
    let again = lane.and_then(|lane| Some(sent([lane.first, lane.max_age_us?])));
    [
        packed::bytes(&policy.text()),
        lane.map_or(Vec::new(), field),
        [number, requests].concat(),
        sent(bounds.into_iter().map(|bound| bound.max(0) as u64)),
        action.into(),
        if *is_stored { b"1".into() } else { Vec::new() },
        text(lane.and_then(|lane| lane.abandon)),
        again.unwrap_or_default(),
        at.map_or(Vec::new(), |at| at.to_string().into_bytes()),
    ]
}

/// The command of a call: the script of its policy, without the arguments at the end that are empty.
fn command(
    of: &Followed,
    at: Option<i64>,
    keys: &Keys,
    action: &str,
    lane: Option<&LaneCall>,
    requests: Vec<u8>,
) -> ServerCommand {
    let names = match &of.rules.0 {
        Kind::Foreign(foreign) => foreign.keys(&keys.hash, at),
        Kind::Rgcra(_) => vec![keys.hash.to_string(), keys.value.to_string()],
        _ => vec![keys.hash.to_string()],
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let arguments = arguments(of, at, action, lane, requests);
    let sent = arguments.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
    let command = ServerCommand::script(script(&of.rules.0), &names);
    arguments[..sent].iter().fold(command, |command, arg| command.arg(&**arg))
}

/// The policy to repeat a call with if a server answers that no window of the calendar contains its time, or that
/// other parameters are in force: with these, around its time.
fn corrected(of: &Followed, answer: ServerAnswer<'_>) -> Option<Followed> {
    let now = answer.integer(1).filter(|_| answer.integer(0) == Some(-10))?;
    if let Kind::Foreign(_) = of.rules.0 {
        return Some(around(of, now));
    }
    let mut stored = Policy::parse(&packed::text(answer.bytes(2)?))?;
    stored.calendar_mut()?.around = Some(now);
    (stored != of.rules).then_some(Followed { rules: stored, ..*of })
}

/// What a cluster and a correction make of a call with a policy.
macro_rules! by_its_policy {
    () => {
        fn check_in_cluster(&self, keys: &Keys) -> Result<(), Error> {
            check_foreign(&self.of.rules, keys)
        }

        fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
            Some(Self { of: corrected(&self.of, answer)?, ..self.clone() })
        }
    };
}

/// Gives back permits of a grant; the reply is how many of them are available again.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRefundCall {
    pub(crate) of: Followed,
    pub(crate) at: Option<i64>,
    /// The call's number.
    pub(crate) lane: LaneCall,
    pub(crate) mark: Mark,
    pub(crate) permits: u64,
}

impl StoreCall for PolicyRefundCall {
    type Reply = u64;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<u64, Error> {
        let limiter =
            Limiter::read(space, keys, self.at, &self.of, ChangeRule::Keep, Some(&self.lane))?;
        limiter.give(space, keys, self.mark, self.permits)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        let refund = sent([self.mark.0 as u64, self.mark.1, self.permits]);
        // With a key for each window the mark is the end of the window that the grant is in.
        let of = around(&self.of, self.mark.0 - 1);
        command(&of, self.at, keys, "give", Some(&self.lane), refund)
    }

    by_its_policy!();

    fn read(&self, answer: ServerAnswer<'_>) -> Option<u64> {
        answer.unsigned(1)
    }
}

/// Reads what a call would find, and writes nothing.
#[derive(Clone, Debug)]
pub(crate) struct PolicyPeekCall {
    pub(crate) of: Followed,
    pub(crate) at: Option<i64>,
    /// The number of permits to compute the wait for; 0 for none.
    pub(crate) permits: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyPeek {
    pub(crate) available: u64,
    pub(crate) limit: u64,
    /// The time until the permits of the call are available; 0 if they are now.
    pub(crate) wait: Wait,
    pub(crate) parameters: Policy,
}

impl StoreCall for PolicyPeekCall {
    type Reply = PolicyPeek;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<PolicyPeek, Error> {
        let limiter = Limiter::read(space, keys, self.at, &self.of, ChangeRule::Keep, None)?;
        let parameters = Policy::parse(&limiter.policy.text());
        Ok(PolicyPeek {
            available: limiter.available(),
            limit: limiter.policy.limit(),
            wait: limiter.wait(self.permits, 0),
            parameters: parameters.expect("a policy reads its own parameters"),
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        command(&self.of, self.at, keys, "peek", None, sent([self.permits]))
    }

    by_its_policy!();

    fn read(&self, answer: ServerAnswer<'_>) -> Option<PolicyPeek> {
        Some(PolicyPeek {
            available: answer.unsigned(1)?,
            limit: answer.unsigned(2)?,
            wait: Wait { us: answer.unsigned(3)?, at_least: answer.flag(4)? },
            parameters: match self.of.rules.0 {
                Kind::Foreign(_) => self.of.rules.clone(),
                _ => Policy::parse(&packed::text(answer.bytes(5)?))?,
            },
        })
    }
}

/// Stores parameters in place of those in force.
#[derive(Clone, Debug)]
pub(crate) struct PolicyChangeCall {
    pub(crate) of: Followed,
    pub(crate) at: Option<i64>,
    pub(crate) rule: ChangeRule,
    /// How long the limiter is kept if it is unused; 0 for ever.
    pub(crate) keep_alive_ms: u64,
}

impl StoreCall for PolicyChangeCall {
    type Reply = ();

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<(), Error> {
        let limiter = Limiter::read(space, keys, self.at, &self.of, self.rule, None)?;
        limiter.store(space, keys, self.keep_alive_ms)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        if let Kind::Rgcra(rgcra) = &self.of.rules.0 {
            let names = [&*keys.hash, &*keys.value, &*keys.permits];
            let command = ServerCommand::script(&SET_RGCRA, &names);
            return rgcra.config.iter().fold(command, |command, text| command.arg(text.as_str()));
        }
        let action = match self.rule {
            ChangeRule::Keep => "keep",
            ChangeRule::Scale => "scale",
            ChangeRule::Reset => "reset",
        };
        let kept = sent([self.keep_alive_ms]);
        command(&self.of, self.at, keys, action, None, kept)
    }

    by_its_policy!();

    fn read(&self, answer: ServerAnswer<'_>) -> Option<()> {
        answer.integer(0).map(drop)
    }
}

/// The policy for a call in the window of this time, if it has a key for each window.
fn around(of: &Followed, at: i64) -> Followed {
    match &of.rules.0 {
        Kind::Foreign(foreign) => {
            Followed { rules: Policy(Kind::Foreign(foreign.around(at))), ..*of }
        }
        _ => of.clone(),
    }
}

/// Fails unless the keys of the others and our own are in one slot.
fn check_foreign(policy: &Policy, keys: &Keys) -> Result<(), Error> {
    let Kind::Foreign(foreign) = &policy.0 else { return Ok(()) };
    let names = foreign.keys(&keys.hash, None);
    let mut names = names.iter().map(|name| Keys::new(name, ""));
    let Some(first) = names.next() else { return Ok(()) };
    names.try_for_each(|other| check_same_slot(&first, &other))
}
