//! Header fields that tell callers about their limits.

use std::time::Duration;

use super::admitted::Standing;
use super::limit::Limit;
use super::request::ResponseHead;
use crate::decision::Denial;

/// The header fields that answers carry in addition to `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateHeaders {
    /// No other fields.
    None,
    /// `RateLimit-Policy` and `RateLimit`, of
    /// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/):
    ///
    /// ```text
    /// RateLimit-Policy: "user";q=100;w=60
    /// RateLimit: "user";r=42;t=60
    /// ```
    ///
    /// `q` is the rate in permits and `w` its interval in seconds, left out if these are not whole. `r` is what is
    /// left. `t`, rounded up, is the number of seconds for which no more than `r` is guaranteed: the interval, or for
    /// a refused request its wait, which is also the `Retry-After`. A limit of requests at once has
    /// `qu="concurrent-requests"` and no `w`.
    #[default]
    Draft,
    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (in seconds) for the limit
    /// with the least left. They are no lists, so an answer that already has one of them keeps its own.
    DraftAndLegacy,
}

/// The highest integer of a structured field (RFC 9651).
const HIGHEST: u64 = 999_999_999_999_999;

const LEGACY: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// A header field: its name, and its value in visible ASCII.
pub(crate) type Field = (&'static str, String);

/// The parts of a list or of one of its elements, from the right, where separators within quotes do not separate.
///
/// Read from the left, a quote that a client left open would hide what a proxy has added.
pub(crate) fn unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut at) = (false, text.len());
    let parts = text.rsplit(move |&byte| {
        at -= 1;
        if byte == b'"' {
            // A proxy may quote what the client has sent, with the client's quotes escaped. Counted at quotes alone: at each
            // byte, a line of backslashes would take the square of its length.
            let escapes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
            is_quoted ^= escapes % 2 == 0;
        }
        byte == separator && !is_quoted
    });
    parts.map(<[u8]>::trim_ascii)
}

/// The fields to add to the answer to an admitted request.
pub(super) fn of_admitted(
    headers: RateHeaders,
    standings: &[Standing],
    answer: &ResponseHead<'_>,
) -> Vec<Field> {
    let shown: Vec<_> = standings.iter().filter(|standing| !standing.is_unlimited).collect();
    if headers == RateHeaders::None || shown.is_empty() {
        return Vec::new();
    }
    // It says when to come back, so the window must not end later.
    let has_retry_after = answer.has("retry-after");
    let policies = shown.iter().map(|it| policy(it));
    let limits = shown.iter().map(|it| {
        let has_window = !has_retry_after && !it.is_concurrency;
        limit(&it.limit, it.left, has_window.then(|| whole_secs(it.rate.interval())))
    });
    let mut fields = vec![("ratelimit-policy", list(policies)), ("ratelimit", list(limits))];
    // The older fields are no lists: nothing can be added to them.
    let has_legacy = LEGACY.iter().any(|name| answer.has(name));
    if headers == RateHeaders::DraftAndLegacy && !has_legacy {
        let least = shown.iter().filter(|it| !it.is_concurrency).min_by_key(|it| it.left);
        fields.extend(least.into_iter().flat_map(|it| legacy(it, whole_secs(it.rate.interval()))));
    }
    fields
}

/// The fields of the answer to a request that this limit has denied, after those with these standings.
pub(super) fn of_denied(
    headers: RateHeaders,
    standings: &[Standing],
    refusing: &Limit,
    denial: &Denial,
) -> Vec<Field> {
    let wait = retry_after_secs(denial);
    let mut fields = vec![("retry-after", wait.to_string())];
    if headers == RateHeaders::None {
        return fields;
    }
    let refused = denial.rate().map(|rate| Standing::of_policy(refusing, rate));
    let shown = standings.iter().filter(|standing| !standing.is_unlimited).chain(&refused);
    let policies = list(shown.map(policy));
    if !policies.is_empty() {
        fields.push(("ratelimit-policy", policies));
    }
    // The others have permits left for a longer window, which would end after `Retry-After`.
    fields.push(("ratelimit", limit(&refusing.name, 0, Some(wait))));
    if headers == RateHeaders::DraftAndLegacy {
        fields.extend(refused.iter().flat_map(|it| legacy(it, wait)));
    }
    fields
}

/// The seconds after which to try again: at least one, because zero would mean at once.
pub(super) fn retry_after_secs(denial: &Denial) -> u64 {
    denial.retry_after_secs().max(1)
}

fn legacy(standing: &Standing, reset: u64) -> [Field; 3] {
    let values = [standing.rate.permits(), standing.left, reset];
    std::array::from_fn(|at| (LEGACY[at], values[at].to_string()))
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn whole_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// An item of `RateLimit-Policy`. The name of a limit needs no escaping.
fn policy(standing: &Standing) -> String {
    let Standing { limit, rate, is_concurrency, .. } = standing;
    let (permits, interval) = (rate.permits().min(HIGHEST), rate.interval());
    let window = match interval.subsec_nanos() {
        _ if *is_concurrency => ";qu=\"concurrent-requests\"".to_owned(),
        0 => format!(";w={}", interval.as_secs().min(HIGHEST)),
        _ => String::new(),
    };
    format!("\"{limit}\";q={permits}{window}")
}

/// An item of `RateLimit`.
fn limit(name: &str, left: u64, window: Option<u64>) -> String {
    let left = left.min(HIGHEST);
    let window = window.map_or_else(String::new, |secs| format!(";t={}", secs.min(HIGHEST)));
    format!("\"{name}\";r={left}{window}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::{Mode, Rate};
    use crate::web::Key;

    #[test]
    fn intervals_of_another_clients_rate_that_the_draft_cannot_have() {
        // 2^53 ms is the longest interval that can be built here; the server may hold a longer one.
        let rate = Rate::from_wire(Mode::Overall, 1, i64::MAX as u64 / 1000 * 1000, 0);
        let standing = Standing::of_policy(&Limit::new("a", Key::global(), None), rate);
        assert_eq!(policy(&standing), "\"a\";q=1;w=999999999999999");
        let window = Some(whole_secs(rate.interval()));
        assert_eq!(limit("a", 0, window), "\"a\";r=0;t=999999999999999");
    }
}
