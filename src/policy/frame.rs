//! What all policies share: numbered calls, refunds, changed parameters, and how state is read and written.
//!
//! The twin of `stored.lua`, `lane.lua`, `change.lua` and `write.lua` in `lua/policy`.

use crate::error::Error;
use crate::store::memory::keyspace::{Fields, Keyspace};
use crate::store::{LaneCall, OutcomeGroup, RequestGroup, Wait, refusal};
use crate::wire::keys::Keys;

use super::bucket::Pace;
use super::decide::Share;
use super::packed::{MS, PERMITS, WIDE, packed, unpacked};
use super::queue::Queue;
use super::{ChangeRule, Followed, Policy};

/// What a grant is given back by: a number that each policy chooses, and a fraction.
pub(crate) type Mark = (i64, u64);

/// The largest number of permits, and the longest width or period in microseconds: ten years.
const MOST_PERMITS: u64 = u32::MAX as u64;
pub(crate) const LONGEST_US: u64 = 315_576_000_000_000;

/// The latest time that is decided on: with a century on top, numbers are still exact on a server.
const LATEST_US: i64 = 5_000_000_000_000_000;

/// How long state is kept at least, in ms: until no attempt of a call can follow.
const HORIZON_MS: u64 = 60_000;

/// How much longer than necessary a key lives, in ms, so that few calls prolong it.
const MARGIN_MS: u64 = 10_000;

/// The number of lanes' records from which on old ones are looked for.
const MOST_LANES: usize = 32;

/// The state of a limiter, of which each policy says what its numbers are.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The mark of the last grant; with `y` as its fraction in a queue.
    pub(crate) x: i64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    /// Only a rolling window has these, and no `z`.
    pub(crate) older: Vec<u64>,
    /// Only with [`Rules::has_excess`]: the permits that were used beyond the limit when this was lowered, so that they
    /// count again if it is raised.
    pub(crate) excess: u64,
    /// The clock has gone back, and this begins anew; it is not stored.
    pub(crate) is_behind: bool,
}

impl State {
    /// The permits used, up to the limit. Those beyond it are kept apart.
    pub(super) fn clamped(&mut self, used: u64, limit: u64, scaled: &dyn Fn(u64) -> u64) -> u64 {
        let used = scaled(used + self.excess);
        self.excess = used.saturating_sub(limit);
        used.min(limit)
    }
}

/// The rules of one policy, as functions of a small state. Times are in microseconds.
pub(crate) trait Rules {
    /// The most permits at once.
    fn limit(&self) -> u64;

    /// The time in which the limit comes back, in microseconds.
    fn window(&self) -> u64;

    /// The sizes of a state's numbers in bytes: `x`, `y`, and `z` or those of `older`.
    fn sizes(&self) -> Vec<usize> {
        vec![WIDE; 3]
    }

    fn older(&self) -> usize {
        0
    }

    fn has_excess(&self) -> bool {
        false
    }

    /// The pace at which a bucket gains permits evenly, or portions.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// The state as of now, with nothing taken.
    fn roll(&self, state: Option<State>, now: i64) -> State;

    /// The whole permits that a request would get now.
    fn available(&self, state: &State, now: i64) -> u64;

    /// The permits that count as used now: more than the limit, if it was lowered.
    fn used(&self, state: &State, now: i64) -> u64 {
        self.limit() - self.available(state, now)
    }

    /// Takes permits that are available.
    fn take(&self, state: &mut State, now: i64, permits: u64);

    /// The time until `permits` are available. There are fewer now, and the limit is not exceeded. In a queue, the
    /// time until the start of a request that `permits` precede.
    fn wait(&self, state: &State, now: i64, permits: u64) -> i64;

    /// Returns permits of an earlier grant, and how many of them are available again: afterwards nobody gets more
    /// than if the grant had not been made.
    fn give(&self, state: &mut State, now: i64, mark: Mark, permits: u64) -> u64;

    /// The time from which on the state says nothing any more.
    fn ends(&self, state: &State) -> i64;

    /// Goes on under these parameters, which replace `old` of the same policy; `scaled` is what a number of used
    /// permits becomes.
    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64);
}

/// What the limiter keeps of a lane's last call that was granted something, or gave something back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    /// The time of the decision.
    pub(crate) at: i64,
    /// The permits granted, or given back.
    pub(crate) total: u64,
    /// What they are given back by.
    pub(crate) mark: Mark,
    /// The permits available after the call; of a queue, its version then.
    pub(crate) left: u64,
}

impl Record {
    const SIZES: [usize; 6] = [WIDE, WIDE, WIDE, WIDE, PERMITS, WIDE];

    /// The length of a record with a fraction, in bytes.
    pub(crate) const LONGEST: usize = 39;

