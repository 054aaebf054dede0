//! Pausing a limiter for all of its clients.

use std::time::Duration;

use super::RateLimiter;
use crate::engine::ResetOutcome;
use crate::error::{Error, ErrorKind, Operation};
use crate::store::{PauseCall, TrySetRateCall};

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

impl RateLimiter {
    /// Pauses the limiter: until this time has passed, nobody is granted anything, in Rust or in Java. For an
    /// upstream service that has asked for a pause, and for operators.
    ///
    /// Repeating it is safe: the later end counts. [`resume`](Self::resume) ends the pause. In the mode
    /// PER_CLIENT it pauses this client alone. Requests wait as for permits, and learn from their denials how
    /// long. Earlier grants stay granted; leases of other clients go on until the end of their hold.
    /// If there is no limiter, and this handle carries its rate, it is created.
    ///
    /// Setting the rate with [`Usage::Reset`](crate::Usage::Reset), or by Redisson's `setRate`, ends the pause
    /// early, and so does deleting the limiter. A rate with another interval moves its end by the difference.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the duration is zero or more than 365 days; for others see
    /// [`try_acquire`](Self::try_acquire).
    pub async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        const OPERATION: Operation = Operation::PauseFor;
        if duration.is_zero() || duration > LONGEST {
            let detail =
                format!("a pause of {duration:?}: must be more than zero, and at most 365 days");
            return Err(self.invalid(OPERATION, detail));
        }
        // Leases end before the call is sent, and none begins while it is under way.
        let reset = self.engine().begin_reset();
        let call = self.pause_call(duration.as_nanos().div_ceil(1_000_000) as u64);
        let is_created = match (self.call(OPERATION, call).await, self.carried_rate()) {
            (Err(error), Some(rate)) if error.kind() == ErrorKind::NotInitialized => {
                self.call(OPERATION, TrySetRateCall(rate)).await?;
                self.call(OPERATION, call).await?;
                true
            }
            (answer, _) => answer.map(|()| false)?,
        };
        if !is_created {
            reset.end(ResetOutcome::Unchanged);
        }
        Ok(())
    }

    /// Ends a [pause](Self::pause_for), whoever began it. Without a pause it changes nothing. Waiting requests
    /// of this client ask again at once, others within a second.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn resume(&self) -> Result<(), Error> {
        // The call may be carried out even if this future is dropped.
        let _may_come_back = self.engine().permits_may_come_back();
        self.call_existing(Operation::Resume, self.pause_call(0)).await.map(drop)
    }

    fn pause_call(&self, ms: u64) -> PauseCall {
        PauseCall { now: self.engine().core.clock.read().now, ms, seen: self.engine().seen() }
    }
}
