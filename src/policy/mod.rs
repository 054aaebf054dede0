//! Policies: how a limiter counts, other than by Redisson's log.
//!
//! [`frame`] is what they share, over the trait `Rules`; a file each has the rules of one or of a family. A policy
//! and its script in `lua/policy` are twins: they decide alike, and leave the same state.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Operation};
use crate::rate::{Mode, Rate};

pub(crate) mod bucket;
mod calendar;
pub(crate) mod decide;
pub(crate) mod foreign;
pub(crate) mod frame;
pub(crate) mod packed;
pub(crate) mod queue;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;
pub(crate) mod window;

pub use calendar::{CalendarUnit, Weekday};
pub(crate) use frame::{Mark, Notes};

pub(crate) use bucket::Pace;
use bucket::{Bucket, CENTURY, Interval, Rgcra};
use calendar::Calendar;
use foreign::Foreign;
use frame::{LONGEST_US, Rules, is_permits};
use queue::Queue;
use window::{Grid, Rolling, Sliding, Window};

/// How a limiter counts, if not by Redisson's log: see [`Client::limiter_of`](crate::Client::limiter_of).
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{CalendarUnit, Policy};
///
/// # fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let minute = Duration::from_secs(60);
/// // 100 a minute, and up to 300 at once after a pause.
/// let _bursts = Policy::bucket(300, 100, minute)?;
/// // 100,000 in each month.
/// let _plan = Policy::calendar_window(100_000, CalendarUnit::Month)?;
/// // 5 attempts; the next ones are possible 10 minutes after the first.
/// let _logins = Policy::anchored_window(5, 10 * minute)?;
/// assert!(Policy::bucket(0, 100, minute).is_err());
/// # Ok(())
/// # }
/// ```
///
/// Each constructor says what its policy guarantees. These hold for all:
///
/// - A denial's wait is exact to the microsecond: if nobody else asks, the same request is granted then, and not
///   before.
/// - A refund gives back what nobody has built on: afterwards nobody can get more than if the grant had never been
///   made. If nobody else was granted anything since, all of it comes back.
/// - If the store's clock goes back, nothing is granted because of it.
/// - If the parameters change, what was used stays used, unless [another rule](ChangeRule) is chosen.
///
/// # Limits
///
/// Limits, capacities and refills are 1 to 2^32-1 permits; widths and periods are whole microseconds from 1 ms to 10
/// years. What takes a century or more to come back is refused, and so are parameters with which a server could not
/// count exactly: its numbers are exact below 2^53. All else is an
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), which names the argument and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy(pub(crate) Kind);

/// The policies by the scripts that carry them out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Rolling(Rolling),
    Interval(Interval),
    Queue(Queue),
    Rgcra(Rgcra),
    Foreign(Foreign),
}

/// The policy that a limiter follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Followed {
    pub(crate) rules: Policy,
    /// Whether the parameters are those that the store has, not those of `rules`.
    pub(crate) is_stored: bool,
}

impl Followed {
    /// The rate to show where there is one for Redisson's limiters. What is stored is not known here.
    pub(crate) fn rate(&self) -> Rate {
        self.rules.rate()
    }

    /// The most permits of a request that may ever be granted.
    pub(crate) fn most(&self) -> u64 {
        if self.is_stored { u64::MAX } else { self.rules.limit() }
    }
}

impl From<Policy> for Followed {
    fn from(rules: Policy) -> Self {
        Followed { rules, is_stored: false }
    }
}

/// What becomes of the permits that are used when a limiter's parameters change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChangeRule {
    /// What was used stays used.
    #[default]
    Keep,
    /// What was used stays the same part of the limit, rounded up.
    Scale,
    /// Nothing counts as used.
    Reset,
}

