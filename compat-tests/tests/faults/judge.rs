//! What this crate promises of a fault, and whether a report shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use compat_tests::faults::Fault;

use crate::fleet::RATE;
use crate::report::Report;

/// A call that does not wait takes its deadline at most, and what a busy machine adds.
const LONGEST: Duration = Duration::from_millis(3_500);

/// A call that waits may have to wait for permits as well, behind others.
const LONGEST_WAIT: Duration = Duration::from_millis(6_000);

/// The violations of what the crate promises.
pub fn failures(report: &Report) -> Vec<String> {
    let Report { fault, rust, far, shared: [beside, _], .. } = report;
    let mut failures = Vec::new();
    let mut check = |is_wrong: bool, what: String| {
        if is_wrong {
            failures.push(format!("{fault}: {what}"));
        }
    };

    for (figures, evicted, client) in
        [(&rust.now, report.evicted[0], "Rust"), (far, report.evicted[1], "far")]
    {
        if let Some(most) = most_in_a_second(report, evicted) {
            let (seen, all) = (figures.most_in_less as u64, figures.most_in_a_second);
            let text = format!("{client}: {seen} in less than a second, not {most}; {all} in one");
            check(seen > most, text);
        }
        check(figures.lost > 0, format!("{client}: {} permits are missing", figures.lost));
    }
    for (figures, client) in [(&rust.now, "Rust"), (far, "far"), (beside, "beside Redisson")] {
        check(figures.longest > LONGEST + report.noise, format!("{client}: {:?}", figures.longest));
        let unexpected = unexpected(*fault, &figures.errors);
        check(unexpected.is_some(), format!("{client}: errors of the kind {unexpected:?}"));
    }
    for (figures, client) in [(&rust.now, "Rust"), (far, "far")] {
        let is_back = figures.recovered.is_some();
        check(!is_back, format!("{client}: the full rate has not come back"));
    }

    let waits = &rust.waits;
    check(waits.stuck > 0, format!("{} calls that wait are stuck", waits.stuck));
    check(waits.served == 0, "no call that waits is served".to_owned());
    check(waits.longest > LONGEST_WAIT + report.noise, format!("a wait of {:?}", waits.longest));
    let unexpected = unexpected(*fault, &waits.errors);
    check(unexpected.is_some(), format!("waits end with errors of the kind {unexpected:?}"));

    let balance = &rust.balance;
    let forgotten = balance.forgotten();
    let may_forget = fault.loses_data() || *fault == Fault::Bytes;
    check(forgotten > 0 && !may_forget, format!("{forgotten} permits are in no log"));
    let nobodys = balance.taken_by_nobody();
    let may_be_nobodys = matches!(fault, Fault::ClientKilled | Fault::Bytes | Fault::Eviction);
    check(nobodys > 0 && !may_be_nobodys, format!("{nobodys} permits were granted to nobody"));
    check(balance.missing != 0, format!("value and log disagree: {balance:?}"));

    check(!report.leaks.is_empty(), format!("leaks: {:?}", report.leaks));
    failures
}

/// The most that callers may be granted in a second, with what lost data explains; `None` if an answer
/// can say anything because it need not be the server's.
fn most_in_a_second(report: &Report, evicted: u64) -> Option<u64> {
    let explained = match report.fault {
        // A limiter without data looks unused: once its rate more for each time.
        Fault::KillWithoutFile | Fault::Failover => RATE,
        Fault::Eviction => RATE * evicted,
        // At each step ahead.
        Fault::ClockStepped => RATE,
        Fault::Bytes => return None,
        _ => 0,
    };
    Some(RATE + explained)
}

/// An error that this fault does not explain.
fn unexpected(fault: Fault, errors: &BTreeMap<String, usize>) -> Option<String> {
    let is_expected = |kind: &str| match kind {
        "Unavailable" | "Timeout" => true,
        "Auth" => fault.refuses_credentials(),
        "NotInitialized" => fault.loses_data() || fault == Fault::Bytes,
        "stuck" => false,
        // A changed request, or reply, can be any other.
        _ => fault == Fault::Bytes,
    };
    errors.keys().find(|kind| !is_expected(kind)).cloned()
}
