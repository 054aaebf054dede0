//! Limits that services in other languages keep on the same server, with libraries of their own: their keys, and what
//! is sent to the scripts in `lua/foreign`. There is no twin in process, where nobody else could share them.

use std::sync::Arc;
use std::time::Duration;

use super::bucket::Pace;
use super::packed::{self, WIDE, packed};
use super::{Kind, Policy, invalid, pace, permits, span};
use crate::clock::system_ms;
use crate::error::Error;
use crate::wire::keys::suffixed;

/// A limit in the format of another library.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Foreign {
    pub(crate) format: Format,
    /// The parameters as the script has them.
    text: Arc<str>,
    /// The most permits at once, as far as it is known here.
    pub(crate) limit: u64,
    /// The time in which the limit comes back, in microseconds.
    pub(crate) window_us: u64,
    /// A time in the window whose key a call names, in microseconds; `None`: the call's, or this machine's.
    around: Option<i64>,
    pub(crate) dedup: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    RedisRateGcra,
    /// redis_rate's `AllowN`: a key for each window, with its number.
    WindowNumbers,
    /// Its `AllowRate`: a key with the width in nanoseconds, and the number.
    WindowWidths,
    /// Envoy: a key with the start of the window in seconds.
    WindowStarts,
    Seconds,
    OrgPathCounter,
    OrgPathFunnel,
    AllowList,
    Log,
    MixerFixed,
    MixerRolling,
}

