//! How the program ends: exit codes for scripts, and the reasons for failing.

use std::fmt;
use std::io;
use std::process::ExitCode;

use redisson_rate_limiter::{Error, ErrorKind};

/// The exit codes. docs/cli.md has the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; granted; nothing found.
    Done = 0,
    /// The answer is no: denied, findings that are not repaired, refused in a replay.
    No = 1,
    /// The arguments are wrong, or a question was not answered with yes. The same code as clap's.
    Usage = 2,
    /// There is no limiter of that name.
    NoLimiter = 3,
    /// The server cannot be reached, or does not answer.
    Unavailable = 4,
    /// The server refuses the credentials, the command or the TLS handshake.
    Access = 5,
    /// What is stored cannot be read.
    Damaged = 6,
    /// Anything else.
    Other = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// An error of the crate.
    Limiter(Error),
    /// A mistake in the arguments.
    Usage(String),
    /// There is no limiter of this name.
    NoLimiter(String),
    /// There is no semaphore of this name.
    NoSemaphore(String),
    /// There is no limiter of this name, but another one has the same values and logs.
    KeysOfAnother { name: String, sibling: String },
    /// A failure of a file or the terminal.
    Io(String, io::Error),
}

impl Failure {
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Limiter(error) => match error.kind() {
                ErrorKind::InvalidArgument | ErrorKind::ExceedsRate { .. } => Exit::Usage,
                ErrorKind::NotInitialized => Exit::NoLimiter,
                ErrorKind::Unavailable | ErrorKind::Timeout => Exit::Unavailable,
                ErrorKind::Auth | ErrorKind::Tls => Exit::Access,
                ErrorKind::CorruptState | ErrorKind::WrongType | ErrorKind::ForeignEntry => {
                    Exit::Damaged
                }
                _ => Exit::Other,
            },
            Failure::Usage(_) => Exit::Usage,
            Failure::NoLimiter(_) | Failure::NoSemaphore(_) | Failure::KeysOfAnother { .. } => {
                Exit::NoLimiter
            }
            Failure::Io(..) => Exit::Other,
        }
    }

    /// The name, if this failure says that there is no limiter of that name.
    pub fn unknown_limiter(&self) -> Option<&str> {
        match self {
            Failure::NoLimiter(name) | Failure::NoSemaphore(name) => Some(name),
            Failure::Limiter(error) if error.kind() == ErrorKind::NotInitialized => error.limiter(),
            _ => None,
        }
    }

    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Io(_, error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The library's advice is for programmers, so it is left out.
            Failure::Limiter(error) if error.kind() == ErrorKind::NotInitialized => {
                write!(f, "there is no limiter {:?}", error.limiter().unwrap_or_default())
            }
            Failure::Limiter(error) => error.fmt(f),
            Failure::Usage(text) => f.write_str(text),
            Failure::NoLimiter(name) => write!(f, "there is no limiter {name:?}"),
            Failure::NoSemaphore(name) => write!(f, "there is no semaphore {name:?}"),
            Failure::KeysOfAnother { name, sibling } => write!(
                f,
                "there is no limiter {name:?}: the value and the log are left alone, as they are those of \
                 the limiter {sibling:?}"
            ),
            Failure::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Limiter(error)
    }
}
