//! Permits that come back and permits that are taken, in one call.
//!
//! `lua/semaphore/release.lua` and `lua/semaphore/acquire.lua` are the twins. Adjacent requests that are decided alike
//! are sent as one, and the server answers how many of them it granted.

use std::collections::HashSet;

use super::state::{
    State, check, count, end_of, first_end, optional, pack, reap, semaphore_script,
};
use super::*;
use crate::rate::MAX_EXACT;
use crate::store::refusal;

/// The permits with ended leases that a call takes back, unless it asks for more.
const REAPED: i64 = 1000;

/// What comes back with a call.
#[derive(Default)]
struct Back {
    returned: Vec<Returned>,
    /// By how much the value rises.
    given: i64,
    /// The members of the set that go.
    found: Vec<Vec<u8>>,
    /// How many of them count as out, and how many of these have leases that have ended.
    counted: i64,
    late: i64,
}

impl SemaphoreCall {
    /// A call that only gives back permits with leases.
    pub(crate) fn release(at: Option<i64>, returns: Vec<PermitId>) -> Self {
        SemaphoreCall { at, returns, ..SemaphoreCall::new(SemaphoreKind::Expirable) }
    }

    /// A call that only gives back so many plain permits, as often as it is carried out.
    pub(crate) fn release_plain(permits: u64) -> Self {
        let counts = vec![(0, permits)];
        SemaphoreCall { counts, ..SemaphoreCall::new(SemaphoreKind::Plain) }
    }

    /// A call that does nothing.
    pub(crate) fn new(kind: SemaphoreKind) -> Self {
        SemaphoreCall {
            kind,
            at: None,
            returns: Vec::new(),
            counts: Vec::new(),
            hands_on: 0,
            id: CallId([0; 12]),
            lane: None,
            is_repeat: false,
            lease_ms: None,
            create: None,
            groups: Vec::new(),
        }
    }

    /// Adjacent groups that are decided alike.
    fn merged(&self) -> impl Iterator<Item = &[RequestGroup]> {
        self.groups.chunk_by(|one, next| {
            one.permits == next.permits && (one.max_wait_ms > 0) == (next.max_wait_ms > 0)
        })
    }

    /// The permits of all requests.
    fn wanted(&self) -> i64 {
        total_permits(&self.groups).min(MAX_EXACT) as i64
    }

    fn is_plain(&self) -> bool {
        self.kind == SemaphoreKind::Plain
    }

    /// Reads what comes back.
    fn comes_back(
        &self,
        space: &mut Keyspace,
        keys: &Keys,
        state: &State,
        now: i64,
    ) -> Result<Back, Error> {
        let (mut back, exists) = (Back::default(), state.before.is_some());
        if self.is_plain() {
            let is_new = |first: u64| self.lane.is_none() || first > state.last;
            let counts = self.counts.iter().filter(|(first, _)| is_new(*first));
            back.given = counts.map(|(_, permits)| *permits as i64).sum();
            let is_gone = state.replay.map_or(!exists, |took| took < 0);
            let outcome = if is_gone { Returned::Gone } else { Returned::InTime };
            back.returned.extend((!self.counts.is_empty()).then_some(outcome));
        } else if !self.returns.is_empty() {
            let (log, mut seen) = (space.log(&keys.value)?, HashSet::new());
            for id in &self.returns {
                // Redisson 3.16 and earlier write ids as text.
                let forms = [id.0.to_vec(), id.to_string().into_bytes()];
                let end = |id: &Vec<u8>| log.as_ref().and_then(|log| log.score(id));
                let known = forms.into_iter().find_map(|id| Some((end(&id)?, id)));
                let known = known.filter(|(_, id)| seen.insert(id.clone()));
                let is_late = known.as_ref().is_some_and(|(end, _)| (0..=now).contains(end));
                back.returned.push(match known {
                    Some(_) if exists && is_late => Returned::Late,
                    Some(_) if exists => Returned::InTime,
                    _ => Returned::Gone,
                });
                if let Some((end, id)) = known {
                    back.counted += i64::from(end >= 0);
                    back.late += i64::from(is_late);
                    back.found.push(id);
                }
            }
            back.given = back.found.len() as i64;
        }
        back.given = if exists { back.given } else { 0 };
        Ok(back)
    }

