//! The calls of a group of limiters in blocking form.

use std::fmt;
use std::time::Duration;

use super::limiter::unless_denied;
use super::{Client, RateLimiter, block_on};
use crate::decision::{Decision, Denial, Grant, Peek};
use crate::error::{Error, Operation};
use crate::group::Costs;

/// Several limiters, of which each request takes from all or from none: [`crate::LimitGroup`] in another form.
/// Made by [`Client::all_of`], or converted from the other form with [`From`].
#[derive(Clone)]
pub struct LimitGroup(crate::LimitGroup);

impl Client {
    /// A limiter made of several: see [`crate::Client::all_of`]. Nothing is sent.
    ///
    /// # Errors
    ///
    /// See [`crate::Client::all_of`].
    pub fn all_of<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }

    /// A limiter made of several, which are asked one after the other: see [`crate::Client::all_of_in_turn`].
    ///
    /// # Errors
    ///
    /// See [`crate::Client::all_of_in_turn`].
    pub fn all_of_in_turn<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of_in_turn(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }
}

impl LimitGroup {
    /// Takes the permits from all limiters, waiting for them up to `timeout`: see
    /// [`crate::LimitGroup::try_acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn try_acquire(
        &self,
        costs: impl Into<Costs>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let costs = costs.into();
        self.block_on(move |group| async move { group.try_acquire(costs, timeout).await })
    }

    /// Takes the permits from all limiters if they are available now: see
    /// [`crate::LimitGroup::try_acquire_now`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn try_acquire_now(&self, costs: impl Into<Costs>) -> Result<Decision, Error> {
        let costs = costs.into();
        self.block_on(move |group| async move { group.try_acquire_now(costs).await })
    }

    /// Takes the permits from all limiters, waiting for them for as long as it takes: see
    /// [`crate::LimitGroup::acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn acquire(&self, costs: impl Into<Costs>) -> Result<Grant, Error> {
        let costs = costs.into();
        self.block_on(move |group| async move { group.acquire(costs).await })
    }

    /// What an acquire would find now, for each limiter: see [`crate::LimitGroup::peek`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn peek(&self, costs: impl Into<Costs>) -> Result<Vec<Peek>, Error> {
        let costs = costs.into();
        self.block_on(move |group| async move { group.peek(costs).await })
    }

    /// Takes the permits, waiting for them for as long as it takes, and then runs `work` on this thread: see
    /// [`crate::LimitGroup::run`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn run<T>(&self, costs: impl Into<Costs>, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire(costs)?;
        Ok(work())
    }

    /// Like [`run`](Self::run), but waits for the permits only up to `timeout`: see
    /// [`crate::LimitGroup::try_run`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::try_acquire`].
    pub fn try_run<T>(
        &self,
        costs: impl Into<Costs>,
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        Ok(unless_denied(self.try_acquire(costs, timeout)?, work))
    }

    /// Gives this handle its own deadline: see [`crate::LimitGroup::with_deadline`].
    ///
    /// # Errors
    ///
    /// See [`crate::LimitGroup::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(LimitGroup)
    }

    /// This group in its asynchronous form, for methods that do not wait: its limiters.
    pub fn as_async(&self) -> &crate::LimitGroup {
        &self.0
    }

    fn block_on<T: Send + 'static, F>(
        &self,
        call: impl FnOnce(crate::LimitGroup) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = block_on(self.0.limiters()[0].limiters(), call(self.0.clone()));
        answer.map_err(|error| error.or_of(Operation::Limiter, None))
    }
}

impl From<crate::LimitGroup> for LimitGroup {
    fn from(group: crate::LimitGroup) -> Self {
        LimitGroup(group)
    }
}

impl From<LimitGroup> for crate::LimitGroup {
    fn from(group: LimitGroup) -> Self {
        group.0
    }
}

impl fmt::Debug for LimitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{InProcessStore, Rate};

    #[test]
    fn a_group_takes_from_all_and_gives_back_to_all() {
        let client = crate::Client::builder().in_process(&InProcessStore::new()).unwrap();
        let client = Client::from(client);
        let requests = client.limiter("requests").unwrap().with_rate(Rate::per_hour(10));
        let tokens = client.limiter("tokens").unwrap().with_rate(Rate::per_hour(1000));
        let left = || [&requests, &tokens].map(|it| it.available_permits().unwrap());
        for group in
            [client.all_of([&requests, &tokens]), client.all_of_in_turn([&requests, &tokens])]
        {
            let group = group.unwrap();
            let mut grant = group.try_acquire_now([1, 600]).unwrap().into_grant().unwrap();
            assert_eq!(left(), [9, 400]);
            let denied = group.try_run([1, 401], Duration::from_millis(1), || 7).unwrap();
            assert_eq!(denied.unwrap_err().refused_by(), Some("tokens"));
            assert_eq!(group.run(1, || 7).unwrap(), 7);
            assert_eq!(group.peek(1).unwrap()[1].available, 399);
            assert_eq!(grant.blocking_refund_all().unwrap(), 1);
            assert_eq!(left(), [9, 999]);
            group.acquire([1, 999]).unwrap().blocking_refund(1).unwrap();
            for limiter in [&requests, &tokens] {
                limiter.delete().unwrap();
            }
        }
    }
}
