//! Runs the program.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use compat_tests::server::Server;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Where the program is.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_limiter-cli");

/// The program, with what it needs to know of a server.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    environment: Vec<(String, OsString)>,
    input: Option<String>,
    is_read: bool,
}

/// What a run has left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Tool {
    /// With nothing in the environment.
    pub(crate) fn bare() -> Tool {
        Tool { environment: Vec::new(), input: None, is_read: true }
    }

    /// With this URL in the environment.
    pub(crate) fn at(url: &str) -> Tool {
        Tool::bare().env("REDISSON_LIMITER_URL", url)
    }

    /// As the user with the documented rights.
    pub(crate) fn on(server: &Server) -> Tool {
        Tool::at(&server.url())
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Tool {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn input(mut self, text: &str) -> Tool {
        self.input = Some(text.to_owned());
        self
    }

    /// With nobody who reads its standard output.
    pub(crate) fn unread(mut self) -> Tool {
        self.is_read = false;
        self
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env_remove("NO_COLOR")
            .env_remove("REDISSON_LIMITER_URL")
            .kill_on_drop(true);
        command.envs(self.environment.iter().cloned());
        command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.is_read {
            let (_, writer) = std::io::pipe().expect("a pipe");
            command.stdout(writer);
        }
        let mut child = command.spawn().expect("the program starts");
        if let Some(text) = &self.input {
            let mut stdin = child.stdin.take().expect("a pipe");
            stdin.write_all(text.as_bytes()).await.expect("it reads");
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// A run that must end with this code.
    pub(crate) async fn ends(&self, code: i32, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, code, "{arguments:?}: {ran:#?}");
        ran
    }

    pub(crate) async fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let ran = self.ends(code, arguments).await;
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:#?}"))
    }
}
