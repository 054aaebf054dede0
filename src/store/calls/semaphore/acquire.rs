//! Acquire: decides requests in order and takes their permits.
//!
//! `lua/semaphore/acquire.lua` is its twin. Adjacent requests that are decided alike are sent as one, and the server
//! answers how many of them it granted.

use super::*;

/// The permits with ended leases that a call takes back, unless it asks for more.
const REAPED: i64 = 1000;

/// The wait if no lease is known to end: the queue asks once a second in any case. Callers sleep for as long as a denial
/// says: with 0 they would ask in a loop.
const UNKNOWN_MS: u64 = 1000;

impl SemaphoreAcquireCall {
    /// Adjacent groups that are decided alike.
    fn merged(&self) -> impl Iterator<Item = &[RequestGroup]> {
        self.groups.chunk_by(|one, next| {
            one.permits == next.permits && (one.max_wait_ms > 0) == (next.max_wait_ms > 0)
        })
    }

    fn wanted(&self) -> i64 {
        total_permits(&self.groups).min(MAX_EXACT) as i64
    }

    /// The reply, if so many requests of each merged group were granted; `None` for those that ask for more than all
    /// permits. They wait until the end of the lease that ends first, or their own longest wait if that is earlier.
    fn reply(
        &self,
        (now, free, total, next_end): (i64, i64, u64, Option<i64>),
        decisions: impl IntoIterator<Item = Option<u64>>,
    ) -> Option<AcquireReply> {
        let wait_ms = next_end.map_or(UNKNOWN_MS, |end| end.saturating_sub(now).max(1) as u64);
        let mut decisions = decisions.into_iter();
        let (mut granted, mut outcomes) = (0, Vec::new());
        for groups in self.merged() {
            let mut left = decisions.next()?;
            for group in groups {
                let fit = left.unwrap_or(0).min(group.count);
                left = left.map(|left| left - fit);
                granted += fit * group.permits;
                push_outcome(&mut outcomes, fit, Outcome::Granted);
                let outcome = match (left, group.max_wait_ms) {
                    (None, _) => Outcome::ExceedsRate,
                    (_, 0) => Outcome::Refused(Wait::of_ms(wait_ms, true), 0),
                    (_, longest) => Outcome::Waiting(Wait::of_ms(wait_ms.min(longest), true)),
                };
                push_outcome(&mut outcomes, group.count - fit, outcome);
            }
        }
        let total = match self.terms.kind {
            SemaphoreKind::Expirable => total,
            // Nobody knows how many are out.
            SemaphoreKind::Plain => self.terms.create.unwrap_or(free.max(0) as u64 + granted),
        };
        let is_whole = decisions.next().is_none();
        is_whole.then(|| AcquireReply::new(now, self.terms.rate(total), free, outcomes))
    }
}

impl StoreCall for SemaphoreAcquireCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<AcquireReply, Error> {
        let now = self.at.unwrap_or(space.now());
        let is_plain = self.terms.kind == SemaphoreKind::Plain;
        let (kind, lane) = (self.terms.kind, self.lane.as_ref());
        let mut state = State::read(space, keys, kind, lane, !self.groups.is_empty())?;
        let (out, ended) = match is_plain {
            true => (0, 0),
            false => count(space, keys, now)?,
        };
        let expired = ended.min(self.wanted().max(REAPED));
        let created = self.terms.create.map(|permits| permits.min(MAX_EXACT) as i64 - out);
        let value = state.value.or(created).map(|value| value + expired);
        value.map_or(Ok(()), check)?;
        reap(space, keys, expired)?;
        let Some(value) = value else {
            if self.lane.as_ref().is_some_and(|lane| lane.abandon.is_some()) {
                // An attempt that is still on its way must not do anything any more.
                state.record = Some(0);
                state.write(space, keys, self.lane.as_ref())?;
            }
            return Err(refusal::no_semaphore());
        };
        let out = out - expired;

        // Permits that an earlier attempt took are granted again, to the same requests.
        let is_out = |index: &u32| {
            let log = space.log(&keys.value).ok().flatten();
            log.and_then(|log| log.score(&self.id.permit(*index).0)).is_some_and(|end| end > now)
        };
        let may_hold = if self.is_repeat && !is_plain { self.wanted() } else { 0 };
        let held = (0..may_hold as u32).take_while(is_out).count() as i64;
        let replay = state.replay.or((held > 0).then_some(held));
        let is_replay = replay.is_some();
        let mut free = replay.unwrap_or(value).max(0) as u64;
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
            // If nothing was granted, too: what the network delivers twice could otherwise take permits the second time.
            state.record = Some(taken);
        } else if granted > 0 && !is_plain {
            let end = end_of(now, self.terms.lease_ms);
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
        // What is refused sets nothing up. (Permits that are out have lost their value, which comes back.)
        let is_set_up = granted > 0 || out > 0 || state.value.is_some();
        state.value = is_set_up.then_some(value - taken);
        state.write(space, keys, self.lane.as_ref())?;
        let keep_alive = self.terms.keeps_alive().filter(|ms| *ms > 0 || granted > 0 && !is_plain);
        live_on(space, keys, now, keep_alive, end_of(now, self.terms.lease_ms))?;
        let next_end = if is_short && !is_plain { first_end(space, keys)? } else { None };
        let numbers = (now, value - taken, total, next_end);
        Ok(self.reply(numbers, decisions).expect("each group has been decided"))
    }

    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand {
        let lane = self.lane.as_ref();
        let or_none = |number: Option<u64>| number.map_or(0, |number| number.min(MAX_EXACT) + 1);
        let (create, lease) = (or_none(self.terms.create), or_none(self.terms.lease_ms));
        let keep_alive = or_none(self.terms.keeps_alive());
        let mut call = numbers(lane, &[create, self.wanted() as u64, lease, keep_alive]);
        call.push(self.is_repeat.into());
        let groups = self.merged().flat_map(|groups| {
            let count = groups.iter().map(|group| group.count).sum();
            let waits = u8::from(groups[0].max_wait_ms > 0);
            sent([groups[0].permits, count]).into_iter().chain([waits])
        });
        let groups: Vec<u8> = groups.collect();
        let command = semaphore_script(&ACQUIRE, keys, self.at, self.terms.kind, in_cluster, lane);
        let command = command.arg(call).arg(groups);
        match self.terms.kind {
            SemaphoreKind::Plain => command,
            SemaphoreKind::Expirable => command.arg(&self.id.0[..]),
        }
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        let decisions: Option<Vec<_>> = (5..answer.len().checked_sub(1)?)
            .map(|place| match answer.integer(place)? {
                -1 => Some(None),
                fit => u64::try_from(fit).ok().map(Some),
            })
            .collect();
        let next_end = answer.integer(4).filter(|end| *end >= 0);
        let numbers = (answer.integer(1)?, answer.integer(2)?, answer.unsigned(3)?, next_end);
        self.reply(numbers, decisions?)
    }
}