impl Policy {
    /// A token bucket: holds up to `capacity` permits, full at first, and gains `refill` permits every `period`,
    /// evenly. With 1 a second and with 60 a minute it is the same bucket.
    ///
    /// In any interval of length *t* at most `capacity` + `refill` * *t* / `period` permits are granted. Refill is
    /// counted in fractions of a microsecond, so that it never drifts.
    ///
    /// The rule is the virtual scheduling algorithm of ITU-T I.371: what is stored is the time at which the bucket
    /// would be full again.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn bucket(capacity: u64, refill: u64, period: Duration) -> Result<Policy, Error> {
        let capacity = permits("a capacity", capacity)?;
        let pace = pace(refill, period, capacity)?;
        Ok(Policy(Kind::Bucket(Bucket { capacity, pace, initial: capacity })))
    }

    /// A limit of `limit` permits in each window of this width; a window begins whenever the time since 1970 is a
    /// multiple of the width, or as [set](Policy::with_offset).
    ///
    /// At most `limit` permits are granted in a window, and at most twice as many in any interval of the width: at
    /// the end of one window and at the beginning of the next.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn fixed_window(limit: u64, width: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let grid = Grid::Even { width: span("a width", width)?, offset: 0 };
        Ok(Policy(Kind::Window(Window { limit, grid })))
    }

    /// A bucket that [fills](Policy::bucket) with `rate` permits every `period` and holds `max_burst` permits more
    /// than the one that is always possible: the generic cell rate algorithm. It is [`Policy::bucket`] with a
    /// capacity of `max_burst` + 1, by other names.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn gcra(max_burst: u64, rate: u64, period: Duration) -> Result<Policy, Error> {
        Policy::bucket(max_burst.saturating_add(1), rate, period)
    }

    /// A [bucket](Policy::gcra) whose parameters are the configuration of Redisson's `RGcra` of the limiter's name, for
    /// [`stored_limiter_of`](crate::Client::stored_limiter_of): each call reads it, and if it has changed, nothing
    /// counts as used. As there, permits follow each other after `period` / `rate`, rounded to whole microseconds.
    /// [`set_policy`](crate::RateLimiter::set_policy) writes it as `RGcra.setRate` does.
    ///
    /// Only the configuration is shared. Whoever uses `RGcra` itself, whose command no released server has, draws from
    /// a budget of its own; and its `setRate` with the values that are in force does not reset this one.
    ///
    /// An in-process store has no such limiter.
    ///
    /// Fails outside of [these limits](Policy#limits); the period may be any number of nanoseconds above 0.
    pub fn rgcra(max_burst: u64, rate: u64, period: Duration) -> Result<Policy, Error> {
        let capacity = permits("a capacity", max_burst.saturating_add(1))?;
        permits("a rate", rate)?;
        let text = format!("{}.{:09}", period.as_secs(), period.subsec_nanos());
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let config = [max_burst.to_string(), rate.to_string(), text.to_owned()];
        // As its command has it: the time between two permits in whole microseconds.
        let seconds: f64 = text.parse().unwrap_or_default();
        let every = (seconds * 1_000_000.0 / rate as f64 + 0.5).floor().max(1.0);
        let pace = Pace { permits: 1, every: every as u64 };
        let is_in_range = !period.is_zero() && period <= Duration::from_micros(LONGEST_US);
        match is_in_range && pace.allows(capacity) {
            true => {
                let bucket = Bucket { capacity, pace, initial: capacity };
                Ok(Policy(Kind::Rgcra(Rgcra { bucket, config })))
            }
            false => Err(invalid(format!(
                "{rate} permits every {period:?}, and {max_burst} more at once: the period must be above 0 and at \
                 most 10 years, and all permits must be gained within 100 years"
            ))),
        }
    }

    /// A bucket that holds up to `capacity` permits in use, of which `leak` every `period` leak out, evenly. It is
    /// [`Policy::bucket`] counted the other way round.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn leaky_meter(capacity: u64, leak: u64, period: Duration) -> Result<Policy, Error> {
        Policy::bucket(capacity, leak, period)
    }

    /// A limit of `limit` permits in each day, week, month, quarter or year of UTC, or of
    /// another time zone (`in_zone`): a quota that ends at midnight.
    ///
    /// At most `limit` permits are granted in a window, and at most twice as many in any interval as long as one: at
    /// the end of one window and at the beginning of the next.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn calendar_window(limit: u64, unit: CalendarUnit) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let zone = jiff::tz::TimeZone::UTC;
        let grid = Grid::Calendar(Calendar { unit, first_weekday: 1, zone, around: None });
        Ok(Policy(Kind::Window(Window { limit, grid })))
    }

    /// These windows in the time zone of this name in the IANA database, such as `Europe/Berlin`: the system's
    /// database, or the one in this crate where there is none.
    ///
    /// A day lasts from the first instant of its date to that of the next: 23, 24 or 25 hours where clocks change. If
    /// clients have different versions of the database, they disagree for one window at most: its end is stored.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the database has no such zone, or the policy has no
    /// windows of the calendar.
    #[cfg(feature = "time-zones")]
    #[cfg_attr(docsrs, doc(cfg(feature = "time-zones")))]
    pub fn in_zone(mut self, name: &str) -> Result<Policy, Error> {
        let Some(calendar) = self.calendar_mut() else { return Err(self.without("a time zone")) };
        calendar.zone = calendar::zone_named(name).map_err(|reason| {
            invalid(format!("a time zone {name:?}: must be in the IANA database ({reason})"))
        })?;
        Ok(self)
    }

    /// These weeks, beginning with this day instead of Monday. Days, months, quarters and years stay as they are.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the policy has no windows of the calendar.
    pub fn with_first_weekday(mut self, day: Weekday) -> Result<Policy, Error> {
        let Some(calendar) = self.calendar_mut() else {
            return Err(self.without("a first weekday"));
        };
        calendar.first_weekday = day as u8;
        Ok(self)
    }

    /// A limit of `limit` permits in windows of this width, each of which begins with the first grant after the
    /// one before has ended.
    ///
    /// At most `limit` permits are granted in a window, and at most twice as many in any interval of the width. A
    /// denial does not begin a window, and a window whose grants all came back lasts nevertheless.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn anchored_window(limit: u64, width: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let grid = Grid::Anchored { width: span("a width", width)? };
        Ok(Policy(Kind::Window(Window { limit, grid })))
    }

    /// A limit of `limit` permits in a sliding window, approximately: the fixed window before counts by the part
    /// of it that the sliding one overlaps. After 42 permits in one minute and 18 in the first quarter of the next,
    /// 42 * 3/4 + 18 = 49.5 count as used. (Described by Cloudflare in "How we built rate limiting capable of scaling
    /// to millions of domains".)
    ///
    /// Fewer than twice the limit are granted in any interval of the width, and about the limit if traffic is
    /// steady.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn sliding_counter(limit: u64, width: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let rules = Sliding { limit, width: span("a width", width)? };
        let tick = rules.tick();
        match rules.width.is_multiple_of(tick) {
            true => Ok(Policy(Kind::Sliding(rules))),
            false => Err(invalid(format!(
                "a width of {width:?}: with a limit of {limit} permits it must be a multiple of {tick} us"
            ))),
        }
    }

    /// A limit of `limit` permits in any interval of this width. Permits are counted in ten buckets, or
    /// [as many as are set](Policy::with_buckets), and a bucket counts until its youngest permit is as old as the
    /// width: a permit counts for up to a tenth of the width too long, and never too short. More buckets cost
    /// the server more time.
    ///
    /// Fails outside of [these limits](Policy#limits); the width must be a multiple of 10 us.
    pub fn rolling_window(limit: u64, width: Duration) -> Result<Policy, Error> {
        Policy::rolling(limit, width, 10)
    }

    /// This rolling window with this many buckets: 1 to 100, and a divisor of the width in microseconds.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is no such number, or no rolling window.
    pub fn with_buckets(self, buckets: u64) -> Result<Policy, Error> {
        match self.0 {
            Kind::Rolling(Rolling { limit, width, .. }) => {
                Policy::rolling(limit, Duration::from_micros(width), buckets)
            }
            _ => Err(self.without("buckets")),
        }
    }

    fn rolling(limit: u64, width: Duration, buckets: u64) -> Result<Policy, Error> {
        let (limit, width) = (permits("a limit", limit)?, span("a width", width)?);
        match (1..=100).contains(&buckets) && width.is_multiple_of(buckets) {
            true => Ok(Policy(Kind::Rolling(Rolling { limit, width, buckets }))),
            false => Err(invalid(format!(
                "{buckets} buckets: must be 1 to 100, and divide the width, {width} us"
            ))),
        }
    }

    /// A bucket that gains `refill` permits at once at the end of each period, up to `capacity`. It is full at
    /// first, and its first use begins the first period.
    ///
    /// In any interval at most `capacity` permits are granted, and `refill` more for each period that ends in it.
    ///
    /// Fails outside of [these limits](Policy#limits).
    pub fn interval_bucket(capacity: u64, refill: u64, period: Duration) -> Result<Policy, Error> {
        let (capacity, refill) = (permits("a capacity", capacity)?, permits("a refill", refill)?);
        let us = span("a period", period)?;
        let rules = Interval { capacity, refill, period: us, initial: capacity, aligned: None };
        match u128::from(capacity.div_ceil(refill)) * u128::from(us) < CENTURY {
            true => Ok(Policy(Kind::Interval(rules))),
            false => Err(invalid(format!(
                "{capacity} permits at {refill} every {period:?}: must be gained within 100 years"
            ))),
        }
    }

    /// Aligns the periods of this interval bucket so that one of them ends `epoch` after 1970-01-01T00:00Z.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the time is in whole microseconds, or if the
    /// policy is no interval bucket.
    pub fn aligned_at(self, epoch: Duration) -> Result<Policy, Error> {
        let Kind::Interval(rules) = self.0 else { return Err(self.without("an alignment")) };
        let us = epoch.as_micros();
        if !epoch.subsec_nanos().is_multiple_of(1000) {
            return Err(invalid(format!("an alignment at {epoch:?}: must be whole microseconds")));
        }
        let aligned = Some((us % u128::from(rules.period)) as u64);
        Ok(Policy(Kind::Interval(Interval { aligned, ..rules })))
    }

    /// Spaces requests evenly, `permits` every `period`, like a leaky bucket used as a queue. A request is granted with
    /// the time from which it may start. Each request delays the next one by the time that its own permits take. One
    /// that would start later than `max_delay` from now is denied.
    ///
    /// Starts are at least `period` / `permits` apart for each permit of the earlier one; after a pause,
    /// [`slack`](Policy::with_slack) permits more may start at once.
    ///
    /// Only the last reservation can be given back, before its time, and only once: others keep their starts.
    ///
    /// Fails outside of [these limits](Policy#limits); the delay is at most 10 years.
    pub fn queue(permits: u64, period: Duration, max_delay: Duration) -> Result<Policy, Error> {
        let pace = pace(permits, period, 1)?;
        let max_delay = whole_us("a longest delay", max_delay, 0, "0")?;
        let limit = pace.most();
        Ok(Policy(Kind::Queue(Queue { pace, max_delay, slack: 0, limit })))
    }

    /// This queue, with this many permits that may start at once after a pause.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `slack` is more than a single request may ask for, or
    /// the policy is no queue.
    pub fn with_slack(self, slack: u64) -> Result<Policy, Error> {
        match self.0 {
            Kind::Queue(rules) if slack <= rules.limit => {
                Ok(Policy(Kind::Queue(Queue { slack, ..rules })))
            }
            Kind::Queue(Queue { limit, .. }) => {
                Err(invalid(format!("a slack of {slack} permits: must be at most {limit}")))
            }
            _ => Err(self.without("slack")),
        }
    }

    /// This bucket with this many permits at its first use, instead of a full one. If it stays unused for longer than
    /// twice the time that it takes to fill, and a minute, it starts again with `tokens`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if they are more than the capacity, or the policy is
    /// no bucket.
    pub fn with_initial_tokens(self, tokens: u64) -> Result<Policy, Error> {
        let check = |capacity: u64| match tokens <= capacity {
            true => Ok(tokens),
            false => Err(invalid(format!(
                "initial tokens of {tokens} permits: must be at most the capacity, {capacity}"
            ))),
        };
        let kind = match self.0 {
            Kind::Bucket(bucket) => {
                Kind::Bucket(Bucket { initial: check(bucket.capacity)?, ..bucket })
            }
            Kind::Interval(rules) => {
                Kind::Interval(Interval { initial: check(rules.capacity)?, ..rules })
            }
            _ => return Err(self.without("initial tokens")),
        };
        Ok(Policy(kind))
    }

    /// These fixed windows, one of which begins this long after 1970.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the offset is in whole microseconds and below
    /// the width, or if the windows are not fixed ones.
    pub fn with_offset(self, offset: Duration) -> Result<Policy, Error> {
        let Kind::Window(Window { limit, grid: Grid::Even { width, .. } }) = self.0 else {
            return Err(self.without("offset"));
        };
        let us = whole_us("an offset", offset, 0, "0")?;
        if us >= width {
            let width = Duration::from_micros(width);
            return Err(invalid(format!(
                "an offset of {offset:?}: must be below the width, {width:?}"
            )));
        }
        Ok(Policy(Kind::Window(Window { limit, grid: Grid::Even { width, offset: us } })))
    }

    /// The policy's name in keys and metrics.
    pub(crate) fn word(&self) -> &'static str {
        match self.0 {
            Kind::Bucket(_) | Kind::Rgcra(_) => "bucket",
            Kind::Window(Window { grid: Grid::Even { .. }, .. }) => "fixed",
            Kind::Window(Window { grid: Grid::Anchored { .. }, .. }) => "anchored",
            Kind::Window(Window { grid: Grid::Calendar(_), .. }) => "calendar",
            Kind::Sliding(_) => "sliding",
            Kind::Rolling(_) => "rolling",
            Kind::Interval(_) => "interval",
            Kind::Queue(_) => "queue",
            Kind::Foreign(_) => "foreign",
        }
    }

    /// The calendar, if the policy's windows are calendar windows.
    pub(crate) fn calendar_mut(&mut self) -> Option<&mut Calendar> {
        match &mut self.0 {
            Kind::Window(Window { grid: Grid::Calendar(calendar), .. }) => Some(calendar),
            _ => None,
        }
    }

    pub(crate) fn as_queue(&self) -> Option<&Queue> {
        match &self.0 {
            Kind::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    pub(crate) fn is_queue(&self) -> bool {
        self.as_queue().is_some()
    }

    pub(crate) fn is_rgcra(&self) -> bool {
        matches!(self.0, Kind::Rgcra(_))
    }

    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.0, Kind::Foreign(_))
    }

    /// The policy for a call for this key; `None` if its format has no such keys.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Policy> {
        match &self.0 {
            Kind::Foreign(foreign) => Some(Policy(Kind::Foreign(foreign.of_key(key)?))),
            _ => Some(self.clone()),
        }
    }

    /// The rules; `None` for the format of other services, which is known to servers only.
    pub(crate) fn rules(&self) -> Option<&dyn Rules> {
        Some(match &self.0 {
            Kind::Bucket(rules) => rules,
            Kind::Window(rules) => rules,
            Kind::Sliding(rules) => rules,
            Kind::Rolling(rules) => rules,
            Kind::Interval(rules) => rules,
            Kind::Queue(rules) => rules,
            Kind::Rgcra(it) => &it.bucket,
            Kind::Foreign(_) => return None,
        })
    }

    /// The limit or the capacity: the most permits at once.
    pub(crate) fn limit(&self) -> u64 {
        match &self.0 {
            Kind::Foreign(foreign) => foreign.limit,
            _ => self.rules().map_or(0, Rules::limit),
        }
    }

    /// The time in which the limit comes back: the width of a window, the time that a bucket takes to fill, the
    /// distance of a queue's permits.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_micros(match &self.0 {
            Kind::Foreign(foreign) => foreign.window_us,
            _ => self.rules().map_or(0, Rules::window),
        })
    }

    /// The limit, and the time in which it comes back, as a rate.
    pub(crate) fn rate(&self) -> Rate {
        let (permits, us) = match &self.0 {
            // Of a second, a minute, an hour or a day: of the pace in lowest terms, often a permit, there is no part.
            Kind::Queue(queue) => return rate_of(queue.pace.permits, queue.pace.every, &UNITS),
            _ => (self.limit(), self.window().as_micros()),
        };
        let ms = u64::try_from(us.div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        Rate::from_wire(Mode::Overall, permits, ms, 0)
    }

    /// The error of an option that this policy does not have.
    fn without(&self, option: &str) -> Error {
        invalid(format!("{option} of a policy {}, which has none", self.word()))
    }
}

