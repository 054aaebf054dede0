//! What one fault was seen to do.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use compat_tests::faults::{Balance, Fault, Figures, Struck};

/// The table that the [`Report`]s are rows of.
pub const HEAD: &str = "| fault | client | callers saw | longest call | full rate back after | \
     most in 1 s | permits missing | longest wait | stuck | granted | in the log | value agrees |\n\
     |---|---|---|---|---|---|---|---|---|---|---|---|";

/// The calls that wait.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    pub served: usize,
    /// After how long the slowest was served, or failed.
    pub longest: Duration,
    pub stuck: usize,
    pub errors: BTreeMap<String, usize>,
}

/// The measurements of one implementation.
#[derive(Clone, Debug)]
pub struct Measured {
    pub now: Figures,
    pub waits: Waits,
    pub balance: Balance,
}

/// The measurements of one fault.
#[derive(Debug)]
pub struct Report {
    pub fault: Fault,
    pub struck: Struck,
    pub rust: Measured,
    /// A client of this crate over a link with a round trip of 200 ms.
    pub far: Figures,
    /// A limiter that both use: the errors and the longest call of the Rust client, then those of the
    /// Java client. The rest is of both together.
    pub shared: [Figures; 2],
    pub redisson: Measured,
    /// How often the logs of the limiters of `rust` and `far` were evicted.
    pub evicted: [u64; 2],
    /// What a client of this crate, or the server, holds that it did not hold before.
    pub leaks: Vec<String>,
    /// The longest time for which this machine did not run a thread that was ready.
    pub noise: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { fault, rust, far, shared: [ours, theirs], redisson, .. } = self;
        let none = " | | | | |";
        writeln!(f, "| {fault} | Rust |{}{}{}", rust.now, rust.waits, rust.balance)?;
        writeln!(f, "| | Rust, far |{far}{none}")?;
        writeln!(f, "| | Rust, beside Redisson |{ours}{none}")?;
        writeln!(f, "| | Redisson, beside Rust |{theirs}{none}")?;
        write!(f, "| | Redisson |{}{}{}", redisson.now, redisson.waits, redisson.balance)?;
        for step in &self.struck.steps {
            write!(f, "\n<!-- {step} -->")?;
        }
        let evicted: u64 = self.struck.evicted.values().sum();
        if evicted > 0 {
            write!(f, "\n<!-- {evicted} keys of limiters were evicted -->")?;
        }
        if self.noise > Duration::from_millis(50) {
            write!(f, "\n<!-- a thread that was ready did not run for {:.0?} -->", self.noise)?;
        }
        Ok(())
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} ms | {} |", self.longest.as_millis(), self.stuck)
    }
}
