//! Repeated attempts until one succeeds, with one back-off for all calls.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{CallEvent, ObservedCall};
use crate::rt;

/// The second attempt is made almost at once, because most faults are a lost connection. It needs a
/// millisecond of its own: if it were dated ahead of the clock, it would treat entries as expired that are
/// not.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Each later pause is twice the one before, within these two bounds.
const SECOND_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A call that can be attempted more than once.
pub(crate) trait Attempts: Send {
    type Output: Send;

    /// The pause after the first attempt.
    fn first_pause(&self) -> Duration {
        FIRST_PAUSE
    }

    fn attempt(&mut self) -> impl Future<Output = Result<Self::Output, Error>> + Send;

    /// Whether another attempt may succeed.
    fn may_fare_better(&self, error: &Error) -> bool {
        error.may_be_retried()
    }

    /// Waits before the next attempt; an error means to give up.
    fn pause(
        &mut self,
        pause: Duration,
        error: Error,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Makes attempts until one succeeds or fails for good, or `pause` gives up.
pub(crate) async fn retry<A: Attempts>(attempts: &mut A) -> Result<A::Output, Error> {
    let mut pause = attempts.first_pause();
    loop {
        let error = match attempts.attempt().await {
            Ok(output) => return Ok(output),
            Err(error) if !attempts.may_fare_better(&error) => return Err(error),
            Err(error) => error,
        };
        attempts.pause(pause, error).await?;
        pause = longer(pause);
    }
}

pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(SECOND_PAUSE, LONGEST_PAUSE)
}

/// Whether the server is definitely out of reach, so that another attempt now would fail as well.
pub(crate) fn is_certain(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
        && error.execution() == Execution::NotExecuted
        && !error.is_passing()
}

/// Attempts that are repeated until a deadline.
pub(crate) struct UntilDeadline<F, G> {
    pub(crate) deadline: Instant,
    /// How long one attempt may take.
    pub(crate) limit: Duration,
    /// Whether executing the call twice has the same effect as once. If not, it is attempted again only if
    /// it has certainly not been executed.
    pub(crate) is_idempotent: bool,
    /// Whether attempts end as soon as the server is definitely out of reach or refuses them. If not, only
    /// an answer ends them, because permissions or a certificate may be fixed in the meantime.
    pub(crate) fails_fast: G,
    /// Whether some attempt may have been executed without an answer.
    pub(crate) is_unknown: bool,
    /// Whether the server was definitely out of reach at the last attempt.
    pub(crate) is_certain: bool,
    pub(crate) observer: ObservedCall,
    pub(crate) call: F,
}

impl<T, F, G, Answer> Attempts for UntilDeadline<F, G>
where
    T: Send,
    F: FnMut(Duration) -> Answer + Send,
    G: Fn() -> bool + Send,
    Answer: Future<Output = Result<T, Error>> + Send,
{
    type Output = T;

    async fn attempt(&mut self) -> Result<T, Error> {
        let left = self.deadline.saturating_duration_since(rt::now());
        let answer = (self.call)(self.limit.min(left));
        let error = match rt::in_time(rt::sleep_until(self.deadline), answer).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => error,
            None => Error::new(ErrorKind::Timeout, Execution::Unknown),
        };
        self.is_certain = is_certain(&error);
        // Once an attempt may have been executed, no later attempt can undo that.
        self.is_unknown |= error.execution() == Execution::Unknown;
        match self.is_unknown && error.execution() == Execution::NotExecuted {
            true => Err(error.with_execution(Execution::Unknown)),
            false => Err(error),
        }
    }

    fn may_fare_better(&self, error: &Error) -> bool {
        error.may_be_retried() || error.execution() != Execution::Executed && !(self.fails_fast)()
    }

    async fn pause(&mut self, pause: Duration, error: Error) -> Result<(), Error> {
        let may_repeat = self.is_idempotent || error.execution() == Execution::NotExecuted;
        let gives_up = (self.fails_fast)() && self.is_certain && pause > FIRST_PAUSE;
        if gives_up || !may_repeat || rt::now() + pause >= self.deadline {
            return Err(error);
        }
        self.observer.tell_again(CallEvent::Retried { error: &error, pause });
        rt::sleep(pause).await;
        Ok(())
    }
}
