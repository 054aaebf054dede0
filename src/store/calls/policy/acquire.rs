//! Acquire with a policy: a batch of requests decided as one step, each of which takes from all limiters of the call, or
//! from none.

use super::super::policy_script::TOGETHER;
use super::*;
use crate::policy::decide::decide;
use crate::policy::frame::{Record, Rules, State};
use crate::policy::queue::{Queue, Schedule};
use crate::policy::{Notes, Pace};

impl StoreCall for PolicyCall {
    type Reply = AcquireReply;

    fn decide(&self, space: &mut Keyspace, _: &Keys) -> Result<AcquireReply, Error> {
        // Read.
        let limiters = self.limits.iter().map(|PolicyLimit { keys, of, .. }| {
            Limiter::read(space, keys, self.at, of, ChangeRule::Keep, Some(&self.lane))
                .map_err(|error| if self.is_group { error.in_limiter(&keys.hash) } else { error })
        });
        let mut limiters = limiters.collect::<Result<Vec<_>, Error>>()?;

        // Decide.
        let (outcomes, shares) = decide(&mut limiters, self);
        let is_replay = limiters.iter().any(|it| it.replay.is_some());
        let replies = limiters.iter().zip(&self.limits).map(|(limiter, limit)| {
            let mut reply = after(limiter, limit.of.rate());
            if let Some(it) = reply.mark.as_mut().filter(|_| limiter.replay.is_some() != is_replay)
            {
                // A limiter that has lost the record has nothing to give back.
                it.mark = Mark::default();
            }
            reply
        });
        let reply = AcquireReply::of_limits(replies.collect(), outcomes);

        // Write.
        let limiters = limiters.iter_mut().zip(&shares).zip(&self.limits);
        for ((limiter, share), PolicyLimit { keys, groups, .. }) in limiters {
            match is_replay {
                false => limiter.write_taken(space, keys, share, groups.is_empty())?,
                true => limiter.confirm(space, keys)?,
            }
        }
        Ok(reply)
    }

    fn command(&self, _: &Keys, _: bool) -> ServerCommand {
        let (at, lane) = (self.at, Some(&self.lane));
        if let ([PolicyLimit { keys, of, groups }], false) = (&self.limits[..], self.is_group) {
            return command(of, at, keys, "", lane, pack_groups(groups));
        }
        let keys: Vec<&str> = self.limits.iter().map(|limit| &*limit.keys.hash).collect();
        let all = self.limits.iter();
        let all = all.flat_map(|it| arguments(&it.of, at, "", lane, pack_groups(&it.groups)));
        all.fold(ServerCommand::script(&TOGETHER, &keys), ServerCommand::arg)
    }

    fn check_in_cluster(&self, _: &Keys) -> Result<(), Error> {
        self.limits.iter().try_for_each(|limit| check_foreign(&limit.of.rules, &limit.keys))
    }

    /// The answer about a group names one limiter, and its time is for the calendars of all.
    fn corrected(&self, answer: ServerAnswer<'_>) -> Option<Self> {
        let (mut limits, key) = (self.limits.clone(), answer.bytes(3));
        let is_named =
            |it: &&mut PolicyLimit| !self.is_group || key == Some(it.keys.hash.as_bytes());
        let named = limits.iter_mut().find(is_named)?;
        named.of = corrected(&named.of, answer)?;
        for limit in &mut limits {
            if let Some(calendar) = limit.of.rules.calendar_mut() {
                calendar.around = answer.integer(1);
            }
        }
        Some(PolicyCall { limits, ..self.clone() })
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
        if let Some(record) = answer.bytes(0) {
            let PolicyLimit { of, groups, .. } = &self.limits[0];
            return of_record(record, *groups.first()?, of.rate());
        }
        let rates = self.limits.iter().map(|limit| limit.of.rate());
        let most = request_count(&self.limits[0].groups);
        let (limits, outcomes) = read_decision(answer, rates, most)?;
        Some(AcquireReply::of_limits(limits, outcomes))
    }
}

