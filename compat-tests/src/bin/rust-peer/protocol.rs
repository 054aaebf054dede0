//! Lines of the peer protocol, and their arguments.

use std::ops::RangeInclusive;
use std::time::Duration;

use redisson_rate_limiter::{ExpireCondition, Fraction, Mode, Rate};
use serde_json::{Map, Value, json};

/// One call.
pub(crate) struct Line {
    pub(crate) id: Value,
    pub(crate) op: String,
    pub(crate) args: Map<String, Value>,
}

/// An error reply.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl Line {
    pub(crate) fn parse(line: &[u8]) -> Result<Line, (Value, Failure)> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| (Value::Null, Failure::invalid(format!("not JSON: {error}"))))?;
        let Value::Object(mut args) = value else {
            return Err((Value::Null, Failure::invalid("not a JSON object")));
        };
        let id = args.remove("id").unwrap_or_default();
        if !id.is_i64() {
            return Err((id, Failure::invalid("id is missing or not a whole number")));
        }
        match args.remove("op") {
            Some(Value::String(op)) => Ok(Line { id, op, args }),
            _ => Err((id, Failure::invalid("op is missing or not a string"))),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, Failure> {
        match self.args.get(name) {
            Some(Value::String(text)) => Ok(text),
            found => Err(unusable(name, "a text", found)),
        }
    }

    pub(crate) fn whole(&self, name: &str) -> Result<u64, Failure> {
        let found = self.args.get(name);
        found.and_then(Value::as_u64).ok_or_else(|| unusable(name, "a whole number from 0", found))
    }

    pub(crate) fn within(&self, name: &str, allowed: RangeInclusive<u64>) -> Result<u64, Failure> {
        let found = self.args.get(name);
        let number = found.and_then(Value::as_u64).filter(|number| allowed.contains(number));
        number.ok_or_else(|| {
            let wanted = format!("a whole number from {} to {}", allowed.start(), allowed.end());
            unusable(name, &wanted, found)
        })
    }

    /// The limiters of a call on several, each with the permits asked of it.
    pub(crate) fn limits(&self) -> Result<Vec<(&str, u64)>, Failure> {
        const ALLOWED: &str = "a list of objects with name and permits";
        let found = self.args.get("limits");
        let limits =
            found.and_then(Value::as_array).ok_or_else(|| unusable("limits", ALLOWED, found))?;
        let limits = limits.iter().map(|it| match it {
            Value::Object(fields) => {
                let name = fields.get("name").and_then(Value::as_str);
                name.zip(fields.get("permits").and_then(Value::as_u64))
            }
            _ => None,
        });
        limits.map(|it| it.ok_or_else(|| unusable("limits", ALLOWED, found))).collect()
    }

    pub(crate) fn whole_or(&self, name: &str, default: u64) -> Result<u64, Failure> {
        if self.has(name) { self.whole(name) } else { Ok(default) }
    }

    pub(crate) fn signed(&self, name: &str) -> Result<i64, Failure> {
        let found = self.args.get(name);
        found.and_then(Value::as_i64).ok_or_else(|| unusable(name, "a whole number", found))
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64, Failure> {
        let found = self.args.get(name);
        found.and_then(Value::as_f64).ok_or_else(|| unusable(name, "a number", found))
    }

    pub(crate) fn fraction(&self, name: &str) -> Result<Fraction, Failure> {
        const OF: u32 = 1_000_000_000;
        let number = self.number(name)?;
        if !(number > 0.0 && number < 1.0) {
            return Err(unusable(name, "between 0 and 1, exclusive", self.args.get(name)));
        }
        let parts = (number * f64::from(OF)).round() as u32;
        Ok(Fraction::new(parts.clamp(1, OF - 1), OF))
    }

    pub(crate) fn millis(&self, name: &str) -> Result<Duration, Failure> {
        self.whole(name).map(Duration::from_millis)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            found => Err(unusable(name, "true or false", found)),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.args.get(name).is_some_and(|value| !value.is_null())
    }

    /// The argument object of this name, if there is one.
    pub(crate) fn part(&self, name: &str) -> Result<Option<Line>, Failure> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(args)) => {
                Ok(Some(Line { id: Value::Null, op: self.op.clone(), args: args.clone() }))
            }
            found => Err(unusable(name, "an object", found)),
        }
    }

    pub(crate) fn rate(&self) -> Result<Rate, Failure> {
        let mode = match self.text("mode")? {
            "OVERALL" => Mode::Overall,
            "PER_CLIENT" => Mode::PerClient,
            other => {
                return Err(Failure::invalid(format!(
                    "mode {other:?}; must be OVERALL or PER_CLIENT"
                )));
            }
        };
        let rate = Rate::new(mode, self.whole("rate")?, self.millis("intervalMs")?)?;
        Ok(match self.whole_or("keepAliveMs", 0)? {
            0 => rate,
            ms => rate.with_keep_alive(Duration::from_millis(ms))?,
        })
    }

    pub(crate) fn condition(&self) -> Result<Option<ExpireCondition>, Failure> {
        if !self.has("condition") {
            return Ok(None);
        }
        match self.text("condition")? {
            "NX" => Ok(Some(ExpireCondition::IfNotSet)),
            "XX" => Ok(Some(ExpireCondition::IfSet)),
            "GT" => Ok(Some(ExpireCondition::IfGreater)),
            "LT" => Ok(Some(ExpireCondition::IfLess)),
            other => {
                Err(Failure::invalid(format!("condition {other:?}; must be NX, XX, GT or LT")))
            }
        }
    }
}

fn unusable(name: &str, wanted: &str, found: Option<&Value>) -> Failure {
    Failure::invalid(match found {
        None => format!("{name} is missing"),
        Some(found) => format!("{name} is {found}; it must be {wanted}"),
    })
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Failure { kind: "InvalidArgument", message: message.into() }
    }

    pub(crate) fn reply(&self, id: &Value) -> Value {
        json!({"id": id, "error": {"kind": self.kind, "message": self.message}})
    }
}
