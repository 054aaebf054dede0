//! How the program ends: exit codes for scripts, and the reasons for failing.

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
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The library's advice for a missing limiter is for programmers, so it is left out.
    #[error("{}", match .0.kind() {
        ErrorKind::NotInitialized => no_limiter(.0.limiter().unwrap_or_default()),
        _ => .0.to_string(),
    })]
    Limiter(#[from] Error),
    /// A mistake in the arguments.
    #[error("{0}")]
    Usage(String),
    #[error("{}", no_limiter(.0))]
    NoLimiter(String),
    #[error("there is no semaphore {0:?}")]
    NoSemaphore(String),
    /// Another limiter has the same values and logs.
    #[error(
        "{}: the value and the log are left alone, as they are those of the limiter {sibling:?}",
        no_limiter(name)
    )]
    KeysOfAnother { name: String, sibling: String },
    /// A failure of a file or the terminal.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

fn no_limiter(name: &str) -> String {
    format!("there is no limiter {name:?}")
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
