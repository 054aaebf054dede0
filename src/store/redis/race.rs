//! Attempts that several calls share, and attempts of which the first success counts.

use std::io;

use futures::StreamExt;
use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

use super::*;

/// The time after which an attempt may hang, and the next one is begun as well. Nothing may ever come back from the
/// first one, not even a refusal: it would use up the time of every call.
pub(super) const HEDGE: Duration = Duration::from_millis(100);

/// Begins these attempts one after the other, each when an earlier one has failed or `hedge` has passed, because
/// one that takes longer may hang. If all fail, `choose` says of each failure whether to report it or the one
/// before; if there were no attempts, `none` is the failure.
pub(super) async fn first_success<T, E, A: Future<Output = Result<T, E>>>(
    attempts: impl IntoIterator<Item = A>,
    hedge: Duration,
    choose: impl Fn(Option<E>, E) -> E,
    none: impl FnOnce() -> E,
) -> Result<T, E> {
    let mut attempts = attempts.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failure = None;
    loop {
        let next = attempts.next();
        let are_all_begun = next.is_none();
        running.extend(next);
        let ended = match are_all_begun {
            true => running.next().await,
            false => timeout(hedge, running.next()).await.unwrap_or(None),
        };
        match ended {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) => failure = Some(choose(failure, error)),
            None if are_all_begun => return Err(failure.unwrap_or_else(none)),
            None => {}
        }
    }
}

/// Work that several calls of a runtime await, each until its own deadline.
pub(super) type Joint<T> = Shared<BoxFuture<'static, T>>;

/// The output of `work`, or why it did not end. It runs in a task, spawned by the first poll: otherwise a dropped caller
/// would end it for all others.
pub(super) fn joint<T: Clone + Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    unfinished: impl FnOnce(io::Error) -> T + Send + 'static,
) -> Joint<T> {
    let task = async move {
        tokio::spawn(work).await.unwrap_or_else(|error| {
            unfinished(io::Error::other(match error.is_panic() {
                true => "connecting has panicked: the runtime needs its I/O driver (`enable_all`)",
                // The task was dropped, as the runtime would drop every other task.
                false => "the runtime is shutting down",
            }))
        })
    };
    task.boxed().shared()
}
