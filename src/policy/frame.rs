//! What all policies share: a batch of requests, refunds, changed parameters, and how state is read and written.
//!
//! The twin of `read.lua`, `decide.lua` and `write.lua` in `lua/policy`.

use crate::error::Error;
use crate::store::memory::keyspace::{Fields, Keyspace};
use crate::store::{LaneCall, Outcome, OutcomeGroup, RequestGroup, Wait, push_outcome, refusal};
use crate::wire::keys::Keys;

use super::ChangeRule;

/// What a grant is given back by: a number that each policy chooses, and a fraction.
pub(crate) type Mark = (i64, u64);

/// The place of an unreadable field in [`Rules::NAMES`].
pub(crate) type Bad = usize;

/// The largest number of permits, and the longest width or period in microseconds: ten years.
const MOST_PERMITS: u64 = u32::MAX as u64;
pub(crate) const LONGEST_US: u64 = 315_576_000_000_000;

/// The latest time that is decided on: with a century on top, numbers are still exact on a server.
const LATEST_US: i64 = 5_000_000_000_000_000;

/// How long state is kept at least, in ms: until no attempt of a call can follow.
const HORIZON_MS: i64 = 60_000;

/// The number of lanes' records from which on old ones are looked for.
const MOST_LANES: usize = 32;

/// The number of requests behind a waiting one whose waits are exact.
pub(super) const EXACT_WAITS: u32 = 16;

/// The rules of one policy, as functions of a small state. Times are in microseconds.
pub(crate) trait Rules: Clone + PartialEq {
    /// The fields of the state in the limiter's hash.
    const NAMES: &'static [&'static str];
    /// Whether each grant delays the next one, however few permits it has.
    const IS_QUEUE: bool = false;
    type State: Clone;

    /// The parameters as the field `c` has them: a letter, a version, numbers.
    fn text(&self) -> String;
    fn parse(text: &str) -> Option<Self>;

    /// The most permits at once.
    fn limit(&self) -> u64;

    /// The time in which the limit comes back, in microseconds.
    fn window(&self) -> u64;

    fn read(&self, texts: &[&str]) -> Result<Self::State, Bad>;
    fn write(&self, state: &Self::State) -> Vec<String>;

    /// The state as of now, with nothing taken.
    fn roll(&self, state: Option<Self::State>, now: i64) -> Self::State;

    /// The whole permits that a request would get now.
    fn available(&self, state: &Self::State, now: i64) -> u64;

    /// Takes permits that are available.
    fn take(&self, state: &mut Self::State, now: i64, permits: u64);

    /// The time until so many permits, which are not available and no more than the limit, would be.
    fn wait(&self, state: &Self::State, now: i64, permits: u64) -> i64;

    /// The mark of a grant that has just been taken.
    fn mark(&self, state: &Self::State) -> Mark;

    /// Returns permits of an earlier grant, and how many of them are available again: afterwards nobody gets more
    /// than if the grant had not been made.
    fn give(&self, state: &mut Self::State, now: i64, mark: Mark, permits: u64) -> u64;

    /// The time until the state says nothing any more.
    fn ttl(&self, state: &Self::State, now: i64) -> i64;

    /// Goes on under these parameters; `scaled` is what a number of used permits becomes.
    fn change(&self, old: &Self, state: &mut Self::State, now: i64, scaled: &dyn Fn(u64) -> u64);

    /// Decides requests in order; returns the permits granted. Of a call that was decided before, what it was granted
    /// is granted again, and nothing is taken.
    fn decide(
        &self,
        state: &mut Self::State,
        now: i64,
        groups: &[RequestGroup],
        replay: Option<&Record>,
        outcomes: &mut Vec<OutcomeGroup>,
    ) -> u64 {
        decide(self, state, now, groups, replay, outcomes)
    }
}

/// What the limiter keeps of a lane's last call that was granted something, or gave something back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    number: u64,
    /// The time of the decision.
    pub(crate) at: i64,
    /// The permits granted, or given back.
    pub(crate) total: u64,
    /// What they are given back by.
    pub(crate) mark: Mark,
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let (text, fraction) = match text.split_once('/') {
            Some((text, fraction)) => (text, whole(fraction)?),
            None => (text, 0),
        };
        let [number, at, total, mark] = separated(text, ':')?;
        Some(Record { number, at: at as i64, total, mark: (mark as i64, fraction) })
    }

    fn text(&self) -> String {
        let Record { number, at, total, mark: (mark, fraction) } = self;
        let text = format!("{number}:{at}:{total}:{mark}");
        if *fraction > 0 { format!("{text}/{fraction}") } else { text }
    }
}

