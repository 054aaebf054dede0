//! Several limiters as one: a request takes from all of them, or from none.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::client::Client;
use crate::decision::{DecidedBy, Decision, Grant, Unspent};
#[cfg(feature = "_web")]
use crate::engine::Engine;
use crate::engine::group::GroupMember;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::queue::{ATTEMPTS_PER_DEADLINE, MAX_LIMITS, MaxWait, MemberCosts, Request};
use crate::store::Peek;
use crate::wire::keys::Keys;
use crate::{Denial, engine};

/// How often requests that wait while the server is away look whether it is back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The cost of a request at each limiter of a [`LimitGroup`]: a number for all of them, or one for each, in the
/// group's order.
///
/// ```
/// # use redisson_rate_limiter::Costs;
/// let same: Costs = 1.into();
/// let requests_and_tokens: Costs = [1, 1, 1200].into();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs(CostsKind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum CostsKind {
    Same(u64),
    Each(Vec<u64>),
}

impl From<u64> for Costs {
    fn from(permits: u64) -> Self {
        Costs(CostsKind::Same(permits))
    }
}

impl<const N: usize> From<[u64; N]> for Costs {
    fn from(permits: [u64; N]) -> Self {
        Costs(CostsKind::Each(permits.to_vec()))
    }
}

impl From<&[u64]> for Costs {
    fn from(permits: &[u64]) -> Self {
        Costs(CostsKind::Each(permits.to_vec()))
    }
}

impl Costs {
    /// The permits for each of these limiters; the reason if there are fewer or more costs, or if one is out of range.
    pub(crate) fn each<'a>(
        &self,
        limits: impl ExactSizeIterator<Item = &'a str>,
        least: u32,
    ) -> Result<MemberCosts, String> {
        let (count, mut all) = (limits.len(), MemberCosts::default());
        let costs = match &self.0 {
            CostsKind::Same(permits) => &vec![*permits; count],
            CostsKind::Each(each) => each,
        };
        if costs.len() != count {
            let given = costs.len();
            return Err(format!(
                "a group of {count} with costs for {given}: give one for each limiter"
            ));
        }
        for (at, (name, permits)) in limits.zip(costs).enumerate() {
            let cost = u32::try_from(*permits).ok().filter(|cost| *cost >= least);
            all[at] = cost.ok_or_else(|| {
                format!("{permits} permits requested of {name:?}: must be {least} to 2^32-1")
            })?;
        }
        Ok(all)
    }
}

/// Several limiters of one client: each request takes permits from all of them, or from none. Made by
/// [`Client::all_of`].
///
/// The server decides about all of them in one call. Each limiter gets one ordinary entry in its log, so Java
/// services see nothing unusual. Rates, modes and keep-alives may differ; a limiter whose handle carries a rate is
/// created if it is missing.
///
/// A group has a queue of its own, in which concurrent calls are merged and waiting calls are served in order. Its
/// limiters can be used alone, and in other groups, at the same time. Clones, and groups of the same limiters in the
/// same order, share the queue. What a limiter's own options say about its own calls (leases, remembered denials,
/// shares) does not concern the group's calls: a group takes what is free.
///
/// ```
/// # use std::time::Duration;
/// # use redisson_rate_limiter::{Client, Decision, InProcessStore, Rate};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let requests = client.limiter("requests")?.with_rate(Rate::per_minute(60));
/// let tokens = client.limiter("tokens")?.with_rate(Rate::per_minute(10_000));
/// let model = client.all_of([&requests, &tokens])?;
///
/// // One request of 6000 tokens.
/// assert!(model.try_acquire_now([1, 6000]).await?.is_granted());
/// match model.try_acquire([1, 6000], Duration::from_millis(100)).await? {
///     Decision::Granted(_) => unreachable!(),
///     Decision::Denied(denial) => assert_eq!(denial.refused_by(), Some("tokens")),
/// }
/// assert_eq!(requests.available_permits().await?, 59);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LimitGroup {
    /// The group's own queue.
    limiter: RateLimiter,
    members: Arc<[RateLimiter]>,
    in_turn: bool,
}

