//! Processes that keep the cores busy.

use std::process::{Child, Stdio};
use std::thread;

use crate::process;

/// A process for each core that does nothing, without end. No core halts, and as these processes have
/// the lowest priority, all others still get nearly all of the time. They end when this is dropped, or
/// with the test process.
///
/// On a virtual machine waking a halted core can take longer than what is measured.
#[derive(Debug)]
pub struct BusyCores(Vec<Child>);

impl BusyCores {
    /// Starts the processes.
    pub fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let children = (0..cores).map(|_| {
            let mut command = process::command("nice");
            command
                .args(["-n", "19", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            process::spawn(command).unwrap_or_else(|e| panic!("setpriv nice: {e}"))
        });
        BusyCores(children.collect())
    }
}

impl Drop for BusyCores {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_cores_end_when_they_are_dropped() {
        let busy = BusyCores::start();
        let ids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        let runs = |id: &u32| std::path::Path::new(&format!("/proc/{id}")).exists();
        assert!(!ids.is_empty() && ids.iter().all(runs));
        drop(busy);
        assert!(!ids.iter().any(runs));
    }
}
