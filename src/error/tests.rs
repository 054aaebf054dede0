//! Texts and causes of errors, and which errors are transient.

use std::io;

use super::*;

fn api() -> Option<Arc<str>> {
    Some("api".into())
}

fn refused() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionRefused)
}

fn unavailable(execution: Execution) -> Error {
    Error::new(ErrorKind::Unavailable, execution)
}

/// Another library's error, wrapping one of the operating system.
#[derive(Debug)]
struct Wrapper {
    text: &'static str,
    inner: io::Error,
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl StdError for Wrapper {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.inner)
    }
}

#[test]
fn the_text_says_what_failed_and_what_to_do() {
    let executed = |kind| Error::new(kind, Execution::Executed).of(Operation::Acquire, api());
    for (error, text) in [
        (
            executed(ErrorKind::NotInitialized),
            "acquire of limiter \"api\": not initialized: call `try_set_rate`, or give the \
             handle a rate with `with_rate`",
        ),
        (
            executed(ErrorKind::ExceedsRate { requested: 11, rate: 10 }),
            "acquire of limiter \"api\": 11 permits requested at once, but the rate is 10 per \
             interval: request at most 10, or raise the rate",
        ),
        (
            executed(ErrorKind::CorruptState).with_detail("rate is \"many\""),
            "acquire of limiter \"api\": the limiter's hash cannot be read (rate is \"many\"): \
             call `set_rate` to write the rate again, or `delete` if it follows a policy",
        ),
        (
            Error::new(ErrorKind::Timeout, Execution::Unknown)
                .of(Operation::Release, api())
                .with_server(Some("localhost:6379".into())),
            "release of limiter \"api\": no answer from the server at localhost:6379 within \
             the deadline; the call may have been carried out",
        ),
        (
            Error::invalid(Operation::Limiter, "a lease of 0 permits")
                .of(Operation::Limiter, api()),
            "limiter \"api\": a lease of 0 permits",
        ),
        (Error::invalid(Operation::Connect, "an empty name"), "connect: an empty name"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn the_text_names_the_server_and_the_cause_once() {
    let error = unavailable(Execution::NotExecuted)
        .with_source(refused())
        .of(Operation::Connect, None)
        .with_server(Some("10.0.0.1:6379".into()));
    let text = "connect: the server at 10.0.0.1:6379 is unavailable: connection refused";
    assert_eq!(error.to_string(), text);
    assert!(error.get_ref().unwrap().is::<io::Error>());
    assert!(error.source().is_none(), "the text has said it");
    let shown = format!("{error:?}");
    assert!(
        shown.contains("kind: Unavailable") && shown.contains(text.split_once(": ").unwrap().1)
    );

    // If the cause does not say it, the error beneath it is the source.
    let quiet = Wrapper { text: "the handshake failed", inner: refused() };
    let error = unavailable(Execution::NotExecuted).with_source(quiet);
    assert!(error.to_string().ends_with("is unavailable: the handshake failed"));
    assert_eq!(error.source().unwrap().to_string(), refused().to_string());
    let loud = Wrapper { text: "connecting: connection refused", inner: refused() };
    assert!(unavailable(Execution::NotExecuted).with_source(loud).source().is_none());
    // An error that is not about reaching the server does not name it.
    let error = Error::invalid(Operation::Limiter, "no").with_server(Some("10.0.0.1".into()));
    assert_eq!(error.to_string(), "limiter: no");
}

#[test]
fn an_error_is_transient_if_trying_again_is_safe_and_useful() {
    use Execution::{Executed, NotExecuted, Unknown};
    use Operation::*;
    let is_transient = |kind, execution, operation| {
        Error::new(kind, execution).of(operation, api()).is_transient()
    };
    for kind in [ErrorKind::Unavailable, ErrorKind::Timeout] {
        assert!(is_transient(kind, NotExecuted, Operation::Release));
        for repeated in
            [Acquire, Peek, EnsureRate, Touch, PauseFor, Resume, Repair, RemoveUnused, Inspect]
        {
            assert!(is_transient(kind, Unknown, repeated), "{repeated}");
        }
        for once in [Release, Refund, TrySetRate, SetRate, UpdateRate, SetPermits, Renew, Expire] {
            assert!(!is_transient(kind, Unknown, once), "{once}");
        }
        assert!(!is_transient(kind, Executed, Operation::Peek));
    }
    for kind in [ErrorKind::Auth, ErrorKind::Closed, ErrorKind::Server, ErrorKind::NotInitialized] {
        assert!(!is_transient(kind, NotExecuted, Operation::Acquire), "{kind:?}");
    }
}

#[test]
fn an_execution_reads_well_in_a_log() {
    let all = [Execution::Executed, Execution::NotExecuted, Execution::Unknown];
    let shown = all.map(|execution| execution.to_string());
    assert_eq!(shown, ["executed", "not executed", "outcome unknown"]);
}

#[test]
fn an_error_is_one_pointer() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
}

#[test]
fn clones_of_an_error_name_their_own_operations() {
    let shared = Error::new(ErrorKind::Timeout, Execution::Unknown);
    let one = shared.clone().of(Operation::Acquire, api());
    let other = shared.of(Operation::Peek, None);
    assert_eq!((one.operation(), one.limiter()), (Operation::Acquire, Some("api")));
    assert_eq!((other.operation(), other.limiter()), (Operation::Peek, None));
}