impl Client {
    /// A limiter made of several: each of its requests takes from all of them, or from none. Nothing is sent.
    ///
    /// In a cluster the limiters' keys must be in one slot, because one call decides about all of them: give their
    /// names the same hash tag, as in `{tenant-7}:second` and `{tenant-7}:day`; or use
    /// [`all_of_in_turn`](Self::all_of_in_turn).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no limiter or more than eight,
    /// if one is there twice, has a headroom or belongs to another client, if their keys are in different
    /// slots of a cluster, if only some of them have policies, or if other services enforce one of them;
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client is closed.
    pub fn all_of<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.group(limiters.into_iter().cloned().collect(), false)
    }

    /// Like [`all_of`](Self::all_of), for limiters in different slots of a cluster, or of kinds that no call can
    /// decide about together: each request asks one limiter after the other, a round trip each, and gives back what it
    /// was granted if a later one refuses.
    ///
    /// Nothing is issued beyond a rate, and nothing is lost: what a client that dies in between has taken expires
    /// with the interval. But others find these permits missing for a moment, and may be denied for
    /// it, and waiting requests are not served in order.
    ///
    /// Errors are those of [`all_of`](Self::all_of).
    pub fn all_of_in_turn<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.group(limiters.into_iter().cloned().collect(), true)
    }

    fn group(&self, members: Arc<[RateLimiter]>, in_turn: bool) -> Result<LimitGroup, Error> {
        let invalid = |detail: String| Err(Error::invalid(Operation::Limiter, detail));
        if !(1..=MAX_LIMITS).contains(&members.len()) {
            let many = members.len();
            return invalid(format!("a group of {many} limiters: must have 1 to {MAX_LIMITS}"));
        }
        for (at, member) in members.iter().enumerate() {
            let name = member.name();
            // Limiters called `api` and `{api}` have the same value and log; a bucket and one of `RGcra` the same hash.
            let keys = &member.engine().keys;
            let is_same = |other: &Keys| other.value == keys.value || other.hash == keys.hash;
            if members[..at].iter().any(|other| is_same(&other.engine().keys)) {
                return invalid(format!("the limiter {name:?} is twice in the group"));
            }
            if member.headroom.is_some() {
                return invalid(format!(
                    "the limiter {name:?} has a headroom: a group takes all there is"
                ));
            }
            if !Arc::ptr_eq(member.limiters(), &self.0) {
                return invalid(format!("the limiter {name:?} belongs to another client"));
            }
            if !in_turn {
                check_together(&members[0], member)?;
            }
        }
        let engines = members.iter().map(|member| GroupMember {
            engine: member.engine().clone(),
            create: member.carried_rate(),
        });
        let limiter = RateLimiter::new(&self.0, self.0.group(engines.collect())?);
        Ok(LimitGroup { limiter, members, in_turn })
    }
}

impl LimitGroup {
    /// The limiters, in order.
    pub fn limiters(&self) -> &[RateLimiter] {
        &self.members
    }

    /// Gives this handle its own deadline: see [`RateLimiter::with_deadline`].
    ///
    /// Errors are those of [`RateLimiter::with_deadline`].
    pub fn with_deadline(mut self, deadline: Duration) -> Result<Self, Error> {
        self.limiter = self.limiter.with_deadline(deadline)?;
        let members = self.members.iter().cloned().map(|member| member.with_deadline(deadline));
        self.members = members.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Takes the permits from all limiters, waiting for them up to `timeout`: see [`RateLimiter::try_acquire`].
    ///
    /// A denial says which limiter is to be waited for longest, and after how long all of them have the permits.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are fewer or more costs than
    ///   limiters, or a cost is not in 1..=2^32−1; nothing is sent.
    /// - Otherwise those of [`RateLimiter::try_acquire`]; [`Error::limiter`] names the limiter.
    ///
    /// # Cancel safety
    ///
    /// See [`RateLimiter::try_acquire`]. What was granted is given back to all limiters.
    pub async fn try_acquire(
        &self,
        costs: impl Into<Costs>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        self.decide(costs.into(), self.limiter.max_wait(timeout)).await
    }

    /// Takes the permits from all limiters if they are available now: see [`RateLimiter::try_acquire_now`].
    ///
    /// Errors and cancel safety are those of [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_now(&self, costs: impl Into<Costs>) -> Result<Decision, Error> {
        self.decide(costs.into(), MaxWait::None).await
    }