    /// The reply, if so many requests of each merged group were granted; `None` for those that ask for more than all
    /// permits.
    fn reply(
        &self,
        returned: Vec<Returned>,
        (now, free, total, next_end): (i64, i64, u64, Option<i64>),
        decisions: impl IntoIterator<Item = Option<u64>>,
    ) -> Option<SemaphoreReply> {
        let until_end = next_end.map(|end| end.saturating_sub(now).max(1) as u64);
        let mut decisions = decisions.into_iter();
        let (mut granted, mut outcomes) = (0, Vec::new());
        for groups in self.merged() {
            let mut left = decisions.next()?;
            for group in groups {
                let fit = left.unwrap_or(0).min(group.count);
                left = left.map(|left| left - fit);
                granted += fit * group.permits;
                push_outcome(&mut outcomes, fit, Outcome::Granted);
                let wait_ms = |longest| until_end.unwrap_or(longest).min(longest.max(1));
                let outcome = match (left, group.max_wait_ms) {
                    (None, _) => Outcome::ExceedsRate,
                    (_, 0) => Outcome::Refused(Wait::of_ms(until_end.unwrap_or(0), true)),
                    (_, longest) => Outcome::Waiting(Wait::of_ms(wait_ms(longest), true)),
                };
                push_outcome(&mut outcomes, group.count - fit, outcome);
            }
        }
        let is_whole = decisions.next().is_none();
        let reply = SemaphoreReply { returned, now, granted, free, total, next_end, outcomes };
        is_whole.then_some(reply)
    }
}

