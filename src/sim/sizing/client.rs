//! One client: a queue as every client has it, and its opt-ins.

use super::Scenario;
use super::demand::Random;
use super::lease::{ClientLeases, HeldLease};
use super::server::keys;
use crate::engine::Knowledge;
use crate::queue::{Call, MaxWait, Queue, Request, Step, Time};
use crate::rate::Rate;
use crate::store::{AcquireCall, AcquireReply, Earlier, LimitCall, Outcome, RefundCall};
use crate::wire::entry::{ClientTag, EntryId};

/// The epoch time at which a simulation begins.
pub(super) const T0: i64 = 1_700_000_000_000;

/// The clock that dates entries.
pub(super) fn epoch_ms(now: Time) -> i64 {
    T0 + (now / 1000) as i64
}

const DEADLINE: Time = 3_000_000;

/// The caller of a lease.
const LEASE: Time = Time::MAX;

/// A call on its way, and what its sender remembers of it.
pub(super) struct Sent {
    pub(super) call: AcquireCall,
    pub(super) at: Time,
    leased: u64,
}

/// What happened to a client makes it do this.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) call: Option<Sent>,
    pub(super) refunds: Vec<RefundCall>,
    /// When these requests arrived that are answered now.
    pub(super) answered: Vec<Time>,
    pub(super) granted: u64,
    pub(super) step_at: Option<Time>,
    pub(super) look_at: Option<Time>,
}

pub(super) struct FleetClient {
    tag: ClientTag,
    pub(super) limiter: usize,
    pub(super) demand: f64,
    /// A caller is the time of its arrival.
    queue: Queue<Time>,
    /// The next step that is planned.
    pub(super) step_at: Time,
    rate: Rate,
    known: Knowledge,
    random: Random,
    greedy: bool,
    leases: Option<ClientLeases>,
    wants_lease: bool,
    is_calling: bool,
    looks: bool,
    denial_memory: bool,
    denied_until: Time,
    pub(super) requests: u64,
    pub(super) granted: u64,
}