    /// Parses a record, which has a fraction if the marks of the policy have one.
    pub(crate) fn parse(text: &str, has_fraction: bool) -> Option<Self> {
        let sizes = &Self::SIZES[..5 + usize::from(has_fraction)];
        let [number, at, total, mark, left, ref fraction @ ..] =
            unpacked(text, sizes.iter().copied())?[..]
        else {
            return None;
        };
        let mark = (mark as i64, fraction.first().copied().unwrap_or(0));
        Some(Record { number, at: at as i64, total, mark, left })
    }

    fn text(&self, has_fraction: bool) -> String {
        let Record { number, at, total, mark: (mark, fraction), left } = *self;
        let numbers = [number, at as u64, total, mark as u64, left, fraction];
        packed(numbers.into_iter().zip(Self::SIZES).take(5 + usize::from(has_fraction)))
    }
}

/// What a call found besides its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// It was decided before: the answer is that of then.
    pub(crate) is_replay: bool,
    /// The permits that came back of what the lane had abandoned.
    pub(crate) given_back: u64,
    /// The call's parameters have replaced others.
    pub(crate) has_changed: bool,
    /// The clock was behind the time of the lane's last grant.
    pub(crate) went_back: bool,
}

/// A limiter as a call finds it.
pub(crate) struct Limiter {
    /// With the parameters in force.
    pub(crate) policy: Policy,
    pub(super) state: State,
    pub(crate) now: i64,
    /// The call brings its own time, which is not that by which the key ends.
    is_told: bool,
    /// Whether there was a state.
    was_used: bool,
    /// The time at which the key ends, as far as it is known.
    deadline_ms: u64,
    /// How long it is kept if it is unused; 0 for ever.
    kept_ms: u64,
    lane: Option<LaneCall>,
    /// The call was decided before: nothing of it is written.
    pub(crate) replay: Option<Record>,
    /// What the lane has abandoned was given back.
    gave: bool,
    pub(crate) notes: Notes,
}

impl Limiter {
    /// Reads the limiter and puts these parameters in force, unless the stored ones are.
    pub(crate) fn read(
        space: &Keyspace,
        keys: &Keys,
        at: Option<i64>,
        Followed { rules: wanted, is_stored }: &Followed,
        rule: ChangeRule,
        lane: Option<&LaneCall>,
    ) -> Result<Self, Error> {
        let none = Fields::new();
        let fields = space.hash(&keys.hash)?.unwrap_or(&none);
        let field = |name: &str| fields.get(name).map(String::as_str);
        let bad = |name: &str| refusal::unreadable_state(name, field(name));

        let is_of_kind = |policy: &Policy| policy.word() == wanted.word();
        let policy = match field("c") {
            Some(text) if text == wanted.text() => wanted.clone(),
            Some(text) => Policy::parse(text).filter(is_of_kind).ok_or_else(|| bad("c"))?,
            None if *is_stored => return Err(refusal::no_parameters()),
            None if fields.contains_key("s") => return Err(bad("c")),
            None => wanted.clone(),
        };
        let Some(rules) = policy.rules() else { return Err(refusal::only_on_servers()) };
        let has_fraction = policy.is_queue();
        let (deadline_ms, kept_ms, state) = match field("s") {
            Some(text) => stored(text, rules).ok_or_else(|| bad("s"))?,
            None => (0, HORIZON_MS, None),
        };
        let lane_field = lane.map_or(String::new(), lane_field);
        let record = match field(&lane_field) {
            Some(text) => Some(Record::parse(text, has_fraction).ok_or_else(|| bad(&lane_field))?),
            None => None,
        };
        let now = at.unwrap_or(space.now_us()).clamp(0, LATEST_US);
        let was_used = state.is_some();
        let mut limiter = Limiter {
            state: rules.roll(state, now),
            policy,
            now,
            is_told: at.is_some(),
            was_used,
            deadline_ms,
            kept_ms,
            lane: lane.cloned(),
            replay: None,
            gave: false,
            notes: Notes::default(),
        };
        if let (Some(lane), Some(record)) = (lane, record) {
            limiter.find_call(lane, record)?;
        }
        let is_same = *is_stored || limiter.policy.text() == wanted.text();
        if limiter.replay.is_none() && (!is_same || rule == ChangeRule::Reset) {
            limiter.change(wanted, rule);
        }
        Ok(limiter)
    }