/// # Limits that other services enforce
///
/// These share the keys of running services, on a server only: an in-process store is refused when the handle is
/// made. The rules are those of the other library with its defects corrected on this side, so that nobody is granted
/// more than the other rules allow, and the other scripts never fail because of this crate. Each says which key the
/// limiter's name stands for. All of them use the server's clock, write nothing for a denial, and count each call
/// once: next to the others' key is a hash of this crate's own, `{key}:lanes`, which expires about a minute after the last
/// call. In a cluster all keys of a limiter must be in one slot.
impl Policy {
    /// redis_rate 8 to 10 (Go): GCRA, with bursts of up to `burst` permits, and `rate` permits every `period`. For
    /// the name `api` it shares the string `rate:api`; deleting that is redis_rate's `Reset`.
    ///
    /// redis_rate grants half an interval early, which this does not, so together they grant at most
    /// `burst` + rate × time + ½. A refund does not raise the permits above what the others left, and may credit
    /// less than was granted if others have taken permits since.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn redis_rate_gcra(burst: u64, rate: u64, period: Duration) -> Result<Policy, Error> {
        let burst = permits("a burst", burst)?;
        let Pace { permits, every } = pace(rate, period, burst)?;
        let window_us = u128::from(burst) * u128::from(every) / u128::from(permits);
        let text = text('R', [burst, permits, every]);
        Ok(foreign(Format::RedisRateGcra, text, burst, window_us as u64))
    }

    /// redis_rate up to 7 (Go), `AllowN`: `limit` permits in each window of this many seconds; a fraction of a second
    /// is cut off, as there. For the name `api` it shares the strings `rate:api-N`, where N is the number of the
    /// window since 1970.
    ///
    /// redis_rate counts denials, and takes the window from the callers' clocks: callers whose clocks differ enforce
    /// different windows. At most `limit` permits are granted in each.
    ///
    /// Fails outside of [these limits](Policy#limits); a period must be at least a second.
    pub fn redis_rate_fixed(limit: u64, period: Duration) -> Result<Policy, Error> {
        windows(Format::WindowNumbers, limit, Duration::from_secs(period.as_secs()))
    }

    /// redis_rate up to 7 (Go), `AllowRate`: `rate` permits a second, rounded down; below 1, one permit every ⌊1/rate⌋
    /// seconds. For the name `api` it shares the strings `rate:api-W-N`, with the width W of the window in nanoseconds
    /// and its number N. See [`redis_rate_fixed`](Self::redis_rate_fixed).
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the rate is from one in ten years to 2^32−1.
    pub fn redis_rate_fixed_rate(rate: f64) -> Result<Policy, Error> {
        let (limit, seconds) = match rate {
            1.0.. => (rate, 1.0),
            _ => (1.0, 1.0 / rate),
        };
        match limit <= f64::from(u32::MAX) && seconds > 0.0 && seconds <= 315_576_000.0 {
            true => {
                windows(Format::WindowWidths, limit as u64, Duration::from_secs(seconds as u64))
            }
            false => Err(invalid(format!(
                "a rate of {rate} permits a second: must be from one in ten years to 2^32-1"
            ))),
        }
    }

    /// Envoy's rate limit service: `limit` permits in each unit of time. The name is the service's prefix, the
    /// domain, and the descriptor's keys and values, joined by `_`; it shares the strings `name_S`, where S is the
    /// start of the window in seconds since 1970.
    ///
    /// A month has 30 days there, and a year 365. Envoy counts denials, and takes the window from the clocks of its
    /// processes. At most `limit` permits are granted in each window.
    ///
    /// Fails outside of [these limits](Policy#limits); a unit must be in whole seconds.
    pub fn envoy(limit: u64, unit: Duration) -> Result<Policy, Error> {
        windows(Format::WindowStarts, limit, unit)
    }

    /// A sliding log by a script that takes the server's time: `limit` permits in any `interval`. The name is the
    /// key of the sorted set, with an entry for each permit, scored in microseconds. An entry that is exactly as old
    /// as the interval still counts.
    ///
    /// Fails outside of [these limits](Policy#limits); the interval must be in whole milliseconds, and the limit at most 100,000.
    pub fn sliding_log(limit: u64, interval: Duration) -> Result<Policy, Error> {
        log('L', limit, "an interval", interval, Duration::from_millis(1))
    }

    /// A window in MULTI, as Java services with Jedis have it: `limit` permits in any `period`. The name is the key
    /// of the sorted set, such as `hist:user:action`, with entries scored in milliseconds.
    ///
    /// The others log their denials too, so callers that keep asking stay denied; and they count calls in one
    /// millisecond as one. Neither can be repaired from here.
    ///
    /// Fails outside of [these limits](Policy#limits); the period must be in whole seconds, and the limit at most 100,000.
    pub fn multi_window(limit: u64, period: Duration) -> Result<Policy, Error> {
        log('M', limit, "a period", period, Duration::from_secs(1))
    }

    /// A counter with its configuration on the server, as PHP services have it: the name is an organization and a
    /// path, such as `org1/user/list`. The hash of that name has the seconds `expire` and the limit `limitReq`; the
    /// string `org1-/user/list` is the counter. Without the hash, or with an `expire` that is not positive,
    /// everything is granted.
    ///
    /// The window opens with the first grant and ends with the key. The others count denials. At most the limit is
    /// granted in the life of a key. A change of `expire` applies to the next window.
    pub fn org_path_counter() -> Policy {
        foreign(Format::OrgPathCounter, text('C', []), u64::from(u32::MAX), 1_000_000)
    }

    /// A funnel with its configuration on the server, as Go services have it: the name is an organization and a path,
    /// such as `org1/user/list`, and the key of a hash with the fields `Capacity`, `LeakingRate` (permits a
    /// millisecond), `RemainingCapacity` and `LastLeakingTime`, in this order. If they are in a different order, which
    /// the other services would misread, or if the hash is missing, calls fail with
    /// [`ForeignFormat`](crate::ErrorKind::ForeignFormat).
    ///
    /// The others lose fractions of a permit at each call, up to half of the rate, which this does not. At most
    /// `Capacity` + rate × time + 1 permits are granted. A refund fills the funnel up to its capacity.
    pub fn org_path_funnel() -> Policy {
        foreign(Format::OrgPathFunnel, text('F', []), u64::from(u32::MAX), 1_000_000)
    }

    /// A counter that lives for two seconds after each grant: `limit` permits in its life. The name is its key. With
    /// the second in the name it is a fixed window; without, steady traffic prolongs its life until it is full,
    /// and then denies for two seconds.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn seconds_counter(limit: u64) -> Result<Policy, Error> {
        living_counter(limit, 2)
    }

    /// Like [`seconds_counter`](Self::seconds_counter), with a life of two minutes.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn minutes_counter(limit: u64) -> Result<Policy, Error> {
        living_counter(limit, 120)
    }

    /// A token bucket with its configuration on the server, for listed applications: the name is the key of a hash
    /// with the fields `max_permits`, `rate` (a second), `curr_permits`, `last_mill_second` and `apps`, the
    /// applications joined by commas. If `app` is not among them, calls fail with
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    ///
    /// The others lose fractions of a permit at each call, which this does not, and use their own clocks: one that
    /// is behind takes permits away. At most `max_permits` + rate × time + 1 permits are granted. A refund fills the
    /// bucket up to its maximum.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an empty name or one with a comma.
    pub fn allow_list_bucket(app: &str) -> Result<Policy, Error> {
        if app.trim() != app || app.is_empty() || app.contains([',', '\0']) {
            let detail = format!("the application {app:?}: must be a name without commas");
            return Err(invalid(detail));
        }
        let limit = u64::from(u32::MAX);
        // In Lua's patterns `%` takes the meaning of any punctuation away, and `%f` stands before a character of the
        // set that follows another.
        let plain = |c: char| c.is_ascii_punctuation().then_some('%').into_iter().chain([c]);
        let name: String = packed::text(app.as_bytes()).chars().flat_map(plain).collect();
        let text = format!("A?%f[^,%z]%s*{name}%s*%f[,%z]");
        Ok(foreign(Format::AllowList, text, limit, 1_000_000))
    }

    /// redisquota of Istio's Mixer, fixed: `limit` permits in a window that opens with the first grant. The name is
    /// the quota's with its dimensions, such as `requests;user=ann`; it shares the hash `name.meta`.
    ///
    /// Mixer's windows end by the callers' clocks, and its denials open windows too. At most `limit` permits are
    /// granted in each. The keys of [`try_acquire_once`](crate::RateLimiter::try_acquire_once) are Mixer's deduplication
    /// ids, with the hashes `id-name.meta`; other calls are counted once as above.
    ///
    /// Fails outside of [these limits](Policy#limits); the window must be in whole milliseconds.
    pub fn mixer_fixed(limit: u64, window: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let window = whole("a window", window, Duration::from_millis(1))?;
        Ok(foreign(Format::MixerFixed, text('Q', [limit, window]), limit, window))
    }

    /// redisquota of Istio's Mixer, rolling: `limit` permits in a window that moves on by buckets of this length. The
    /// name is that of [`mixer_fixed`](Self::mixer_fixed); it shares the hash `name.meta` and the sorted set
    /// `name.data`.
    ///
    /// A bucket leaves when its start is as old as the window, so at most `limit` permits are granted in any time
    /// that is shorter than the window by a bucket.
    ///
    /// Fails outside of [these limits](Policy#limits); both must be in whole milliseconds, and a bucket no longer than the window.
    pub fn mixer_rolling(limit: u64, window: Duration, bucket: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let window_us = whole("a window", window, Duration::from_millis(1))?;
        let bucket_us = whole("a bucket", bucket, Duration::from_millis(1))?;
        if bucket_us > window_us {
            let detail =
                format!("a bucket of {bucket:?}: must be no longer than the window, {window:?}");
            return Err(invalid(detail));
        }
        let text = text('P', [limit, window_us, bucket_us]);
        Ok(foreign(Format::MixerRolling, text, limit, window_us))
    }
}

