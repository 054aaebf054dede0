//! Calls as the arguments of their scripts.

use redis::Cmd;

use super::scripts::{self, Script};
use crate::clock::Now;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::store::limits::MAX_OTHERS;
use crate::store::{AcquireCall, Earlier, RequestGroup, SeenRate, ShareTerms, total_permits};
use crate::wire::entry;
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
        share.map_or(String::new(), share_text).into_bytes(),
        number((!call.earlier.is_first()).into(), 0).into_bytes(),
        dates.join(" ").into_bytes(),
        date(reserved_date).into_bytes(),
    ];
    let given = optional.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);

    let mut cmd = scripts::ACQUIRE.call(keys.iter().copied(), 3 + given);
    arg_time(&mut cmd, call.now);
    cmd.arg(entry);
    arg_seen(&mut cmd, call.seen);
    for arg in &optional[..given] {
        cmd.arg(arg.as_slice());
    }
    cmd
}

fn share_text(terms: &ShareTerms) -> String {
    let [remembers, may_exceed] = [terms.remembers_redisson, terms.may_exceed].map(u8::from);
    let [unclaimed, kept_free, after] =
        [terms.unclaimed, terms.kept_free, terms.retry_after_ms].map(|n| n.min(MAX_EXACT));
    let (others, arrears) = (terms.remembered.min(MAX_OTHERS), terms.arrears);
    format!("{remembers},{others},{unclaimed},{kept_free},{after},{arrears},{may_exceed}")
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
