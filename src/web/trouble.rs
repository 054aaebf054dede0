//! Configuration mistakes of a web service. They usually concern every request, so each is warned of once.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::Client;
use crate::observe::Event;

/// A problem with requests to a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The key cannot be found.
    NoKey,
    /// A request costs more than the rate.
    NeverFits,
    /// The server is away, or refuses this client.
    Unavailable,
    /// The limiter does not exist, or cannot be read.
    Broken,
    /// The limiter's rate differs from the limit's.
    OtherRate,
    /// Giving the limiter the limit's rate has failed.
    NotRolledOut,
    /// A connection from outside the trusted networks carries a proxy's header.
    UntrustedProxy,
    /// A connection from a trusted network does not name its client.
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

/// The kinds of trouble of one limit that were warned of. After the first of a kind, the rest is told at
/// DEBUG.
#[derive(Debug, Default)]
pub(super) struct FirstTimes {
    told: AtomicU32,
}

impl FirstTimes {
    /// `limit` is the limit's name, empty if unknown.
    pub(super) fn tell(
        &self,
        client: &Client,
        trouble: Trouble,
        limit: &str,
        why: fmt::Arguments<'_>,
    ) {
        let bit = 1 << trouble as u32;
        let is_first = self.told.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        client.report(&Event::LimitTrouble { text: trouble.text(), limit, why, is_first });
    }
}
