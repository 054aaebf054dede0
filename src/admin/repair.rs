//! Inspecting what is stored, and repairing it.

use std::time::{Duration, Instant};

use super::{Budget, Inspection, LogEntry};
use crate::clock::ClockSkew;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::store::{InspectCall, RemoveUnusedCall, Repair, RepairCall, StoreCall};
use crate::wire::entry::{ClientTag, EntryId};
use crate::wire::keys::Keys;

impl RateLimiter {
    /// Reads what is stored of the limiter at one moment: the hash, and the value and the log of either mode, with up
    /// to `most_entries` entries of each log, oldest first. Changes nothing.
    ///
    /// It is for people and for tools: a thousand entries take about half a millisecond of server time. In the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient) it reads the budget of this client; [`budget_of`](Self::budget_of)
    /// reads those of others.
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
    /// assert_eq!((seen.overall.number(), seen.peek?.available()), (Some(7), 7));
    /// assert_eq!(seen.overall.entries()[0].permits, Some(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors are those [of the server](RateLimiter#errors-of-the-server), and
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the limiter has a policy:
    /// [`Client::policies_of`](crate::Client::policies_of) reads those. A damaged or missing limiter is not an error:
    /// see [`Inspection`].
    pub async fn inspect(&self, most_entries: u64) -> Result<Inspection, Error> {
        self.own_budget().inspect(most_entries).await
    }

    /// Fits the value and the log to the rate, by the rules of an audit, in one step, and grants nothing:
    ///
    /// - a value that is missing or too high becomes what the log leaves of the rate;
    /// - permits that are neither left nor in the log become a debt, which comes back within an interval;
    /// - permits that are both left and in the log are taken out of the log;
    /// - entries dated more than 25 hours ahead expire within an interval;
    /// - if the limiter has a time to live, its value and its log get it as well.
    ///
    /// If nothing needs repair, nothing is written. A repair never makes more permits available than the rate allows,
    /// even while the limiter is in use. A limiter that is used heals by itself; call this for one that is not. In
    /// the mode [`Mode::PerClient`](crate::Mode::PerClient) it repairs the budget of this client.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire). No repair is possible while there is a live entry of an older
    /// Redisson: it must expire.
    pub async fn repair(&self) -> Result<Repair, Error> {
        self.own_budget().repair().await
    }

    /// Returns what [`repair`](Self::repair) would do now. Changes nothing.
    ///
    /// Errors are those of [`repair`](Self::repair).
    pub async fn preview_repair(&self) -> Result<Repair, Error> {
        self.own_budget().preview_repair().await
    }

    /// Removes the value and the log of the mode in force (in [`Mode::PerClient`](crate::Mode::PerClient) those of
    /// this client) if all permits are available, so that the next user of the limiter finds the same without them.
    /// Returns how many keys it removed, 0 to 2.
    ///
    /// If the limiter's hash is gone, neither rate nor interval are known. Then the keys of both modes are removed,
    /// each value with its log, if there is no log, or if the log has only entries of Redisson 3.17.0 or later and of
    /// this crate, the last of them older than `age`. `age` must be longer than any interval that a limiter of this
    /// name has had or will soon have. A value that is not an integer is never removed, because it may belong to
    /// another program. So may one that is an integer: call this only for names that you know to be limiters.
    ///
    /// While the limiter with the same value and log (`{api}` for `api`) exists, nothing is removed. The user needs
    /// access to the hash of either.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire), except that a missing hash is not an error.
    pub async fn remove_unused(&self, age: Duration) -> Result<u64, Error> {
        self.own_budget().remove_unused(age).await
    }

    /// The budget that another client has in the mode [`Mode::PerClient`](crate::Mode::PerClient), for tools:
    /// its permits cannot be taken here. Nothing is sent.
    pub fn budget_of(&self, client_id: &str) -> ClientBudget {
        let full_name = &self.engine().keys.hash;
        ClientBudget { limiter: self.clone(), keys: Keys::new(full_name, client_id) }
    }

    fn own_budget(&self) -> ClientBudget {
        ClientBudget { limiter: self.clone(), keys: self.engine().keys.clone() }
    }
}

/// The budget of a client: [`RateLimiter::budget_of`]. Errors and cancel safety are those of the calls of the same name
/// there.
#[derive(Clone, Debug)]
pub struct ClientBudget {
    limiter: RateLimiter,
    keys: Keys,
}

impl ClientBudget {
    /// Like [`RateLimiter::inspect`]; [`Inspection::per_client`] is this budget.
    pub async fn inspect(&self, most_entries: u64) -> Result<Inspection, Error> {
        self.limiter.check_is_redissons(Operation::Inspect, "")?;
        let core = &self.limiter.engine().core;
        let (begun, now) = (Instant::now(), core.clock.own_ms());
        let call = InspectCall { now, most: most_entries };
        let reply = self.call(Operation::Inspect, call).await?;
        let at = Instant::now();
        let clock_skew = reply
            .store_us
            .filter(|_| !core.store.is_in_process())
            .map(|store_us| ClockSkew::measured(core.clock.local_us(), at - begun, store_us, at));
        let stores = reply.store_us.map(|us| us.div_euclid(1000));
        let failed = |error| self.limiter.error(Operation::Inspect, error);
        let rate = reply.rate().map_err(failed);
        let [hash, value, log, client_value, client_log] = reply.keys;
        Ok(Inspection {
            now_ms: now.or(stores).unwrap_or_else(|| core.epoch_ms()),
            clock_skew,
            hash: hash.rate(),
            rate,
            peek: reply.peek.map_err(failed),
            overall: Budget { value: value.text(), log: log.set(LogEntry::of) },
            per_client: Budget { value: client_value.text(), log: client_log.set(LogEntry::of) },
        })
    }

    /// See [`RateLimiter::repair`].
    pub async fn repair(&self) -> Result<Repair, Error> {
        self.repair_unless(false).await
    }

    /// See [`RateLimiter::preview_repair`].
    ///
    /// Errors are those of [`RateLimiter::repair`].
    pub async fn preview_repair(&self) -> Result<Repair, Error> {
        self.repair_unless(true).await
    }

    /// Like [`RateLimiter::remove_unused`]. Clients leave the keys of their budgets behind when they end,
    /// unless the limiter has a keep-alive. The client may still be running: nothing changes for it.
    pub async fn remove_unused(&self, age: Duration) -> Result<u64, Error> {
        let now = self.limiter.engine().core.clock.own_ms();
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.call(Operation::RemoveUnused, RemoveUnusedCall { now, age_ms }).await
    }

    async fn repair_unless(&self, only_look: bool) -> Result<Repair, Error> {
        let now = self.limiter.engine().core.clock.own_ms();
        // Nobody holds a debt, so that the client in its id does not matter.
        let id = EntryId::random(ClientTag([0; 4]), 1);
        let call = RepairCall { now, id, only_look };
        // Even if this future is dropped, the call may be carried out: waiting calls check again
        // in either case.
        let _may_come_back = (!only_look).then(|| self.limiter.engine().permits_may_come_back());
        self.call(Operation::Repair, call).await
    }

    async fn call<C: StoreCall>(&self, operation: Operation, call: C) -> Result<C::Reply, Error> {
        self.limiter.call_on(self.keys.clone(), operation, call).await
    }
}
