//! Everything that reads bytes or text from outside, for fuzzing: not part of the API.
//!
//! Each target takes any bytes, and panics if what it tests does not hold. `fuzz/` has a program for
//! each, for a fuzzer that is guided by coverage, and the corpus; the tests below try the corpus and
//! variations of it.

#[cfg(feature = "redisson-yaml")]
use crate::client::Client;
use crate::rate::{Mode, Rate};
use crate::store::redis::{self, Topology};
use crate::wire::entry::{self, EntryId};
use crate::wire::keys::Keys;

/// A target, and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("entry", entry),
    ("keys", keys),
    ("rate", rate),
    #[cfg(feature = "redisson-yaml")]
    ("redisson_yaml", redisson_yaml),
    ("reply", reply),
    ("url", url),
];

/// A member of the log: what is read as an entry of 16 bytes is written as the same bytes.
pub fn entry(member: &[u8]) {
    if let Some((id, permits)) = entry::unpack(member) {
        entry::holder(id);
        if let Ok(id) = <[u8; entry::ID_LEN]>::try_from(id) {
            assert_eq!(entry::pack(EntryId(id), permits as u32), member);
            assert!(EntryId(id).owns(&id));
        }
    }
}

/// A limiter's name, and the client's id behind a line break.
pub fn keys(names: &[u8]) {
    let names = String::from_utf8_lossy(names);
    let (name, client) = names.split_once('\n').unwrap_or((&names, "client"));
    // An empty name is refused before it has keys.
    if !name.is_empty() {
        redis::fuzz::keys(&Keys::new(name, client));
    }
}

/// A rate as text: what is read is written as text that is read as the same.
pub fn rate(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _ = text.parse::<Mode>();
    if let Ok(rate) = text.parse::<Rate>() {
        assert_eq!(rate.to_string().parse::<Rate>().ok(), Some(rate), "{text:?}");
    }
}

/// The Java side's configuration file.
#[cfg(feature = "redisson-yaml")]
pub fn redisson_yaml(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    // Neither files nor variables of this machine are read.
    if text.contains("file:") {
        return;
    }
    let value_of = |name: &str| (name == "HOST").then(|| "db".to_owned());
    match Client::builder().redisson_yaml_text(text, value_of) {
        Ok(file) => {
            assert!(!format!("{file:?}").is_empty());
            file.ignored().iter().for_each(|ignored| assert!(!ignored.to_string().is_empty()));
        }
        Err(why) => assert!(!why.is_empty()),
    }
}

/// An answer of a server, as it is on the wire; the first byte is a number that readers need.
pub fn reply(answer: &[u8]) {
    if let Some((number, answer)) = answer.split_first() {
        redis::fuzz::read(answer, u64::from(*number));
    }
}

/// The address of a server or of a cluster: neither it nor its error shows a password.
pub fn url(url: &[u8]) {
    let Ok(url) = std::str::from_utf8(url) else { return };
    let secret = "s3cr3t-of-the-fuzzer";
    let url = url.replace("PASSWORD", secret);
    let shown = match Topology::try_from(&*url) {
        Ok(topology) => format!("{topology} {topology:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    // Where a password belongs, and not in the host, nor in the path of a socket.
    let authority = url.split_once("://").filter(|(scheme, _)| !scheme.contains("unix"));
    let authority =
        authority.map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
    let is_password =
        authority.contains(&format!(":{secret}@")) && url.matches(secret).count() == 1;
    assert!(!is_password || !shown.contains(secret), "{shown}");
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ::rand::rngs::StdRng;
    use ::rand::{RngExt, SeedableRng};

    use super::*;

    /// How many variations are tried of each target's corpus: always the same ones, or, with
    /// `FUZZ_TRIES`, so many new ones.
    const TRIES: u64 = 3000;

    #[test]
    fn the_corpus_and_variations_of_it_are_read() {
        let tries = std::env::var("FUZZ_TRIES").ok().map(|tries| tries.parse::<u64>().unwrap());
        let seed = tries.map_or(0, |_| ::rand::random::<u32>().into());
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for (name, target) in TARGETS {
            let corpus = corpus(name);
            assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty");
            corpus.iter().for_each(|input| target(input));
            for _ in 0..tries.unwrap_or(TRIES) {
                let input = vary(&corpus, &mut random);
                let shown = String::from_utf8_lossy(&input).into_owned();
                if std::panic::catch_unwind(|| target(&input)).is_err() {
                    panic!("{name}, to be kept in fuzz/corpus/{name}: {input:?} {shown:?}");
                }
            }
        }
    }

    fn corpus(target: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|_| panic!("{}", folder.display()));
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    /// An input with a few changes: bytes, parts that are repeated or left out, parts of another one.
    fn vary(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
        let mut input = corpus[random.random_range(0..corpus.len())].clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..=input.len());
            let end = random.random_range(at..=input.len()).min(at + 16);
            match random.random_range(0..6) {
                0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
                1 if at < input.len() => input[at] = random.random(),
                2 => input.insert(
                    at,
                    *b"0-9:[]{}${}\r\n*$/@%,. \"'".get(random.random_range(0..24)).unwrap_or(&0),
                ),
                3 => drop(input.drain(at..end)),
                4 => {
                    let part = input[at..end].to_vec();
                    input.splice(at..at, part);
                }
                _ => {
                    let other = &corpus[random.random_range(0..corpus.len())];
                    let from = random.random_range(0..=other.len());
                    input.truncate(at);
                    input.extend(&other[from..]);
                }
            }
        }
        input
    }
}
