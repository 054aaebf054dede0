//! Rates as text: `100/s`, `5 per 10s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Mode, Rate};
use crate::error::{Error, Operation};

/// The units of time, longest first, in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

const PER_CLIENT: &str = "per client";
const KEEP_ALIVE: &str = "keep-alive";

impl fmt::Display for Mode {
    /// `OVERALL` or `PER_CLIENT`, as Redisson names them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Overall => "OVERALL",
            Mode::PerClient => "PER_CLIENT",
        })
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// Reads `OVERALL` or `PER_CLIENT`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "OVERALL" => Ok(Mode::Overall),
            "PER_CLIENT" => Ok(Mode::PerClient),
            _ => Err(Error::invalid(
                Operation::BuildRate,
                format!("the mode {text:?}: must be OVERALL or PER_CLIENT"),
            )),
        }
    }
}

impl fmt::Display for Rate {
    /// `100/s`, `5 per 10s`, `10/m per client, keep-alive 1h`: what [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unit_of(self.interval_ms) {
            (1, unit) => write!(f, "{}/{unit}", self.permits)?,
            (count, unit) => write!(f, "{} per {count}{unit}", self.permits)?,
        }
        if self.mode == Mode::PerClient {
            write!(f, " {PER_CLIENT}")?;
        }
        if self.keep_alive_ms > 0 {
            let (count, unit) = unit_of(self.keep_alive_ms);
            write!(f, ", {KEEP_ALIVE} {count}{unit}")?;
        }
        Ok(())
    }
}

impl FromStr for Rate {
    type Err = Error;

    /// Reads a rate such as `100/s`, `100 / s`, `100 per s`, `5 per 10s` or `5/10s`: the permits,
    /// then `/` or `per`, then the interval, a whole number (1 if left out) of `ms`, `s`, `m`, `h`
    /// or `d`.
    ///
    /// After that, ` per client` selects [`Mode::PerClient`], and `, keep-alive 1h` sets a keep-alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text, and for values
    /// that [`Rate::new`] or [`Rate::with_keep_alive`] refuses.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (mode, permits, interval, keep_alive) = parts_of(text).ok_or_else(|| {
            let detail = format!(
                "{text:?} is not a rate: must be like \"100/s\", \"5 per 10s\" or \
                 \"10/m per client, keep-alive 1h\", in ms, s, m, h or d"
            );
            Error::invalid(Operation::BuildRate, detail)
        })?;
        let rate = Rate::new(mode, permits, interval)?;
        keep_alive.map_or(Ok(rate), |keep_alive| rate.with_keep_alive(keep_alive))
    }
}

/// The mode, the permits, the interval and the keep-alive in the text of a rate.
fn parts_of(text: &str) -> Option<(Mode, u64, Duration, Option<Duration>)> {
    let (rate, keep_alive) = match text.split_once(',') {
        Some((rate, rest)) => (rate, Some(time_of(rest.trim().strip_prefix(KEEP_ALIVE)?.trim())?)),
        None => (text, None),
    };
    let rate = rate.trim();
    let (rate, mode) = match rate.strip_suffix(PER_CLIENT) {
        Some(rate) => (rate, Mode::PerClient),
        None => (rate, Mode::Overall),
    };
    let (permits, interval) = rate.split_once('/').or_else(|| rate.split_once("per"))?;
    let interval = interval.trim();
    let count = if interval.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1" };
    let interval = time_of(&format!("{count}{interval}"))?;
    Some((mode, number_of(permits.trim())?, interval, keep_alive))
}

/// A time as a number of the longest unit that divides it.
fn unit_of(ms: u64) -> (u64, &'static str) {
    let found = UNITS.iter().find(|(_, unit)| ms.is_multiple_of(*unit));
    found.map_or((ms, "ms"), |(name, unit)| (ms / unit, *name))
}

/// The time in a text such as `10s`.
fn time_of(text: &str) -> Option<Duration> {
    let (count, name) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name.trim_start())?;
    Some(Duration::from_millis(number_of(count)?.checked_mul(*unit)?))
}

/// The number that these digits spell.
fn number_of(digits: &str) -> Option<u64> {
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| are_digits)
}

#[cfg(feature = "serde")]
mod serde_impls {
    use std::fmt;
    use std::marker::PhantomData;
    use std::str::FromStr;

    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use crate::rate::{Mode, Rate};