fn decide<R: Rules>(
    rules: &R,
    state: &mut R::State,
    now: i64,
    groups: &[RequestGroup],
    replay: Option<&Record>,
    outcomes: &mut Vec<OutcomeGroup>,
) -> u64 {
    let limit = rules.limit();
    let mut free = replay.map_or_else(|| rules.available(state, now), |record| record.total);
    let (mut granted, mut taken) = (0, 0);
    // The permits of requests that wait, the last one's wait, and the number of waits computed for those behind.
    let (mut sum, mut blocked_us, mut exact) = (0, 0, 0);
    for &RequestGroup { permits, max_wait_ms, mut count } in groups {
        let fit = if sum == 0 { count.min(free / permits) } else { 0 };
        push_outcome(outcomes, fit, Outcome::Granted);
        (free, granted, count) = (free - fit * permits, granted + fit * permits, count - fit);
        if permits > limit {
            push_outcome(outcomes, count, Outcome::ExceedsRate);
            continue;
        }
        if count > 0 && replay.is_none() && granted > taken {
            rules.take(state, now, granted - taken);
            taken = granted;
        }
        while count > 0 {
            let is_exact = sum == 0 || sum < limit && exact < EXACT_WAITS;
            let us = match is_exact {
                true => {
                    exact += u32::from(sum > 0);
                    let possible = limit.min(sum + permits);
                    // Of a repeated call, permits may be available by now for what was denied the first time.
                    match replay.is_some() && possible <= rules.available(state, now) {
                        true => 1,
                        false => rules.wait(state, now, possible).max(1) as u64,
                    }
                }
                false => blocked_us,
            };
            let wait = Wait { us, at_least: !is_exact || sum + permits > limit };
            // With grants to follow it did not wait the first time, or it would have blocked them.
            let is_granted_later = replay.is_some() && free > 0;
            if us <= max_wait_ms.saturating_mul(1000) && !is_granted_later {
                let n = if sum < limit && exact < EXACT_WAITS { 1 } else { count };
                push_outcome(outcomes, n, Outcome::Waiting(wait));
                (sum, blocked_us, count) =
                    (sum.saturating_add(n.saturating_mul(permits)), us, count - n);
            } else {
                push_outcome(outcomes, count, Outcome::Refused(wait));
                count = 0;
            }
        }
    }
    if replay.is_none() && granted > taken {
        rules.take(state, now, granted - taken);
    }
    granted
}

/// A limiter as a call finds it.
pub(crate) struct Limiter<R: Rules> {
    rules: R,
    /// As of now.
    state: R::State,
    pub(crate) now: i64,
    /// Whether there was a state.
    was_used: bool,
    has_changed: bool,
    /// How long it is kept if it is unused, in ms; 0 for ever; `None`: for as long as its state says something.
    keep_alive_ms: Option<i64>,
    lane: Option<LaneCall>,
    /// The call was decided before: nothing of it is written.
    pub(crate) replay: Option<Record>,
    /// What the lane has abandoned was given back.
    gave: bool,
}

impl<R: Rules> Limiter<R> {
    /// Reads the limiter and puts these parameters in force; `None`: the stored ones.
    pub(crate) fn read(
        space: &Keyspace,
        keys: &Keys,
        at: Option<i64>,
        wanted: Option<&R>,
        rule: ChangeRule,
        lane: Option<&LaneCall>,
    ) -> Result<Self, Error> {
        let now = at.unwrap_or(space.now_us()).clamp(0, LATEST_US);
        let none = Fields::new();
        let fields = space.hash(&keys.hash)?.unwrap_or(&none);
        let field = |name: &str| fields.get(name).map(String::as_str);
        let bad = |name: &str| refusal::unreadable_state(name, field(name));

        let stored = field("c");
        let texts: Vec<Option<&str>> = R::NAMES.iter().map(|name| field(name)).collect();
        let is_used = texts.iter().any(Option::is_some);
        if let Some(missing) = texts.iter().position(|text| is_used && text.is_none()) {
            return Err(bad(R::NAMES[missing]));
        }
        if is_used && stored.is_none() {
            return Err(bad("c"));
        }
        let lane_field = lane.map_or(String::new(), lane_field);
        let record = match field(&lane_field) {
            Some(text) => Some(Record::parse(text).ok_or_else(|| bad(&lane_field))?),
            None => None,
        };
        let keep_alive_ms = match field("k") {
            Some(text) => Some(whole(text).ok_or_else(|| bad("k"))? as i64),
            None => None,
        };
        let old = match (stored, wanted) {
            (Some(text), Some(wanted)) if text == wanted.text() => wanted.clone(),
            (Some(text), _) => R::parse(text).ok_or_else(|| bad("c"))?,
            (None, Some(wanted)) => wanted.clone(),
            (None, None) => return Err(refusal::no_parameters()),
        };
        let texts: Vec<&str> = texts.into_iter().flatten().collect();
        let state = match is_used {
            true => Some(old.read(&texts).map_err(|place| bad(R::NAMES[place]))?),
            false => None,
        };
        let mut limiter = Limiter {
            state: old.roll(state, now),
            rules: old,
            now,
            was_used: is_used && rule != ChangeRule::Reset,
            has_changed: false,
            keep_alive_ms,
            lane: lane.cloned(),
            replay: None,
            gave: false,
        };
        if let (Some(lane), Some(record)) = (lane, record) {
            limiter.find_call(lane, record)?;
        }
        let is_same = wanted.is_none_or(|wanted| limiter.rules.text() == wanted.text());
        if limiter.replay.is_none() && (!is_same || rule == ChangeRule::Reset) {
            limiter.change(wanted.cloned(), rule);
        }
        Ok(limiter)
    }

