//! The benchmarks: this crate compared with a real Redisson, bucket4j and an empty script, on one
//! server.
//!
//! Each piece of work runs in rounds in which the contestants take turns, so that other activity on
//! the machine affects all of them; the table shows medians, and medians of the rounds' ratios.
//! After every load the grants of its tasks are compared with what the server recorded.

mod delay;
mod fleet;
mod ledger;
mod options;
mod probe;
mod rows;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use fleet::Fleet;
use options::Options;
use table::Table;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let fleet = Fleet::start(&options).await;
    let mut table = Table::new(&fleet).await;
    for row in &options.rows {
        eprintln!("\n{}", row.name());
        table.add(row.run(&fleet, &options).await);
    }
    table.took(begun.elapsed());
    println!("{table}");
    if options.write {
        table.write();
    }
    let failures = fleet.failures();
    for failure in &failures {
        eprintln!("bench: THE LEDGER DOES NOT BALANCE: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