    /// Looks for the call, and gives back what its lane has abandoned.
    fn find_call(&mut self, lane: &LaneCall, record: Record) -> Result<(), Error> {
        self.notes.went_back = record.at > self.now;
        let is_same = record.number >= lane.first;
        let age = (self.now - record.at).max(0) as u64;
        // What a queue has granted under other parameters, or before the clock went back, starts by those: the call is
        // decided anew. (What a key was granted starts at once.)
        let is_same_queue = |version| version == record.left && record.at <= self.now;
        let is_valid = |version| lane.first == 0 || is_same_queue(version);
        let is_valid = self.version().is_none_or(is_valid);
        if record.number > lane.number {
            return Err(refusal::stale());
        } else if is_same && lane.max_age_us.is_none_or(|most| age <= most && is_valid) {
            self.notes.is_replay = true;
            self.replay = Some(record);
        } else if record.total > 0
            && lane.first > 0
            && (is_same || lane.abandon.is_some_and(|first| record.number >= first))
        {
            self.notes.given_back = self.give_back(record.mark, record.total);
            self.gave = true;
        }
        Ok(())
    }

    fn change(&mut self, wanted: &Policy, rule: ChangeRule) {
        let old = std::mem::replace(&mut self.policy, wanted.clone());
        self.notes.has_changed = true;
        self.was_used &= rule != ChangeRule::Reset;
        let (Some(before), Some(after)) = (old.rules(), wanted.rules()) else { return };
        if self.was_used {
            let scaled = |used| scaled(used, rule, before.limit(), after.limit());
            after.change(before, &mut self.state, self.now, &scaled);
        }
        let state = self.was_used.then(|| std::mem::take(&mut self.state));
        self.state = after.roll(state, self.now);
    }

    pub(super) fn rules(&self) -> &dyn Rules {
        rules_of(&self.policy)
    }

    pub(crate) fn mark(&self) -> Mark {
        let fraction = if self.policy.is_queue() { self.state.y } else { 0 };
        (self.state.x, fraction)
    }

    /// Of a queue.
    fn version(&self) -> Option<u64> {
        self.policy.as_queue().map(Queue::version)
    }

    pub(crate) fn available(&self) -> u64 {
        self.rules().available(&self.state, self.now)
    }

    /// The wait for permits behind other requests. Together they may be for more than the limit.
    pub(crate) fn wait(&self, permits: u64, behind: u64) -> Wait {
        let (limit, needed) = (self.rules().limit(), behind.saturating_add(permits));
        let wait = |permits| self.rules().wait(&self.state, self.now, permits);
        let us = match needed.min(limit) {
            0 => 0,
            // It starts behind the others, whatever its size.
            _ if self.policy.is_queue() => wait(behind.min(limit)),
            possible if possible <= self.available() => 0,
            possible => wait(possible).max(1),
        };
        let us = us as u64;
        Wait { us, at_least: needed > limit }
    }

    /// Grants requests with their starts, if this is a queue and these are no later than allowed.
    pub(super) fn schedule(
        &mut self,
        rest: &mut Option<u64>,
        requests: RequestGroup,
        allowed: u64,
    ) -> Vec<OutcomeGroup> {
        let replay = self.replay.as_ref().zip(rest.as_mut());
        let Some(queue) = self.policy.as_queue() else { return Vec::new() };
        queue.schedule(&mut self.state, self.now, replay, requests, allowed)
    }

    pub(super) fn take(&mut self, permits: u64) {
        let Limiter { policy, state, now, .. } = self;
        rules_of(policy).take(state, *now, permits);
    }

    fn give_back(&mut self, mark: Mark, permits: u64) -> u64 {
        let Limiter { policy, state, now, .. } = self;
        let (credit, is_behind) =
            (rules_of(policy).give(state, *now, mark, permits), state.is_behind);
        *state = rules_of(policy).roll(Some(std::mem::take(state)), *now);
        state.is_behind |= is_behind;
        credit
    }

    /// Writes what a call has taken. A denial writes nothing, unless time must begin for a limiter that starts with too
    /// few permits, or anew because the clock has gone back. A call without requests leaves its record in any case, so
    /// that what it abandons is stale if it comes later.
    pub(crate) fn write_taken(
        &mut self,
        space: &mut Keyspace,
        keys: &Keys,
        share: &Share,
        is_empty: bool,
    ) -> Result<(), Error> {
        let granted = share.granted;
        let begins = !self.was_used && share.is_short;
        self.was_used |= granted > 0 || begins;
        let is_recorded = granted > 0 || self.gave || is_empty;
        match is_recorded || begins || self.notes.has_changed || self.state.is_behind {
            true => self.write(space, keys, is_recorded.then_some(granted), false),
            false => Ok(()),
        }
    }

    /// Of a call that was decided before, leaves the number of this attempt, so that those before it are stale.
    pub(crate) fn confirm(&self, space: &mut Keyspace, keys: &Keys) -> Result<(), Error> {
        if let (Some(lane), Some(record)) = (&self.lane, &self.replay)
            && record.number < lane.number
        {
            let record = Record { number: lane.number, ..record.clone() };
            let text = record.text(self.policy.is_queue());
            space.hash_mut(&keys.hash)?.insert(lane_field(lane), text);
        }
        Ok(())
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
        // Of what was reset nothing comes back.
        let credit = if self.was_used { self.give_back(mark, permits) } else { 0 };
        let is_recorded = credit > 0 || self.gave;
        if is_recorded || self.notes.has_changed || self.state.is_behind {
            self.write(space, keys, is_recorded.then_some(credit), false)?;
        }
        Ok(credit)
    }

