//! Calls as the arguments of their scripts.

use redis::Cmd;

use super::scripts::{self, Script};
use crate::clock::Now;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::store::limits::MAX_OTHERS;
use crate::store::{AcquireCall, Earlier, RequestGroup, SeenRate, total_permits};
use crate::wire::entry::{self, MAX_ENTRY_PERMITS};
use crate::wire::keys::Keys;

pub(super) fn call_of(script: &Script, keys: &Keys, args: usize) -> Cmd {
    script.call(keys.all().iter().copied(), args)
}

pub(super) fn arg_time(cmd: &mut Cmd, now: Now) {
    match now {
        Now::At(ms) => cmd.arg(ms),
        Now::Server => cmd.arg(""),
    };
}

/// All of the rate in one argument, so that a script compares it with the hash at once.
pub(super) fn arg_seen(cmd: &mut Cmd, seen: Option<SeenRate>) {
    match seen {
        Some(seen) => cmd.arg({
            let rate = seen.rate();
            let (permits, interval) = (rate.permits(), rate.interval_ms());
            format!("{} {permits} {interval} {}", mode_text(rate.mode()), rate.keep_alive_ms())
        }),
        None => cmd.arg(""),
    };
}

pub(super) fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

pub(super) fn arg_rate(cmd: &mut Cmd, rate: &Rate) {
    cmd.arg(rate.permits())
        .arg(rate.interval_ms())
        .arg(mode_text(rate.mode()))
        .arg(rate.keep_alive_ms());
}

/// The call of `acquire.lua`, whose head says what the arguments are, with all keys or those of the mode
/// that was last seen. Arguments that say nothing are left out at the end: the usual call has three.
pub(super) fn acquire_cmd(keys: &[&str], call: &AcquireCall) -> Cmd {
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

    let mut cmd = scripts::ACQUIRE.call(keys.iter().copied(), 3 + given);
    arg_time(&mut cmd, call.now);
    if total <= MAX_ENTRY_PERMITS {
        cmd.arg(entry::pack(call.id, total as u32));
    } else {
        cmd.arg(&entry::pack(call.id, 0)[..17]);
    }
    arg_seen(&mut cmd, call.seen);
    for arg in &optional[..given] {
        cmd.arg(*arg);
    }
    cmd
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
    let share = call.share.filter(|_| call.id.client().is_some()).map_or("-".to_owned(), |terms| {
        let [unclaimed, after] =
            [terms.unclaimed, terms.retry_after_ms].map(|number| number.min(MAX_EXACT));
        let (others, may_exceed) = (terms.others.min(MAX_OTHERS), u8::from(terms.may_exceed));
        format!("{others},{unclaimed},{after},{may_exceed}")
    });
    let hold = if call.reserve { "r".to_owned() } else { call.hold_ms.to_string() };
    format!("{} {hold} {share} {earlier}", call.audit_limit.min(MAX_EXACT))
}

/// Requests as `acquire.lua` takes them: 15 bytes a group. No wait is longer than 2^53 ms.
pub(super) fn pack_groups(groups: &[RequestGroup]) -> Vec<u8> {
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
