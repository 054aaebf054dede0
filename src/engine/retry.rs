//! Repeated attempts until one succeeds, with one back-off for all calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use crate::error::{Error, ErrorKind, Execution, Operation};
use crate::observe::{CallEvent, ObservedCall};
use crate::queue::ATTEMPTS_PER_DEADLINE;
use crate::rt;
use crate::store::StoreCall;

/// The second attempt is made almost at once, because most faults are a lost connection. It needs a
/// millisecond of its own: if it were dated ahead of the clock, it would treat entries as expired that are
/// not.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Each later pause is twice the one before, within these two bounds.
const SECOND_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Timers end on whole milliseconds. That of an attempt, which knows whether it was sent, must end before the one of the
/// deadline.
const TICKS: Duration = Duration::from_millis(2);

/// The pause after this one.
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(SECOND_PAUSE, LONGEST_PAUSE)
}

/// Whether the server is definitely out of reach, so that another attempt now would fail as well.
pub(crate) fn is_certain(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
        && error.execution() == Execution::NotExecuted
        && !error.is_passing()
}

/// How a call outside of the queue is attempted until it is answered or a deadline passes.
pub(crate) struct UntilDeadline {
    pub(crate) deadline: Instant,
    /// How long one attempt may take.
    pub(crate) limit: Duration,
    /// Whether executing the call twice has the same effect as once. If not, it is attempted again only if
    /// it has certainly not been executed.
    pub(crate) is_idempotent: bool,
    pub(crate) observer: ObservedCall,
}

impl UntilDeadline {
    /// Makes the attempts. Also returns whether one of them may have been executed without an answer.
    ///
    /// `fails_fast`: whether attempts end as soon as the server is definitely out of reach or refuses them. If not,
    /// only an answer ends them, because permissions or a certificate may be fixed in the meantime.
    pub(crate) async fn answer<T, Answer>(
        mut self,
        fails_fast: impl Fn() -> bool,
        call: impl Fn(Duration) -> Answer,
    ) -> (Result<T, Error>, bool)
    where
        Answer: Future<Output = Result<T, Error>>,
    {
        let (mut pause, mut is_unknown) = (FIRST_PAUSE, false);
        let answer = loop {
            let left = self.deadline.saturating_duration_since(rt::now());
            let answer = call(self.limit.min(left));
            let error = match within(self.deadline + TICKS, answer).await {
                Ok(answer) => break Ok(answer),
                Err(error) => error,
            };
            let (fails_fast, execution) = (fails_fast(), error.execution());
            let gives_up = fails_fast && is_certain(&error) && pause > FIRST_PAUSE;
            // Once an attempt may have been executed, no later attempt can undo that.
            is_unknown |= execution == Execution::Unknown;
            let error = match is_unknown && execution == Execution::NotExecuted {
                true => error.with_execution(Execution::Unknown),
                false => error,
            };
            let may_fare_better =
                error.may_be_retried() || error.execution() != Execution::Executed && !fails_fast;
            let may_repeat = self.is_idempotent || error.execution() == Execution::NotExecuted;
            let is_late = rt::now() + pause >= self.deadline;
            if !may_fare_better || gives_up || !may_repeat || is_late {
                break Err(error);
            }
            rt::sleep(pause).await;
            self.observer.tell_again(CallEvent::Retried { error: &error, pause });
            pause = longer(pause);
        };
        self.observer.ended(&answer);
        (answer, is_unknown)
    }
}

/// Waits for the answer until the deadline.
pub(super) async fn within<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = rt::in_time(rt::sleep_until(deadline), answer).await;
    answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, Execution::Unknown)))
}

impl Engine {
    /// How long one attempt may take: if an answer is lost, there must be time left to ask again.
    pub(super) fn attempt_limit(&self, deadline: Instant) -> Duration {
        let left = deadline.saturating_duration_since(rt::now());
        self.core.attempt.min(left / ATTEMPTS_PER_DEADLINE as u32)
    }

    /// Makes a call outside of the queue until it is answered; `limit` is that of an attempt. Also returns whether an
    /// earlier attempt may have been carried out.
    pub(super) async fn call_until<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Instant,
        limit: Duration,
        fails_fast: bool,
        call: impl Fn(Option<i64>) -> C + Send + Sync,
    ) -> Result<(C::Reply, bool), Error> {
        let attempts = UntilDeadline {
            deadline,
            limit,
            is_idempotent: true,
            observer: self.observer.call(operation),
        };
        let call = |limit| self.attempt(call(self.core.told_ms()), limit);
        let (answer, is_unknown) = attempts.answer(|| fails_fast || self.is_closed(), call).await;
        answer.map(|answer| (answer, is_unknown))
    }
}