    /// Looks for the call, and gives back what its lane has abandoned.
    fn find_call(&mut self, lane: &LaneCall, record: Record) -> Result<(), Error> {
        let is_same = record.number == lane.number;
        let age = (self.now - record.at).max(0) as u64;
        if record.number > lane.number {
            return Err(refusal::stale());
        } else if is_same && lane.max_age_us.is_none_or(|most| age <= most) {
            self.replay = Some(record);
        } else if record.total > 0
            && (is_same || lane.abandon.is_some_and(|first| record.number >= first))
        {
            self.rules.give(&mut self.state, self.now, record.mark, record.total);
            self.gave = true;
        }
        Ok(())
    }

    /// Puts other parameters in force.
    fn change(&mut self, wanted: Option<R>, rule: ChangeRule) {
        let old = match wanted {
            Some(wanted) => std::mem::replace(&mut self.rules, wanted),
            None => self.rules.clone(),
        };
        self.has_changed = true;
        if self.was_used {
            let (before, after) = (old.limit(), self.rules.limit());
            let scaled = |used| scaled(used, rule, before, after);
            self.rules.change(&old, &mut self.state, self.now, &scaled);
        } else {
            self.state = self.rules.roll(None, self.now);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.rules.text()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.rules.limit()
    }

    pub(crate) fn mark(&self) -> Mark {
        self.rules.mark(&self.state)
    }

    pub(crate) fn available(&self) -> u64 {
        self.rules.available(&self.state, self.now)
    }

    /// The wait for so many permits, which may be more than the limit.
    pub(crate) fn wait(&self, permits: u64) -> Wait {
        let limit = self.rules.limit();
        let us = match permits.min(limit) {
            possible if possible <= self.available() => 0,
            possible => self.rules.wait(&self.state, self.now, possible).max(1) as u64,
        };
        Wait { us, at_least: permits > limit }
    }

    /// Decides the requests. A denial writes nothing, unless time must begin for a limiter that starts with too few
    /// permits.
    pub(crate) fn take(
        mut self,
        space: &mut Keyspace,
        keys: &Keys,
        groups: &[RequestGroup],
    ) -> Result<(Self, Vec<OutcomeGroup>), Error> {
        let mut outcomes = Vec::new();
        let replay = self.replay.as_ref();
        let granted = self.rules.decide(&mut self.state, self.now, groups, replay, &mut outcomes);
        let is_denial = |group: &OutcomeGroup| {
            matches!(group.outcome, Outcome::Refused(_) | Outcome::Waiting(_))
        };
        let has_denied = outcomes.iter().any(is_denial);
        if self.replay.is_none() {
            self.write_taken(space, keys, granted, has_denied, groups.is_empty())?;
        }
        Ok((self, outcomes))
    }

    /// Takes permits that are available.
    pub(super) fn take_now(&mut self, permits: u64) {
        self.rules.take(&mut self.state, self.now, permits);
    }

    /// Writes what a call has taken. A call without requests leaves its record in any case, so that what it abandons is
    /// stale if it comes later.
    pub(super) fn write_taken(
        &mut self,
        space: &mut Keyspace,
        keys: &Keys,
        granted: u64,
        has_denied: bool,
        is_empty: bool,
    ) -> Result<(), Error> {
        let begins = !self.was_used && has_denied;
        self.was_used |= granted > 0 || begins;
        let is_recorded = granted > 0 || self.gave || is_empty;
        match is_recorded || begins || self.has_changed {
            true => self.write(space, keys, is_recorded.then_some(granted)),
            false => Ok(()),
        }
    }

    pub(crate) fn give(
        mut self,
        space: &mut Keyspace,
        keys: &Keys,
        mark: Mark,
        permits: u64,
    ) -> Result<u64, Error> {
        if let Some(record) = self.replay {
            return Ok(record.total);
        }
        let credit = self.rules.give(&mut self.state, self.now, mark, permits);
        let is_recorded = credit > 0 || self.gave;
        if is_recorded || self.has_changed {
            self.write(space, keys, is_recorded.then_some(credit))?;
        }
        Ok(credit)
    }

    /// Stores the parameters.
    pub(crate) fn store(
        mut self,
        space: &mut Keyspace,
        keys: &Keys,
        keep_alive_ms: u64,
    ) -> Result<(), Error> {
        self.keep_alive_ms = Some(keep_alive_ms as i64);
        self.write(space, keys, None)?;
        if keep_alive_ms == 0 {
            space.persist(&keys.hash);
        }
        space.hash_mut(&keys.hash)?.insert("k".into(), keep_alive_ms.to_string());
        Ok(())
    }

    /// `recorded`: what the record of the call's lane says that it was granted or gave back, if it says anything.
    fn write(&self, space: &mut Keyspace, keys: &Keys, recorded: Option<u64>) -> Result<(), Error> {
        let fields = space.hash_mut(&keys.hash)?;
        if let (Some(total), Some(lane)) = (recorded, &self.lane) {
            let (number, at, mark) = (lane.number, self.now, self.mark());
            let record = Record { number, at, total, mark }.text();
            let is_new = fields.insert(lane_field(lane), record).is_none();
            if is_new && fields.len() > MOST_LANES {
                sweep(fields, self.now);
            }
        }
        fields.insert("c".into(), self.rules.text());
        for (name, text) in R::NAMES.iter().zip(self.rules.write(&self.state)) {
            match self.was_used {
                true => fields.insert((*name).into(), text),
                false => fields.remove(*name),
            };
        }
        let says_us = if self.was_used { self.rules.ttl(&self.state, self.now) } else { 0 };
        let ms = says_us.max(0).unsigned_abs().div_ceil(1000) as i64;
        match self.keep_alive_ms {
            Some(0) => true,
            kept => space.expire_in(&keys.hash, ms.max(kept.unwrap_or(HORIZON_MS))),
        };
        Ok(())
    }
}

fn lane_field(lane: &LaneCall) -> String {
    format!("@{}", lane.name)
}

/// Removes the records of lanes that made no call for so long that no attempt of it can follow.
fn sweep(fields: &mut Fields, now: i64) {
    let swept = fields.get("g").and_then(|text| whole(text));
    if swept.is_some_and(|ms| now / 1000 - (ms as i64) < HORIZON_MS) {
        return;
    }
    let is_old = |record: Record| now - record.at > HORIZON_MS * 1000;
    fields.retain(|name, text| !name.starts_with('@') || !Record::parse(text).is_some_and(is_old));
    fields.insert("g".into(), (now / 1000).to_string());
}

/// Used permits under parameters with another limit.
fn scaled(used: u64, rule: ChangeRule, old: u64, new: u64) -> u64 {
    let used = used.min(MOST_PERMITS);
    match rule {
        ChangeRule::Scale => {
            let part = (u128::from(used) * u128::from(new)).div_ceil(old.into());
            part.min(MOST_PERMITS.into()) as u64
        }
        _ => used,
    }
}

pub(super) fn is_permits(number: u64) -> bool {
    (1..=MOST_PERMITS).contains(&number)
}

/// Whether it is a width or a period.
pub(super) fn is_span(us: u64) -> bool {
    (1000..=LONGEST_US).contains(&us)
}

/// The integer of 0..=2^53-1 that this text represents.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_number = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number < 1 << 53)
}

/// The numbers of a state.
pub(super) fn numbers<const N: usize>(texts: &[&str]) -> Result<[u64; N], Bad> {
    let mut numbers = [0; N];
    for (place, number) in numbers.iter_mut().enumerate() {
        *number = texts.get(place).and_then(|text| whole(text)).ok_or(place)?;
    }
    Ok(numbers)
}

/// The parameters behind this letter and version.
pub(super) fn parameters<const N: usize>(text: &str, version: &str) -> Option<[u64; N]> {
    separated(text.strip_prefix(version)?, ',')
}

/// So many numbers, and this between them.
fn separated<const N: usize>(text: &str, separator: char) -> Option<[u64; N]> {
    let texts: Vec<&str> = text.split(separator).collect();
    numbers(&texts).ok().filter(|_| texts.len() == N)
}