    /// A visitor that reads text through [`FromStr`].
    struct Text<T>(&'static str, PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    impl Serialize for Rate {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Rate {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_str(Text("a rate such as \"100/s\"", PhantomData))
        }
    }

    impl Serialize for Mode {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Mode {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_str(Text("\"OVERALL\" or \"PER_CLIENT\"", PhantomData))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::MAX_EXACT;
    use super::*;
    use crate::error::ErrorKind;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_text_is_the_shortest_that_says_it() {
        let per_client = Rate::per_client(10, SECOND * 60).unwrap();
        for (rate, text) in [
            (Rate::per_second(100), "100/s"),
            (Rate::per_minute(5), "5/m"),
            (Rate::per_hour(7), "7/h"),
            (Rate::per_day(1), "1/d"),
            (Rate::overall(5, SECOND * 10).unwrap(), "5 per 10s"),
            (Rate::overall(5, SECOND * 90).unwrap(), "5 per 90s"),
            (Rate::overall(5, Duration::from_millis(1500)).unwrap(), "5 per 1500ms"),
            (Rate::overall(5, Duration::from_millis(1)).unwrap(), "5/ms"),
            (per_client, "10/m per client"),
            (per_client.with_keep_alive(SECOND * 3600).unwrap(), "10/m per client, keep-alive 1h"),
        ] {
            assert_eq!(rate.to_string(), text);
            assert_eq!(text.parse::<Rate>().unwrap(), rate);
        }
    }

    #[test]
    fn spaces_and_both_forms_are_read() {
        for (text, same) in [
            (" 100 / s ", "100/s"),
            ("100 per s", "100/s"),
            ("5/10s", "5 per 10s"),
            ("5 per 10 s", "5 per 10s"),
            ("60 per 60s", "60/m"),
            ("10 per m per client,keep-alive 60m", "10/m per client, keep-alive 1h"),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), same, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_and_named() {
        for text in [
            "",
            "100",
            "100/",
            "/s",
            "s/100",
            "100/x",
            "100/1.5s",
            "-1/s",
            "+1/s",
            "1e3/s",
            "0/s",
            "5/0s",
            "100/s,",
            "100/s, keep-alive",
            "100/s, keep-alive 1ms",
            "100/s, keep-alive s",
            "100/s per",
            "100/s per server",
            "9007199254740993/s",
            "1/9007199254740993ms",
            "1/18446744073709551615d",
            "100//s",
            "100/s/s",
            "１/s",
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
        let error = "100 a second".parse::<Rate>().unwrap_err().to_string();
        assert!(error.starts_with("rate: \"100 a second\" is not a rate: must be like"), "{error}");
    }

    #[test]
    fn a_mode_is_called_as_in_java() {
        for mode in [Mode::Overall, Mode::PerClient] {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
        assert_eq!(Mode::PerClient.to_string(), "PER_CLIENT");
        let error = "overall".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(error, "rate: the mode \"overall\": must be OVERALL or PER_CLIENT");
    }

    fn rates() -> impl Strategy<Value = Rate> {
        let times = prop_oneof![
            1..=MAX_EXACT,
            (1u64..100, prop::sample::select(&UNITS)).prop_map(|(count, (_, unit))| count * unit),
        ];
        (any::<bool>(), 1..=MAX_EXACT, times.clone(), prop::option::of(times)).prop_map(
            |(per_client, permits, interval, keep_alive)| {
                let mode = if per_client { Mode::PerClient } else { Mode::Overall };
                let rate = Rate::new(mode, permits, Duration::from_millis(interval)).unwrap();
                match keep_alive {
                    Some(ms) => {
                        rate.with_keep_alive(Duration::from_millis(ms.max(interval))).unwrap()
                    }
                    None => rate,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn every_rate_is_read_back_from_its_text(rate in rates()) {
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9]{0,20}[ /]?(per)? ?[0-9]{0,20}[dhms,a-z -]{0,20}") {
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_writes_and_reads_the_text() {
        let rate: Rate = serde_json::from_str("\"5 per 10s\"").unwrap();
        assert_eq!(rate, Rate::overall(5, SECOND * 10).unwrap());
        assert_eq!(serde_json::to_string(&rate).unwrap(), "\"5 per 10s\"");
        assert_eq!(serde_json::to_string(&Mode::PerClient).unwrap(), "\"PER_CLIENT\"");
        assert_eq!(serde_json::from_str::<Mode>("\"OVERALL\"").unwrap(), Mode::Overall);
        let error = serde_json::from_str::<Rate>("\"0/s\"").unwrap_err().to_string();
        assert!(error.contains("a rate of 0 permits"), "{error}");
        let error = serde_json::from_str::<Rate>("100").unwrap_err().to_string();
        assert!(error.contains("expected a rate such as \"100/s\""), "{error}");
    }
}
