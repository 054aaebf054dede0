//! The simulated tables and charts of `docs/sizing.md`.

use std::path::Path;
use std::time::Instant;

use super::Figures;
use super::fleets::{Setting, ample, exhausted, leases, table};
use super::plot::{Axis, chart};

const SIZES: [usize; 6] = [1, 10, 100, 300, 1000, 10_000];

type Rows = Vec<(&'static str, Vec<(usize, Figures)>)>;

#[test]
#[ignore = "takes minutes, and writes into docs/"]
fn writes_the_page() {
    let (ample, exhausted) = (rows(ample(), &SIZES), rows(exhausted(), &SIZES));
    let leases = rows(leases(), &[1000]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = docs.join("sizing.md");
    let mut text = std::fs::read_to_string(&page).unwrap();
    for (name, rows) in [("ample", &ample), ("exhausted", &exhausted), ("leases", &leases)] {
        text = replace(&text, name, &table(rows));
    }
    std::fs::write(page, text).unwrap();
    for (name, svg) in [
        ("busy", busy("Server busy: 100 requests a second each, the rate suffices", &ample)),
        ("latency", slowest("Latency, p99: the same fleets", &ample)),
        ("exhausted", busy("Server busy: twice as much is asked for as the rate has", &exhausted)),
    ] {
        std::fs::write(docs.join(format!("sizing/{name}.svg")), svg).unwrap();
    }
}

/// The text with the table of this name between its marks.
fn replace(text: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name}: written by the simulation -->\n");
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    format!("{before}{begin}\n{table}\n<!-- end -->{after}")
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
