//! The text of an error.

use std::fmt;

use super::{Error, ErrorKind, Execution, Inner, Operation};

/// The detail of an error about a limiter with a policy whose parameters should be stored, and are not.
pub(crate) const NO_PARAMETERS: &str = "no parameters are stored";

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.whose();
        match (self.operation, &self.limiter) {
            (Some(Operation::Limiter), Some(name)) => write!(f, "{whose} {name:?}: ")?,
            (Some(operation), Some(name)) => write!(f, "{operation} of {whose} {name:?}: ")?,
            (Some(Operation::Limiter), None) => write!(f, "{whose}: ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("operation", &self.operation)
            .field("limiter", &self.limiter)
            .field("execution", &self.execution)
            .field("message", &self.message())
            .finish()
    }
}

impl Inner {
    /// The fault, what was requested, what is allowed, the cause, what to do.
    fn message(&self) -> String {
        let (mut text, advice) = self.fault_and_advice();
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.kind {
            _ if detail.is_empty() => {}
            ErrorKind::NotInitialized | ErrorKind::CorruptState | ErrorKind::ForeignFormat => {
                text = format!("{text} ({detail})");
            }
            _ => add(&mut text, detail),
        }
        // The cause of a timeout is the deadline, which the text already names.
        if let Some(cause) = self.cause.as_ref().filter(|_| self.kind != ErrorKind::Timeout) {
            let cause = cause.to_string();
            if !text.contains(&cause) {
                add(&mut text, &cause);
            }
        }
        if self.execution == Execution::Unknown
            && self.operation.is_some_and(|operation| !operation.is_idempotent())
        {
            text.push_str("; the call may have been carried out");
        }
        add(&mut text, &advice);
        text
    }

    fn whose(&self) -> &'static str {
        if self.is_semaphore { "semaphore" } else { "limiter" }
    }

    fn fault_and_advice(&self) -> (String, String) {
        let whose = self.whose();
        let at = self.server.as_ref().map_or(String::new(), |server| format!(" at {server}"));
        let both = |fault: &str, advice: &str| (fault.to_owned(), advice.to_owned());
        let fault = |fault: String| (fault, String::new());
        match self.kind {
            ErrorKind::NotInitialized => both(
                "not initialized",
                match (self.operation, self.detail.as_deref()) {
                    _ if self.is_semaphore => {
                        "call `try_set_permits`, or name them with `SemaphoreOptions::permits`"
                    }
                    (_, Some(NO_PARAMETERS)) => "call `set_policy`",
                    (Some(Operation::Rename), _) => "",
                    _ => "call `try_set_rate`, or give the handle a rate with `with_rate`",
                },
            ),
            ErrorKind::ExceedsRate { requested, rate } => both(
                &format!(
                    "{requested} permits requested at once, but the rate is {rate} per interval"
                ),
                &format!("request at most {rate}, or raise the rate"),
            ),
            ErrorKind::QueueFull { limit } => {
                let wait = if limit == 1 { "call waits" } else { "calls wait" };
                let options = if self.is_semaphore { "SemaphoreOptions" } else { "LimiterOptions" };
                both(
                    &format!(
                        "{limit} {wait} for this {whose} already, the most that its options allow"
                    ),
                    &format!("shed load, or allow more by `{options}::max_waiters`"),
                )
            }
            ErrorKind::WrongType => both(
                &format!("one of the {whose}'s keys holds a value of another type"),
                "choose another name or key prefix, or delete that key",
            ),
            ErrorKind::CorruptState if self.is_semaphore => {
                both("the semaphore cannot be read", "call `delete`, and set the permits again")
            }
            ErrorKind::CorruptState => both(
                "the limiter's hash cannot be read",
                "call `set_rate` to write the rate again, or `delete` if it follows a policy",
            ),
            ErrorKind::Auth => {
                fault(format!("the server{at} refused the credentials or the command"))
            }
            ErrorKind::Tls => fault(format!("TLS with the server{at} failed")),
            ErrorKind::Unavailable => fault(format!("the server{at} is unavailable")),
            ErrorKind::Timeout => {
                let from = if at.is_empty() { at } else { format!(" from the server{at}") };
                fault(format!("no answer{from} within the deadline"))
            }
            ErrorKind::Closed => both("the client is closed", ""),
            ErrorKind::ForeignFormat => both("the keys of the other services cannot be read", ""),
            ErrorKind::InvalidArgument | ErrorKind::ForeignEntry | ErrorKind::Server => {
                both("", "")
            }
        }
    }
}

fn add(text: &mut String, part: &str) {
    if !text.is_empty() && !part.is_empty() {
        text.push_str(": ");
    }
    text.push_str(part);
}