/// The replies of an answer's limiters, which have these rates, without outcomes, and the outcomes of its requests, of which
/// there are no more than `most`.
fn read_decision(
    answer: ServerAnswer<'_>,
    rates: impl ExactSizeIterator<Item = Rate>,
    most: u64,
) -> Option<(Vec<AcquireReply>, Vec<OutcomeGroup>)> {
    let (now, found) = (answer.integer(1)?, answer.list(2)?);
    if found.len() != rates.len() {
        return None;
    }
    let limits = rates.enumerate().map(|(at, rate)| {
        let limit = found.list(at)?;
        let (mark, at) = ((limit.integer(1)?, limit.unsigned(2)?), limit.integer(3)?);
        Some(AcquireReply {
            granted_before: limit.unsigned(4)?.checked_sub(1),
            notes: Notes {
                is_replay: limit.unsigned(4)? > 0,
                given_back: limit.unsigned(5)?,
                has_changed: limit.unsigned(6)? & 1 > 0,
                went_back: limit.unsigned(6)? & 2 > 0,
            },
            ..marked(rate, limit.unsigned(0)?, Marked { mark, at, now })
        })
    });
    let (mut outcomes, mut place) = (Vec::new(), 3);
    while place < answer.len() {
        let [count, kind, number] = [place, place + 1, place + 2].map(|at| answer.unsigned(at));
        let (count, kind, number) = (count?, kind?, number?);
        place += 3;
        let wait = Wait { us: number, at_least: kind % 2 == 0 };
        let outcome = match kind % 10 {
            0 => Outcome::Granted,
            1 | 2 => Outcome::Refused(wait, u8::try_from(kind / 10).ok()?),
            3 | 4 => Outcome::Waiting(wait),
            5 => Outcome::ExceedsRate,
            8 => {
                place -= 1;
                let mut next = || {
                    place += 1;
                    answer.unsigned(place - 1).filter(|number| *number < MAX_EXACT)
                };
                let (free, from) = ((next()? as i64, next()?), next()? as i64);
                let permits = next()?;
                let (pace, slack) = (Pace { permits: next()?, every: next()? }, next()?);
                let schedule = Schedule { free, from, permits, pace, slack };
                if count > most {
                    return None;
                }
                outcomes.extend(schedule.grants(count, i64::MAX)?);
                continue;
            }
            _ => return None,
        };
        push_outcome(&mut outcomes, count, outcome);
    }
    Some((limits.collect::<Option<_>>()?, outcomes))
}

fn marked(rate: Rate, left: u64, mark: Marked) -> AcquireReply {
    let left = left.min(MAX_EXACT) as i64;
    AcquireReply { mark: Some(mark), ..AcquireReply::new(mark.now / 1000, rate, left, Vec::new()) }
}

/// The reply about a limiter after a call, without outcomes.
fn after(limiter: &Limiter, rate: Rate) -> AcquireReply {
    let (replay, now) = (limiter.replay.as_ref(), limiter.now);
    let (mark, at) = replay.map_or_else(|| (limiter.mark(), now), |it| (it.mark, it.at));
    AcquireReply {
        granted_before: replay.map(|record| record.total),
        notes: limiter.notes,
        ..marked(rate, limiter.available(), Marked { mark, at, now })
    }
}

/// The reply of a call that was granted whole: the record of its lane, and behind it a queue's parameters.
fn of_record(bytes: &[u8], asked: RequestGroup, rate: Rate) -> Option<AcquireReply> {
    let (record, parameters) = bytes.split_at(bytes.len().min(Record::LONGEST));
    let has_fraction = record.len() == Record::LONGEST;
    let Record { at, mark, left, total, .. } = Record::parse(&packed::text(record), has_fraction)?;
    let queue = (!parameters.is_empty()).then(|| Policy::parse(&packed::text(parameters)));
    let (left, outcomes) = match queue {
        Some(Some(Policy(Kind::Queue(queue)))) if total <= queue.limit => {
            let (free, Queue { pace, slack, .. }) = (queue.pace.plus(mark, -(total as i64)), queue);
            let schedule = Schedule { free, from: at, permits: asked.permits, pace, slack };
            let state = State { x: mark.0, y: mark.1, ..State::default() };
            (queue.available(&state, at), schedule.grants(asked.count, i64::MAX)?.collect())
        }
        Some(_) => return None,
        None => (left, vec![OutcomeGroup { count: asked.count, outcome: Outcome::Granted }]),
    };
    Some(AcquireReply { outcomes, ..marked(rate, left, Marked { mark, at, now: at }) })
}
