//! Turns a hang into a failure, so that one test cannot stall the suite, and fails a test if a
//! background thread of its own panicked.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError, RwLock};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// The default time limit of a scenario.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Locked for writing by scenarios that inspect the whole process.
static PROCESS: RwLock<()> = RwLock::new(());

/// Each panic, with the name of its thread.
static PANICS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

thread_local!(static EXPECTED: Cell<bool> = const { Cell::new(false) });

/// Runs a scenario on a thread of its own. Fails if it takes longer than `limit`, or if a thread
/// that belongs to it panics: one started by [`threads`] or
/// [`multi_thread`](crate::runtimes::multi_thread), or one owned by a client.
pub fn watch(test: &str, limit: Duration, scenario: impl FnOnce() + Send + 'static) {
    let _beside = PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    run(test, limit, scenario);
}

/// Like [`watch`], while no other watched scenario of this process runs.
pub fn watch_alone(test: &str, limit: Duration, scenario: impl FnOnce() + Send + 'static) {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    run(test, limit, scenario);
}

fn run(test: &str, limit: Duration, scenario: impl FnOnce() + Send + 'static) {
    record_panics();
    let (done, end) = channel();
    let thread = named(test, move || {
        scenario();
        let _ = done.send(());
    });
    match end.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("{test} hangs: it has not ended in {limit:?}"),
        // Disconnected: the scenario panicked.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_test = |thread: &str| thread == test || thread.starts_with(CLIENTS_THREAD);
    let found: Vec<_> = panics.extract_if(.., |(thread, _)| of_test(thread)).collect();
    drop(panics);
    assert!(found.is_empty(), "something panicked in a thread of {test}: {found:#?}");
}

/// The prefix of the names of threads that a client owns.
pub const CLIENTS_THREAD: &str = "redisson";

/// The names of the threads of this process that are owned by clients.
pub fn clients_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with(CLIENTS_THREAD))
        .collect()
}

/// Runs `work` on `count` threads at the same time and returns their results.
pub fn threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (test, work) = (current(), &work);
    thread::scope(|scope| {
        let start = |nth| {
            let thread = Builder::new().name(test.clone());
            thread.spawn_scoped(scope, move || work(nth)).expect("a thread can be started")
        };
        let all: Vec<_> = (0..count).map(start).collect();
        all.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// The name of the scenario that this thread belongs to.
pub fn current() -> String {
    thread::current().name().unwrap_or("test").to_owned()
}

/// The message with which `work` panics on this thread; `None` if it does not panic.
pub fn panics(work: impl FnOnce()) -> Option<String> {
    EXPECTED.set(true);
    let end = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(false);
    end.err().map(|panic| text(&*panic))
}

fn named<T: Send + 'static>(
    test: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().name(test.to_owned()).spawn(work).expect("a thread can be started")
}

fn record_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if EXPECTED.get() {
                return;
            }
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            panics.push((current(), format!("{:?}: {}", info.location(), text(info.payload()))));
            drop(panics);
            usual(info);
        }));
    });
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_fails() {
        let hang = || watch("hangs", Duration::from_millis(50), || thread::sleep(LIMIT));
        assert!(panics(hang).unwrap().contains("hangs: it has not ended"));
    }

    #[test]
    fn a_panic_on_a_thread_of_the_test_fails_it() {
        let unnoticed = || {
            watch("unnoticed", LIMIT, || {
                threads(1, |_| {
                    let _ = panic::catch_unwind(|| panic!("foul"));
                });
            });
        };
        assert!(panics(unnoticed).unwrap().contains("foul"));
        watch("expected", LIMIT, || assert_eq!(panics(|| panic!("fair")).unwrap(), "fair"));
    }
}