/// Parameters as the scripts have them: a letter and numbers.
fn text<const N: usize>(letter: char, numbers: [u64; N]) -> String {
    format!("{letter}{}", packed(numbers.map(|number| (number, WIDE))))
}

fn foreign(format: Format, text: String, limit: u64, window_us: u64) -> Policy {
    Policy(Kind::Foreign(Foreign {
        format,
        text: text.into(),
        limit,
        window_us,
        around: None,
        dedup: None,
    }))
}

fn windows(format: Format, limit: u64, width: Duration) -> Result<Policy, Error> {
    let limit = permits("a limit", limit)?;
    let us = whole("a window", width, Duration::from_secs(1))?;
    // Half a minute longer than the window, as redis_rate 7 does.
    let text = text('W', [limit, us / 1_000_000 + 30]);
    Ok(foreign(format, text, limit, us))
}

fn living_counter(limit: u64, seconds: u64) -> Result<Policy, Error> {
    let limit = permits("a limit", limit)?;
    let text = text('S', [limit, seconds]);
    Ok(foreign(Format::Seconds, text, limit, seconds * 1_000_000))
}

fn log(
    letter: char,
    limit: u64,
    what: &str,
    span: Duration,
    unit: Duration,
) -> Result<Policy, Error> {
    if !(1..=MOST_ENTRIES).contains(&limit) {
        return Err(invalid(format!("a limit of {limit} permits: must be 1 to {MOST_ENTRIES}")));
    }
    let us = whole(what, span, unit)?;
    Ok(foreign(Format::Log, text(letter, [limit, us]), limit, us))
}