fn invalid(detail: String) -> Error {
    Error::invalid(Operation::BuildPolicy, detail)
}

fn permits(what: &str, number: u64) -> Result<u64, Error> {
    match is_permits(number) {
        true => Ok(number),
        false => Err(invalid(format!("{what} of {number} permits: must be 1 to 2^32-1"))),
    }
}

/// A width or a period in microseconds.
fn span(what: &str, time: Duration) -> Result<u64, Error> {
    whole_us(what, time, 1000, "1 ms")
}

fn whole_us(what: &str, time: Duration, least: u64, least_text: &str) -> Result<u64, Error> {
    match u64::try_from(time.as_micros()) {
        Ok(us)
            if (least..=LONGEST_US).contains(&us) && time.subsec_nanos().is_multiple_of(1000) =>
        {
            Ok(us)
        }
        _ => Err(invalid(format!(
            "{what} of {time:?}: must be whole microseconds from {least_text} to 10 years"
        ))),
    }
}

fn pace(refill: u64, period: Duration, most: u64) -> Result<Pace, Error> {
    let refill = permits("a refill", refill)?;
    let pace = Pace::new(refill, span("a period", period)?);
    match pace.allows(most) {
        true => Ok(pace),
        false => Err(invalid(format!(
            "{most} permits at {refill} every {period:?}: must be gained within 100 years, and permits times \
             refill, with the refill and the period in microseconds divided by their greatest common divisor, \
             must be below 2^53"
        ))),
    }
}

