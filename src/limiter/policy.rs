//! The parameters of a limiter that follows a policy.

use std::time::Duration;

use super::RateLimiter;
use crate::decision::Decision;
use crate::error::{Error, Operation};
use crate::observe::Count;
use crate::policy::{ChangeRule, Policy};
use crate::queue::MaxWait;
use crate::rate::MAX_EXACT;
use crate::store::PolicyChangeCall;

impl RateLimiter {
    /// Takes `permits` of a [`queue`](Policy::queue) at once, with a start that is at most the policy's delay ahead:
    /// [`Grant::starts_at`](crate::Grant::starts_at). The work must not start before then. A grant of an outage policy
    /// has no start: it may be used at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redisson_rate_limiter::{Client, InProcessStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// // One every 200 ms; nobody waits for more than 10 s.
    /// let every = Policy::queue(5, Duration::from_secs(1), Duration::from_secs(10))?;
    /// let mails = client.limiter_of("mails", every)?;
    /// let first = mails.try_reserve(1).await?.into_grant().expect("there is a start");
    /// let second = mails.try_reserve(1).await?.into_grant().expect("there is a start");
    /// let apart = second.starts_at().unwrap().duration_since(first.starts_at().unwrap()).unwrap();
    /// assert_eq!(apart, Duration::from_millis(200));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the limiter does not follow a queue policy;
    /// otherwise as for [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`try_acquire`](Self::try_acquire). A start that is given back is free again only if it is the last
    /// one that was granted, and has not come.
    pub async fn try_reserve(&self, permits: u64) -> Result<Decision, Error> {
        let policy = self.engine().rules.policy();
        let Some((policy, queue)) = policy.and_then(|it| Some((it, it.rules.as_queue()?))) else {
            let detail = "try_reserve of a limiter that is no queue: must have the policy `queue`";
            return Err(self.invalid(Operation::Acquire, detail.to_owned()));
        };
        // Rounded up: the policy's own delay ends within this millisecond. That of a stored one is not known here.
        let delay_ms = if policy.is_stored { MAX_EXACT } else { queue.max_delay.div_ceil(1000) };
        let request = self.request(permits, MaxWait::Delay(delay_ms));
        self.observed(permits, self.decide(request, None)).await
    }

    /// Stores the parameters of this limiter's policy, and says what becomes of what was used under the earlier
    /// ones. Handles of [`Client::stored_limiter_of`](crate::Client::stored_limiter_of) follow the stored
    /// parameters. Those of [`Client::limiter_of`](crate::Client::limiter_of) bring their own, which their next
    /// call puts in force again.
    ///
    /// The stored parameters are kept for `keep_alive` after each change of the limiter, in whole milliseconds;
    /// `None`: until the limiter is deleted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redisson_rate_limiter::{ChangeRule, Client, InProcessStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// let window = |limit| Policy::fixed_window(limit, Duration::from_secs(86_400));
    /// let stored = client.stored_limiter_of("plan", window(1)?)?;
    /// stored.set_policy(window(100)?, ChangeRule::Keep, None).await?;
    /// assert!(stored.try_acquire_now(80).await?.is_granted());
    /// // The customer upgrades.
    /// stored.set_policy(window(1000)?, ChangeRule::Keep, None).await?;
    /// assert_eq!(stored.available_permits().await?, 920);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the limiter has no policy, or one of
    /// another kind, or if the keep-alive is less than a minute; nothing is sent then. The errors
    /// [of the server](RateLimiter#errors-of-the-server).
    pub async fn set_policy(
        &self,
        policy: Policy,
        rule: ChangeRule,
        keep_alive: Option<Duration>,
    ) -> Result<(), Error> {
        const OPERATION: Operation = Operation::SetPolicy;
        let (asked, own) = (policy.word(), self.engine().rules.policy().map(|own| &own.rules));
        let keep_alive_ms = keep_alive.map_or(0, |time| time.as_millis().min(LONGEST_MS) as u64);
        let refused = match (own, keep_alive) {
            (Some(_), _) if policy.is_foreign() => {
                "the parameters of a limit that other services enforce: must be where its format has them".to_owned()
            }
            (Some(own), _) if own.is_rgcra() != policy.is_rgcra() => {
                "one of two buckets with the configuration of Redisson's RGcra: must be both"
                    .to_owned()
            }
            (Some(_), time) if policy.is_rgcra() && (rule != ChangeRule::Reset || time.is_some()) => {
                let time = time.map(|time| format!(" and a keep-alive of {time:?}"));
                format!(
                    "the configuration of Redisson's RGcra with `ChangeRule::{rule:?}`{}: must be `ChangeRule::Reset`, \
                     as there, without a keep-alive",
                    time.unwrap_or_default()
                )
            }
            (Some(own), Some(time)) if own.word() == asked && keep_alive_ms < SHORTEST_MS => {
                format!("a keep-alive of {time:?}: must be at least a minute")
            }
            (Some(own), _) if own.word() == asked => String::new(),
            _ => {
                let has = own.map_or("none".to_owned(), |own| format!("`{}`", own.word()));
                format!("a policy `{asked}` for a limiter that has {has}: must be the same kind")
            }
        };
        if !refused.is_empty() {
            return Err(self.invalid(OPERATION, refused));
        }
        let at = self.engine().core.clock.told_us();
        let call = PolicyChangeCall { of: policy.into(), at, rule, keep_alive_ms };
        // Leases end before the call is sent, and none begins while it is under way. It may be carried out even if
        // this future is dropped.
        let _reset = self.begin_reset(OPERATION)?;
        self.call(OPERATION, call).await?;
        self.engine().observer.counted(Count::PolicyChanges, 1);
        Ok(())
    }
}

/// A minute: the records of calls are kept as long, so that none counts twice.
const SHORTEST_MS: u64 = 60_000;

/// Ten years: the longest keep-alive.
const LONGEST_MS: u128 = 315_576_000_000;
