//! Child processes that cannot outlive the test process.

use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

type Job = (Command, Sender<std::io::Result<Child>>);

/// The kernel ends a child when the *thread* that started it ends. Each test
/// runs on a short-lived thread of its own; so one thread that lives as long as
/// the process starts all children.
static STARTER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (jobs, inbox) = channel::<Job>();
    thread::Builder::new()
        .name("starter".into())
        .spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        })
        .expect("a thread can be started");
    Mutex::new(jobs)
});

/// A command for `program` that the kernel kills when this process ends, in
/// whatever way. Start it with [`spawn`].
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Starts a command made by [`command`]. The id of the child is that of the
/// program, because `setpriv` executes it in its own place.
pub(crate) fn spawn(command: Command) -> std::io::Result<Child> {
    let (reply, answer) = channel();
    STARTER.lock().expect("the starter's lock").send((command, reply)).expect("the starter runs");
    answer.recv().expect("the starter answers")
}

/// Sends a signal, such as `STOP`, to a process that this one started.
pub(crate) fn signal(id: u32, name: &str) {
    let done =
        Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().expect("sh runs");
    assert!(done.success(), "kill -{name} {id} failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_started_it() {
        let mut child = thread::spawn(|| {
            let mut sleep = command("sleep");
            sleep.arg("60");
            spawn(sleep).unwrap()
        })
        .join()
        .unwrap();
        thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
