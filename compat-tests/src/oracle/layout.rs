//! What each word of a recorded command means, deduced rather than assumed.
//!
//! An operation is recorded twice, with different names, numbers and times. A
//! word that equals the first rate in the first recording and the second rate
//! in the second one is the rate; a word that is the same in both is a literal.
//! A word with no explanation, or with two, is an error that names it.

use std::fmt;
use std::ops::RangeInclusive;

use crate::keys::Keys;

/// What a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The limiter's hash.
    Hash,
    /// The value that all clients share.
    Value,
    /// The log that all clients share.
    Log,
    /// The caller's own value.
    ClientValue,
    /// The caller's own log.
    ClientLog,
    /// The new name of the hash.
    NewName,
    /// The client's id by itself.
    Client,
    /// Permits per interval.
    Rate,
    /// Milliseconds.
    Interval,
    /// Milliseconds.
    KeepAlive,
    /// The permits requested or released.
    Permits,
    /// A time to live, in milliseconds.
    Ttl,
    /// The time at which keys expire, in milliseconds since the epoch.
    ExpireAt,
    /// The caller's clock, in milliseconds since the epoch.
    Now,
    /// This many random bytes.
    EntryId(usize),
}

impl Role {
    fn is_key(self) -> bool {
        use Role::*;
        matches!(self, Hash | Value | Log | ClientValue | ClientLog | NewName)
    }
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Sent as it is.
    Literal(Vec<u8>),
    /// Filled in.
    Slot(Role),
}

/// A command with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The text of the script, if the command calls one.
    pub script: Option<Vec<u8>>,
    /// For a script call the number of keys, the keys and the arguments;
    /// otherwise the whole command.
    pub words: Vec<Word>,
}

/// A command as it was sent, with its script resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The text of the script, if the command calls one.
    pub script: Option<Vec<u8>>,
    /// The words, as in [`Template::words`].
    pub words: Vec<Vec<u8>>,
}

/// What an operation was called with, and what it sent.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The roles and the bytes that each would have.
    pub facts: Vec<(Role, Vec<u8>)>,
    /// The time of the call.
    pub now: RangeInclusive<u64>,
    /// The commands.
    pub sent: Vec<Sent>,
}

/// The roles of a limiter's keys and its client, with their names.
pub fn key_facts(name: &str, client: &str) -> Vec<(Role, Vec<u8>)> {
    let keys = Keys::new(name);
    vec![
        (Role::Hash, name.into()),
        (Role::Value, keys.value(None).into()),
        (Role::Log, keys.log(None).into()),
        (Role::ClientValue, keys.value(Some(client)).into()),
        (Role::ClientLog, keys.log(Some(client)).into()),
        (Role::Client, client.into()),
    ]
}

/// A word or command without an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexplained(pub String);

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Deduces the templates of an operation from two recordings of it.
pub fn deduce(first: &Sample, second: &Sample) -> Result<Vec<Template>, Unexplained> {
    if first.sent.len() != second.sent.len() {
        return Err(Unexplained(format!(
            "{} commands the first time, {} the second",
            first.sent.len(),
            second.sent.len()
        )));
    }
    let pairs = first.sent.iter().zip(&second.sent).enumerate();
    pairs
        .map(|(i, (a, b))| {
            if a.script != b.script || a.words.len() != b.words.len() {
                return Err(Unexplained(format!("command {i} differs between the recordings")));
            }
            let words = (0..a.words.len()).map(|w| {
                word(first, &a.words[w], second, &b.words[w]).map_err(|reason| {
                    let text = a.words[w].escape_ascii();
                    Unexplained(format!("command {i}, word {w} (\"{text}\"): {reason}"))
                })
            });
            let template =
                Template { script: a.script.clone(), words: words.collect::<Result<_, _>>()? };
            check_keys(&template).map_err(|e| Unexplained(format!("command {i}: {e}")))?;
            Ok(template)
        })
        .collect()
}

