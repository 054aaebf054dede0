//! What a fleet of clients asks of one server: the crate's own queues over the in-process store, in
//! virtual time, and a server of one core that takes the measured time for each call.
//!
//! Left out: retries and timeouts (a server that cannot keep up is slow here, and never fails),
//! clocks that differ, the clients' own processor time, and the start: the first call of each client is
//! an audit.

mod client;
mod demand;
mod fleets;
mod lease;
mod page;
mod server;
mod tests;
mod world;

use self::server::ServerCosts;

/// A fleet, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// How many clients, each of which is a process.
    pub clients: usize,
    /// Requests a second and client on average, of one permit each, at random times.
    pub demand: f64,
    /// A tenth of the clients makes nine tenths of the requests.
    pub uneven: bool,
    /// How many limiters; the clients are divided among them.
    pub limiters: usize,
    /// The permits a second of each limiter.
    pub rate: u64,
    /// How long a request waits for permits.
    pub max_wait_ms: u64,
    /// Permits taken ahead.
    pub lease: Option<LeaseRule>,
    /// Clients remember denials.
    pub denial_memory: bool,
    /// Requests that wait keep to no share, as with `LimiterOptions::greedy`.
    pub greedy: bool,
    /// What calls cost the server.
    pub costs: ServerCosts,
    /// The virtual time that is measured, after two seconds that are not.
    pub seconds: u64,
    /// Two runs with the same seed are equal, but for the ids of entries.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            clients: 1,
            demand: 100.0,
            uneven: false,
            limiters: 1,
            rate: 125,
            max_wait_ms: 0,
            lease: None,
            denial_memory: false,
            greedy: false,
            costs: ServerCosts::default(),
            seconds: 5,
            seed: 1,
        }
    }
}

/// The terms of a fleet's leases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeaseRule {
    /// A fixed number of permits at a time, as `LimiterOptions::lease` does it.
    Fixed {
        /// At most this number.
        permits: u64,
        /// How long each is held, in ms.
        hold_ms: u64,
    },
    /// What the client uses, as `LimiterOptions::adaptive_lease` does it.
    Adaptive {
        /// How long each is held, in ms.
        hold_ms: u64,
    },
}

/// What came of it. Rates are per second of virtual time.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The requests that were answered.
    pub requests: f64,
    /// Those that were granted.
    pub granted: f64,
    /// The calls that the server carried out: acquires and refunds.
    pub calls: f64,
    /// The part of the time in which the server's core was busy.
    pub utilisation: f64,
    /// The part of its busy time that went into audits.
    pub auditing: f64,
    /// The audits that it made.
    pub audits: f64,
    /// From request to answer, waiting for permits included, in µs.
    pub p50_us: u32,
    /// The same.
    pub p99_us: u32,
    /// Grants relative to the rate.
    pub used: f64,
    /// What the client at the lowest tenth was granted of its requests, relative to the whole fleet.
    pub low_share: f64,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Figures {
    world::World::new(scenario).run()
}