impl StoreCall for SemaphoreCall {
    type Reply = SemaphoreReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<SemaphoreReply, Error> {
        let now = self.at.unwrap_or(space.now());
        let is_plain = self.is_plain();
        let mut state = State::read(space, keys, self.kind, self.lane.as_ref())?;
        let back = self.comes_back(space, keys, &state, now)?;
        state.value = state.value.map(|value| value + back.given);
        state.value.map_or(Ok(()), check)?;
        let gives_back = !self.returns.is_empty() || !self.counts.is_empty();
        let is_abandoned = self.lane.as_ref().is_some_and(|lane| lane.abandon.is_some());
        if is_plain && state.replay.is_none() && (is_abandoned || gives_back) {
            let is_gone = gives_back && state.before.is_none();
            state.record = Some(if is_gone { -1 } else { 0 });
        }
        if self.groups.is_empty() {
            remove(space, keys, &back.found)?;
            state.write(space, keys, self.lane.as_ref())?;
            return Ok(SemaphoreReply { returned: back.returned, ..SemaphoreReply::default() });
        }

        let (out, ended) = match is_plain {
            true => (0, 0),
            false => count(space, keys, now)?,
        };
        let (out, ended) = (out - back.counted, ended - back.late);
        let expired = ended.min(self.wanted().max(REAPED));
        let created = self.create.map(|permits| permits.min(MAX_EXACT) as i64 - out);
        let value = state.value.or(created).ok_or_else(refusal::no_semaphore)?;
        check(value + expired)?;
        remove(space, keys, &back.found)?;
        reap(space, keys, expired)?;
        let (value, out) = (value + expired, out - expired);

        // Permits that an earlier attempt took are granted again, to the same requests.
        let is_out = |index: &u32| {
            let log = space.log(&keys.value).ok().flatten();
            log.and_then(|log| log.score(&self.id.permit(*index).0)).is_some_and(|end| end > now)
        };
        let may_hold = if self.is_repeat && !is_plain { self.wanted() } else { 0 };
        let held = (0..may_hold as u32).take_while(is_out).count() as i64;
        let replay = state.replay.or((held > 0).then_some(held));
        let is_replay = replay.is_some();
        let kept_back = (back.given - self.hands_on.min(MAX_EXACT) as i64).max(0);
        let mut free = replay.unwrap_or(value - kept_back).max(0) as u64;
        let total = if is_plain { 0 } else { (value + out).max(0) as u64 };
        let (mut granted, mut is_blocked, mut is_short) = (0, false, false);
        let mut decisions = Vec::new();
        for groups in self.merged() {
            let (permits, waits) = (groups[0].permits, groups[0].max_wait_ms > 0);
            let count = groups.iter().map(|group| group.count).sum::<u64>();
            let fit = if is_blocked { 0 } else { count.min(free / permits) };
            free -= fit * permits;
            granted += fit * permits;
            // With grants to follow, it did not block them the first time.
            let exceeded = permits > total || is_replay && free > 0 && waits;
            let exceeds = fit == 0 && !is_plain && exceeded;
            if fit < count && !exceeds {
                is_short = true;
                is_blocked |= waits;
            }
            decisions.push((!exceeds).then_some(fit));
        }
        let mut taken = 0;
        if is_plain && !is_replay {
            taken = granted as i64;
            if granted > 0 || self.is_repeat && state.record.is_none() {
                state.record = Some(taken);
            }
        } else if granted > 0 && !is_plain {
            let end = end_of(now, self.lease_ms);
            taken = space.with_log(&keys.value, |log| {
                let before = log.len();
                for id in (0..granted as u32).map(|index| self.id.permit(index).0) {
                    // An id that is out already has its permit, and its lease begins anew.
                    if log.score(&id).is_none_or(|old| old < end) {
                        log.add(end, id);
                    }
                }
                (log.len() - before) as i64
            })?;
            if let Some(at) = space.expires_at(&keys.hash) {
                space.expire_at(&keys.value, at);
            }
        }
        state.value = Some(value - taken);
        state.write(space, keys, self.lane.as_ref())?;
        let next_end = if is_short && !is_plain { first_end(space, keys)? } else { None };
        let numbers = (now, value - taken, total, next_end);
        Ok(self.reply(back.returned, numbers, decisions).expect("each group has been decided"))
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        let lane = self.lane.as_ref();
        let script = if self.groups.is_empty() { &RELEASE } else { &ACQUIRE };
        let command = semaphore_script(script, keys, self.at, self.kind, in_cluster, lane);
        let counts = self.counts.iter().map(|(first, permits)| format!("{first} {permits};"));
        let command = match self.kind {
            SemaphoreKind::Plain => command.arg(counts.collect::<String>()),
            SemaphoreKind::Expirable => command.arg(pack(&self.returns)),
        };
        if self.groups.is_empty() {
            return command;
        }
        let requests: String = self
            .merged()
            .map(|groups| {
                let count = groups.iter().map(|group| group.count).sum::<u64>();
                let waits = u8::from(groups[0].max_wait_ms > 0);
                format!("{} {count} {waits};", groups[0].permits)
            })
            .collect();
        let command = command
            .arg(self.hands_on)
            .arg(optional(self.create))
            .arg(if self.is_repeat { "1" } else { "" })
            .arg(requests)
            .arg(self.wanted());
        match self.kind {
            SemaphoreKind::Plain => command,
            SemaphoreKind::Expirable => command.arg(&self.id.0[..]).arg(optional(self.lease_ms)),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<SemaphoreReply> {
        let at = 1 + self.returns.len() + usize::from(!self.counts.is_empty());
        let returned = |place| match answer.integer(place)? {
            0 => Some(Returned::Gone),
            1 => Some(Returned::InTime),
            2 => Some(Returned::Late),
            _ => None,
        };
        let returned = (1..at).map(returned).collect::<Option<Vec<_>>>()?;
        if self.groups.is_empty() {
            return Some(SemaphoreReply { returned, ..SemaphoreReply::default() });
        }
        let decisions: Option<Vec<_>> = (at + 4..answer.len())
            .map(|place| match answer.integer(place)? {
                -1 => Some(None),
                fit => u64::try_from(fit).ok().map(Some),
            })
            .collect();
        let next_end = answer.integer(at + 3).filter(|end| *end >= 0);
        let numbers =
            (answer.integer(at)?, answer.integer(at + 1)?, answer.unsigned(at + 2)?, next_end);
        self.reply(returned, numbers, decisions?)
    }
}

/// Removes members of the set.
fn remove(space: &mut Keyspace, keys: &Keys, members: &[Vec<u8>]) -> Result<(), Error> {
    if members.is_empty() {
        return Ok(());
    }
    space.with_log(&keys.value, |log| {
        for id in members {
            log.remove(id);
        }
    })
}