/// The only explanation of a word.
fn word(first: &Sample, a: &[u8], second: &Sample, b: &[u8]) -> Result<Word, String> {
    let fits = |sample: &Sample, role: &Role, bytes: &[u8]| {
        sample.facts.iter().any(|(r, v)| r == role && v == bytes)
    };
    let mut roles: Vec<Role> = first
        .facts
        .iter()
        .filter(|(role, value)| value == a && fits(second, role, b))
        .map(|(role, _)| *role)
        .collect();
    if is_now(first, a) && is_now(second, b) {
        roles.push(Role::Now);
    }
    match roles[..] {
        [role] => Ok(Word::Slot(role)),
        [] if a == b => Ok(Word::Literal(a.to_vec())),
        [] if a.len() == b.len() && is_random(a) && is_random(b) => {
            Ok(Word::Slot(Role::EntryId(a.len())))
        }
        [] => Err(format!("is \"{}\" the second time", b.escape_ascii())),
        _ => Err(format!("may be any of {roles:?}")),
    }
}

fn is_now(sample: &Sample, bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .is_some_and(|time: u64| sample.now.contains(&time))
}

/// Random bytes are at least eight and hardly ever digits only; otherwise a
/// number without an explanation could pass as an id.
fn is_random(bytes: &[u8]) -> bool {
    let number = |b: &u8| b.is_ascii_digit() || b"+-.e".contains(b);
    (8..=255).contains(&bytes.len()) && !bytes.iter().all(number)
}

/// All keys of a script call must be keys of the limiter, and no argument may be.
fn check_keys(template: &Template) -> Result<(), String> {
    let (Some(_), [count, rest @ ..]) = (&template.script, &template.words[..]) else {
        return Ok(());
    };
    let count = match count {
        Word::Literal(digits) => {
            std::str::from_utf8(digits).ok().and_then(|d| d.parse::<usize>().ok())
        }
        Word::Slot(_) => None,
    };
    let Some(count) = count else {
        return Err("the number of keys is not a literal".into());
    };
    for (i, word) in rest.iter().enumerate() {
        let is_key = matches!(word, Word::Slot(role) if role.is_key());
        if is_key != (i < count) {
            return Err(format!("word {} of {count} keys is {word:?}", i + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: &str, now: u64, words: &[&[u8]]) -> Sample {
        Sample {
            facts: vec![
                (Role::Hash, b"lim".to_vec()),
                (Role::Rate, rate.into()),
                (Role::Interval, b"60000".to_vec()),
            ],
            now: now..=now + 5,
            sent: vec![Sent {
                script: Some(b"return 1".to_vec()),
                words: words.iter().map(|w| w.to_vec()).collect(),
            }],
        }
    }

    #[test]
    fn each_word_gets_its_role() {
        let a = sample("17", 1000, &[b"1", b"lim", b"17", b"1003", b"", b"\x0012345 7"]);
        let b = sample("19", 2000, &[b"1", b"lim", b"19", b"2000", b"", b"abc\xff1234"]);
        let templates = deduce(&a, &b).unwrap();
        assert_eq!(
            templates[0].words,
            [
                Word::Literal(b"1".to_vec()),
                Word::Slot(Role::Hash),
                Word::Slot(Role::Rate),
                Word::Slot(Role::Now),
                Word::Literal(b"".to_vec()),
                Word::Slot(Role::EntryId(8)),
            ]
        );
    }

    #[test]
    fn a_word_without_explanation_is_named() {
        let a = sample("17", 1000, &[b"1", b"lim", b"34"]);
        let b = sample("19", 2000, &[b"1", b"lim", b"38"]);
        let error = deduce(&a, &b).unwrap_err().0;
        assert!(error.contains("word 2 (\"34\")"), "{error}");
    }

    #[test]
    fn two_explanations_are_an_error() {
        let a = sample("60000", 1000, &[b"1", b"lim", b"60000"]);
        let error = deduce(&a, &a.clone()).unwrap_err().0;
        assert!(error.contains("any of [Rate, Interval]"), "{error}");
    }

    #[test]
    fn a_key_among_the_arguments_is_an_error() {
        let a = sample("17", 1000, &[b"1", b"lim", b"lim"]);
        assert!(deduce(&a, &a.clone()).is_err());
    }
}
