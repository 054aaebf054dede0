//! Attempts of which the first success counts.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

/// The time after which an attempt may hang, and the next one is begun as well. Nothing may ever come back from the
/// first one, not even a refusal: it would use up the time of every call.
pub(super) const HEDGE: Duration = Duration::from_millis(100);

/// Begins these attempts one after the other, each when an earlier one has failed or `hedge` has passed, because
/// one that takes longer may hang. If all fail, `choose` says of each failure whether to report it or the one
/// before; `None` if there were no attempts.
pub(super) async fn first_success<T, E, A: Future<Output = Result<T, E>>>(
    attempts: impl IntoIterator<Item = A>,
    hedge: Duration,
    choose: impl Fn(Option<E>, E) -> E,
) -> Result<T, Option<E>> {
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
            None if are_all_begun => return Err(failure),
            None => {}
        }
    }
}
