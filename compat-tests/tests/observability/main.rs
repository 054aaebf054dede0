//! What dashboards, alerts and logs show, beside what has happened: numbers as a real exporter renders
//! them against a ledger of every answer that callers got, and the lines of a real subscriber.

mod ledger;
mod mix;
mod pages;
mod policies;
mod scrape;
mod semaphores;
mod traces;

use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
