//! The command line.

use std::time::Duration;

use crate::fleet::Contestant;
use crate::rows::Row;

/// Where the options are described: the script that starts this program.
const SEE_HELP: &str = "`compat-tests/bench --help` lists the options";

/// What to measure, and for how long.
pub(crate) struct Options {
    pub(crate) rows: Vec<Row>,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) write: bool,
    /// The share of the machine that other processes may take.
    pub(crate) calm: Option<f64>,
    tasks: Option<Vec<u64>>,
    contestants: Option<Vec<Contestant>>,
}

impl Options {
    /// `None` if there is nothing left to do.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Options {
            rows: Row::ALL.to_vec(),
            rounds: 5,
            time: Duration::from_millis(1500),
            write: false,
            calm: None,
            tasks: None,
            contestants: None,
        };
        while let Some(flag) = args.next() {
            let mut value =
                || args.next().ok_or_else(|| format!("{flag} needs a value; {SEE_HELP}"));
            match flag.as_str() {
                "--only" => options.rows = rows(&value()?)?,
                "--quick" => {
                    options.rounds = 1;
                    options.time = Duration::from_millis(500);
                }
                "--rounds" => options.rounds = number(&value()?)?,
                "--seconds" => {
                    let seconds: f64 = number(&value()?)?;
                    options.time = Duration::try_from_secs_f64(seconds)
                        .ok()
                        .filter(|time| *time <= Duration::from_secs(30))
                        .ok_or("--seconds must be at most 30")?;
                }
                "--tasks" => {
                    options.tasks =
                        Some(list(&value()?, "a number of tasks", |text| text.parse().ok())?);
                }
                "--peers" => {
                    options.contestants = Some(list(&value()?, "a contestant", Contestant::named)?);
                }
                "--calm" => options.calm = Some(number::<f64>(&value()?)? / 100.0),
                "--write" => options.write = true,
                "--list" => {
                    for row in Row::ALL {
                        println!("{}", row.name());
                    }
                    return Ok(None);
                }
                _ => return Err(format!("unknown option {flag}; {SEE_HELP}")),
            }
        }
        if options.rounds == 0 {
            return Err("--rounds must be at least 1".to_owned());
        }
        Ok(Some(options))
    }

    /// The duration of a load in milliseconds.
    pub(crate) fn ms(&self) -> u64 {
        self.time.as_millis() as u64
    }

    /// The numbers of tasks to measure in a row with these defaults.
    pub(crate) fn tasks(&self, default: &[u64]) -> Vec<u64> {
        self.tasks.clone().unwrap_or_else(|| default.to_vec())
    }

    /// Whether this contestant takes part.
    pub(crate) fn takes_part(&self, contestant: Contestant) -> bool {
        self.contestants.as_ref().is_none_or(|some| some.contains(&contestant))
    }
}

/// The rows that match any of the patterns, in the order of the table.
fn rows(patterns: &str) -> Result<Vec<Row>, String> {
    let mut wanted = Vec::new();
    for pattern in patterns.split(',') {
        let before = wanted.len();
        wanted.extend(Row::matching(pattern));
        if wanted.len() == before {
            let names: Vec<_> = Row::ALL.into_iter().map(Row::name).collect();
            return Err(format!("no row matches {pattern}; there are {}", names.join(", ")));
        }
    }
    Ok(Row::ALL.into_iter().filter(|row| wanted.contains(row)).collect())
}

fn list<T>(text: &str, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    text.split(',').map(|part| parse(part).ok_or_else(|| format!("{part}: not {what}"))).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let options = Options::parse(line.split(' ').map(str::to_owned));
        options.map(|options| options.expect("something to do"))
    }

    #[test]
    fn rows_are_selected_by_a_part_of_their_names() {
        let rows = |patterns| parsed(&format!("--only {patterns}")).map(|options| options.rows);
        assert_eq!(rows("workers"), Ok(vec![Row::Workers]));
        assert_eq!(rows("limiter"), Ok(vec![Row::OneLimiter, Row::ManyLimiters]));
        // In the order of the table, and each once.
        assert_eq!(rows("many,limiter"), Ok(vec![Row::OneLimiter, Row::ManyLimiters]));
        assert!(rows("workers,nothing").unwrap_err().contains("one-limiter"));
    }

    #[test]
    fn quick_is_one_round_of_half_a_second_unless_a_later_option_changes_it() {
        let quick = parsed("--quick").expect("valid");
        assert_eq!((quick.rounds, quick.ms()), (1, 500));
        let longer = parsed("--quick --seconds 2").expect("valid");
        assert_eq!((longer.rounds, longer.ms()), (1, 2000));
    }
}
