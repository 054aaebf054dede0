//! Policies: how a limiter counts, other than by Redisson's log.
//!
//! [`frame`] is what they share, over the trait `Rules`; a file each has the rules of one or of a family. A policy
//! and its script in `lua/policy` are twins: they decide alike, and leave the same state.

use std::time::Duration;

use crate::error::{Error, Operation};

mod bucket;
pub(crate) mod frame;
mod pace;
mod window;

pub(crate) use frame::Mark;

use bucket::Bucket;
use frame::{LONGEST_US, Rules, is_permits};
use pace::Pace;
use window::{Even, Window};

/// How a limiter counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy(pub(crate) Kind);

/// The policies by the scripts that carry them out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Bucket(Bucket),
    Fixed(Window<Even>),
}

/// Evaluates an expression with the rules of a policy.
macro_rules! with_rules {
    ($policy:expr, $rules:ident => $then:expr) => {
        match &$policy.0 {
            $crate::policy::Kind::Bucket($rules) => $then,
            $crate::policy::Kind::Fixed($rules) => $then,
        }
    };
}
pub(crate) use with_rules;

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
    /// evenly.
    ///
    /// # Errors
    ///
    /// See [`Policy`](Policy#limits).
    pub fn bucket(capacity: u64, refill: u64, period: Duration) -> Result<Policy, Error> {
        let capacity = permits("a capacity", capacity)?;
        let pace = pace(refill, period, capacity)?;
        Ok(Policy(Kind::Bucket(Bucket { capacity, pace, initial: capacity })))
    }

    /// A limit of `limit` permits in each window of this width; a window begins whenever the time since 1970 is a
    /// multiple of the width.
    ///
    /// # Errors
    ///
    /// See [`Policy`](Policy#limits).
    pub fn fixed_window(limit: u64, width: Duration) -> Result<Policy, Error> {
        let limit = permits("a limit", limit)?;
        let grid = Even { width: span("a width", width)?, offset: 0 };
        Ok(Policy(Kind::Fixed(Window { limit, grid })))
    }

    /// This bucket with so many permits at its first use.
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
        let Kind::Fixed(Window { limit, grid }) = self.0 else {
            return Err(self.without("offset"));
        };
        let us = whole_us("an offset", offset, 0, "0")?;
        if us >= grid.width {
            let width = Duration::from_micros(grid.width);
            return Err(invalid(format!(
                "an offset of {offset:?}: must be below the width, {width:?}"
            )));
        }
        Ok(Policy(Kind::Fixed(Window { limit, grid: Even { offset: us, ..grid } })))
    }

    /// The policy's name in keys and metrics.
    pub(crate) fn word(&self) -> &'static str {
        match self.0 {
            Kind::Bucket(_) => "bucket",
            Kind::Fixed(_) => "fixed",
        }
    }

    /// The limit or the capacity: the most permits at once.
    pub(crate) fn limit(&self) -> u64 {
        with_rules!(self, rules => rules.limit())
    }

    /// The parameters as a limiter's hash has them: a letter, a version, numbers.
    pub(crate) fn text(&self) -> String {
        with_rules!(self, rules => rules.text())
    }

    /// The error of an option that this policy does not have.
    fn without(&self, option: &str) -> Error {
        invalid(format!("{option} of a policy {}, which has none", self.word()))
    }

    /// Parses the [`text`](Self::text) of a policy; `None` if it is not valid.
    pub(crate) fn parse(text: &str) -> Option<Policy> {
        let kind = match text.as_bytes().first()? {
            b'b' => Kind::Bucket(Rules::parse(text)?),
            b'f' => Kind::Fixed(Rules::parse(text)?),
            _ => return None,
        };
        Some(Policy(kind))
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
        Ok(us) if (least..=LONGEST_US).contains(&us) && time.subsec_nanos() % 1000 == 0 => Ok(us),
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
