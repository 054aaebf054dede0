//! Medians, ratios, and the table that shows them.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use compat_tests::peer::Kind;

use crate::fleet::Fleet;

/// The results of one contestant, round by round.
pub(crate) type Series = Vec<f64>;

/// How a number is formatted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    PerSecond,
    Micros,
    Bytes,
    Plain,
}

/// A goal for a ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Line {
    work: String,
    ours: String,
    redisson: String,
    reference: String,
    ratio: String,
    goal: String,
    reached: Option<bool>,
    foreign: Series,
}

/// All rows, and the set-up on which they were measured.
#[derive(Debug)]
pub(crate) struct Table {
    setting: Vec<(&'static str, String)>,
    redisson: String,
    lines: Vec<Line>,
}

impl Line {
    /// A row for this work.
    pub(crate) fn new(work: impl Into<String>) -> Self {
        Line {
            work: work.into(),
            ours: "–".to_owned(),
            redisson: "–".to_owned(),
            reference: "–".to_owned(),
            ratio: "–".to_owned(),
            goal: "–".to_owned(),
            reached: None,
            foreign: Series::new(),
        }
    }

    pub(crate) fn ours(mut self, series: &[f64], unit: Unit) -> Self {
        self.ours = shown(series, unit);
        self
    }

    pub(crate) fn redisson(mut self, series: &[f64], unit: Unit) -> Self {
        self.redisson = shown(series, unit);
        self
    }

    /// The figure of another contestant, with its name.
    pub(crate) fn reference(mut self, name: &str, series: &[f64], unit: Unit) -> Self {
        if !series.is_empty() {
            self.reference = format!("{name}: {}", shown(series, unit));
        }
        self
    }

    /// Text instead of figures.
    pub(crate) fn said(mut self, ours: impl Into<String>, redisson: impl Into<String>) -> Self {
        self.ours = ours.into();
        self.redisson = redisson.into();
        self
    }

    /// The ratios of the rounds, and the goal for their median.
    pub(crate) fn goal(self, text: &str, ratios: &[f64], goal: Goal) -> Self {
        self.ratio(ratios).bound(text, ratios, goal)
    }

    /// The ratios of the rounds, without a goal.
    pub(crate) fn ratio(mut self, ratios: &[f64]) -> Self {
        if let Some(middle) = median(ratios) {
            self.ratio = match ratios.len() {
                1 => ratio(middle),
                _ => {
                    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                    let most = ratios.iter().copied().fold(0.0, f64::max);
                    format!("{} ({}–{})", ratio(middle), ratio(least), ratio(most))
                }
            };
        }
        self
    }

    /// The goal for the median of these numbers.
    pub(crate) fn bound(mut self, text: &str, series: &[f64], goal: Goal) -> Self {
        self.goal = text.to_owned();
        self.reached = median(series).map(|middle| match goal {
            Goal::AtLeast(bound) => middle >= bound,
            Goal::AtMost(bound) => middle <= bound,
        });
        self
    }

    /// A goal that is not about a ratio, and whether it was reached.
    pub(crate) fn reached(mut self, text: &str, reached: Option<bool>) -> Self {
        self.goal = text.to_owned();
        self.reached = reached;
        self
    }

    /// The share of the machine that other processes took.
    pub(crate) fn foreign(mut self, foreign: impl IntoIterator<Item = f64>) -> Self {
        self.foreign.extend(foreign);
        self
    }
}

impl Table {
    pub(crate) async fn new(fleet: &Fleet) -> Table {
        let redisson = fleet.version(Kind::Java).unwrap_or("–").to_owned();
        let mut setting = vec![
            ("Date", command("date", &["-I"])),
            ("Machine", machine()),
            ("Server", fleet.server().describe().await),
            ("This crate", fleet.version(Kind::Rust).unwrap_or("–").to_owned()),
            ("Rust", command("rustc", &["--version"])),
            ("Redisson", redisson.clone()),
        ];
        if let Some(version) = fleet.version(Kind::Bucket4j) {
            setting.push(("bucket4j", format!("{version}, on Lettuce, batching")));
        }
        setting.push(("Java", java()));
        Table { setting, redisson, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, lines: Vec<Line>) {
        self.lines.extend(lines);
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.setting.push(("Took", format!("{:.0} min", time.as_secs_f64() / 60.0)));
    }

    /// Replaces the table in `docs/benchmarks.md` by this one.
    pub(crate) fn write(&self) {
        const BEGIN: &str = "<!-- figures: written by compat-tests/bench --write -->\n";
        const END: &str = "<!-- end of figures -->\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
        let page = fs::read_to_string(&path).unwrap_or_else(|_| format!("{BEGIN}{END}"));
        let (before, rest) = page.split_once(BEGIN).unwrap_or((&page, END));
        let (_, after) = rest.split_once(END).unwrap_or(("", ""));
        fs::create_dir_all(path.parent().expect("a folder")).expect("docs/ can be made");
        fs::write(&path, format!("{before}{BEGIN}\n{self}\n{END}{after}")).expect("it is written");
        eprintln!("bench: written to docs/benchmarks.md");
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.setting {
            writeln!(f, "- {name}: {value}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "| work | this crate | Redisson {} | reference | ratio | goal | reached | others |",
            self.redisson
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for line in &self.lines {
            let reached = match line.reached {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "–",
            };
            let others = median(&line.foreign)
                .map_or("–".to_owned(), |part| format!("{:.0} %", 100.0 * part));
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} | {reached} | {others} |",
                line.work, line.ours, line.redisson, line.reference, line.ratio, line.goal
            )?;
        }
        Ok(())
    }
}

/// A number of things: "1 task", "8 tasks".
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The ratios of two contestants, round by round.
pub(crate) fn ratios(above: &[f64], below: &[f64]) -> Series {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

fn median(series: &[f64]) -> Option<f64> {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        even if even % 2 == 0 => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

fn shown(series: &[f64], unit: Unit) -> String {
    let Some(value) = median(series) else { return "–".to_owned() };
    match unit {
        Unit::PerSecond if value >= 1e6 => format!("{:.2}M/s", value / 1e6),
        Unit::PerSecond if value >= 1e4 => format!("{:.0}k/s", value / 1e3),
        Unit::PerSecond => format!("{value:.0}/s"),
        Unit::Micros if value >= 10.0 => format!("{value:.0} µs"),
        Unit::Micros => format!("{value:.3} µs"),
        Unit::Bytes => format!("{value:.1} B"),
        Unit::Plain => format!("{value:.3}"),
    }
}

fn ratio(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model =
        model.map_or("unknown processor", |model| model.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores, {}", command("uname", &["-sm"]))
}

fn java() -> String {
    let said = Command::new("java").arg("-version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    said.ok()
        .and_then(|said| said.lines().nth(1).map(|line| line.trim().to_owned()))
        .unwrap_or_else(|| "–".to_owned())
}

fn command(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).output();
    said.map_or("–".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
