//! What a limiter and a few dozen clients take of a real server: the measured tables of `docs/sizing.md`.
//! Those of larger fleets are simulated, by a test of the crate (`src/sim/sizing`).

mod limiter;
mod live;

use std::path::Path;
use std::process::ExitCode;

use compat_tests::runtimes::current_thread;
use compat_tests::server::Server;

const USAGE: &str = "\
Measures the memory of a limiter, the time of an audit, and the load of some real clients.

usage: sizing [--write]     writes the tables into docs/sizing.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let write = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = current_thread().block_on(produce(write)) {
        eprintln!("sizing: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn produce(write: bool) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start().await;
    let memory = format!("{}.\n\n{}", server.describe().await, limiter::table(&server).await?);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sizing.md");
    let mut text = std::fs::read_to_string(&page)?;
    for (name, table) in [("memory", memory), ("live", live::table(&server).await?)] {
        println!("{name}:\n\n{table}");
        text = replace(&text, name, &table)?;
    }
    if write {
        std::fs::write(page, text)?;
    }
    Ok(())
}

/// The text with the table of this name between its marks.
fn replace(text: &str, name: &str, table: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}: written by sizing --write -->\n"), "<!-- end -->");
    let missing = || format!("docs/sizing.md has no place for the table {name}");
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}