    /// Takes the permits from all limiters, waiting for them for as long as it takes: see
    /// [`RateLimiter::acquire`].
    ///
    /// Errors and cancel safety are those of [`try_acquire`](Self::try_acquire).
    pub async fn acquire(&self, costs: impl Into<Costs>) -> Result<Grant, Error> {
        let costs = costs.into();
        loop {
            // A request without a timeout is denied only by an attempt that its own retry has overtaken.
            if let Decision::Granted(grant) = self.decide(costs.clone(), MaxWait::Unbounded).await?
            {
                return Ok(grant);
            }
        }
    }

    /// What an acquire would find now: for each limiter, in order, see [`RateLimiter::peek`]. The limiters are
    /// asked at the same time, by a call each.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn peek(&self, costs: impl Into<Costs>) -> Result<Vec<Peek>, Error> {
        let costs = self.member_costs(&costs.into())?;
        let members = self.members.iter().zip(costs);
        try_join_all(members.map(|(member, permits)| member.peek(permits.into()))).await
    }

    /// Runs `work` once its permits are granted: see [`RateLimiter::run`], also for cancel safety.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire).
    pub async fn run<F: Future>(
        &self,
        costs: impl Into<Costs>,
        work: F,
    ) -> Result<F::Output, Error> {
        self.acquire(costs).await?;
        Ok(work.await)
    }

    /// The engine of the group, whose queue its limiters share.
    #[cfg(feature = "_web")]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.limiter.engine()
    }

    /// Whether one call can decide about both limiters.
    #[cfg(feature = "_web")]
    pub(crate) fn can_hold(one: &RateLimiter, other: &RateLimiter) -> bool {
        check_together(one, other).is_ok()
    }

    async fn decide(&self, costs: Costs, max_wait: MaxWait) -> Result<Decision, Error> {
        let costs = self.member_costs(&costs)?;
        self.limiter.observed(costs[0].into(), self.take(costs, max_wait)).await
    }

    /// Takes from all limiters. While a limiter's own policy decides for it, because the server is away, and if
    /// they cannot be asked together, they are asked in turn, again and again until none refuses. Nothing is held
    /// between two rounds.
    ///
    /// Observers are not told.
    pub(crate) async fn take(
        &self,
        costs: MemberCosts,
        max_wait: MaxWait,
    ) -> Result<Decision, Error> {
        loop {
            if !self.in_turn
                && let Some(answer) = self.ask_together(costs, max_wait).await
            {
                return answer;
            }
            let denial = match self.ask_in_turn(costs, max_wait).await? {
                Decision::Denied(denial) => denial,
                granted => return Ok(granted),
            };
            let now = self.limiter.engine().core.now();
            let free_at = now.saturating_add(engine::micros(denial.retry_after()));
            if max_wait == MaxWait::None || !max_wait.lasts_beyond(free_at) {
                return Ok(Decision::Denied(denial));
            }
            self.wait(&denial).await;
        }
    }

    /// Waits until a denial is over, or the client closes; one of a policy, no longer than until the server may be
    /// back.
    async fn wait(&self, denial: &Denial) {
        let is_policys = denial.decided_by() == DecidedBy::Outage;
        let longest = if is_policys { LOOK_AGAIN } else { Duration::MAX };
        let wait = denial.retry_after().min(longest);
        self.limiter.engine().sleep_until(engine::instant_after(wait)).await;
    }

    /// The server's answer; `None` if it is away, or turns out to be, and a limiter has a policy for that.
    async fn ask_together(
        &self,
        costs: MemberCosts,
        max_wait: MaxWait,
    ) -> Option<Result<Decision, Error>> {
        let limit = self.limiter.deadline() / ATTEMPTS_PER_DEADLINE as u32;
        for member in self.members.iter().map(RateLimiter::engine) {
            // Grants made without the server are written first.
            if member.outage().is_some() && !matches!(member.may_ask(limit).await, Ok(true)) {
                return None;
            }
        }
        let engine = self.limiter.engine();
        if max_wait != MaxWait::None {
            engine.wakes_with_its_limiters();
        }
        let request = self.limiter.request(costs[0].into(), max_wait);
        let request = Request { costs: Some(Arc::new(costs)), ..request };
        let answer = self.limiter.ask(request, None);
        if !engine.has_policy() {
            return Some(answer.await);
        }
        let answer = engine.unless_away(answer).await;
        answer.filter(|answer| !answer.as_ref().is_err_and(Error::is_outage))
    }

    /// Asks one limiter after the other, until one refuses. What the earlier ones have granted then goes back.
    /// All processes ask in the same order, that of the names: in opposite orders each could hold what the others lack.
    async fn ask_in_turn(&self, costs: MemberCosts, max_wait: MaxWait) -> Result<Decision, Error> {
        let mut held: Vec<Option<Unspent>> = self.members.iter().map(|_| None).collect();
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        // Queues come last: a start of now cannot be given back, and would be nobody's if a later limiter refused.
        order.sort_by_key(|at| {
            let engine = self.members[*at].engine();
            (engine.is_queue(), &engine.keys.hash)
        });
        for at in order {
            let (member, cost) = (&self.members[at], costs[at]);
            match member.decide(member.request(cost.into(), MaxWait::None), None).await? {
                granted @ Decision::Granted(_) => held[at] = Some(Unspent::new(Ok(granted))),
                Decision::Denied(denial) => {
                    let engine = member.engine();
                    // An endless wait must not become a wait for a server that is away.
                    if max_wait == MaxWait::Unbounded
                        && denial.awaits_server
                        && let Some(cause) = engine.outage_cause()
                    {
                        return Err(member.error(Operation::Acquire, cause));
                    }
                    let refused_by = Some(engine.name.clone());
                    return Ok(Decision::Denied(Denial { refused_by, ..denial }));
                }
            }
        }
        let grants = held.into_iter().flatten().filter_map(|it| it.into_inner().ok()?.into_grant());
        let deadline = self.limiter.deadline();
        Ok(Decision::Granted(Grant::in_turn(self.limiter.engine(), grants, deadline)))
    }

    fn member_costs(&self, costs: &Costs) -> Result<MemberCosts, Error> {
        let names = self.members.iter().map(RateLimiter::name);
        costs.each(names, 1).map_err(|detail| self.limiter.invalid(Operation::Acquire, detail))
    }
}

