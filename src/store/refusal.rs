//! Errors of both stores for a limiter whose state forbids a call. Nothing has been written then.

use crate::error::{Error, ErrorKind, Execution, NO_PARAMETERS};
use crate::wire::{FIELDS, KEEP_ALIVE, TYPE};

pub(crate) fn executed(kind: ErrorKind, detail: impl Into<String>) -> Error {
    Error::new(kind, Execution::Executed).with_detail(detail.into())
}

/// The error of a hash without these fields: rate, interval, type.
pub(crate) fn not_initialized(missing: [bool; 3]) -> Error {
    executed(ErrorKind::NotInitialized, are_missing(missing))
}

/// The error of a hash with only some of its fields, where it must have all or none.
pub(crate) fn incomplete(missing: [bool; 3]) -> Error {
    executed(ErrorKind::CorruptState, are_missing(missing))
}

fn are_missing(missing: [bool; 3]) -> String {
    let names = FIELDS.into_iter().zip(missing);
    let names: Vec<&str> = names.filter(|(_, missing)| *missing).map(|(name, _)| name).collect();
    match names.as_slice() {
        [] => "a field is missing".to_owned(),
        [one] => format!("{one} is missing"),
        [first @ .., last] => format!("{} and {last} are missing", first.join(", ")),
    }
}

/// The error of a field of the hash with this text.
pub(crate) fn unreadable(field: &str, text: &str) -> Error {
    let allowed = match field {
        TYPE => "0 or 1",
        KEEP_ALIVE => "an integer from 0 to 2^53",
        _ => "an integer from 1 to 2^53",
    };
    executed(ErrorKind::CorruptState, format!("{field} is {text:?}; it must be {allowed}"))
}

/// The error of a policy's field with this text, or without that field.
pub(crate) fn unreadable_state(field: &str, text: Option<&str>) -> Error {
    let detail = match text {
        Some(text) => format!("{field} is {text:?}, which no version of this crate writes"),
        None => format!("{field} is missing"),
    };
    executed(ErrorKind::CorruptState, detail)
}

/// The error of a limiter in the format of other services, in process.
pub(crate) fn only_on_servers() -> Error {
    executed(
        ErrorKind::InvalidArgument,
        "a limit that other services enforce exists on servers only",
    )
}

/// The error of a calendar that ends before the server's time, or begins after it.
pub(crate) fn clock_out_of_range(us: i64) -> Error {
    let detail =
        format!("no window of the calendar contains the server's time, {us} us since 1970");
    executed(ErrorKind::Server, detail)
}

/// The error of a live entry of this many bytes, by an older Redisson or by another program.
pub(crate) fn foreign_entry(bytes: usize) -> Error {
    let who = match bytes {
        20 => "Redisson 3.16.4 to 3.16.8 shares this limiter; use 3.17.0 or later",
        8 => "Redisson 3.13.3 to 3.16.3 shares this limiter; use 3.17.0 or later",
        _ => "no known release writes such an entry",
    };
    let detail = format!("the log holds a live entry of {bytes} bytes: {who}");
    executed(ErrorKind::ForeignEntry, detail)
}

pub(crate) fn wrong_type() -> Error {
    Error::new(ErrorKind::WrongType, Execution::Executed)
}

/// Refusals that say no more than which they are, each with the status by which a script answers it.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $kind:ident: $detail:expr;)+) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name() -> Error {
                executed(ErrorKind::$kind, $detail)
            }
        )+

        pub(crate) fn of_status(status: i64) -> Option<Error> {
            match status {
                $($status => Some($name()),)+
                _ => None,
            }
        }
    };
}

refusals! {
    nothing_to_rename = -5, NotInitialized: "there is no limiter of that name";
    per_client_rename = -6, InvalidArgument:
        "a PER_CLIENT limiter cannot be renamed: the keys of other clients are out of reach";
    /// The parameters of a limiter with a policy are to be stored, and are not.
    no_parameters = -9, NotInitialized: NO_PARAMETERS;
    /// An attempt was overtaken by a later call of its lane. Nobody waits for its answer.
    stale = -11, Server: "a later call of the same lane was carried out before";
    no_semaphore = -14, NotInitialized: "";
    /// A call of a plain semaphore where permits of the other kind are out.
    not_plain = -15, InvalidArgument: "the permits of this semaphore have leases: it is no plain semaphore";
    /// After the change a semaphore would have too many permits, or too few.
    too_many_permits = -16, InvalidArgument: "a semaphore has at most 2^52 permits";
}
