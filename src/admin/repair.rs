//! Looking at what is stored, and putting it right.

use std::time::{Duration, Instant};

use super::Inspection;
use crate::clock::{Clock, ClockSkew, Now};
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::rate::Rate;
use crate::store::{InspectCall, RemoveUnusedCall, RepairCall, RepairReply, StoreCall};
use crate::wire::entry::{ClientTag, EntryId};
use crate::wire::keys::Keys;

impl RateLimiter {
    /// Reads what is stored of the limiter, at one moment: the hash, and the value and the log of either
    /// mode, with up to `most_entries` entries of each log, oldest first. Changes nothing.
    ///
    /// It is for people and for tools: a thousand entries take about half a millisecond of server time. In
    /// the mode [`Mode::PerClient`](crate::Mode::PerClient) it reads the budget of this client;
    /// [`budget_of`](Self::budget_of) reads those of others.
    ///
    /// ```
    /// use redisson_rate_limiter::{Client, InProcessStore, Rate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// let limiter = client.limiter("api")?.with_rate(Rate::per_minute(10));
    /// limiter.acquire(3).await?;
    ///
    /// let seen = limiter.inspect(1_000).await?;
    /// assert_eq!(seen.overall.number(), Some(7));
    /// assert_eq!(seen.overall.entries()[0].permits, Some(3));
    /// assert_eq!(seen.drift(), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those [of the server](RateLimiter#errors-of-the-server). A limiter that is damaged, or not there, is
    /// an answer: see [`Inspection`].
    pub async fn inspect(&self, most_entries: u64) -> Result<Inspection, Error> {
        self.own_budget().inspect(most_entries).await
    }

    /// Fits the value and the log to the rate, by the rules of an audit, in one step, and grants nothing: a
    /// value that is missing or too high becomes what the log leaves of the rate; permits that are neither
    /// left nor in the log become a debt, which comes back within an interval; permits that are both left and in
    /// the log are taken out of the log; and entries that are dated more than 25 hours ahead expire within an
    /// interval. If the limiter has a time to live, its value and its log get it as well.
    ///
    /// If all of that is so already, nothing is written. It never makes more permits available than the rate
    /// allows, whoever uses the limiter meanwhile. A limiter that is used heals by itself; call it for one
    /// that is not, or to have it done now. In the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient) it repairs the budget of this client.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire). What a live entry of an older Redisson forbids, no repair can
    /// do: it has to expire.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn repair(&self) -> Result<Repair, Error> {
        self.own_budget().repair().await
    }

    /// What [`repair`](Self::repair) would do now. Changes nothing.
    ///
    /// # Errors
    ///
    /// As [`repair`](Self::repair).
    pub async fn preview_repair(&self) -> Result<Repair, Error> {
        self.own_budget().preview_repair().await
    }

    /// Removes the value and the log of the mode in force if all permits are available, so that whoever uses
    /// the limiter next finds the same without them. Returns how many keys it removed, 0 to 2.
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) it removes the keys of this client's budget.
    ///
    /// If the limiter's hash is gone, neither rate nor interval are known. Then the keys of both modes are
    /// removed, each value with its log, if the log has only entries of Redisson 3.17.0 or later and of this
    /// crate, and the last is older than `age`; or if there is no log: `age` must be longer than the interval
    /// that a limiter of this name has had, or will have soon. A value that is not an integer is never
    /// removed, as it may be another program's; one that is an integer may be as well, so name a limiter.
    ///
    /// Limiters called `api` and `{api}` have the same value and log: while the other one exists, nothing is
    /// removed. The user needs access to the hash of either.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), but for a hash that is missing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn remove_unused(&self, age: Duration) -> Result<u64, Error> {
        self.own_budget().remove_unused(age).await
    }

    /// The budget that another client has in the mode [`Mode::PerClient`](crate::Mode::PerClient), for
    /// tools: its permits cannot be taken here. Nothing is sent.
    pub fn budget_of(&self, client_id: &str) -> ClientBudget {
        let full_name = &self.engine().keys.hash;
        ClientBudget { limiter: self.clone(), keys: Keys::new(full_name, client_id) }
    }

    fn own_budget(&self) -> ClientBudget {
        ClientBudget { limiter: self.clone(), keys: self.engine().keys.clone() }
    }
}

/// The budget of a client: [`RateLimiter::budget_of`].
#[derive(Clone, Debug)]
pub struct ClientBudget {
    limiter: RateLimiter,
    keys: Keys,
}

