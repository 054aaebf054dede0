//! The callers of a call in flight, and those behind it: an answer is awaited for as long as one of
//! them wants it, and each learns of its deadline when it passes.

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

/// A call without an answer after this time is slow: the deadlines of requests behind it begin.
/// Until then no newcomer has to read the clock.
const SLOW: Duration = Duration::from_millis(5);

/// From then on requests behind it are timed out this often, until it is answered.
const EXPIRE_EVERY: Duration = Duration::from_millis(20);

/// The callers that wait for a call: none, if it is made only to refill a lease.
pub(super) struct Callers {
    pub(super) engine: Arc<Engine>,
    pub(super) lane: Arc<Lane>,
    /// Whether there has been one.
    pub(super) has_any: bool,
    /// The first deadline of those who want the answer; without callers, the end of the call.
    due: Time,
    pub(super) timer: Timer,
}

impl Callers {
    pub(super) fn new(engine: Arc<Engine>, lane: Arc<Lane>, due: Time) -> Self {
        let has_any = due < Time::MAX;
        // One without callers ends by the client's deadline: if the server is away, a client that was
        // dropped without `close` would otherwise go on for ever.
        let longest = micros(engine.core.attempt).saturating_mul(ATTEMPTS_PER_DEADLINE);
        let due = if has_any { due } else { engine.core.now().saturating_add(longest) };
        Callers { engine, lane, has_any, due, timer: Timer::default() }
    }

    /// Awaits an answer for as long as a caller wants it. Callers whose deadline passes meanwhile
    /// get a timeout at once, with this `execution`.
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

    /// Gives `error` to callers in flight whose deadline has passed; fails if nobody is left.
    pub(super) fn expire(&mut self, error: &Error) -> Result<(), Error> {
        if !self.has_any && self.engine.core.now() < self.due {
            return Ok(());
        }
        let (expired, next) = self.lane.lock().queue.expire_in_flight(self.engine.core.now());
        tell_failed(expired, error);
        self.due = next.ok_or_else(|| error.clone())?;
        Ok(())
    }

    /// Gives `error` to callers in flight that do not wait for permits.
    pub(super) fn fail_those_that_do_not_wait(&self, error: &Error) {
        let now = self.engine.core.now();
        let failed = self.lane.lock().queue.fail_those_that_do_not_wait(now);
        tell_failed(failed, error);
    }

    /// How long a pause that ends at `end` may last before deadlines are looked at.
    pub(super) fn next_look(&self, end: Time) -> Duration {
        self.engine.core.until(end.min(self.due)).min(EXPIRE_EVERY)
    }

    /// The call in flight is slow: times out requests behind it whose deadline has passed.
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

/// Awaits an answer until then. The timer is set only if the answer is not there: in process it is.
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
