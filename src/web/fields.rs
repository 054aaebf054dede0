//! Header fields that tell callers about their limits.

use std::fmt::{self, Write};
use std::time::Duration;

use super::admission::Standing;
use crate::decision::Denial;
use crate::rate::Rate;

/// The header fields that answers carry in addition to `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateHeaders {
    /// No other fields.
    None,
    /// `RateLimit-Policy` and `RateLimit`, of draft-ietf-httpapi-ratelimit-headers-11:
    ///
    /// ```text
    /// RateLimit-Policy: "user";q=100;w=60
    /// RateLimit: "user";r=42;t=60
    /// ```
    ///
    /// `q` is the rate in permits and `w` its interval in seconds. The draft has no fractions, so `w` is left
    /// out if the interval is not whole seconds. `r` is what is left. `t`, rounded up, is the number of
    /// seconds for which no more than `r` is guaranteed: the interval, or for a refused request its wait,
    /// which is also the `Retry-After`. A limit of requests at once has `qu="concurrent-requests"` and no `w`.
    #[default]
    Draft,
    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (in seconds) for the limit
    /// with the least left. They are no lists, so an answer that already has one of them keeps its own.
    DraftAndLegacy,
}

/// The highest integer of a structured field (RFC 9651).
const HIGHEST: u64 = 999_999_999_999_999;

const LEGACY: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// The fields that an answer already has.
pub(crate) struct OwnFields {
    /// It says when to come back, so the window must not end later.
    has_retry_after: bool,
    /// It has one of the older fields, which are no lists: nothing can be added to them.
    has_legacy: bool,
}

impl OwnFields {
    /// `has` tells whether the answer has a field of this name.
    pub(crate) fn of(has: impl Fn(&'static str) -> bool) -> Self {
        OwnFields { has_retry_after: has("retry-after"), has_legacy: LEGACY.into_iter().any(has) }
    }
}

/// Passes the fields for an admitted request's answer to `add`.
pub(crate) fn of_admitted(
    headers: RateHeaders,
    standings: &[Standing],
    own: &OwnFields,
    mut add: impl FnMut(&'static str, String),
) {
    if headers == RateHeaders::None {
        return;
    }
    let shown = || standings.iter().filter(|standing| !standing.is_unlimited);
    let mut policies = String::new();
    let mut limits = String::new();
    for standing in shown() {
        let has_window = !own.has_retry_after && !standing.is_concurrency;
        let window = has_window.then(|| whole_secs(standing.rate.interval()));
        push(&mut policies, PolicyField::of(standing));
        push(&mut limits, LimitField(&standing.limit, standing.left, window));
    }
    if policies.is_empty() {
        return;
    }
    add("ratelimit-policy", policies);
    add("ratelimit", limits);
    if headers == RateHeaders::DraftAndLegacy
        && !own.has_legacy
        && let Some(least) =
            shown().filter(|it| !it.is_concurrency).min_by_key(|standing| standing.left)
    {
        let reset = whole_secs(least.rate.interval());
        legacy(least.rate, least.left, reset, add);
    }
}

/// Passes the fields for a denied request's answer to `add`.
pub(super) fn of_denied(
    headers: RateHeaders,
    standings: &[Standing],
    (limit, is_concurrency): (&str, bool),
    denial: &Denial,
    mut add: impl FnMut(&'static str, String),
) {
    let wait = retry_after_secs(denial);
    add("retry-after", wait.to_string());
    if headers == RateHeaders::None {
        return;
    }
    let mut policies = String::new();
    for standing in standings.iter().filter(|standing| !standing.is_unlimited) {
        push(&mut policies, PolicyField::of(standing));
    }
    if let Some(rate) = denial.rate() {
        push(&mut policies, PolicyField(limit, rate, is_concurrency));
    }
    if !policies.is_empty() {
        add("ratelimit-policy", policies);
    }
    // The others have permits left for a longer window, which would end after `Retry-After`.
    add("ratelimit", LimitField(limit, 0, Some(wait)).to_string());
    if headers == RateHeaders::DraftAndLegacy
        && let Some(rate) = denial.rate()
    {
        legacy(rate, 0, wait, add);
    }
}

/// The seconds after which to try again: at least one, because zero would mean at once.
pub(super) fn retry_after_secs(denial: &Denial) -> u64 {
    denial.retry_after_secs().max(1)
}

fn legacy(rate: Rate, left: u64, reset: u64, mut add: impl FnMut(&'static str, String)) {
    let [limit_field, left_field, reset_field] = LEGACY;
    add(limit_field, rate.permits().to_string());
    add(left_field, left.to_string());
    add(reset_field, reset.to_string());
}

fn push(list: &mut String, item: impl fmt::Display) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    // Writing to a string cannot fail.
    let _ = write!(list, "{item}");
}

fn whole_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// An item of `RateLimit-Policy`. The name of a limit needs no escaping.
///
/// The third says whether it is about requests at once, which have no window.
struct PolicyField<'a>(&'a str, Rate, bool);

impl<'a> PolicyField<'a> {
    fn of(standing: &'a Standing) -> Self {
        PolicyField(&standing.limit, standing.rate, standing.is_concurrency)
    }
}

impl fmt::Display for PolicyField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyField(limit, rate, is_concurrency) = self;
        write!(f, "\"{limit}\";q={}", rate.permits().min(HIGHEST))?;
        if *is_concurrency {
            return f.write_str(";qu=\"concurrent-requests\"");
        }
        let interval = rate.interval();
        match interval.subsec_nanos() {
            0 => write!(f, ";w={}", interval.as_secs().min(HIGHEST)),
            _ => Ok(()),
        }
    }
}

/// An item of `RateLimit`.
struct LimitField<'a>(&'a str, u64, Option<u64>);

impl fmt::Display for LimitField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitField(limit, left, window) = self;
        write!(f, "\"{limit}\";r={}", left.min(&HIGHEST))?;
        match window {
            Some(secs) => write!(f, ";t={}", secs.min(&HIGHEST)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Mode;

    #[test]
    fn intervals_of_another_clients_rate_that_the_draft_cannot_have() {
        // 2^53 ms is the longest interval that can be built here; the server may hold a longer one.
        let rate = Rate::from_wire(Mode::Overall, 1, i64::MAX as u64 / 1000 * 1000, 0);
        assert_eq!(PolicyField("a", rate, false).to_string(), "\"a\";q=1;w=999999999999999");
        let window = Some(whole_secs(rate.interval()));
        assert_eq!(LimitField("a", 0, window).to_string(), "\"a\";r=0;t=999999999999999");
    }
}
