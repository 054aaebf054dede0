//! Reading when the other side wants to be asked again.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::web::unquoted;

/// The wait that an answer asks for: `Retry-After` of a 429 or 503, in seconds or as a date.
pub(super) fn of(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is as good as forever; the layer has its own limit.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // Use the other side's clock if it sends the time: ours may differ.
    let now = headers
        .get(http::header::DATE)
        .and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok())
        .unwrap_or(now);
    Some(date.duration_since(now).unwrap_or_default())
}

/// The time until there is quota again, if a `RateLimit` field says that a policy has none left:
/// `"user";r=0;t=60` is a policy with nothing for another 60 seconds.
pub(super) fn of_exhausted(headers: &HeaderMap) -> Option<Duration> {
    let fields = headers.get_all("ratelimit").into_iter();
    let policies = fields.flat_map(|field| unquoted(field.as_bytes(), b','));
    let resets = policies.filter_map(|policy| {
        let number = |name: &str| {
            let parameters = unquoted(policy, b';').filter_map(|it| str::from_utf8(it).ok());
            let mut all = parameters.filter_map(|it| it.split_once('='));
            all.find(|(found, _)| *found == name)?.1.parse::<u64>().ok()
        };
        (number("r")? == 0).then(|| number("t"))?
    });
    resets.max().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_anything_left_says_for_how_long() {
        let exhausted = |fields: &[&str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append("ratelimit", field.parse().unwrap());
            }
            of_exhausted(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(exhausted(&["\"user\";r=0;t=60"]), Some(60));
        assert_eq!(exhausted(&["\"a\";r=0;t=6, \"b\"; r=0; t=7", "\"c\";r=3;t=99"]), Some(7));
        assert_eq!(exhausted(&["\"a,b;r=0;t=5\";r=1;t=6"]), None);
        assert_eq!(
            exhausted(&["\"a\";r=0", "\"a\";t=3", "limit=3, remaining=0, reset=4", ""]),
            None
        );
        assert_eq!(exhausted(&[]), None);
    }

    fn wait(status: u16, fields: &[(&'static str, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        of(StatusCode::from_u16(status).unwrap(), &headers, now)
    }

    #[test]
    fn seconds_and_dates() {
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(wait(429, &[("retry-after", "120")]), secs(120));
        assert_eq!(wait(503, &[("retry-after", " 7 ")]), secs(7));
        assert_eq!(wait(429, &[("retry-after", "99999999999999999999")]), secs(u64::MAX));
        assert_eq!(wait(429, &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), secs(30));
        // In the past.
        assert_eq!(wait(429, &[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), secs(0));
        // The other side's clock is a minute behind.
        let fields = [
            ("retry-after", "Sun, 06 Nov 1994 08:48:47 GMT"),
            ("date", "Sun, 06 Nov 1994 08:48:37 GMT"),
        ];
        assert_eq!(wait(429, &fields), secs(10));
    }

    #[test]
    fn other_answers_say_nothing() {
        assert_eq!(wait(200, &[("retry-after", "120")]), None);
        assert_eq!(wait(301, &[("retry-after", "120")]), None);
        assert_eq!(wait(429, &[]), None);
        for odd in ["", "-1", "1.5", "soon", "+3"] {
            assert_eq!(wait(429, &[("retry-after", odd)]), None, "{odd}");
        }
    }
}
