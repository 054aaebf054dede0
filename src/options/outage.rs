//! Decisions made while the server is away.

use std::fmt;

use super::refuse;
use crate::rate::{Mode, Rate};

/// How an acquire is answered while the server is away:
/// [`LimiterOptions::on_outage`](crate::LimiterOptions::on_outage).
///
/// Only a fault begins an outage: the server cannot be reached, does not answer, cannot carry out writes, or refuses
/// the login or the TLS handshake. [`DecidedBy::Outage`](crate::DecidedBy::Outage) marks answers that the policy
/// gave. `docs/deployment.md` has a table of what callers see, how long it takes, and what can be granted beyond the
/// rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnOutage {
    /// Calls fail with the error of the server call. The default.
    #[default]
    Fail,
    /// Calls are granted at once. There is no limit while the outage lasts, and none of these grants is
    /// written to the server afterwards.
    Allow,
    /// Calls are denied at once, with the time until the next probe of the server
    /// ([`Denial::is_lower_bound`](crate::Denial::is_lower_bound)). [`acquire`](crate::RateLimiter::acquire),
    /// which is never denied, fails.
    Deny,
    /// This client decides by itself, by the same rules, with this fraction of the rate. When the server is back,
    /// what still counts of these grants is written to the limiter's log. The fraction is rounded down to whole
    /// permits: an eighth of 5 is none, and then every call is denied while the server is away, of which observers are
    /// warned once for each limiter.
    ///
    /// At most 10,000 limiters of a client, in less than 100 MB of memory, are decided in this way at the same time;
    /// a limiter frees its place when none of its grants counts any more. Calls of further limiters are denied as
    /// with [`Deny`](OnOutage::Deny).
    ///
    /// The rate is the one that this client last saw, or else that of the handle
    /// ([`with_rate`](crate::RateLimiter::with_rate)); without either, calls fail as with [`Fail`](OnOutage::Fail).
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) the whole rate is this client's, and the fraction does
    /// not apply.
    Local(Fraction),
}

impl fmt::Display for OnOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnOutage::Fail => f.write_str("Fail"),
            OnOutage::Allow => f.write_str("Allow"),
            OnOutage::Deny => f.write_str("Deny"),
            OnOutage::Local(fraction) => write!(f, "Local({fraction})"),
        }
    }
}

/// A part of a rate: more than nothing, and at most all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    parts: u32,
    of: u32,
}

impl Fraction {
    /// All of the rate.
    pub const ALL: Fraction = Fraction::one_of(1);

    /// An equal part for each of `clients`. If this is the deployment's largest number of clients, all of
    /// them together grant no more than the rate while the server is away.
    pub const fn one_of(clients: u32) -> Self {
        Fraction::new(1, clients)
    }

    /// `parts` ÷ `of`. It must be at least 1 ÷ `of` and at most 1, which
    /// [`Client::limiter_with`](crate::Client::limiter_with) and the [`ClientBuilder`](crate::ClientBuilder)
    /// check.
    pub const fn new(parts: u32, of: u32) -> Self {
        Fraction { parts, of }
    }

    /// One client's permits of a rate.
    pub(crate) fn of_rate(self, rate: Rate) -> u64 {
        match rate.mode() {
            Mode::Overall => self.of(rate.permits()),
            Mode::PerClient => rate.permits(),
        }
    }

    /// This part of a number of permits, rounded down.
    pub(crate) fn of(self, permits: u64) -> u64 {
        (u128::from(permits) * u128::from(self.parts) / u128::from(self.of.max(1))) as u64
    }

    /// The fraction in the scripts' form: `ceil(rate × part)` is this part of the rate, rounded up. It is a trifle
    /// less than the quotient, so that a whole number does not become the next one by rounding.
    pub(crate) fn as_part(self) -> f64 {
        f64::from(self.parts) / f64::from(self.of) * (1.0 - 4.0 * f64::EPSILON)
    }

    /// The permits of this rate that are left to others if this part of it is headroom: as the scripts compute it.
    pub(crate) fn headroom(self, rate: u64) -> u64 {
        (rate as f64 * self.as_part()).ceil() as u64
    }

    /// Checks that it can be left to others.
    pub(crate) fn check_headroom(self) -> Result<(), String> {
        let detail = format!("a headroom of {self}: must be more than nothing, and less than all");
        refuse(self.parts == 0 || self.parts >= self.of, &detail)
    }

    /// This part of a number of permits, rounded up.
    pub(crate) fn of_rounded_up(self, permits: u64) -> u64 {
        let of = u128::from(self.of.max(1));
        (u128::from(permits) * u128::from(self.parts)).div_ceil(of) as u64
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.parts, self.of)
    }
}

impl OnOutage {
    /// Checks that the fraction is in range; the error says why it is not.
    pub(crate) fn check(self) -> Result<(), String> {
        match self {
            OnOutage::Local(Fraction { parts, of }) if parts == 0 || parts > of => Err(format!(
                "a fraction of {parts}/{of}: must be more than nothing, and at most all"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_within_nothing_and_all() {
        let check = |parts, of| OnOutage::Local(Fraction::new(parts, of)).check();
        assert!(check(1, 1).is_ok() && check(3, 8).is_ok());
        assert!(check(0, 1).is_err() && check(2, 1).is_err() && check(0, 0).is_err());
    }

    #[test]
    fn a_fraction_never_grants_more_than_its_part() {
        assert_eq!(Fraction::one_of(8).of(10), 1);
        assert_eq!(Fraction::one_of(8).of_rounded_up(10), 2);
        assert_eq!(Fraction::one_of(16).of(10), 0);
        assert_eq!(Fraction::ALL.of(1 << 53), 1 << 53);
    }

    #[test]
    fn a_headroom_is_rounded_up_to_whole_permits() {
        assert!(Fraction::new(1, 5).check_headroom().is_ok());
        for (parts, of) in [(0, 5), (5, 5), (6, 5), (0, 0)] {
            assert!(Fraction::new(parts, of).check_headroom().is_err(), "{parts}/{of}");
        }
        for of in [1, 3, 7, 100, 999, 1000] {
            for parts in 1..=of {
                for rate in [1, 2, 10, 99, 100, 1000, 1_000_000, 1 << 32] {
                    let fraction = Fraction::new(parts, of);
                    assert_eq!(
                        fraction.headroom(rate),
                        fraction.of_rounded_up(rate),
                        "{fraction} of {rate}"
                    );
                }
            }
        }
    }
}
