//! The callers of a call in flight and of the requests behind it. An answer is awaited as long as at least
//! one caller wants it, and each caller is told when its deadline passes.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::answer::tell_failed;
use super::flight::Flight;
use super::micros;
use crate::error::{Error, ErrorKind, Execution};
use crate::queue::Time;
use crate::rt::{self, Timer};
use crate::store::Reply;

/// A call unanswered after this time is slow: from then on, the deadlines of requests behind it are
/// enforced. Until then no new request needs to read the clock.
const SLOW: Duration = Duration::from_millis(5);

/// Once a call is slow, requests behind it are timed out at this interval until it is answered.
const EXPIRE_EVERY: Duration = Duration::from_millis(20);

impl Flight {
    /// Awaits an answer as long as a caller wants it. Callers whose deadline passes meanwhile get a timeout
    /// at once, with this `execution`.
    pub(super) async fn in_time<T>(
        &mut self,
        mut answer: Reply<T>,
        execution: Execution,
    ) -> Result<T, Error> {
        let core = self.engine.core.clone();
        let mut look_at = core.now().saturating_add(micros(SLOW));
        loop {
            let then = core.instant_of(look_at.min(self.call.due));
            if let Some(answer) = answer_until(&mut answer, &mut self.timer, then).await {
                return answer;
            }
            let now = core.now();
            let is_due = now >= self.call.due;
            if is_due {
                // As in `rt::in_time`.
                rt::yield_now().await;
                if let Some(answer) = answer.as_mut().now_or_never() {
                    return answer;
                }
            }
            let expired = self.expire(now, &Error::new(ErrorKind::Timeout, execution), false);
            // Before that it goes on, even if its callers have given up: its answer may end an outage.
            if is_due {
                expired?;
            }
            look_at = now.saturating_add(micros(EXPIRE_EVERY));
        }
    }

    /// Tells callers whose deadline has passed: those in flight, with `error`, and those behind. `fails_fast`: also
    /// those in flight that do not wait for permits, or no longer. Returns `error` if nobody wants the answer any more.
    pub(super) fn expire(
        &mut self,
        now: Time,
        error: &Error,
        fails_fast: bool,
    ) -> Result<(), Error> {
        let expired = self.lane.lock().queue.expire(now, fails_fast);
        tell_failed(expired.in_flight, error);
        tell_failed(expired.behind, &Error::new(ErrorKind::Timeout, Execution::NotExecuted));
        match expired.next {
            // A hasty caller that has given up no longer shortens the attempts of the others.
            Some(next) => (self.call.due, self.call.shortest_deadline) = next,
            None => return Err(error.clone()),
        }
        Ok(())
    }

    /// When deadlines must be checked again during a pause that ends at `end`.
    pub(super) fn next_look(&self, end: Time) -> Instant {
        let core = &self.engine.core;
        let look_at = core.now().saturating_add(micros(EXPIRE_EVERY));
        core.instant_of(look_at.min(end).min(self.call.due))
    }
}

/// Awaits an answer until `then`. The timer is set only if the answer is not ready; an in-process store's
/// is.
async fn answer_until<T>(
    answer: &mut Reply<T>,
    timer: &mut Timer,
    then: Instant,
) -> Option<Result<T, Error>> {
    poll_fn(|cx| match answer.poll_unpin(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => timer.poll_until(cx, then).map(|()| None),
    })
    .await
}
