//! Mistakes in the set-up of a web service, which mostly concern every request: each is warned of once.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Event, Observers};

/// Something that is wrong with requests to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The key cannot be found.
    NoKey,
    /// A request costs more than the rate.
    NeverFits,
    /// The server is away, or does not serve this client.
    Unavailable,
    /// The limiter does not exist, or cannot be read.
    Broken,
    /// The limiter has another rate than the limit.
    OtherRate,
    /// The limiter should get the limit's rate, and that failed.
    NotRolledOut,
    /// A connection from outside of the trusted networks has the header of a proxy.
    UntrustedProxy,
    /// A connection from a trusted network does not say for whom it forwards.
    NotForwarded,
}

impl Trouble {
    fn text(self) -> &'static str {
        match self {
            Trouble::NoKey => "the key of a request cannot be found",
            Trouble::NeverFits => "a request costs more than the rate, and would never be granted",
            Trouble::Unavailable => "a limit cannot be decided at present",
            Trouble::Broken => "a limit cannot be decided",
            Trouble::OtherRate => "a limiter keeps a rate that is not its limit's",
            Trouble::NotRolledOut => "the rate of a limiter could not be changed",
            Trouble::UntrustedProxy => "a forwarding header was ignored",
            Trouble::NotForwarded => "a trusted proxy did not say for whom it forwards",
        }
    }
}

/// Which troubles of one limit were warned of. What follows the first one of a kind is told at DEBUG.
#[derive(Debug, Default)]
pub(crate) struct FirstTimes {
    told: AtomicU32,
}

impl FirstTimes {
    /// `limit`: its name, or an empty one if it is not known.
    pub(crate) fn tell(
        &self,
        observers: &Observers,
        trouble: Trouble,
        limit: &str,
        why: fmt::Arguments<'_>,
    ) {
        let bit = 1 << trouble as u32;
        let is_first = self.told.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        observers.event(&Event::LimitTrouble { text: trouble.text(), limit, why, is_first });
    }
}
