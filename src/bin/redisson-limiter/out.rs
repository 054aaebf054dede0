//! The terminal, or whatever replaces it.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::ColorChoice;
use crossterm::style::Stylize;
use serde_json::Value;

use crate::exit::{Failure, Result};
use crate::json;
use crate::text::visible;

/// A meaning expressed by a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Strong,
    Quiet,
    Good,
    Bad,
    Doubtful,
}

/// Standard output and standard error.
pub struct Out {
    colors: bool,
    pub is_terminal: bool,
    /// The time of the last progress line; `None` if none is shown.
    progress: Cell<Option<Instant>>,
    shows_progress: bool,
}

impl Out {
    pub fn new(color: ColorChoice) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let colors = match color {
            ColorChoice::Auto => is_terminal && is_wanted,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        // Otherwise crossterm turns colours off itself because of NO_COLOR, even if the user asked for them.
        crossterm::style::force_color_output(colors);
        Out {
            colors,
            is_terminal,
            progress: Cell::default(),
            shows_progress: io::stderr().is_terminal(),
        }
    }

    /// Text in the colour of its meaning. The text must already be [`visible`].
    pub fn paint(&self, tone: Tone, text: impl Into<String>) -> String {
        let text = text.into();
        if !self.colors {
            return text;
        }
        match tone {
            Tone::Strong => text.bold().to_string(),
            Tone::Quiet => text.dim().to_string(),
            Tone::Good => text.green().to_string(),
            Tone::Bad => text.red().to_string(),
            Tone::Doubtful => text.yellow().to_string(),
        }
    }

    /// Returns whether anybody reads on. A reader that has seen enough, such as `head`, does not end a command that has
    /// more to do than to print.
    pub fn print(&self, text: &str) -> Result<bool> {
        self.end_progress();
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::Io("standard output".to_owned(), error)),
            Ok(()) => Ok(true),
        }
    }

    /// Writes a document for programs, or text for people.
    pub fn show(
        &self,
        as_json: bool,
        document: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        self.print(&if as_json { json::text(&document()) } else { text() }).map(drop)
    }

    pub fn complain(&self, text: &str) {
        self.end_progress();
        let _ = writeln!(io::stderr(), "redisson-limiter: {}", visible(text));
    }

    /// Shows the progress of a long walk on a terminal, a few times a second.
    pub fn progress(&self, text: &str) {
        let is_due =
            self.progress.get().is_none_or(|last| last.elapsed() >= Duration::from_millis(200));
        if self.shows_progress && is_due {
            self.progress.set(Some(Instant::now()));
            let _ = write!(io::stderr(), "\r\x1b[K{}", visible(text));
            let _ = io::stderr().flush();
        }
    }

    pub fn end_progress(&self) {
        if self.progress.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Asks a question that must be answered with yes; `assumed` answers it. Without a terminal nobody can be
    /// asked.
    pub fn confirm(&self, question: &str, assumed: bool) -> Result<bool> {
        if assumed {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "{question} There is no terminal to answer on: give --yes"
            )));
        }
        self.end_progress();
        let _ = write!(io::stderr(), "{} [y/N] ", visible(question));
        let _ = io::stderr().flush();
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::Io("standard input".to_owned(), error))?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}
