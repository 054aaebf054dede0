//! Calls of an empty script, over a connection that either runtime may drive.

use std::time::Duration;

use compat_tests::empty::Empty;
use compat_tests::peer::Load;
use compat_tests::runtimes::current_thread;

use crate::design::{Design, Worker};

/// The median latency of a single loop's calls, in µs.
pub(crate) fn lone(url: &str, design: Design, time: Duration) -> f64 {
    load(url, 1, design, time).p50_us
}

/// The time per call of many loops, in µs.
pub(crate) fn many(url: &str, tasks: u64, design: Design, time: Duration) -> f64 {
    let load = load(url, tasks, design, time);
    load.elapsed_ms * 1e3 / load.granted as f64
}

fn load(url: &str, tasks: u64, design: Design, time: Duration) -> Load {
    let callers = current_thread();
    let worker = Worker::start(design, &callers);
    // The runtime in which a connection is made drives it.
    let url = url.to_owned();
    let connecting = worker.runtime().spawn(async move { Empty::connect(&url).await });
    let script = callers.block_on(connecting).expect("no panic").expect("the server is there");
    let load = callers.block_on(script.load(tasks, time.as_millis() as u64));
    assert_eq!(load.errors, 0, "calls failed");
    load
}