#[cfg(any(feature = "admin", test))]
impl Policy {
    /// A policy of each kind that has a key of its own, with parameters that mean nothing.
    pub(crate) fn one_of_each() -> Vec<Policy> {
        let second = Duration::from_secs(1);
        let all = [
            Policy::bucket(1, 1, second),
            Policy::fixed_window(1, second),
            Policy::anchored_window(1, second),
            Policy::calendar_window(1, CalendarUnit::Day),
            Policy::sliding_counter(1, second),
            Policy::rolling_window(1, second),
            Policy::interval_bucket(1, 1, second),
            Policy::queue(1, second, second),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Its kind, and its limit as a [`Rate`](crate::Rate): `fixed, 1000/h`. Of a bucket its capacity, and as a rate what it
/// gains: `bucket, 50 at 10/s`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, gains) = match &self.0 {
            // A pace is in its lowest terms: 10/s is 1 per 100ms there.
            Kind::Bucket(Bucket { capacity, pace, .. }) => {
                (*capacity, rate_of(pace.permits, pace.every, &UNITS).to_string())
            }
            Kind::Rgcra(Rgcra { bucket, config: [_, rate, period] }) => {
                (bucket.capacity, format!("{rate} per {period}s"))
            }
            Kind::Interval(rules) => {
                (rules.capacity, rate_of(rules.refill, rules.period, &[]).to_string())
            }
            _ => return write!(f, "{}, {}", self.word(), self.rate()),
        };
        write!(f, "{}, {capacity} at {gains}", self.word())
    }
}

/// A second, a minute, an hour and a day, in microseconds.
const UNITS: [u64; 4] = [1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000];

/// So many permits every so many microseconds, as a rate with the first of these units that is exact.
fn rate_of(permits: u64, every: u64, units: &[u64]) -> Rate {
    let is_exact = |us: &u64| us.is_multiple_of(every) && us.is_multiple_of(1000);
    let us = units.iter().copied().chain([every]).find(is_exact).unwrap_or(every * 1000);
    Rate::from_wire(Mode::Overall, permits.saturating_mul(us / every), us / 1000, 0)
}
