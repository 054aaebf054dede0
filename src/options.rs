//! Optional settings of a limiter in one client.

use std::time::Duration;

use crate::rate::whole_ms;

mod outage;

pub use outage::{Fraction, OnOutage};

const LONGEST_HOLD: Duration = Duration::from_secs(86_400);

/// Optional settings for a limiter in one client; none are set by default.
///
/// Options belong to a limiter's name within one client, for as long as the client remembers it: see
/// [`Client::limiter_with`](crate::Client::limiter_with), which checks their values. They are not stored on the
/// server, and no other client needs to know about them.
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Client, DecidedBy, InProcessStore, LimiterOptions, Rate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let options = LimiterOptions::new().denial_memory(Duration::from_millis(500));
/// let limiter = client.limiter_with("api", options)?.with_rate(Rate::per_minute(1));
///
/// assert!(limiter.try_acquire_now(1).await?.is_granted());
/// for decided_by in [DecidedBy::Store, DecidedBy::Memory] {
///     let denial = limiter.try_acquire_now(1).await?.into_denial().expect("the permit is taken");
///     assert_eq!(denial.decided_by(), decided_by);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until a limiter is made with them"]
pub struct LimiterOptions {
    pub(crate) lease: Option<LeaseTerms>,
    pub(crate) denial_memory: Option<Duration>,
    pub(crate) share: Option<ShareRule>,
    pub(crate) max_waiters: Option<u32>,
    pub(crate) on_outage: Option<OnOutage>,
    pub(crate) label: Option<&'static str>,
}

/// How much of an exhausted limiter a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareRule {
    /// Its share, counting as this number of parties.
    Weight(u8),
    /// Whatever is free.
    Greedy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// The most permits in a lease; `None`: as many as the client uses during the hold.
    pub(crate) permits: Option<u32>,
    pub(crate) hold: Duration,
}

impl LimiterOptions {
    /// No options: every call asks the server.
    pub const fn new() -> Self {
        LimiterOptions {
            lease: None,
            denial_memory: None,
            share: None,
            max_waiters: None,
            on_outage: None,
            label: None,
        }
    }

    /// Leases permits: takes up to `permits` ahead at a time, and grants them without a call
    /// ([`DecidedBy::Lease`](crate::DecidedBy::Lease)) for up to `hold` after it requested them. When that pays is in
    /// docs/sizing.md.
    ///
    /// A lease comes with a call that is made in any case, and the next one is fetched in the background once less than half of
    /// `permits` is left, so a busy caller never waits for the server. A call leases only permits that its own
    /// requests do not need. Unused permits go back
    ///
    /// - after half of `hold` without use, and at the end of `hold`;
    /// - when a call of this client must wait for permits, because later calls must not overtake it (one of another
    ///   runtime, with its next call: within a second), unless it leaves a headroom;
    /// - when this client notices that the rate has changed, or itself sets the rate or a time to live, or deletes or
    ///   renames the limiter;
    /// - with [`Client::close`](crate::Client::close).
    ///
    /// Those of a process that ends without this expire `hold` and an interval after they were taken.
    ///
    /// **No limit is exceeded**: permits of a lease are logged with the date at which its hold ends, so no interval
    /// sees more than the rate. The exception: if another client lowers the rate, or resets or deletes the limiter,
    /// or if its time to live ends, permits leased at that time can still be used, for one hold at most.
    ///
    /// **It costs utilization**: permits granted by a call that also leases become available again after an interval
    /// plus `hold`. Under constant load a limiter grants, at worst, interval ÷ (interval + `hold`) of its rate: 91 %
    /// with a hold of a tenth of the interval. Permits leased by this client are not available to others, and the
    /// delays that Java clients compute grow by up to `hold`.
    ///
    /// Leasing starts once the client knows the rate: with its second call of the limiter at the latest. Nothing is
    /// leased from a limiter whose keep-alive is shorter than its interval and `hold` together, because its log could
    /// be removed before the lease ends.
    ///
    /// `permits` must be 1 to 2^32 − 1, and `hold` 1 ms to a day, in whole milliseconds. This replaces
    /// [`adaptive_lease`](Self::adaptive_lease), which needs no number.
    pub fn lease(mut self, permits: u32, hold: Duration) -> Self {
        self.lease = Some(LeaseTerms { permits: Some(permits), hold });
        self
    }

    /// Like [`lease`](Self::lease), with the same guarantees and costs, but a lease has as many permits as this
    /// client used during the last `hold`.
    ///
    /// The number follows the demand within one or two holds, in both directions; a client that uses fewer than two
    /// permits in a hold leases none. The next lease is fetched when less than a quarter of the current one is left.
    /// After a lease that is not granted in full, the client leases nothing for one `hold`; if the next ones are not
    /// either, for two, four, eight and at most sixteen.
    ///
    /// `hold` must be 1 ms to a day, in whole milliseconds. A tenth to a fifth of the limiter's interval is a good
    /// choice. This replaces [`lease`](Self::lease).
    pub fn adaptive_lease(mut self, hold: Duration) -> Self {
        self.lease = Some(LeaseTerms { permits: None, hold });
        self
    }

    /// Remembers denials until their retry-after elapses: until then, calls that do not wait and request at least as
    /// many permits are denied without asking the server ([`DecidedBy::Memory`](crate::DecidedBy::Memory)), with the
    /// remaining wait. It never grants anything, so no limit is exceeded.
    ///
    /// A denial is remembered for at most `longest`, which must be more than zero: for that long this client may not
    /// notice that another process has given permits back or raised the rate. What this client does itself (a refund,
    /// a release, a new rate, a delete) ends it at once, as does
    /// [`Client::recheck_waiters`](crate::Client::recheck_waiters). Waiting calls are never answered from it, and a
    /// denial behind a waiting call is not remembered.
    pub fn denial_memory(mut self, longest: Duration) -> Self {
        self.denial_memory = Some(longest);
        self
    }

