//! The fleets that are simulated.

use std::fmt::Write;

use super::{Figures, LeaseRule, Scenario, run};

/// Requests a second and client.
const DEMAND: f64 = 100.0;

/// The rate relative to the demand, if it suffices.
const AMPLE: f64 = 1.25;

/// The same, if it does not.
const EXHAUSTED: f64 = 0.5;

/// A fifth of a second's demand, for a fifth of a second.
const BY_HAND: LeaseRule = LeaseRule::Fixed { permits: 20, hold_ms: 200 };

/// Half of that: what is leased and not used is missing elsewhere.
const SHORT: LeaseRule = LeaseRule::Fixed { permits: 10, hold_ms: 100 };

const ADAPTIVE: LeaseRule = LeaseRule::Adaptive { hold_ms: 200 };

/// What the clients of a fleet do, whatever their number.
pub struct Setting {
    pub name: &'static str,
    /// The rate relative to the demand.
    pub rate: f64,
    /// Each client has a limiter of its own.
    pub own_limiters: bool,
    pub others: Scenario,
}

impl Setting {
    fn new(name: &'static str, rate: f64, others: Scenario) -> Self {
        Setting { name, rate, own_limiters: false, others }
    }

    pub fn run(&self, clients: usize) -> Figures {
        let limiters = if self.own_limiters { clients } else { 1 };
        let demand = DEMAND * (clients / limiters) as f64;
        // The same number of requests, more or less, whatever the size.
        let seconds = if clients < 1000 { 10 } else { 3 };
        run(&Scenario {
            clients,
            limiters,
            demand: DEMAND,
            rate: (demand * self.rate) as u64,
            seconds,
            ..self.others
        })
    }
}

/// The rate suffices.
pub fn ample() -> Vec<Setting> {
    let base = Scenario::default();
    let new = |name, others| Setting::new(name, AMPLE, others);
    vec![
        new("one limiter", base),
        new("one limiter, leases", Scenario { lease: Some(BY_HAND), ..base }),
        Setting { own_limiters: true, ..new("a limiter for each client", base) },
        new("one limiter, adaptive leases", Scenario { lease: Some(ADAPTIVE), ..base }),
    ]
}

/// Twice as much is asked for as the rate has.
pub fn exhausted() -> Vec<Setting> {
    let base = Scenario::default();
    let waiting = Scenario { max_wait_ms: 1000, ..base };
    let memory = Scenario { denial_memory: true, ..base };
    let new = |name, others| Setting::new(name, EXHAUSTED, others);
    vec![
        new("not waiting", base),
        new("denials remembered", memory),
        new("denials remembered, leases", Scenario { lease: Some(SHORT), ..memory }),
        new("waiting for a second", waiting),
        new("waiting, leases", Scenario { lease: Some(BY_HAND), ..waiting }),
        new("waiting, greedy", Scenario { greedy: true, ..waiting }),
        new("not waiting, adaptive leases", Scenario { lease: Some(ADAPTIVE), ..memory }),
    ]
}

/// Leases by hand beside those that size themselves.
pub fn leases() -> Vec<Setting> {
    let base = Scenario::default();
    let mut settings = Vec::new();
    for (lease, even, uneven) in [
        (BY_HAND, "20 for 200 ms", "20 for 200 ms, uneven demand"),
        (ADAPTIVE, "adaptive", "adaptive, uneven demand"),
    ] {
        let leased = Scenario { lease: Some(lease), ..base };
        settings.push(Setting::new(even, AMPLE, leased));
        settings.push(Setting::new(uneven, AMPLE, Scenario { uneven: true, ..leased }));
    }
    for (lease, name) in [
        (BY_HAND, "20 for 200 ms, exhausted"),
        (SHORT, "10 for 100 ms, exhausted"),
        (ADAPTIVE, "adaptive, exhausted"),
    ] {
        let leased = Scenario { lease: Some(lease), denial_memory: true, ..base };
        settings.push(Setting::new(name, EXHAUSTED, leased));
    }
    settings
}

/// A table with a row for each setting and size.
pub fn table(rows: &[(&str, Vec<(usize, Figures)>)]) -> String {
    let mut text = String::from(
        "| | clients | requests/s | granted/s | calls/s | server busy | with audits | p50 | p99 | rate used | lowest tenth |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, sizes) in rows {
        for (clients, figures) in sizes {
            let _ = writeln!(
                text,
                "| {name} | {clients} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {:.3} | {:.2} |",
                figures.requests as u64,
                figures.granted as u64,
                figures.calls as u64,
                figures.utilisation,
                figures.auditing,
                latency(figures.p50_us),
                latency(figures.p99_us),
                figures.used,
                figures.low_share,
            );
        }
    }
    text
}

fn latency(us: u32) -> String {
    match us {
        0 => "local".into(),
        1..10_000 => format!("{:.2} ms", f64::from(us) / 1e3),
        _ => format!("{:.0} ms", f64::from(us) / 1e3),
    }
}
