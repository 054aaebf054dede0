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
            if now >= look_at {
                self.expire_behind();
                look_at = now.saturating_add(micros(EXPIRE_EVERY));
            }
            if now < self.call.due {
                continue;
            }
            // As in `rt::in_time`.
            rt::yield_now().await;
            if let Some(answer) = answer.as_mut().now_or_never() {
                return answer;
            }
            self.expire(&Error::new(ErrorKind::Timeout, execution))?;
        }
    }

    /// Fails the callers in flight whose deadline has passed, with `error`; returns `error` if no caller is
    /// left.
    pub(super) fn expire(&mut self, error: &Error) -> Result<(), Error> {
        if !self.has_callers() && self.engine.core.now() < self.call.due {
            return Ok(());
        }
        let (expired, next) = self.lane.lock().queue.expire_in_flight(self.engine.core.now());
        tell_failed(expired, error);
        self.call.due = next.ok_or_else(|| error.clone())?;
        Ok(())
    }

    /// Fails the callers in flight that do not wait for permits, with `error`.
    pub(super) fn fail_those_that_do_not_wait(&self, error: &Error) {
        let now = self.engine.core.now();
        let failed = self.lane.lock().queue.fail_those_that_do_not_wait(now);
        tell_failed(failed, error);
    }

    /// When deadlines must be checked again during a pause that ends at `end`.
    pub(super) fn next_look(&self, end: Time) -> Instant {
        let core = &self.engine.core;
        let look_at = core.now().saturating_add(micros(EXPIRE_EVERY));
        core.instant_of(look_at.min(end).min(self.call.due))
    }

    /// Marks the call in flight as slow, and times out requests behind it whose deadline has passed.
    pub(super) fn expire_behind(&self) {
        let now = self.engine.core.now();
        let expired = {
            let mut state = self.lane.lock();
            state.queue.call_is_slow(now);
            state.queue.expire_behind(now)
        };
        tell_failed(expired, &Error::new(ErrorKind::Timeout, Execution::NotExecuted));
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
