//! An acquire as the arguments of its script, and its answer.

use super::{
    AcquireCall, AcquireReply, Earlier, Outcome, OutcomeGroup, RequestGroup, Wait, total_permits,
};
use crate::clock::Now;
use crate::rate::{MAX_EXACT, exact};
use crate::store::calls::Holders;
use crate::store::redis::{Script, ServerAnswer, ServerCommand, mode_text};
use crate::wire::entry::{self, MAX_ENTRY_PERMITS};

/// The call of `acquire.lua`, whose head says what the arguments are. Arguments that say nothing are left
/// out at the end: the usual call has three.
pub(super) fn command(script: &'static Script, keys: &[&str], call: &AcquireCall) -> ServerCommand {
    let total = total_permits(&call.groups);
    let single = match call.groups.as_slice() {
        [RequestGroup { count: 1, permits, max_wait_ms }] => Some((*permits, *max_wait_ms)),
        _ => None,
    };

    let total_text = if total == 1 { String::new() } else { total.to_string() };
    let bound = match (call.now, &call.earlier) {
        (Now::Server, Earlier::FirstSince(last)) => format!("({last}"),
        _ => String::new(),
    };
    let groups = match single {
        Some((_, 0)) => Vec::new(),
        _ => pack_groups(&call.groups),
    };
    let special = special(call);
    let create = call.create.map_or(String::new(), |rate| {
        let (permits, interval) = (rate.permits(), rate.interval_ms());
        format!("{permits} {interval} {} {}", mode_text(rate.mode()), rate.keep_alive_ms())
    });
    let optional = [
        if call.expects_expired { b"1".as_slice() } else { b"" },
        total_text.as_bytes(),
        bound.as_bytes(),
        groups.as_slice(),
        special.as_bytes(),
        create.as_bytes(),
    ];
    let given = optional.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);

    let member = entry::pack(call.id, u32::try_from(total).unwrap_or(0));
    let member = if total <= MAX_ENTRY_PERMITS { &member[..] } else { &member[..17] };
    let command = ServerCommand::script(script, keys).time(call.now).arg(member).seen(call.seen);
    optional[..given].iter().fold(command, |command, arg| command.arg(*arg))
}

/// What is unusual about a call; empty for a usual one.
fn special(call: &AcquireCall) -> String {
    let earlier = match (&call.earlier, call.now) {
        (Earlier::None, _) | (Earlier::FirstSince(_), Now::Server) => "n".to_owned(),
        (Earlier::FirstSince(last), Now::At(_)) => format!("f {last}"),
        (Earlier::Dated(dates), _) => {
            dates.iter().fold("d".to_owned(), |text, date| format!("{text} {date}"))
        }
        (Earlier::Since(last), _) => format!("s {last}"),
        (Earlier::Reserved { since, date }, _) => format!("r {since} {date}"),
    };
    if earlier == "n"
        && call.audit_limit == 0
        && call.hold_ms == 0
        && !call.reserve
        && call.share.is_none()
    {
        return String::new();
    }
    let share = call.share.filter(|_| call.id.client().is_some());
    let share = share.map_or("-".to_owned(), |terms| terms.text());
    let hold = if call.reserve { "r".to_owned() } else { call.hold_ms.to_string() };
    format!("{} {hold} {share} {earlier}", call.audit_limit.min(MAX_EXACT))
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

/// An answer without the rate, which is the one that the client last saw.
fn read_short(call: &AcquireCall, answer: ServerAnswer<'_>) -> Option<AcquireReply> {
    let requests = requests(call);
    let now = match (answer.len(), call.now) {
        (1, Now::At(now)) => now,
        (1, Now::Server) => return None,
        _ => answer.integer(1)?,
    };
    let (granted, refused, ms) = match answer.len() {
        1 | 2 => (requests, 0, 0),
        5 => (answer.unsigned(2)?, answer.unsigned(3)?, answer.unsigned(4)?),
        _ => return None,
    };
    let mut outcomes = Vec::with_capacity(2);
    if granted > 0 || refused == 0 {
        outcomes.push(OutcomeGroup { count: granted, outcome: Outcome::Granted });
    }
    if refused > 0 {
        let wait = Wait { ms, at_least: false };
        outcomes.push(OutcomeGroup { count: refused, outcome: Outcome::Refused(wait) });
    }
    (granted.checked_add(refused)? == requests).then_some(AcquireReply {
        now,
        rate: call.seen?.rate(),
        entry_date: now.checked_add_unsigned(call.hold_ms)?,
        left: answer.integer(0)?,
        outcomes,
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