    /// Counts as `weight` clients, at least 1, when an exhausted limiter is shared; by default 1. Next to one client
    /// of weight 1, in Rust or in Java, this one gets `weight` ÷ (`weight` + 1) of the rate. All Java clients
    /// together count as one of weight 1, because nothing on the server tells how many there are. This replaces
    /// [`greedy`](Self::greedy).
    pub fn weight(mut self, weight: u8) -> Self {
        self.share = Some(ShareRule::Weight(weight));
        self
    }

    /// Takes any free permits of an exhausted limiter, instead of only this client's share: its waiting calls ask in
    /// the very millisecond in which permits become available, and Java clients waiting for the same limiter get next
    /// to nothing. This replaces [`weight`](Self::weight).
    pub fn greedy(mut self) -> Self {
        self.share = Some(ShareRule::Greedy);
        self
    }

    /// Limits this client's calls that wait for an answer in one runtime to `waiters`, at least 1; those of handles with
    /// another headroom are counted by themselves. Further calls fail at once with [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull), and nothing is sent. Calls that do not wait
    /// for permits count while they wait for the server's answer; calls answered without the server (leases, remembered
    /// denials) do not count. A cancelled call frees its place at once or, if it is part of a call to the server, when
    /// that ends.
    ///
    /// With a policy for [outages](Self::on_outage), a call that finds the queue full while a server call is in
    /// flight waits for the outcome of that call: if the server turns out to be away, the policy decides.
    ///
    /// Without this option the queue grows with its callers, of which each takes about 200 bytes. Calls with a timeout
    /// are denied at once if they cannot be served in time; only those of [`acquire`](crate::RateLimiter::acquire) may
    /// wait for any time.
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.max_waiters = Some(waiters);
        self
    }

    /// Decides acquires by this policy while the server is away, whatever
    /// [`ClientBuilder::on_outage`](crate::ClientBuilder::on_outage) says. Permits of a [lease](Self::lease) and
    /// [remembered denials](Self::denial_memory) are answers of the server, and come first.
    pub fn on_outage(mut self, policy: OnOutage) -> Self {
        self.on_outage = Some(policy);
        self
    }

    /// Counts this limiter apart from the client's others: its metrics have the label `limiter="label"`. An
    /// [`Observer`](crate::observe::Observer) sees it too. Several limiters of one purpose can share a label.
    ///
    /// By default there is no such label, so that a service with a limiter for each of its users does not overload
    /// its metrics; limits of a web service are labelled with the limit's name. It is `&'static str` because each
    /// label creates about 30 time series; a label from a configuration can be leaked once (`String::leak`).
    pub fn metrics_label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    /// Checks that these options mean something to a semaphore.
    pub(crate) fn check_for_semaphore(&self) -> Result<(), String> {
        let is_limiters =
            self.lease.is_some() || self.denial_memory.is_some() || self.share.is_some();
        let detail = "a lease of permits ahead, a denial memory or a share, of a semaphore: only limiters have them";
        refuse(is_limiters, detail)
    }

    /// Checks the options; the error says which one is out of range, and why.
    pub(crate) fn check(&self) -> Result<(), String> {
        refuse(self.max_waiters == Some(0), "at most 0 waiters: must be at least 1")?;
        self.on_outage.map_or(Ok(()), OnOutage::check)?;
        refuse(self.share == Some(ShareRule::Weight(0)), "a weight of 0: must be at least 1")?;
        let forgets = self.denial_memory == Some(Duration::ZERO);
        refuse(forgets, "a denial memory of zero: must be more than zero")?;
        let Some(LeaseTerms { permits, hold }) = self.lease else { return Ok(()) };
        refuse(permits == Some(0), "a lease of 0 permits: must be 1 to 2^32-1")?;
        let is_out_of_range = hold.is_zero() || hold > LONGEST_HOLD || whole_ms(hold).is_none();
        let detail = format!("a hold of {hold:?}: must be whole milliseconds, from 1 ms to a day");
        refuse(is_out_of_range, &detail)
    }
}

fn refuse(is_wrong: bool, detail: &str) -> Result<(), String> {
    if is_wrong { Err(detail.to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        assert!(LimiterOptions::new().check().is_ok());
        assert!(LimiterOptions::new().weight(0).check().is_err());
        assert!(LimiterOptions::new().max_waiters(0).check().is_err());
        assert!(LimiterOptions::new().max_waiters(1).check().is_ok());
        assert!(LimiterOptions::new().weight(255).check().is_ok());
        assert!(LimiterOptions::new().weight(0).greedy().check().is_ok());
        assert!(LimiterOptions::new().denial_memory(Duration::ZERO).check().is_err());
        assert!(LimiterOptions::new().denial_memory(Duration::from_nanos(1)).check().is_ok());
        let lease = |permits, hold| LimiterOptions::new().lease(permits, hold).check();
        assert!(lease(1, Duration::from_millis(1)).is_ok());
        assert!(lease(u32::MAX, LONGEST_HOLD).is_ok());
        assert!(lease(0, Duration::from_millis(1)).is_err());
        for hold in
            [Duration::ZERO, Duration::from_micros(1500), LONGEST_HOLD + Duration::from_millis(1)]
        {
            assert!(lease(1, hold).is_err());
            assert!(LimiterOptions::new().adaptive_lease(hold).check().is_err());
        }
    }
}
