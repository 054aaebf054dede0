//! Values as text for people.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

use crate::out::{Out, Tone};

/// Whether a terminal just shows a character. Control characters do something instead, and some others are
/// invisible or reorder their neighbours.
pub fn is_harmless(character: char) -> bool {
    matches!(character, '\'' | '"' | '\\') || character.escape_debug().len() == 1
}

/// A message, made safe for a terminal: characters that are not [harmless](is_harmless) are escaped as in Rust's
/// `"\u{1b}"`. It may have several lines, and names in it are escaped already.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push('\n'),
            _ if is_harmless(character) => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// A name from a server or a user, made safe for a terminal, on one line.
pub fn name(text: &str) -> String {
    // Backslashes are escaped too, so that no other name looks the same.
    visible(&text.replace('\\', "\\\\")).replace('\n', "\\n")
}

/// A name, in quotes if something in it could be mistaken for something else.
pub fn quoted(text: &str) -> String {
    let shown = name(text);
    match shown == text && !text.contains(char::is_whitespace) {
        true => shown,
        false => format!("\"{shown}\""),
    }
}

/// The beginning of what a key holds, in quotes.
pub fn excerpt(content: &str) -> String {
    format!("\"{}\"", name(&content.chars().take(60).collect::<String>()))
}

/// A time with two or three digits: `350 ms`, `1.2 s`, `17 h`.
pub fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    let (unit, name) = unit_of(ms);
    match (ms / unit, ms % unit * 10 / unit) {
        (whole @ 0..10, tenths @ 1..) => format!("{whole}.{tenths} {name}"),
        (whole, _) => format!("{whole} {name}"),
    }
}

/// The unit in which a time is shown: its length in milliseconds, and its name.
fn unit_of(ms: u128) -> (u128, &'static str) {
    match ms {
        0..1_000 => (1, "ms"),
        1_000..120_000 => (1_000, "s"),
        120_000..7_200_000 => (60_000, "min"),
        7_200_000..172_800_000 => (3_600_000, "h"),
        _ => (86_400_000, "days"),
    }
}

pub fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Like [`duration`], but rounded up: what must wait for this time is possible after it.
pub fn duration_rounded_up(time: Duration) -> String {
    let ms = time.as_millis();
    let (unit, _) = unit_of(ms);
    let step = if ms / unit < 10 { (unit / 10).max(1) } else { unit };
    let ms = ms.div_ceil(step).saturating_mul(step);
    duration(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// `1 permit`, `2 permits`.
pub fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ if one.ends_with("ry") => format!("{number} {}ies", &one[..one.len() - 1]),
        _ => format!("{number} {one}s"),
    }
}

/// A table with columns as wide as what is in them, up to 40 characters, but for the last. A heading that begins with a
/// space is one of numbers.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]], out: &Out) -> String {
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (at, cell) in cells.into_iter().enumerate() {
            let widest = rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
            let width = widest.min(40).max(headings[at].len());
            line += &match headings[at].starts_with(' ') {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
        }
        line.trim_end().to_owned()
    };
    let mut text = out.paint(Tone::Quiet, line(headings)) + "\n";
    for row in rows {
        text += &line(row.each_ref().map(String::as_str));
        text.push('\n');
    }
    text
}

/// A bar of up to `width` characters.
pub fn bar(part: u64, whole: u64, width: u64) -> String {
    let full = match whole {
        0 => 0,
        _ => (u128::from(part) * u128::from(width)).div_ceil(u128::from(whole)),
    };
    "█".repeat(usize::try_from(full).unwrap_or(0).min(width as usize))
}

/// One character for each number, whose height shows its size relative to the largest.
pub fn sparkline(numbers: impl IntoIterator<Item = u64> + Clone, at_least: u64) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let top = numbers.clone().into_iter().max().unwrap_or(0).max(at_least).max(1);
    let step = |number: u64| (u128::from(number) * 7).div_ceil(u128::from(top)) as usize;
    numbers.into_iter().map(|number| STEPS[step(number).min(7)]).collect()
}

/// Reads a time such as `250ms`, `5s`, `1m`, `2h` or `1d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: Result<Span, _> = text.parse();
    let time = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let time = time.ok().and_then(|time| time.try_into().ok());
    time.ok_or_else(|| format!("{text:?} is not a time: must be like 250ms, 5s, 1m, 2h or 1d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_it_obeys() {
        let bad = "a\x1b[2Jb\x07\r\u{9b}31m\u{202e}c\u{200b}\0d\u{feff}\u{2066}\u{7f}";
        let shown = name(bad);
        for character in shown.chars() {
            assert!((' '..='~').contains(&character), "{shown}");
        }
        assert_eq!(name("a\nb"), "a\\nb");
        assert_eq!(visible("it's \"é\" 💥"), "it's \"é\" 💥");
        assert_eq!(name("a\\u{1b}"), "a\\\\u{1b}", "no other text looks the same");
        assert_eq!(visible(&name(bad)), shown, "a name in a message is escaped once");
        assert_eq!(excerpt("a\x1b\\"), "\"a\\u{1b}\\\\\"");
    }

    #[test]
    fn names_that_could_mislead_are_quoted() {
        assert_eq!(quoted("api:users"), "api:users");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("\x1b"), "\"\\u{1b}\"");
    }

    #[test]
    fn nouns_have_their_plurals() {
        assert_eq!([1, 2].map(|n| count(n, "entry")), ["1 entry", "2 entries"]);
        assert_eq!([1, 2].map(|n| count(n, "key")), ["1 key", "2 keys"]);
    }

    #[test]
    fn times_have_two_or_three_digits() {
        let shown = |ms| duration(Duration::from_millis(ms));
        assert_eq!(shown(7), "7 ms");
        assert_eq!(shown(1_250), "1.2 s");
        assert_eq!(shown(59_999), "59 s");
        assert_eq!(shown(150_000), "2.5 min");
        assert_eq!(shown(86_400_000 * 3), "3 days");
        let rounded_up = |ms| duration_rounded_up(Duration::from_millis(ms));
        assert_eq!([7, 1_250, 59_999].map(rounded_up), ["7 ms", "1.3 s", "60 s"]);
        assert_eq!([119_001, 150_001, 7_140_001].map(rounded_up), ["2 min", "2.6 min", "2 h"]);
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_duration("2h").unwrap(), Duration::from_secs(7_200));
        assert_eq!(parse_duration("1d").unwrap(), Duration::from_secs(86_400));
        for bad in ["", "5", "s", "-1s", "1y", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bar_shows_that_there_is_something() {
        assert_eq!(bar(0, 100, 10), "");
        assert_eq!(bar(1, 1_000, 10), "█");
        assert_eq!(bar(1_000, 1_000, 10).chars().count(), 10);
        assert_eq!(sparkline([0, 1, 8], 0), "▁▂█");
    }
}
