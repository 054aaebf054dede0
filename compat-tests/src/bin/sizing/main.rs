//! How many clients does a server carry? The tables and charts of `docs/sizing.md`.
//!
//! Fleets are simulated, in virtual time, by the crate's own queues over the in-process store; memory
//! and audits are measured on a real server, which this starts itself.

mod fleets;
mod limiter;
mod live;
mod plot;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use compat_tests::runtimes::current_thread;
use compat_tests::server::Server;
use redisson_rate_limiter::bench::sizing::Figures;

use fleets::{Setting, ample, exhausted, leases};
use plot::{Axis, chart};

const USAGE: &str = "\
Simulates fleets of 1 to 10,000 clients of one server, and measures the memory of a limiter. Takes some
minutes.

usage: sizing [OPTION...]

  --largest N   the largest fleet (default 10000)
  --simulated   no real server: for a machine with other work, which the simulation does not notice
  --write       writes the tables and charts into docs/
  -h, --help    this text";

const SIZES: [usize; 6] = [1, 10, 100, 300, 1000, 10_000];

type Rows = Vec<(&'static str, Vec<(usize, Figures)>)>;

fn main() -> ExitCode {
    let (mut largest, mut write, mut simulated) = (10_000, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--largest" => match arguments.next().and_then(|number| number.parse().ok()) {
                Some(number) => largest = number,
                None => return misused("--largest needs a number"),
            },
            "--simulated" => simulated = true,
            "--write" => write = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => return misused(&format!("unknown option {other}")),
        }
    }
    if let Err(error) = produce(largest, write, simulated) {
        eprintln!("sizing: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn misused(message: &str) -> ExitCode {
    eprintln!("sizing: {message}\n\n{USAGE}");
    ExitCode::FAILURE
}

fn produce(largest: usize, write: bool, simulated: bool) -> Result<(), Box<dyn std::error::Error>> {
    let sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size <= largest).collect();
    let mut sections = match simulated {
        true => Vec::new(),
        false => current_thread().block_on(measured())?,
    };
    let (ample, exhausted) = (rows(ample(), &sizes), rows(exhausted(), &sizes));
    let goal: Vec<usize> = [1000].into_iter().filter(|size| *size <= largest).collect();
    let leases = rows(leases(), &goal);
    sections.extend([
        ("ample", fleets::table(&ample)),
        ("exhausted", fleets::table(&exhausted)),
        ("leases", fleets::table(&leases)),
    ]);
    let charts = [
        ("busy", busy("Server busy: 100 requests a second each, the rate suffices", &ample)),
        ("latency", slowest("Latency, p99: the same fleets", &ample)),
        ("exhausted", busy("Server busy: twice as much is asked for as the rate has", &exhausted)),
    ];
    for (name, table) in &sections {
        println!("{name}:\n\n{table}");
    }
    if write {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let page = docs.join("sizing.md");
        let mut text = std::fs::read_to_string(&page)?;
        for (name, table) in &sections {
            text = replace(&text, name, table)?;
        }
        std::fs::write(page, text)?;
        std::fs::create_dir_all(docs.join("sizing"))?;
        for (name, svg) in &charts {
            std::fs::write(docs.join("sizing").join(format!("{name}.svg")), svg)?;
        }
    }
    Ok(())
}

/// The tables of what is measured on a real server.
async fn measured() -> Result<Vec<(&'static str, String)>, Box<dyn std::error::Error>> {
    let server = Server::start().await;
    let memory = format!("{}.\n\n{}", server.describe().await, limiter::table(&server).await?);
    Ok(vec![("memory", memory), ("live", live::table(&server).await?)])
}

/// The text with the table of this name between its marks.
fn replace(text: &str, name: &str, table: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}: written by sizing --write -->\n"), "<!-- end -->");
    let missing = || format!("docs/sizing.md has no place for the table {name}");
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}

fn rows(settings: Vec<Setting>, sizes: &[usize]) -> Rows {
    let row = |setting: Setting| {
        let begun = Instant::now();
        let figures = sizes.iter().map(|size| (*size, setting.run(*size))).collect();
        eprintln!("{}: {:.0} s", setting.name, begun.elapsed().as_secs_f64());
        (setting.name, figures)
    };
    settings.into_iter().map(row).collect()
}

fn clients() -> Axis {
    let ticks = SIZES.map(|size| (size as f64, size.to_string()));
    Axis { from: 1.0, to: 10_000.0, log: true, ticks: ticks.into() }
}

fn lines(rows: &Rows, value: impl Fn(&Figures) -> f64) -> Vec<(&str, Vec<(f64, f64)>)> {
    let points = |sizes: &[(usize, Figures)]| {
        sizes.iter().map(|(size, figures)| (*size as f64, value(figures))).collect()
    };
    rows.iter().map(|(name, sizes)| (*name, points(sizes))).collect()
}

fn busy(title: &str, rows: &Rows) -> String {
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| (part, format!("{:.0} %", part * 100.0)));
    let up = Axis { from: 0.0, to: 1.0, log: false, ticks: ticks.into() };
    chart(title, &clients(), &up, &lines(rows, |figures| figures.utilisation))
}

fn slowest(title: &str, rows: &Rows) -> String {
    let ticks = [(0.1, "local"), (1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1e3, "1 s")];
    let ticks = ticks.map(|(ms, label)| (ms, label.to_owned()));
    let up = Axis { from: 0.1, to: 10_000.0, log: true, ticks: ticks.into() };
    chart(title, &clients(), &up, &lines(rows, |figures| f64::from(figures.p99_us) / 1e3))
}
