//! The callers of a call in flight and of the requests behind it. An answer is awaited as long as at least
//! one caller wants it, and each caller is told when its deadline passes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::answer::tell_failed;
use super::lane::Lane;
use super::{Engine, micros};
use crate::error::{Error, ErrorKind, Execution};
use crate::queue::{ATTEMPTS_PER_DEADLINE, Time};
use crate::rt::{self, Timer};
use crate::store::Reply;

/// A call unanswered after this time is slow: from then on, the deadlines of requests behind it are
/// enforced. Until then no new request needs to read the clock.
const SLOW: Duration = Duration::from_millis(5);

/// Once a call is slow, requests behind it are timed out at this interval until it is answered.
const EXPIRE_EVERY: Duration = Duration::from_millis(20);

/// The callers waiting for a call; none if it is made only to refill a lease.
pub(super) struct Callers {
    pub(super) engine: Arc<Engine>,
    pub(super) lane: Arc<Lane>,
    /// Whether the call started with any callers.
    pub(super) has_any: bool,
    /// The earliest deadline of the callers that want the answer; without callers, the end of the call.
    due: Time,
    pub(super) timer: Timer,
}

impl Callers {
    pub(super) fn new(engine: Arc<Engine>, lane: Arc<Lane>, due: Time) -> Self {
        let has_any = due < Time::MAX;
        // A call without callers ends by the client's deadline: otherwise, with the server down, a client
        // dropped without `close` would keep it going forever.
        let longest = micros(engine.core.attempt).saturating_mul(ATTEMPTS_PER_DEADLINE);
        let due = if has_any { due } else { engine.core.now().saturating_add(longest) };
        Callers { engine, lane, has_any, due, timer: Timer::default() }
    }

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
            let then = core.instant_of(look_at.min(self.due));
            if let Some(answer) = answer_until(&mut answer, &mut self.timer, then).await {
                return answer;
            }
            let now = core.now();
            if now >= look_at {
                self.expire_behind();
                look_at = now.saturating_add(micros(EXPIRE_EVERY));
            }
            if now < self.due {
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
        if !self.has_any && self.engine.core.now() < self.due {
            return Ok(());
        }
        let (expired, next) = self.lane.lock().queue.expire_in_flight(self.engine.core.now());
        tell_failed(expired, error);
        self.due = next.ok_or_else(|| error.clone())?;
        Ok(())
    }

    /// Fails the callers in flight that do not wait for permits, with `error`.
    pub(super) fn fail_those_that_do_not_wait(&self, error: &Error) {
        let now = self.engine.core.now();
        let failed = self.lane.lock().queue.fail_those_that_do_not_wait(now);
        tell_failed(failed, error);
    }

    /// The time until deadlines must be checked again during a pause that ends at `end`.
    pub(super) fn next_look(&self, end: Time) -> Duration {
        self.engine.core.until(end.min(self.due)).min(EXPIRE_EVERY)
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
