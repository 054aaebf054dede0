//! The simulated tables of `docs/sizing.md`.

use std::path::Path;
use std::time::Instant;

use super::Figures;
use super::fleets::{Setting, ample, exhausted, leases, table};

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
