//! An acquire as the arguments of its script, and its answer.

use super::*;
use crate::store::redis::Script;

/// The call of `acquire.lua` for one limiter; the head of the script explains the arguments. Empty arguments at the end
/// are left out: the usual call has three.
pub(super) fn command(script: &'static Script, keys: &[&str], call: &AcquireCall) -> ServerCommand {
    let LimitCall { seen, create, groups, .. } = &call.limits[0];
    let total = total_permits(groups);
    let entry = entry_of(call.id, total);
    let groups = match groups[..] {
        [RequestGroup { count: 1, max_wait_ms: 0, .. }] => Vec::new(),
        _ => pack_groups(groups),
    };
    let number = |number: u64, left_out: u64| match number {
        _ if number == left_out => String::new(),
        _ => number.to_string(),
    };
    let date = |date: Option<i64>| date.map_or(String::new(), |date| date.to_string());
    let Earlier { is_again, since, reserved, .. } = call.earlier;
    let share = call.share.as_ref().filter(|_| call.id.client().is_some());
    let optional = [
        number(call.expects_expired.into(), 0).into_bytes(),
        number(total, 1).into_bytes(),
        groups,
        date(since).into_bytes(),
        number(call.hold_ms, 0).into_bytes(),
        rate_text(create).into_bytes(),
        number(call.reserve.into(), 0).into_bytes(),
        number(call.audit_limit.min(MAX_EXACT), 0).into_bytes(),
        share.map_or(String::new(), ShareTerms::text).into_bytes(),
        number(is_again.into(), 0).into_bytes(),
        call.earlier.dates_text().into_bytes(),
        date(reserved).into_bytes(),
        call.headroom.map_or(String::new(), |part| part.as_part().to_string()).into_bytes(),
    ];
    let given = optional.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
    let command = ServerCommand::script(script, keys).opt(call.now).arg(entry).seen(*seen);
    optional[..given].iter().fold(command, |command, arg| command.arg(arg.as_slice()))
}

/// The call of `acquire.lua` for several limiters.
pub(super) fn command_all(script: &'static Script, call: &AcquireCall) -> ServerCommand {
    let keys: Vec<&str> = call.limits.iter().flat_map(|limit| limit.keys.all()).collect();
    let command = ServerCommand::script(script, &keys)
        .opt(call.now)
        .opt(call.earlier.since)
        .arg(u8::from(call.earlier.is_again))
        .arg(call.earlier.dates_text());
    call.limits.iter().fold(command, |command, LimitCall { seen, create, groups, .. }| {
        let total = total_permits(groups);
        command
            .arg(entry_of(call.id, total))
            .arg(total)
            .seen(*seen)
            .arg(rate_text(create))
            .arg(call.audit_limit.min(MAX_EXACT))
            .arg(pack_groups(groups))
    })
}

fn rate_text(rate: &Option<Rate>) -> String {
    rate.map_or(String::new(), |rate| texts(&rate).join(" "))
}

impl Earlier {
    /// The argument `dates` of a script.
    pub(crate) fn dates_text(&self) -> String {
        let dates: Vec<String> = self.dates.iter().map(i64::to_string).collect();
        dates.join(" ")
    }
}

/// An entry of all permits that a call asks for; its first 17 bytes if they are more than an entry holds.
fn entry_of(id: EntryId, total: u64) -> Vec<u8> {
    match u32::try_from(total) {
        Ok(permits) => pack(id, permits),
        Err(_) => pack(id, 0)[..17].to_vec(),
    }
}

/// Encodes requests for `acquire.lua`: 15 bytes per group. No wait is longer than 2^53 ms.
pub(crate) fn pack_groups(groups: &[RequestGroup]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(groups.len() * 15);
    for group in groups {
        let mut left = group.count;
        loop {
            let count = left.min(u64::from(u32::MAX));
            packed.extend_from_slice(&group.permits.to_le_bytes()[..4]);
            packed.extend_from_slice(&group.max_wait_ms.min(MAX_EXACT).to_le_bytes()[..7]);
            packed.extend_from_slice(&count.to_le_bytes()[..4]);
            left -= count;
            if left == 0 {
                break;
            }
        }
    }
    packed
}

pub(super) fn read(call: &AcquireCall, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    // As many as each limiter has.
    let requests = request_count(&call.limits[0].groups);
    match call.limits.len() {
        1 if answer.len() < 6 => read_short(call, requests, answer),
        1 => read_full(call, requests, answer),
        _ => read_all(call, requests, answer),
    }
}

