//! An acquire as the arguments of its script, and its answer.

use super::{
    AcquireCall, AcquireReply, Earlier, Outcome, OutcomeGroup, RequestGroup, Wait, total_permits,
};
use crate::clock::Now;
use crate::rate::{MAX_EXACT, exact};
use crate::store::ShareTerms;
use crate::store::calls::Holders;
use crate::store::redis::{Script, ServerAnswer, ServerCommand, mode_text};
use crate::wire::entry;

/// The call of `acquire.lua`, whose head says what the arguments are. Arguments that say nothing are left
/// out at the end: the usual call has three.
pub(super) fn command(script: &'static Script, keys: &[&str], call: &AcquireCall) -> ServerCommand {
    let total = total_permits(&call.groups);
    let entry = match u32::try_from(total) {
        Ok(permits) => entry::pack(call.id, permits),
        Err(_) => entry::pack(call.id, 0)[..17].to_vec(),
    };
    let groups = match call.groups[..] {
        [RequestGroup { count: 1, max_wait_ms: 0, .. }] => Vec::new(),
        _ => pack_groups(&call.groups),
    };
    let number = |number: u64, left_out: u64| match number {
        _ if number == left_out => String::new(),
        _ => number.to_string(),
    };
    let date = |date: Option<i64>| date.map_or(String::new(), |date| date.to_string());
    let (after, dates, reserved_date) = match &call.earlier {
        Earlier::None => (None, &[][..], None),
        Earlier::FirstSince(last) | Earlier::Since(last) => (Some(*last), &[][..], None),
        Earlier::Dated(dates) => (None, &dates[..], None),
        Earlier::Reserved { since, date } => (Some(*since), &[][..], Some(*date)),
    };
    let dates: Vec<String> = dates.iter().map(i64::to_string).collect();
    let share = call.share.as_ref().filter(|_| call.id.client().is_some());
    let create = call.create.as_ref().map_or(String::new(), |rate| {
        let (permits, interval) = (rate.permits(), rate.interval_ms());
        format!("{permits} {interval} {} {}", mode_text(rate.mode()), rate.keep_alive_ms())
    });
    let optional = [
        number(call.expects_expired.into(), 0).into_bytes(),
        number(total, 1).into_bytes(),
        groups,
        date(after).into_bytes(),
        number(call.hold_ms, 0).into_bytes(),
        create.into_bytes(),
        number(call.reserve.into(), 0).into_bytes(),
        number(call.audit_limit.min(MAX_EXACT), 0).into_bytes(),
        share.map_or(String::new(), ShareTerms::text).into_bytes(),
        number((!call.earlier.is_first()).into(), 0).into_bytes(),
        dates.join(" ").into_bytes(),
        date(reserved_date).into_bytes(),
        call.headroom.map_or(String::new(), |part| part.as_part().to_string()).into_bytes(),
    ];
    let given = optional.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
    let command = ServerCommand::script(script, keys).time(call.now).arg(entry).seen(call.seen);
    optional[..given].iter().fold(command, |command, arg| command.arg(arg.as_slice()))
}

/// Requests as `acquire.lua` takes them: 15 bytes a group. No wait is longer than 2^53 ms.
pub(crate) fn pack_groups(groups: &[RequestGroup]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(groups.len() * 15);
    for group in groups {
        let mut left = group.count;
        while left > 0 {
            let count = left.min(u64::from(u32::MAX));
            packed.extend_from_slice(&group.permits.to_le_bytes()[..4]);
            packed.extend_from_slice(&group.max_wait_ms.min(MAX_EXACT).to_le_bytes()[..7]);
            packed.extend_from_slice(&count.to_le_bytes()[..4]);
            left -= count;
        }
    }
    packed
}

/// Reads the answer.
pub(super) fn read(call: &AcquireCall, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    if answer.len() < 6 { read_short(call, answer) } else { read_full(call, answer) }
}

fn requests(call: &AcquireCall) -> u64 {
    call.groups.iter().map(|group| group.count).sum()
}

/// All requests were granted, and the rate is the one that the client last saw.
fn read_short(call: &AcquireCall, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let now = match (answer.len(), call.now) {
        (1, Now::At(now)) => now,
        (2, _) => answer.integer(1)?,
        _ => return None,
    };
    Some(AcquireReply {
        now,
        rate: call.seen?.rate(),
        entry_date: now.checked_add_unsigned(call.hold_ms)?,
        left: answer.integer(0)?,
        outcomes: vec![OutcomeGroup { count: requests(call), outcome: Outcome::Granted }],
        holders: None,
        repaired: 0,
    })
}

/// An answer with the rate, and with outcomes unless everything was granted.
fn read_full(call: &AcquireCall, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let requests = requests(call);
    let now = answer.integer(5)?;
    let (len, holders) = match answer.list(answer.len() - 1) {
        Some(holders) => (answer.len() - 1, Some(Holders::read(holders)?)),
        None => (answer.len(), None),
    };
    // Outcomes are three numbers each.
    let (len, repaired) = match len % 3 {
        1 => (len - 1, exact(answer.integer(len - 1)?)),
        _ => (len, 0),
    };
    let mut outcomes = Vec::with_capacity(1.max(len.saturating_sub(6) / 3));
    if len == 6 {
        outcomes.push(OutcomeGroup { count: requests, outcome: Outcome::Granted });
    }
    for at in (6..len).step_by(3) {
        let ms = answer.unsigned(at + 2)?;
        let outcome = match answer.integer(at + 1)? {
            0 => Outcome::Granted,
            1 => Outcome::Refused(Wait { ms, at_least: false }),
            2 => Outcome::Refused(Wait { ms, at_least: true }),
            3 => Outcome::Waiting(Wait { ms, at_least: false }),
            4 => Outcome::Waiting(Wait { ms, at_least: true }),
            5 => Outcome::ExceedsRate,
            6 => Outcome::Undecided,
            7 => Outcome::Reserved(Wait { ms, at_least: false }),
            _ => return None,
        };
        outcomes.push(OutcomeGroup { count: answer.unsigned(at)?, outcome });
    }
    let answered = outcomes.iter().try_fold(0u64, |sum, group| sum.checked_add(group.count))?;
    (answered == requests).then_some(AcquireReply {
        now,
        rate: answer.rate()?,
        entry_date: now.checked_add_unsigned(call.hold_ms)?,
        left: answer.integer(1)?,
        outcomes,
        holders,
        repaired,
    })
}
