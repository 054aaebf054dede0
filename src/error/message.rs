//! The text of an error.

use std::fmt;

use super::{ErrorKind, Execution, Inner, Operation};

/// What is missing of a limiter with a policy whose parameters are to be stored, and are not.
pub(crate) const NO_PARAMETERS: &str = "no parameters are stored";

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.whose();
        match (self.operation, &self.limiter) {
            (Some(Operation::Limiter), Some(name)) => write!(f, "{whose} {name:?}: ")?,
            (Some(operation), Some(name)) => write!(f, "{operation} of {whose} {name:?}: ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.message())
    }
}

/// Formatted like the error that contains it.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.kind);
        if let Some(operation) = self.operation {
            debug.field("operation", &operation);
        }
        if let Some(limiter) = &self.limiter {
            debug.field("limiter", limiter);
        }
        debug.field("execution", &self.execution).field("message", &self.message()).finish()
    }
}

impl Inner {
    /// The fault, what was requested, what is allowed, the cause, what to do.
    fn message(&self) -> String {
        let mut text = self.fault();
        // The cause of a timeout is the deadline, which the text already names.
        if let Some(cause) = self.cause.as_ref().filter(|_| self.kind != ErrorKind::Timeout) {
            let cause = cause.to_string();
            if !text.contains(&cause) {
                text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
            }
        }
        if self.execution == Execution::Unknown
            && self.operation.is_some_and(|operation| !operation.is_idempotent())
        {
            text.push_str("; the call may have been carried out");
        }
        match self.advice() {
            Some(advice) => format!("{text}: {advice}"),
            None => text,
        }
    }

    fn whose(&self) -> &'static str {
        if self.is_semaphore { "semaphore" } else { "limiter" }
    }

    fn fault(&self) -> String {
        let whose = self.whose();
        let detail = self.detail.as_deref();
        let in_brackets = detail.map_or(String::new(), |detail| format!(" ({detail})"));
        let after_colon = detail.map_or(String::new(), |detail| format!(": {detail}"));
        let at = self.server.as_ref().map_or(String::new(), |server| format!(" at {server}"));
        match self.kind {
            ErrorKind::NotInitialized => format!("not initialized{in_brackets}"),
            ErrorKind::ExceedsRate { requested, rate } => {
                format!(
                    "{requested} permits requested at once, but the rate is {rate} per interval"
                )
            }
            ErrorKind::QueueFull { limit } => {
                let calls =
                    if limit == 1 { "1 call waits" } else { &format!("{limit} calls wait") };
                format!("{calls} for this {whose} already, the most that its options allow")
            }
            ErrorKind::WrongType => {
                format!("one of the {whose}'s keys holds a value of another type{after_colon}")
            }
            ErrorKind::CorruptState if self.is_semaphore => {
                format!("the semaphore cannot be read{in_brackets}")
            }
            ErrorKind::CorruptState => format!("the limiter's hash cannot be read{in_brackets}"),
            ErrorKind::Auth => {
                format!("the server{at} refused the credentials or the command{after_colon}")
            }
            ErrorKind::Tls => format!("TLS with the server{at} failed{after_colon}"),
            ErrorKind::Unavailable => format!("the server{at} is unavailable{after_colon}"),
            ErrorKind::Timeout => {
                let from = if at.is_empty() { at } else { format!(" from the server{at}") };
                format!("no answer{from} within the deadline{after_colon}")
            }
            ErrorKind::Closed => format!("the client is closed{after_colon}"),
            ErrorKind::ForeignFormat => {
                format!("the keys of the other services cannot be read{in_brackets}")
            }
            ErrorKind::InvalidArgument | ErrorKind::ForeignEntry | ErrorKind::Server => {
                detail.unwrap_or_default().to_owned()
            }
        }
    }

    fn advice(&self) -> Option<String> {
        match self.kind {
            ErrorKind::NotInitialized if self.is_semaphore => Some(
                "call `try_set_permits`, or name them with `SemaphoreOptions::permits`".to_owned(),
            ),
            ErrorKind::NotInitialized if self.detail.as_deref() == Some(NO_PARAMETERS) => {
                Some("call `set_policy`".to_owned())
            }
            ErrorKind::NotInitialized if self.operation != Some(Operation::Rename) => {
                Some("call `try_set_rate`, or give the handle a rate with `with_rate`".to_owned())
            }
            ErrorKind::ExceedsRate { rate, .. } => {
                Some(format!("request at most {rate}, or raise the rate"))
            }
            ErrorKind::QueueFull { .. } => {
                let options = if self.is_semaphore { "SemaphoreOptions" } else { "LimiterOptions" };
                Some(format!("shed load, or allow more by `{options}::max_waiters`"))
            }
            ErrorKind::WrongType => {
                Some("choose another name or key prefix, or delete that key".to_owned())
            }
            ErrorKind::CorruptState if self.is_semaphore => {
                Some("call `delete`, and set the permits again".to_owned())
            }
            ErrorKind::CorruptState => Some("call `set_rate` to write the rate again".to_owned()),
            _ => None,
        }
    }
}