    pub(crate) fn store(
        mut self,
        space: &mut Keyspace,
        keys: &Keys,
        kept_ms: u64,
    ) -> Result<(), Error> {
        self.kept_ms = kept_ms;
        self.write(space, keys, None, true)
    }

    /// `recorded`: what the record of the call's lane says that it was granted or gave back, if it says anything.
    fn write(
        &mut self,
        space: &mut Keyspace,
        keys: &Keys,
        recorded: Option<u64>,
        is_change: bool,
    ) -> Result<(), Error> {
        let ends_us = if self.was_used { self.rules().ends(&self.state) } else { 0 };
        let now_ms = self.now as u64 / 1000;
        let must_end = (ends_us.max(0) as u64).div_ceil(1000).max(now_ms + self.kept_ms);
        let must_expire = self.kept_ms > 0 && (self.deadline_ms < must_end || is_change);
        if must_expire {
            self.deadline_ms = if self.is_told { 0 } else { must_end + MARGIN_MS };
        }
        let fields = space.hash_mut(&keys.hash)?;
        if let (Some(total), Some(lane)) = (recorded, &self.lane) {
            let (number, at, mark) = (lane.number, self.now, self.mark());
            let left = self.version().unwrap_or_else(|| self.available());
            let has_fraction = self.policy.is_queue();
            let record = Record { number, at, total, mark, left }.text(has_fraction);
            let is_new = fields.insert(lane_field(lane), record).is_none();
            if is_new && fields.len() > MOST_LANES {
                sweep(fields, self.now, has_fraction);
            }
        }
        fields.insert("c".into(), self.policy.text());
        let mut sized = vec![(self.deadline_ms, MS), (self.kept_ms, MS)];
        if self.was_used {
            let State { x, y, z, ref older, excess, .. } = self.state;
            let last = if older.is_empty() { &[z][..] } else { older };
            let numbers = [x as u64, y].into_iter().chain(last.iter().copied());
            sized.extend(numbers.zip(self.rules().sizes()));
            sized.extend((excess > 0).then_some((excess, PERMITS)));
        }
        fields.insert("s".into(), packed(sized));
        if must_expire {
            space.expire_in(&keys.hash, (must_end + MARGIN_MS - now_ms) as i64);
        } else if is_change {
            space.persist(&keys.hash);
        }
        Ok(())
    }
}

fn rules_of(policy: &Policy) -> &dyn Rules {
    policy.rules().expect("a limiter without rules in process is not read")
}

/// The deadline in ms, how long the limiter is kept, and the state if there is one.
pub(crate) fn stored(text: &str, rules: &dyn Rules) -> Option<(u64, u64, Option<State>)> {
    if let Some([deadline_ms, kept_ms]) = unpacked(text, [MS, MS]).as_deref() {
        return Some((*deadline_ms, *kept_ms, None));
    }
    let sizes = || [MS, MS].into_iter().chain(rules.sizes());
    let with_excess = || unpacked(text, sizes().chain(rules.has_excess().then_some(PERMITS)));
    let numbers = unpacked(text, sizes()).or_else(with_excess)?;
    let [deadline_ms, kept_ms, x, y, ref last @ ..] = numbers[..] else { return None };
    let at = |place: usize| last.get(place).copied().unwrap_or(0);
    let (z, excess, older) = match rules.older() {
        0 => (at(0), at(1), Vec::new()),
        _ => (0, 0, last.to_vec()),
    };
    let state = State { x: x as i64, y, z, older, excess, is_behind: false };
    Some((deadline_ms, kept_ms, Some(state)))
}

fn lane_field(lane: &LaneCall) -> String {
    format!("@{}", lane.name)
}

/// Removes the records of lanes that made no call for so long that no attempt of it can follow.
fn sweep(fields: &mut Fields, now: i64, has_fraction: bool) {
    let now_ms = now as u64 / 1000;
    let swept = fields.get("g").and_then(|text| text.parse::<u64>().ok());
    if swept.is_some_and(|ms| now_ms < ms + HORIZON_MS) {
        return;
    }
    let is_old = |record: Record| now - record.at > HORIZON_MS as i64 * 1000;
    fields.retain(|name, text| {
        !name.starts_with('@') || !Record::parse(text, has_fraction).is_some_and(is_old)
    });
    fields.insert("g".into(), now_ms.to_string());
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