impl ClientBudget {
    /// As [`RateLimiter::inspect`]; [`Inspection::per_client`] is this budget.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::inspect`].
    pub async fn inspect(&self, most_entries: u64) -> Result<Inspection, Error> {
        let begun = Instant::now();
        let reply = self.call(Operation::Inspect, InspectCall { most_entries }).await?;
        let at = Instant::now();
        let core = &self.limiter.engine().core;
        let clock_skew = reply
            .store_us
            .filter(|_| !core.store.is_in_process())
            .map(|store_us| ClockSkew::measured(core.clock.local_us(), at - begun, store_us, at));
        let now_ms = match core.clock.read().now {
            Now::At(now) => now,
            Now::Server => match reply.store_us {
                Some(store_us) => store_us.div_euclid(1000),
                None => Clock::system().local_us().div_euclid(1000),
            },
        };
        let rate = reply.rate().map_err(|error| self.limiter.error(Operation::Inspect, error));
        let [overall, per_client] = reply.budgets;
        Ok(Inspection { now_ms, clock_skew, hash: reply.hash, rate, overall, per_client })
    }

    /// As [`RateLimiter::repair`].
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::repair`].
    pub async fn repair(&self) -> Result<Repair, Error> {
        self.repair_unless(false).await
    }

    /// As [`RateLimiter::preview_repair`].
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::repair`].
    pub async fn preview_repair(&self) -> Result<Repair, Error> {
        self.repair_unless(true).await
    }

    /// As [`RateLimiter::remove_unused`]. Clients leave the keys of their budgets behind when they end,
    /// unless the limiter has a keep-alive. The client may even still run: it finds the same.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::remove_unused`].
    pub async fn remove_unused(&self, age: Duration) -> Result<u64, Error> {
        let now = self.limiter.engine().core.clock.read().now;
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.call(Operation::RemoveUnused, RemoveUnusedCall { now, age_ms }).await
    }

    async fn repair_unless(&self, only_look: bool) -> Result<Repair, Error> {
        let now = self.limiter.engine().core.clock.read().now;
        // Nobody holds a debt, so that the client in its id does not matter.
        let id = EntryId::random(ClientTag([0; 4]), 1);
        let call = RepairCall { now, id, only_look };
        // Even if this future is dropped, the call may be carried out: waiting calls check again
        // in either case.
        let _may_come_back = (!only_look).then(|| self.limiter.engine().permits_may_come_back());
        Ok(Repair(self.call(Operation::Repair, call).await?))
    }

    async fn call<C: StoreCall>(&self, operation: Operation, call: C) -> Result<C::Reply, Error> {
        self.limiter.call_on(self.keys.clone(), operation, call).await
    }
}

/// What [`RateLimiter::repair`] did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair(RepairReply);

impl Repair {
    /// Whether there is anything to repair.
    pub fn is_needed(&self) -> bool {
        let RepairReply { debt, endless, excess, ahead, .. } = self.0;
        self.value_is_off() || [debt, endless, excess, ahead].iter().any(|count| *count > 0)
    }

    /// Whether the value is another one afterwards, for other reasons than that permits have expired.
    pub fn value_is_off(&self) -> bool {
        let RepairReply { before, after, expired, .. } = self.0;
        let unused = before.is_none() && i64::try_from(self.0.rate.permits()) == Ok(after);
        !unused && before.map(|before| before.saturating_add_unsigned(expired)) != Some(after)
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.0.rate
    }

    /// The value that was found; `None` if there was none that could be read.
    pub fn value_before(&self) -> Option<i64> {
        self.0.before
    }

    /// The value that is right, with what has expired; it may be negative.
    pub fn value_after(&self) -> i64 {
        self.0.after
    }

    /// The permits in expired entries, which every call gives back to the value.
    pub fn expired(&self) -> u64 {
        self.0.expired
    }

    /// The permits that were neither left nor in the log, and come back an interval after the repair.
    pub fn debt(&self) -> u64 {
        self.0.debt
    }

    /// The permits that are both left and in the log, as Redisson's `release` leaves them: they are taken out
    /// of the log.
    pub fn excess(&self) -> u64 {
        self.0.excess
    }

    /// How many entries are dated more than 25 hours ahead. No lease is held for more than a day, so they are
    /// mistakes, which deny their permits until then. Their date becomes the present, and they expire an
    /// interval after the repair.
    pub fn dated_ahead(&self) -> u64 {
        self.0.ahead
    }

    /// How many of the hash, the value and the log live for ever although the limiter does not, and get its
    /// time to live.
    pub fn endless_keys(&self) -> u64 {
        self.0.endless
    }
}
