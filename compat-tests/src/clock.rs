//! Machines whose clocks are wrong: the system's clock, as a process that a test starts sees it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::{NamedTempFile, TempDir};

/// What a process preloads so that its clock can be shifted: built when it is first needed, and kept
/// for later runs.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    const SOURCE: &str = include_str!("../clock/clock.c");
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let library = std::env::temp_dir().join(format!("compat-clock-{:x}.so", hasher.finish()));
    if library.exists() {
        return library;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clock/clock.c");
    // Other tests may build it at the same time: it is put in its place as a whole.
    let folder = TempDir::with_prefix("compat-clock-").expect("a folder to build in");
    let built = folder.path().join("clock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&built).arg(&source);
    let status = compiler.status().unwrap_or_else(|e| panic!("cc, as for Rust's own builds: {e}"));
    assert!(status.success(), "{compiler:?}: {status}");
    std::fs::rename(&built, &library).expect("the library in its place");
    library
});

/// The clock of a machine on which a peer or a server runs: `Options::clock` of either. It can be
/// set at any time; monotonic clocks, and with them all timers, go on as they are.
#[derive(Debug)]
pub struct MachineClock(NamedTempFile);

impl MachineClock {
    /// A clock that is ahead by this much; behind, if it is negative.
    pub fn ahead_by(ms: i64) -> MachineClock {
        let clock = MachineClock(NamedTempFile::new().expect("a file for the clock"));
        clock.set(ms);
        clock
    }

    /// Sets it ahead of the right time by this much.
    pub fn set(&self, ms: i64) {
        self.0.as_file().write_all_at(&(ms * 1000).to_ne_bytes(), 0).expect("a write");
    }

    /// The library to preload, and the environment variable that it reads.
    pub(crate) fn preload(&self) -> (String, (&'static str, String)) {
        (LIBRARY.display().to_string(), ("COMPAT_CLOCK", self.0.path().display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::now_ms;
    use crate::server::{Options, Server};

    #[tokio::test]
    async fn the_clock_of_a_server_is_set() {
        let clock = MachineClock::ahead_by(-700);
        let server = Server::start_with(Options::default().clock(&clock)).await;
        let ahead = async || {
            let (seconds, micros): (i64, i64) = server.run(redis::cmd("TIME")).await;
            seconds * 1000 + micros / 1000 - now_ms()
        };
        let behind = ahead().await;
        assert!((-1_700..=-699).contains(&behind), "{behind}");
        clock.set(3_600_000);
        let far = ahead().await;
        assert!((3_599_000..=3_600_001).contains(&far), "{far}");
    }
}
