//! The calls of a group of limiters in blocking form.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Client, RateLimiter};
use crate::decision::{Decision, Denial, Grant, Peek};
use crate::error::{Error, Operation};
use crate::group::Costs;
use crate::limiters::Limiters;

form! {
    /// Several limiters, of which each request takes from all or from none: [`crate::LimitGroup`] in another form.
    LimitGroup,
    limiters: |group| group.limiters()[0].limiters(),
    names: |_, error| error.or_of(Operation::Limiter, None)
}

impl Client {
    /// A limiter made of several: see [`crate::Client::all_of`].
    pub fn all_of<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }

    /// A limiter made of several, which are asked one after the other: see [`crate::Client::all_of_in_turn`].
    pub fn all_of_in_turn<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of_in_turn(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }
}

calls! { LimitGroup:
    "Takes the permits from all limiters, waiting for them up to `timeout`",
        try_acquire(costs: impl Into<Costs> = costs.into(), timeout: Duration) -> Decision;
    "Takes the permits from all limiters if they are available now",
        try_acquire_now(costs: impl Into<Costs> = costs.into()) -> Decision;
    "Takes the permits from all limiters, waiting for them for as long as it takes",
        acquire(costs: impl Into<Costs> = costs.into()) -> Grant;
    "What an acquire would find now, for each limiter",
        peek(costs: impl Into<Costs> = costs.into()) -> Vec<Peek>;
}

impl LimitGroup {
    /// Takes the permits, waiting for them for as long as it takes, and then runs `work` on this thread: see
    /// [`crate::LimitGroup::run`].
    pub fn run<T>(&self, costs: impl Into<Costs>, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire(costs)?;
        Ok(work())
    }

    /// Like [`run`](Self::run), but waits for the permits only up to `timeout`: see
    /// [`crate::LimitGroup::try_run`].
    pub fn try_run<T>(
        &self,
        costs: impl Into<Costs>,
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        Ok(self.try_acquire(costs, timeout)?.into_denial().map_or_else(|| Ok(work()), Err))
    }

    /// Gives this handle its own deadline: see [`crate::LimitGroup::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(LimitGroup)
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