/// Fails if one call cannot decide about both limiters.
fn check_together(one: &RateLimiter, other: &RateLimiter) -> Result<(), Error> {
    let invalid = |detail: String| Err(Error::invalid(Operation::Limiter, detail));
    let policies = [one, other].map(|it| it.engine().rules.policy().map(|policy| &policy.rules));
    for (limiter, policy) in [one, other].iter().zip(policies) {
        if policy.is_some_and(|policy| policy.is_foreign() || policy.is_rgcra()) {
            return invalid(format!(
                "other services keep the limit {:?} or its parameters, and no call decides about it together with \
                 others: use all_of_in_turn",
                limiter.name()
            ));
        }
    }
    if policies[0].is_some() != policies[1].is_some() {
        return invalid(format!(
            "one of the limiters {:?} and {:?} has a policy, and one call cannot decide about both: use \
             all_of_in_turn",
            one.name(),
            other.name()
        ));
    }
    let is_one_slot =
        one.limiters().core.store.check_same_slot(&one.engine().keys, &other.engine().keys);
    is_one_slot.map_err(|error| error.of(Operation::Limiter, None))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::engine::tests::block_on;
    use crate::policy::Policy;
    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;
    use crate::{Clock, ErrorKind, Fraction, InProcessStore, Rate};

    const SECOND: Duration = Duration::from_secs(1);

    struct World {
        client: Client,
        store: InProcessStore,
    }

    fn world() -> World {
        let store = InProcessStore::with_clock(Clock::runtime());
        let client = Client::builder().clock(Clock::runtime()).in_process(&store).unwrap();
        World { client, store }
    }

    impl World {
        fn limiter(&self, name: &str, permits: u64, interval: Duration) -> RateLimiter {
            let rate = Rate::overall(permits, interval).unwrap();
            self.client.limiter(name).unwrap().with_rate(rate)
        }

        /// Five a second, and twenty a minute.
        fn group(&self, in_turn: bool) -> LimitGroup {
            let (fast, slow) =
                (self.limiter("fast", 5, SECOND), self.limiter("slow", 20, SECOND * 60));
            match in_turn {
                false => self.client.all_of([&fast, &slow]).unwrap(),
                true => self.client.all_of_in_turn([&fast, &slow]).unwrap(),
            }
        }

        async fn left(&self, group: &LimitGroup) -> Vec<u64> {
            let mut left = Vec::new();
            for limiter in group.limiters() {
                left.push(limiter.available_permits().await.unwrap());
            }
            left
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_from_all_or_from_none() {
        for in_turn in [false, true] {
            let world = world();
            let group = world.group(in_turn);
            for _ in 0..3 {
                assert!(group.try_acquire_now([1, 5]).await.unwrap().is_granted());
            }
            assert_eq!(world.left(&group).await, [2, 5]);
            let denial = group.try_acquire_now([1, 6]).await.unwrap().into_denial().unwrap();
            assert_eq!(denial.refused_by(), Some("slow"));
            assert_eq!(denial.retry_after(), SECOND * 60);
            assert_eq!(denial.rate().unwrap().permits(), 20);
            tokio::task::yield_now().await;
            world.client.ping().await.unwrap();
            assert_eq!(world.left(&group).await, [2, 5]);
            let denial = group.try_acquire_now([3, 1]).await.unwrap().into_denial().unwrap();
            assert_eq!((denial.refused_by(), denial.retry_after()), (Some("fast"), SECOND));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_start_of_a_queue_is_taken_for_a_request_that_another_limiter_refuses() {
        let world = world();
        let queue = Policy::queue(1, SECOND, SECOND * 5).unwrap();
        let queue = world.client.limiter_of("a", queue).unwrap();
        let window = Policy::fixed_window(1, SECOND * 60).unwrap();
        let window = world.client.limiter_of("b", window).unwrap();
        for one in [&queue, &window] {
            assert!(one.try_acquire_now(1).await.unwrap().is_granted());
        }
        let group = world.client.all_of_in_turn([&queue, &window]).unwrap();
        let denial = group.try_acquire_now(1).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.refused_by(), Some("b"), "the queue is asked last");
    }

    #[test]
    fn outside_of_runtimes_what_one_refuses_goes_back_to_the_others() {
        let world = world();
        let [one, other] = ["a", "b"].map(|name| world.limiter(name, 5, SECOND * 3600));
        let group = world.client.all_of_in_turn([&one, &other]).unwrap();
        assert!(block_on(group.try_acquire_now([1, 5])).unwrap().is_granted());
        assert!(!block_on(group.try_acquire_now([1, 1])).unwrap().is_granted());
        block_on(world.client.close());
        let client = Client::builder().clock(Clock::runtime()).in_process(&world.store).unwrap();
        let one = client.limiter("a").unwrap();
        assert_eq!(block_on(one.available_permits()).unwrap(), 4);
        // Waiting needs no runtime either.
        let often = client.limiter("often").unwrap().with_rate(Rate::per_second(20));
        let group = client.all_of_in_turn([&one, &often]).unwrap();
        for _ in 0..3 {
            block_on(group.acquire([1, 10])).unwrap();
        }
        let queue = Policy::queue(20, SECOND, SECOND * 60).unwrap();
        let queue = client.limiter_of("queue", queue).unwrap();
        for _ in 0..3 {
            block_on(queue.acquire(1)).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_limit_is_settled_with_its_cost() {
        for in_turn in [false, true] {
            let world = world();
            let group = world.group(in_turn);
            let mut grant = group.try_acquire_now([2, 5]).await.unwrap().into_grant().unwrap();
            for actual in [Costs::from([1]), Costs::from([1, 2, 3]), Costs::from([1, 1 << 32])] {
                let error = grant.settle(actual).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            }
            grant.settle([1, 17]).await.unwrap();
            assert_eq!(world.left(&group).await, [4, 3]);
            assert!(grant.settle(1).await.is_err());
            // What a settlement has charged is not part of the grant.
            grant.refund_all().await.unwrap();
            assert_eq!(world.left(&group).await, [5, 8]);
            let mut grant = group.try_acquire_now(1).await.unwrap().into_grant().unwrap();
            grant.settle(8).await.unwrap();
            assert_eq!(world.left(&group).await, [0, 0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refund_goes_back_to_all() {
        for in_turn in [false, true] {
            let world = world();
            let group = world.group(in_turn);
            let decision = group.try_acquire_now([2, 10]).await.unwrap();
            let mut grant = decision.into_grant().unwrap();
            assert_eq!(grant.permits(), 2);
            assert_eq!(grant.refund(1).await.unwrap(), 1);
            assert_eq!(world.left(&group).await, [4, 11]);
            assert!(grant.refund(2).await.is_err());
            grant.refund_all().await.unwrap();
            assert_eq!(world.left(&group).await, [5, 20]);
            assert_eq!((grant.permits(), grant.refund_all().await.unwrap()), (0, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_merge_and_wait_in_order() {
        let world = world();
        let group = world.group(false);
        let start = Instant::now();
        let calls = (0..12).map(|at| {
            let group = &group;
            async move {
                group.acquire(1).await.unwrap();
                (start.elapsed().as_millis(), at)
            }
        });
        let mut ends = futures::future::join_all(calls).await;
        assert!(ends.is_sorted(), "{ends:?}");
        ends.dedup_by_key(|(at, _)| *at);
        assert!((3..=6).contains(&ends.len()), "{ends:?}");
        assert!(start.elapsed() < SECOND * 3, "{:?}", start.elapsed());
        // Another handle of the same limiters has the same queue.
        let again = world.group(false);
        assert!(Arc::ptr_eq(again.limiter.engine(), group.limiter.engine()));
    }

    #[tokio::test(start_paused = true)]
    async fn permits_that_come_back_to_a_limiter_wake_its_groups() {
        let world = world();
        let group = world.group(false);
        let mut all = group.limiters()[1].acquire(20).await.unwrap();
        let start = Instant::now();
        let waits = group.acquire([1, 3]);
        futures::pin_mut!(waits);
        assert!(tokio::time::timeout(SECOND / 4, &mut waits).await.is_err());
        all.refund(3).await.unwrap();
        waits.await.unwrap();
        assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_dropped_call_was_granted_goes_back_to_all() {
        let world = world();
        let group = world.group(false);
        let mut dropped = Box::pin(group.try_acquire_now([2, 7]));
        assert!(dropped.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        drop(dropped);
        world.client.close().await;
        let world = World {
            client: Client::builder().clock(Clock::runtime()).in_process(&world.store).unwrap(),
            ..world
        };
        assert_eq!(world.left(&world.group(false)).await, [5, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn limiters_with_policies_are_taken_from_together() {
        let world = world();
        let of = |policy: Result<Policy, Error>| {
            world.client.limiter_of("api", policy.unwrap()).unwrap()
        };
        let bucket = of(Policy::bucket(5, 5, SECOND));
        let queue = of(Policy::queue(10, SECOND, SECOND * 60));
        let window = of(Policy::anchored_window(20, SECOND * 60));
        let group = world.client.all_of([&bucket, &queue, &window]).unwrap();
        let mut dropped = Box::pin(group.try_acquire_now([2, 1, 7]));
        assert!(dropped.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        drop(dropped);
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.left(&group).await[0], world.left(&group).await[2]), (5, 20));
        // In a queue the next one starts a tenth of a second later, however much the others have.
        let start = Instant::now();
        for _ in 0..4 {
            group.acquire(1).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::from_millis(300));
        let denial = group.try_acquire_now([1, 1, 17]).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.rate(), Some(window.peek(0).await.unwrap().rate()));
        let waits = group.acquire([3, 1, 16]);
        assert_eq!(waits.await.unwrap().left(), 0);
        let start = Instant::now();
        group.acquire([1, 1, 1]).await.unwrap();
        assert!(start.elapsed() > SECOND * 58, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_of_one_is_like_its_limiter() {
        let world = world();
        let of = |name: &str, policy: Result<Policy, Error>| {
            world.client.limiter_of(name, policy.unwrap()).unwrap()
        };
        let bucket = of("bucket", Policy::bucket(3, 3, SECOND));
        for limiter in [world.limiter("log", 3, SECOND), bucket] {
            let group = world.client.all_of([&limiter]).unwrap();
            let mut grant = group.try_acquire_now(3).await.unwrap().into_grant().unwrap();
            let denial = group.try_acquire_now(1).await.unwrap().into_denial().unwrap();
            assert_eq!(denial.refused_by(), Some(limiter.name()));
            assert_eq!(grant.refund(2).await.unwrap(), 2);
            assert_eq!(world.left(&group).await, [2]);
            let error = group.try_acquire_now(4).await.unwrap_err();
            assert_eq!(error.limiter(), Some(limiter.name()));
        }
        // Even a queue by itself grants no permits from a later time on.
        let group = world.client.all_of([&of("queue", Policy::queue(10, SECOND, SECOND))]).unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            assert!(group.acquire(1).await.unwrap().starts_at().is_none());
        }
        assert_eq!(start.elapsed(), Duration::from_millis(200));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_the_client_ends_waits() {
        for in_turn in [false, true] {
            let world = world();
            let group = world.group(in_turn);
            group.acquire([1, 20]).await.unwrap();
            let start = Instant::now();
            let (waited, ()) = tokio::join!(group.acquire(1), async {
                tokio::time::sleep(SECOND).await;
                world.client.close().await;
            });
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
            assert!(start.elapsed() <= SECOND * 2, "{:?}", start.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closing_the_client_ends_waits_of_groups_that_differ_in_a_policys_parameters() {
        let world = world();
        let of =
            |burst| world.client.limiter_of("api", Policy::bucket(burst, 1, SECOND * 60).unwrap());
        let limiters = [5, 6].map(|burst| of(burst).unwrap());
        let groups = limiters.each_ref().map(|limiter| world.client.all_of([limiter]).unwrap());
        groups[0].acquire(5).await.unwrap();
        let (waited, ()) = tokio::join!(groups[0].acquire(5), async {
            tokio::time::sleep(SECOND).await;
            world.client.close().await;
        });
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_name_the_limiter() {
        let world = world();
        let bare = world.client.limiter("bare").unwrap();
        let fast = world.limiter("fast", 5, SECOND);
        let group = world.client.all_of([&fast, &bare]).unwrap();
        let error = group.try_acquire_now(1).await.unwrap_err();
        assert_eq!((error.kind(), error.limiter()), (ErrorKind::NotInitialized, Some("bare")));
        bare.try_set_rate(Rate::per_second(3)).await.unwrap();
        let error = group.try_acquire_now([1, 4]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 4, rate: 3 });
        assert_eq!(error.limiter(), Some("bare"));
        assert_eq!(world.left(&group).await, [5, 3]);
        assert!(group.try_acquire_now([1, 3]).await.unwrap().is_granted());
    }

    #[tokio::test(start_paused = true)]
    async fn what_makes_no_sense_is_refused_before_anything_is_sent() {
        let (world, other) = (world(), world());
        let fast = world.limiter("fast", 5, SECOND);
        let foreign = other.limiter("slow", 5, SECOND);
        let text = |group: Result<LimitGroup, Error>| group.unwrap_err().to_string();
        let none: [&RateLimiter; 0] = [];
        assert!(text(world.client.all_of(none)).contains("0 limiters"));
        assert!(text(world.client.all_of([&fast, &fast])).contains("\"fast\" is twice"));
        let same = world.limiter("{fast}", 5, SECOND);
        assert!(text(world.client.all_of_in_turn([&fast, &same])).contains("\"{fast}\" is twice"));
        assert!(
            text(world.client.all_of([&fast, &foreign])).contains("\"slow\" belongs to another")
        );
        let jobs = world.limiter("jobs", 5, SECOND).with_headroom(Fraction::one_of(5)).unwrap();
        for refused in [world.client.all_of([&fast, &jobs]), world.client.all_of_in_turn([&jobs])] {
            assert!(text(refused).contains("the limiter \"jobs\" has a headroom"));
        }
        let window = Policy::fixed_window(5, SECOND).unwrap();
        let window = world.client.limiter_of("window", window).unwrap();
        let mixed = text(world.client.all_of([&fast, &window]));
        assert!(
            mixed.contains("\"fast\" and \"window\" has a policy") && mixed.contains("in_turn")
        );
        let group = world.group(false);
        for (costs, detail) in [
            (Costs::from([1]), "a group of 2 with costs for 1: give one for each limiter"),
            ([1, 2, 3].into(), "a group of 2 with costs for 3"),
            ([1, 0].into(), "0 permits requested of \"slow\""),
            ([1 << 32, 1].into(), "4294967296 permits requested of \"fast\""),
        ] {
            let error = group.try_acquire_now(costs).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(detail), "{error}");
        }
        assert!(!fast.exists().await.unwrap());
    }
}