impl FleetClient {
    /// A client that has used the limiter for a while.
    pub(super) fn new(number: usize, limiter: usize, demand: f64, rate: Rate, seed: u64) -> Self {
        let random = Random::new(seed << 20 | number as u64);
        FleetClient {
            tag: ClientTag((number as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()),
            limiter,
            demand,
            queue: Queue::default(),
            step_at: Time::MAX,
            rate,
            known: Knowledge { seen: Some(rate), ..Knowledge::default() },
            random,
            greedy: false,
            leases: None,
            wants_lease: false,
            is_calling: false,
            looks: false,
            denial_memory: false,
            denied_until: 0,
            requests: 0,
            granted: 0,
        }
    }

    pub(super) fn with_options(mut self, scenario: &Scenario) -> Self {
        self.leases = scenario.lease.map(ClientLeases::new);
        self.denial_memory = scenario.denial_memory;
        self.greedy = scenario.greedy;
        self
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, now: Time, max_wait: Time) -> Effects {
        let mut effects = Effects::default();
        if let Some(leases) = &mut self.leases
            && let Some(is_low) = leases.take(now, &mut effects.refunds)
        {
            self.wants_lease |= is_low;
            effects.answered.push(now);
            effects.granted = 1;
            if is_low && self.queue.is_idle() {
                self.step(now, &mut effects);
            }
            return effects;
        }
        if self.denial_memory && now < self.denied_until {
            effects.answered.push(now);
            return effects;
        }
        let max_wait = if max_wait == 0 { MaxWait::None } else { MaxWait::Until(now + max_wait) };
        match self.queue.arrive(
            || now,
            Request { max_wait, deadline: DEADLINE, ..Request::ONE },
            now,
        ) {
            Err(_) => effects.answered.push(now),
            Ok(_) => self.step(now, &mut effects),
        }
        effects
    }

    /// What the queue does next.
    pub(super) fn step(&mut self, now: Time, effects: &mut Effects) {
        let leased = if self.is_calling { 0 } else { self.join_lease(now) };
        let (step, refused) = self.queue.step(now);
        effects.answered.extend(refused.into_iter().map(|(arrived, _)| arrived));
        match step {
            Step::Call(call) => self.send(now, call, leased, effects),
            Step::SleepUntil(time) => {
                self.step_at = time;
                effects.step_at = Some(time);
            }
            Step::Idle => {}
        }
    }

    /// As `Leases::join`. Returns the permits that the next call is to lease.
    fn join_lease(&mut self, now: Time) -> u64 {
        let is_idle = self.queue.is_idle();
        // Nothing is taken ahead of those that wait.
        if self.queue.has_waited() || !is_idle && self.queue.is_exhausted() {
            return 0;
        }
        let is_wanted = std::mem::take(&mut self.wants_lease) || !is_idle;
        let knows_rate = self.known.rate.is_some();
        let leases = self.leases.as_mut().filter(|_| knows_rate && is_wanted);
        let wanted = leases.and_then(|leases| {
            let hold_ms = leases.hold_ms() as u32;
            Some((leases.request(now, self.rate.permits())?, hold_ms))
        });
        let Some((permits, hold_ms)) = wanted else { return 0 };
        let request = Request { permits, deadline: DEADLINE, hold_ms, up_to: true, ..Request::ONE };
        if self.queue.arrive(|| now, request, LEASE).is_ok() { permits } else { 0 }
    }

    fn send(&mut self, now: Time, call: Call, leased: u64, effects: &mut Effects) {
        self.is_calling = true;
        let random = &mut self.random;
        let audit_limit = self.known.audit_limit(epoch_ms(now), || 1.0 - random.uniform());
        let (keys, seen) = (keys(self.limiter), self.known.seen);
        let limit = LimitCall { keys, seen, create: None, groups: call.groups };
        let call = AcquireCall {
            now: Some(epoch_ms(now)),
            id: EntryId::random(self.tag, 1),
            expects_expired: self.known.expects_expired,
            audit_limit,
            hold_ms: call.hold_ms.into(),
            earlier: Earlier::default(),
            share: call.share.filter(|_| !self.greedy),
            // Nobody asks for more than one permit here.
            reserve: false,
            headroom: None,
            limits: vec![limit],
        };
        effects.call = Some(Sent { call, at: now, leased });
    }

    /// The answer to a call arrives.
    pub(super) fn answered(&mut self, now: Time, sent: &Sent, reply: AcquireReply) -> Effects {
        let mut effects = Effects::default();
        self.is_calling = false;
        self.known.learn(&sent.call.limits[0].groups, &reply, sent.call.audit_limit > 0);
        let mut has_waiters = false;
        for group in &reply.outcomes {
            match group.outcome {
                Outcome::Waiting(_) => has_waiters = true,
                Outcome::Refused(wait, _) => self.denied_until = sent.at + wait.ms() * 1000,
                Outcome::Granted => self.denied_until = 0,
                _ => {}
            }
        }
        let rate = (self.rate.permits(), self.rate.interval_ms() * 1000, 0);
        let left = reply.left.max(0) as u64;
        let dated = sent.at / 1000 * 1000;
        let all = reply.granted(&sent.call.limits[0].groups);
        let (settled, granted) =
            self.queue.replied(now, dated, rate, reply.outcomes, left, reply.holders);
        let of_lease =
            settled.iter().filter(|it| it.caller == Some(LEASE) && it.outcome.is_grant());
        let leased: u64 = of_lease.map(|it| it.permits).sum();
        let callers = settled.into_iter().filter_map(|it| it.caller);
        effects.answered.extend(callers.filter(|caller| *caller != LEASE));
        let granted = granted - leased;
        effects.granted = granted;
        if let Some(leases) = &mut self.leases {
            leases.used(now, granted);
        }
        if let Some(leases) = self.leases.as_mut().filter(|_| sent.leased > 0) {
            let lease = HeldLease {
                id: sent.call.id,
                date: reply.entry_date,
                written: all,
                left: leased,
                end: sent.at + sent.call.hold_ms * 1000,
            };
            leases.granted(now, leased == sent.leased);
            leases.answered(now, lease, has_waiters, &mut effects.refunds);
            if !self.looks && leases.holds_any() {
                self.looks = true;
                effects.look_at = Some(now);
            }
        }
        self.step(now, &mut effects);
        effects
    }

    /// Leases are looked at.
    pub(super) fn look(&mut self, now: Time) -> Effects {
        let mut effects = Effects::default();
        if let Some(leases) = &mut self.leases {
            effects.look_at = leases.look(now, &mut effects.refunds).map(|at| at.max(now + 1));
        }
        self.looks = effects.look_at.is_some();
        effects
    }
}