fn all_granted(requests: u64) -> Vec<OutcomeGroup> {
    vec![OutcomeGroup { count: requests, outcome: Outcome::Granted }]
}

/// The answer if all requests were granted and the rate is the one that the client last saw.
fn read_short(call: &AcquireCall, requests: u64, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let now = match (answer.len(), call.now) {
        (1, Some(now)) => now,
        (2, _) => answer.integer(1)?,
        _ => return None,
    };
    let (seen, left) = (call.limits[0].seen?, answer.integer(0)?);
    Some(AcquireReply {
        entry_date: now.checked_add_unsigned(call.hold_ms)?,
        ..AcquireReply::new(now, seen, left, all_granted(requests))
    })
}

/// The answer of several limiters; it has no list if all requests were granted and the rates are those that the client
/// last saw.
fn read_all(call: &AcquireCall, requests: u64, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let last = answer.len().checked_sub(1)?;
    let found = answer.list(last);
    let (now, outcomes) = match found {
        Some(_) => (answer.integer(5)?, read_outcomes(answer, last, requests)?),
        None => (answer.integer(0)?, all_granted(requests)),
    };
    if found.is_some_and(|found| found.len() != call.limits.len()) {
        return None;
    }
    let limits = call.limits.iter().enumerate().map(|(at, LimitCall { seen, .. })| {
        let Some(limit) = found.map(|found| found.list(at)) else {
            return Some(AcquireReply::new(now, (*seen)?, answer.integer(at + 1)?, Vec::new()));
        };
        let limit = limit?;
        let reply = AcquireReply::new(now, limit.rate()?, limit.integer(1)?, Vec::new());
        Some(AcquireReply { repaired: exact(limit.integer(5)?), ..reply })
    });
    Some(AcquireReply::of_limits(limits.collect::<Option<_>>()?, outcomes))
}

/// An answer with the rate, and with outcomes unless everything was granted.
fn read_full(call: &AcquireCall, requests: u64, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let now = answer.integer(5)?;
    if call.id.is_of_key() && answer.len() == 10 && answer.integer(7) == Some(8) {
        return Some(AcquireReply {
            entry_date: answer.integer(9)?,
            granted_before: Some(answer.unsigned(8)?),
            ..AcquireReply::new(now, answer.rate()?, answer.integer(1)?, all_granted(requests))
        });
    }
    let (len, holders) = match answer.list(answer.len() - 1) {
        Some(holders) => (answer.len() - 1, Some(Holders::read(holders)?)),
        None => (answer.len(), None),
    };
    let (len, repaired) = match len % 3 {
        1 => (len - 1, exact(answer.integer(len - 1)?)),
        _ => (len, 0),
    };
    let outcomes = match len {
        6 => all_granted(requests),
        _ => read_outcomes(answer, len, requests)?,
    };
    Some(AcquireReply {
        entry_date: now.checked_add_unsigned(call.hold_ms)?,
        holders,
        repaired,
        ..AcquireReply::new(now, answer.rate()?, answer.integer(1)?, outcomes)
    })
}

/// The outcomes of so many requests, which stand behind the rate: three numbers each.
fn read_outcomes(answer: ServerAnswer<'_>, end: usize, requests: u64) -> Option<Vec<OutcomeGroup>> {
    let (mut outcomes, mut answered) = (Vec::new(), 0u64);
    for at in (6..end).step_by(3) {
        let [count, kind, ms] = [at, at + 1, at + 2].map(|at| answer.unsigned(at));
        answered = answered.checked_add(count?)?;
        push_outcome(&mut outcomes, count?, read_outcome(kind?, ms?)?);
    }
    (answered == requests).then_some(outcomes)
}

/// Reads one outcome. With several limiters, the tens are the number of the one that refuses.
fn read_outcome(kind: u64, ms: u64) -> Option<Outcome> {
    let [exact, bound] = [false, true].map(|at_least| Wait::of_ms(ms, at_least));
    let by = u8::try_from(kind / 10).ok()?;
    Some(match kind % 10 {
        0 => Outcome::Granted,
        1 => Outcome::Refused(exact, by),
        2 => Outcome::Refused(bound, by),
        3 => Outcome::Waiting(exact),
        4 => Outcome::Waiting(bound),
        5 => Outcome::ExceedsRate,
        6 => Outcome::Undecided,
        7 => Outcome::Reserved(exact),
        _ => return None,
    })
}
