//! The limits of the rules in both stores. `lua/part/limits.lua` has the same names and numbers.

/// A log of no more entries than this is *short*: it is summed and scanned whenever that helps.
pub(crate) const SHORT_LOG: usize = 64;

/// The most expired entries dropped by one call; a call that needs more says so and is repeated (see
/// [`Outcome::Undecided`](crate::store::Outcome::Undecided)).
pub(crate) const DROP_LIMIT: usize = 2000;

/// The number of queued requests whose waits are exact; requests behind them get the last wait as a lower
/// bound.
pub(crate) const EXACT_WAITS: usize = 16;

/// The longest log that is read to find the holders of permits, which takes a server 2 ms. There are no
/// shares in a longer log.
pub(crate) const LONGEST_SHARED_LOG: usize = 10_000;

/// The most parties that this crate's other clients can count as: the greatest weight for each entry.
pub(crate) const MAX_OTHERS: u64 = 255 * LONGEST_SHARED_LOG as u64;

/// The longest time for which permits are reserved: if the client that reserved them dies, nobody can use
/// them until an interval after that.
pub(crate) const LONGEST_RESERVATION_MS: i64 = 60_000;

/// The time after its date for which an unclaimed reservation keeps others from making one: otherwise two
/// clients could forever take each other's permits as they come due.
pub(crate) const RESERVATION_KEPT_MS: i64 = 1000;

/// The farthest that an entry may be dated ahead: a day, the longest hold of a lease, and an hour for clocks
/// that differ.
pub(crate) const MOST_AHEAD_MS: i64 = 25 * 3_600_000;

/// The most parts in which a debt is written; the rest follows with the next audit.
pub(crate) const MAX_DEBT_PARTS: u16 = 64;

/// The most parts of a pause: a rate of more than 2^42 permits is not paused whole.
pub(crate) const MAX_PAUSE_PARTS: u16 = 1024;

/// Ten years: stands for no time to live if other clients' keys are out of reach.
pub(crate) const FAR_TTL_MS: i64 = 315_360_000_000;

/// Over five years: a longer time to live is reported as none.
pub(crate) const ENDLESS_TTL_MS: i64 = 157_680_000_000;

/// The most permits of a semaphore in one request, and in one call: each has an id on the server.
pub(crate) const MOST_AT_ONCE: u64 = 10_000;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::rate::MAX_EXACT;
    use crate::wire::entry::MAX_ENTRY_PERMITS;

    /// `local NAME = NUMBER`, whatever follows.
    fn lua_constants() -> BTreeMap<&'static str, i64> {
        let files = [
            include_str!("../../lua/part/limits.lua"),
            include_str!("../../lua/part/far_limits.lua"),
        ];
        let lines = files.into_iter().flat_map(str::lines);
        let constants = lines.filter_map(|line| line.strip_prefix("local "));
        constants
            .map(|constant| {
                let (name, rest) = constant.split_once(" = ").expect("one constant a line");
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
                (name, digits.parse().expect("a number"))
            })
            .collect()
    }

    #[test]
    fn the_scripts_have_the_same_limits() {
        let rust = [
            ("SHORT_LOG", SHORT_LOG as i64),
            ("DROP_LIMIT", DROP_LIMIT as i64),
            ("EXACT_WAITS", EXACT_WAITS as i64),
            ("LONGEST_SHARED_LOG", LONGEST_SHARED_LOG as i64),
            ("LONGEST_RESERVATION_MS", LONGEST_RESERVATION_MS),
            ("RESERVATION_KEPT_MS", RESERVATION_KEPT_MS),
            ("MOST_AHEAD_MS", MOST_AHEAD_MS),
            ("MAX_DEBT_PARTS", i64::from(MAX_DEBT_PARTS)),
            ("MAX_PAUSE_PARTS", i64::from(MAX_PAUSE_PARTS)),
            ("FAR_TTL_MS", FAR_TTL_MS),
            ("ENDLESS_TTL_MS", ENDLESS_TTL_MS),
            ("MAX_ENTRY_PERMITS", MAX_ENTRY_PERMITS as i64),
            ("MAX_EXACT", MAX_EXACT as i64),
        ];
        assert_eq!(lua_constants(), rust.into_iter().collect());
    }

    /// A script or part that says which file is its twin is named there, and the other way round.
    #[test]
    fn twins_name_each_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |path: &str| fs::read_to_string(root.join(path)).expect(path);
        let files = |folders: [&str; 2], suffix: &str| -> Vec<String> {
            let entries = |folder: &str| {
                let folder = format!("{folder}/");
                let entries = fs::read_dir(root.join(&folder)).expect(&folder);
                let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
                names.map(move |name| folder.clone() + &name).collect::<Vec<_>>()
            };
            let names = folders.into_iter().flat_map(entries);
            names.filter(|name| name.ends_with(suffix)).collect()
        };
        let mut by_lua = BTreeSet::new();
        for lua in files(["lua", "lua/part"], ".lua") {
            let header = text(&lua).replace("\n-- ", " ");
            if let Some((_, twin)) = header.split_once("Twin: ") {
                let end = twin.find(".rs").expect("a twin is a file of Rust") + 3;
                let twin = &twin[..end];
                if twin.starts_with("src/store/") {
                    by_lua.insert((twin.to_owned(), lua));
                }
            }
        }
        let mut by_rust = BTreeSet::new();
        for rust in files(["src/store/memory", "src/store/calls"], ".rs") {
            let header: String =
                text(&rust).lines().take_while(|line| line.starts_with("//!")).collect();
            if header.contains("is its twin") || header.contains("are its twins") {
                let quoted = header.split('`').filter(|quoted| quoted.ends_with(".lua"));
                by_rust.extend(quoted.map(|lua| (rust.clone(), lua.to_owned())));
            }
        }
        assert!(by_lua.len() > 15, "{by_lua:?}");
        assert_eq!(by_lua, by_rust);
    }
}
