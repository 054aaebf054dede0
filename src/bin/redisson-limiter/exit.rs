//! How the program ends: exit codes for scripts, and the reasons for failing.

use std::io;

use redisson_rate_limiter::{Error, ErrorKind};

/// The meanings of [`Exit`], for `--help`. docs/cli.md has the same table.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done, granted, or nothing found
  1  the answer is no: denied, something found, refused
  2  wrong arguments, or a question that was not answered with yes
  3  no limiter of that name
  4  the server cannot be reached, or does not answer
  5  the server refuses the credentials, the command or the TLS handshake
  6  what is stored cannot be read
  7  anything else";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    No = 1,
    /// The same code as clap's.
    Usage = 2,
    NoLimiter = 3,
    Unavailable = 4,
    Access = 5,
    Damaged = 6,
    Other = 7,
}

/// The answer of a command, or of a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Limiter(Error),
    #[error("{0}")]
    Usage(String),
    /// No limiter, or no semaphore, has this name.
    #[error("there is no {0} {1:?}")]
    Missing(&'static str, String),
    /// Another limiter has the same values and logs.
    #[error(
        "there is no limiter {name:?}: the value and the log are left alone, as they are those of the limiter \
         {sibling:?}"
    )]
    KeysOfAnother { name: String, sibling: String },
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            // The library's advice is for programmers.
            ErrorKind::NotInitialized => Failure::no_limiter(error.limiter().unwrap_or_default()),
            _ => Failure::Limiter(error),
        }
    }
}

impl Failure {
    pub fn no_limiter(name: &str) -> Self {
        Failure::Missing("limiter", name.to_owned())
    }

    pub fn exit(&self) -> Exit {
        match self {
            Failure::Limiter(error) => match error.kind() {
                ErrorKind::InvalidArgument | ErrorKind::ExceedsRate { .. } => Exit::Usage,
                ErrorKind::Unavailable | ErrorKind::Timeout => Exit::Unavailable,
                ErrorKind::Auth | ErrorKind::Tls => Exit::Access,
                ErrorKind::CorruptState | ErrorKind::WrongType | ErrorKind::ForeignEntry => {
                    Exit::Damaged
                }
                _ => Exit::Other,
            },
            Failure::Usage(_) => Exit::Usage,
            Failure::Missing(..) | Failure::KeysOfAnother { .. } => Exit::NoLimiter,
            Failure::Io(..) => Exit::Other,
        }
    }
}
