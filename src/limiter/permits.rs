//! Looking at what is available, releasing permits, and pausing a limiter for all of its clients.

use std::time::Duration;

use super::RateLimiter;
use crate::error::{Error, ErrorKind, Execution, Operation};
use crate::rate::MAX_EXACT;
use crate::store::{
    KeysCall, PauseCall, Peek, PeekCall, PolicyPeekCall, ReleaseCall, StoreCall, TrySetRateCall,
    Wait,
};

const LONGEST_PAUSE: Duration = Duration::from_secs(365 * 86_400);

impl RateLimiter {
    /// Gives back up to `permits` permits that any client was granted less than an interval ago, and returns
    /// how many it gave back. They are taken out of the log, oldest grant first. Redisson's `release`;
    /// `release(0)` sends nothing and returns 0.
    ///
    /// If there is no limiter yet and this handle carries its rate, the result is 0.
    ///
    /// Prefer [`Grant::refund`](crate::Grant::refund), which gives back the permits of one grant. Permits released
    /// after their interval has passed, or released twice, can exceed the rate by the same number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `permits` is more than 2^53; for others see
    /// [`try_acquire`](Self::try_acquire). A call that may have been carried out is not attempted again: the
    /// error then has [`Execution::Unknown`].
    pub async fn release(&self, permits: u64) -> Result<u64, Error> {
        if permits > MAX_EXACT {
            return Err(self.invalid(
                Operation::Release,
                format!("a release of {permits} permits: must be 0 to 2^53"),
            ));
        }
        if permits == 0 {
            return Ok(0);
        }
        let call = ReleaseCall {
            now: self.engine().core.clock.own_ms(),
            permits,
            seen: self.engine().seen(),
        };
        // The call may be carried out even if this future is dropped, so waiting calls check again in either
        // case.
        let _may_come_back = self.engine().permits_may_come_back();
        let meets = self.engine().may_meet_another_rate();
        let Some((released, rate)) = self.call_existing(Operation::Release, call).await? else {
            return Ok(0);
        };
        meets.met(rate);
        Ok(released)
    }

    /// The permits that are available now, from 0 to the rate. Changes nothing. Redisson's
    /// `availablePermits`. Permits that this client has leased are not counted.
    ///
    /// If there is no limiter yet and this handle carries its rate, this is the whole rate.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn available_permits(&self) -> Result<u64, Error> {
        self.peek_for(Operation::AvailablePermits, 1).await.map(|peek| peek.available)
    }

    /// What an acquire of `permits` would find now: the permits available, the rate, and the wait. Changes
    /// nothing. Requests waiting in this client's queue are not taken into account.
    ///
    /// If there is no limiter yet and this handle carries its rate, the answer describes the limiter that the
    /// next acquire would create.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn peek(&self, permits: u64) -> Result<Peek, Error> {
        let peek = self.peek_for(Operation::Peek, permits).await?;
        let rate = peek.rate.permits();
        if permits > rate && self.engine().is_redissons_limiter() {
            let kind = ErrorKind::ExceedsRate { requested: permits, rate };
            return Err(self.error(Operation::Peek, Error::new(kind, Execution::Executed)));
        }
        Ok(peek)
    }

    async fn peek_for(&self, operation: Operation, permits: u64) -> Result<Peek, Error> {
        if let Some(policy) = self.engine().rules.policy() {
            let call = PolicyPeekCall {
                of: policy.clone(),
                at: self.engine().core.clock.told_us(),
                permits: permits.min(u32::MAX.into()),
            };
            let found = self.call(operation, call).await?;
            if permits > found.limit {
                let kind = ErrorKind::ExceedsRate { requested: permits, rate: found.limit };
                return Err(self.error(operation, Error::new(kind, Execution::Executed)));
            }
            let (rate, wait) = (found.parameters.rate(), found.wait);
            // A queue grants any number, one behind the other.
            let most = if self.engine().is_queue() { rate.permits() } else { u64::MAX };
            return Ok(Peek { available: found.available.min(most), rate, wait });
        }
        let call = PeekCall {
            now: self.engine().core.clock.own_ms(),
            // One more than the highest rate is enough, and is exact in the store's arithmetic.
            permits: permits.min(MAX_EXACT + 1),
            seen: self.engine().seen(),
        };
        Ok(match (self.call_existing(operation, call).await?, self.carried_rate()) {
            (Some(peek), _) => peek,
            (None, Some(rate)) => {
                Peek { available: rate.permits(), rate, wait: Wait::of_ms(0, false) }
            }
            (None, None) => {
                unreachable!("only a handle that carries a rate can find no limiter")
            }
        })
    }

    /// The answer to a call; `None` if there is no limiter yet and this handle carries the rate with which its
    /// next acquire would create it. Such a limiter has all its permits.
    pub(super) async fn call_existing<C: StoreCall>(
        &self,
        operation: Operation,
        call: C,
    ) -> Result<Option<C::Reply>, Error> {
        match self.call(operation, call).await {
            Err(error)
                if error.kind() == ErrorKind::NotInitialized
                    && self.rate.is_some()
                    // A hash that lacks some of its fields does exist, and no acquire would create it.
                    && !self.call(operation, KeysCall::Exists).await? =>
            {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

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
        if duration.is_zero() || duration > LONGEST_PAUSE {
            let detail =
                format!("a pause of {duration:?}: must be more than zero, and at most 365 days");
            return Err(self.invalid(OPERATION, detail));
        }
        // Leases end before the call is sent, and none begins while it is under way.
        let _reset = self.begin_reset(OPERATION)?;
        let call = self.pause_call(duration.as_nanos().div_ceil(1_000_000) as u64);
        match (self.call(OPERATION, call).await, self.carried_rate()) {
            (Err(error), Some(rate)) if error.kind() == ErrorKind::NotInitialized => {
                self.call(OPERATION, TrySetRateCall(rate)).await?;
                self.call(OPERATION, call).await
            }
            (answer, _) => answer,
        }
    }

    /// Ends a [pause](Self::pause_for), no matter who began it. Without a pause it changes nothing. Waiting requests
    /// of this client ask again at once, others within a second.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn resume(&self) -> Result<(), Error> {
        // The call may be carried out even if this future is dropped.
        let _may_come_back = self.engine().permits_may_come_back();
        let _meets = self.engine().may_meet_another_rate();
        self.call_existing(Operation::Resume, self.pause_call(0)).await.map(drop)
    }

    fn pause_call(&self, ms: u64) -> PauseCall {
        PauseCall { now: self.engine().core.clock.own_ms(), ms, seen: self.engine().seen() }
    }
}