/// The largest limit of a log that has an entry for each permit: a call writes no more.
const MOST_ENTRIES: u64 = 100_000;

/// A number of whole units, at least one, in microseconds.
fn whole(what: &str, time: Duration, unit: Duration) -> Result<u64, Error> {
    match span(what, time)? {
        us if us % unit.as_micros() as u64 == 0 && time >= unit => Ok(us),
        _ => Err(invalid(format!("{what} of {time:?}: must be a multiple of {unit:?}"))),
    }
}

impl Foreign {
    pub(super) fn text(&self) -> String {
        self.text.to_string()
    }

    /// The first key of the limiter of this name; with a key for each window, the part that all of them have.
    pub(crate) fn key(&self, name: &str) -> Result<String, String> {
        Ok(match self.format {
            Format::RedisRateGcra | Format::WindowNumbers | Format::WindowWidths => {
                format!("rate:{name}")
            }
            Format::OrgPathCounter => match name.split_once('/') {
                Some((org, path)) => format!("{org}-/{path}"),
                None => {
                    return Err("a name without a path: must be like \"org1/user/list\"".to_owned());
                }
            },
            Format::MixerFixed | Format::MixerRolling => format!("{name}.meta"),
            _ => name.to_owned(),
        })
    }

    /// The script's keys, from the first one, at this time.
    pub(crate) fn keys(&self, key: &str, at: Option<i64>) -> Vec<String> {
        let mut first = key.to_owned();
        if let Some([start, end]) = self.bounds(at) {
            let number = start / (end - start);
            first = match self.format {
                Format::WindowNumbers => format!("{key}-{number}"),
                Format::WindowWidths => format!("{key}-{}-{number}", (end - start) * 1000),
                _ => format!("{key}_{}", start / 1_000_000),
            };
        }
        let lanes = match &self.dedup {
            Some(id) => format!("{id}-{key}"),
            None => suffixed(&first, "lanes"),
        };
        let other = match self.format {
            // The `-` is in front of the first `/`.
            Format::OrgPathCounter => Some(key.replacen("-/", "/", 1)),
            Format::MixerRolling => key.strip_suffix(".meta").map(|name| format!("{name}.data")),
            _ => None,
        };
        [first, lanes].into_iter().chain(other).collect()
    }

    /// With a key for each window, the start and the end of the one whose key a call names, in microseconds.
    pub(crate) fn bounds(&self, at: Option<i64>) -> Option<[i64; 2]> {
        use Format::{WindowNumbers, WindowStarts, WindowWidths};
        let (WindowNumbers | WindowWidths | WindowStarts) = self.format else { return None };
        let width = self.window_us as i64;
        let at = self.around.or(at).unwrap_or_else(|| system_ms() * 1000);
        let start = at.div_euclid(width) * width;
        Some([start, start + width])
    }

    /// The format for a call for this key; `None` if it has no such keys.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Foreign> {
        let dedup = match self.format {
            Format::MixerFixed | Format::MixerRolling => Some(str::from_utf8(key).ok()?.into()),
            _ => None,
        };
        Some(Foreign { dedup, ..self.clone() })
    }

    /// The format for calls in the window of this time.
    pub(crate) fn around(&self, at: i64) -> Foreign {
        Foreign { around: Some(at), ..self.clone() }
    }
}
