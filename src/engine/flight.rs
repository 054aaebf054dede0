//! One call: what it asks for, its attempts until one is answered or nobody wants the answer, and its end
//! ([`super::settle`]).

use std::sync::Arc;
use std::time::Duration;

use super::answer::tell_by_turns;
use super::attempts::Attempts;
use super::knowledge::Knowledge;
use super::lane::{Lane, LaneState};
use super::latency::Latency;
use super::opt_ins::denials::Denials;
use super::refund::Entry;
use super::reservation::Reservation;
use super::retry::{FIRST_PAUSE, is_certain, longer};
use super::semaphore::ends_after;
use super::{Engine, closed, micros};
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{CallEvent, ObservedCall};
use crate::policy::Followed;
use crate::queue::{ATTEMPTS_PER_DEADLINE, Call, Time};
use crate::rt::atomic::Ordering;
use crate::rt::{self, Timer};
use crate::store::{
    AcquireCall, AcquireReply, Earlier, LaneCall, LimitCall, ServerTimeCall, total_permits,
};
use crate::wire::entry::EntryId;

/// The longest back-off that a call inherits from earlier calls: a server that comes back must be found
/// before callers with a short timeout give up.
const LONGEST_FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A call that has left the queue. If it is dropped before its end, along with its runtime, it is abandoned
/// and its callers start over.
pub(super) struct Flight {
    pub(super) engine: Arc<Engine>,
    pub(super) lane: Arc<Lane>,
    pub(super) call: Call,
    /// The reservation held by the call's only request.
    pub(super) reservation: Option<Reservation>,
    /// This client's knowledge of the limiter when the call left the queue.
    known: Knowledge,
    /// Set if denials are cached: see [`Denials::generation`].
    pub(super) generation: Option<u64>,
    pub(super) id: EntryId,
    /// The call's number, if calls are numbered.
    pub(super) number: Option<LaneCall>,
    pub(super) attempts: Attempts,
    /// The client closed while the server was not answering: there is no point in asking the server to take
    /// permits back, so they are left to expire.
    was_left_unanswered: bool,
    /// When the last attempt began. The leases of a semaphore's permits began no earlier, because it renews what an
    /// earlier one was granted.
    pub(super) attempt_began: Time,
    /// Reused from call to call.
    pub(super) timer: Timer,
    pub(super) observer: ObservedCall,
    has_ended: bool,
}

/// A reply, and the facts about it that only its call knows.
pub(super) struct Answered {
    pub(super) reply: AcquireReply,
    /// The start of the millisecond in which the answer is dated.
    pub(super) dated: Time,
    pub(super) audited: bool,
}

impl Flight {
    pub(super) fn new(
        engine: &Arc<Engine>,
        lane: &Arc<Lane>,
        state: &mut LaneState,
        mut call: Call,
    ) -> Self {
        if engine.is_greedy() || !engine.is_redissons_limiter() {
            call.share = None;
        }
        let reservation = state.reservation.take_if(|_| call.reserve);
        let attempts = Attempts::of(call.reserve, reservation.as_ref());
        let number = engine.is_numbered().then(|| state.next_number());
        Flight {
            id: reservation.as_ref().map_or_else(
                || EntryId::random(engine.core.client_tag, engine.weight()),
                |reservation| reservation.entry.id,
            ),
            number,
            engine: engine.clone(),
            lane: lane.clone(),
            timer: Timer::default(),
            call,
            attempts,
            reservation,
            known: *engine.knowledge(),
            generation: engine.opt_ins.denials.get().map(Denials::generation),
            was_left_unanswered: false,
            attempt_began: 0,
            observer: ObservedCall::none(),
            has_ended: false,
        }
    }

    /// Makes the call and tells its callers. Returns how many were told since other tasks last ran.
    pub(super) async fn fly(&mut self) -> usize {
        // Start observing only here: in `new` the lane is locked, and a subscriber may call the client.
        let only_span = self.lane.lock().queue.only_caller().and_then(|caller| caller.span.clone());
        self.observer =
            self.engine.observer.acquire_call((self.call.requests, self.permits()), only_span);
        let answer = self.answer().await;
        self.has_ended = true;
        let (told, unwanted) = match answer {
            Ok(answered) => self.decided(answered),
            Err(error) => {
                // A call that has certainly ended leaves nothing behind, unless attempts are known by their dates.
                let is_known =
                    !self.engine.is_redissons_limiter() && error.execution() != Execution::Unknown;
                if is_known && self.attempts.is_first() {
                    self.lane.lock().idle.extend(self.number.clone());
                } else if is_known || !self.was_left_unanswered {
                    // Callers that timed out or went away hold no grant.
                    self.give_back_unconfirmed();
                }
                (self.failed(&error), Vec::new())
            }
        };
        let told = tell_by_turns(told).await;
        // The last first: of a queue's starts only the last one that is left can be given back.
        unwanted.into_iter().rev().for_each(drop);
        told
    }

    /// The time limit of one attempt: a fraction of the callers' deadlines, so that each of them has time
    /// to ask again if an answer is lost.
    fn attempt_limit(&self) -> Duration {
        Duration::from_micros(self.call.shortest_deadline / ATTEMPTS_PER_DEADLINE)
    }

    /// How long the answers take of where the call goes.
    pub(super) fn latency(&self) -> Arc<Latency> {
        let part = self.engine.core.store.part_of(&self.engine.keys);
        self.lane.runtime.latency(&self.engine.core, part)
    }

    /// The total number of permits requested.
    pub(super) fn permits(&self) -> u64 {
        total_permits(&self.call.groups)
    }

    /// Gives back, in the background, what attempts may have been granted whose answers were lost. If one is still on
    /// its way, its grant is not used by anybody and expires; the same goes for one dated by the server's clock.
    fn give_back_unconfirmed(&self) {
        self.abandon_number();
        if self.engine.semaphore.is_some() && !self.engine.is_plain_semaphore() {
            self.hold(0, self.permits(), false).give_back_untold();
        }
        for date in self.attempts.dates() {
            for (engine, groups) in self.limits() {
                let permits = total_permits(&groups);
                engine.give_back(&Entry::new(self.id, date, permits), permits);
            }
        }
    }

    /// The latest time seen on the server's clock; the server is asked if none has been seen.
    async fn server_time(&mut self) -> Result<i64, Error> {
        let seen = self.engine.server_time.load(Ordering::Relaxed);
        if seen > 0 {
            return Ok(seen);
        }
        // No permits have been requested yet.
        let execution = Execution::NotExecuted;
        let time = self.engine.attempt(ServerTimeCall, self.attempt_limit());
        let time = self.in_time(time, execution).await;
        let time = time.map_err(|error| error.with_execution(execution))? / 1000;
        self.engine.saw_server_time(time);
        Ok(time)
    }
}

impl Flight {
    /// Makes attempts until one is answered or fails for good, or nobody wants the answer any more.
    async fn answer(&mut self) -> Result<Answered, Error> {
        let mut pause = self.lane.lock().first_pause.max(FIRST_PAUSE);
        loop {
            match self.attempt().await {
                Ok(Some(answered)) => return Ok(answered),
                // The answer came late: another attempt confirms it at once.
                Ok(None) => {
                    let error = Error::new(ErrorKind::Timeout, Execution::Unknown);
                    self.expire(self.engine.core.now(), &error, false)?;
                }
                Err(error) if !error.may_be_retried() => return Err(error),
                Err(error) => {
                    self.pause(pause, error).await?;
                    pause = longer(pause);
                }
            }
        }
    }

    async fn pause(&mut self, pause: Duration, error: Error) -> Result<(), Error> {
        // After a second failure to connect, the server is considered down, and callers that do not wait
        // get their answer. A single failure may just be a connection that was lost while it was idle.
        let is_certain = is_certain(&error) && pause > FIRST_PAUSE;
        if pause > FIRST_PAUSE || error.kind() == ErrorKind::Timeout {
            self.engine.server_failed(self.attempt_began, &error);
        }
        self.lane.lock().first_pause = longer(pause).min(LONGEST_FIRST_PAUSE);
        // Callers whose deadline passes meanwhile get the error, without shortening the pause.
        let core = self.engine.core.clone();
        let end = core.now().saturating_add(micros(pause));
        loop {
            if self.engine.is_closed() {
                // What has no lease does not expire.
                let semaphore = self.engine.semaphore.as_ref();
                let expires = semaphore.is_none_or(|it| it.terms.lease_ms.is_some());
                self.was_left_unanswered = expires && error.kind() == ErrorKind::Timeout;
                return Err(closed().with_execution(error.execution()));
            }
            self.expire(core.now(), &error, is_certain)?;
            if core.now() >= end {
                self.observer.tell_again(CallEvent::Retried { error: &error, pause });
                return Ok(());
            }
            rt::sleep_until(self.next_look(end)).await;
        }
    }

    /// Makes one attempt. `None` means that it was answered so late that its grants must be confirmed
    /// first.
    async fn attempt(&mut self) -> Result<Option<Answered>, Error> {
        let engine = self.engine.clone();
        let core = &engine.core;
        // Read this before the clock: a lease's hold must not end after the date that is sent.
        self.attempt_began = core.now();
        let hold_ms = i64::from(self.call.hold_ms);
        let us = core.clock.own_us();
        // The time since the millisecond began that is sent.
        let into_ms = us.map_or(0, |us| us.rem_euclid(1000).unsigned_abs());
        let is_dated = engine.is_redissons_limiter();
        let (now, earlier) = match us.map(|us| us.div_euclid(1000)).filter(|_| is_dated) {
            Some(at) => {
                let at = self.attempts.next_date(at, hold_ms);
                (Some(at), self.attempts.begin_dated(at.saturating_add(hold_ms)))
            }
            None => {
                let since = match is_dated && self.attempts.is_first() {
                    // This attempt may still be dated in the very millisecond that was seen.
                    true => self.server_time().await? - 1,
                    // Calls without a date are found by their numbers, or by the permits' ids.
                    false => 0,
                };
                (None, self.attempts.begin_since(since))
            }
        };
        let date = now.unwrap_or_else(|| engine.server_time.load(Ordering::Relaxed));
        let audit_limit = engine.audit_limit(&self.known, date);
        let sent = core.now();
        let limit = self.attempt_limit();
        let answer = match (&engine.semaphore, self.lane_call()) {
            (Some(semaphore), _) => self.attempt_semaphore(semaphore, limit),
            (None, Some(lane)) => engine.attempt(self.policy_call(lane), limit),
            (None, None) => engine.attempt(self.acquire_call(now, earlier, audit_limit), limit),
        };
        let answer = self.in_time(answer, Execution::Unknown).await;
        let took = core.now().saturating_sub(sent);
        let error = match answer {
            Ok(mut reply) => {
                // This client's rate, whatever the stored parameters are by which it was decided.
                reply.rate = engine.rules.policy().map_or(reply.rate, Followed::rate);
                let asked: u64 = self.call.groups.iter().map(|group| group.count).sum();
                if reply.outcomes.iter().map(|group| group.count).sum::<u64>() != asked {
                    self.attempts.ended(false);
                    let detail = "a reply that does not answer every request";
                    return Err(
                        Error::new(ErrorKind::Server, Execution::Executed).with_detail(detail)
                    );
                }
                let dated = match now {
                    Some(_) => sent.saturating_sub(into_ms),
                    None => {
                        engine.saw_server_time(reply.now);
                        core.now()
                    }
                };
                let latency = self.latency();
                let is_late = match &engine.semaphore {
                    // A lease that began earlier only ends earlier; one that has ended is of no use. Once, in case that it is
                    // shorter than the way.
                    Some(semaphore) => {
                        let ends = |ms| ends_after(self.attempt_began, ms);
                        let has_ended = |ms| core.now() >= ends(ms);
                        self.attempts.is_first() && semaphore.terms.lease_ms.is_some_and(has_ended)
                    }
                    None => latency.is_late(sent, took, reply.rate.interval_ms()),
                };
                latency.record(sent, took);
                let observed = Duration::from_micros(took);
                self.observer.tell(CallEvent::AttemptAnswered { took: observed });
                if is_late && reply.granted(&self.call.groups) > 0 {
                    self.observer.tell_again(CallEvent::CameLate { took: observed });
                    self.attempts.ended(true);
                    return Ok(None);
                }
                self.attempts.ended(false);
                return Ok(Some(Answered { reply, dated, audited: audit_limit > 0 }));
            }
            Err(error) => engine.name_member(error),
        };
        self.attempts.ended(error.execution() == Execution::Unknown);
        // Once an attempt may have been executed, no later attempt can undo that.
        Err(match error.execution() {
            Execution::NotExecuted if !self.attempts.is_first() => {
                error.with_execution(Execution::Unknown)
            }
            _ => error,
        })
    }

    fn acquire_call(&self, now: Option<i64>, earlier: Earlier, audit_limit: u64) -> AcquireCall {
        let members = &self.engine.members;
        let limits = self.limits().enumerate().map(|(at, (engine, groups))| {
            let (seen, create) = match members.get(at) {
                Some(member) => (engine.seen(), member.create),
                None => (self.known.seen, self.call.create),
            };
            // If an attempt's outcome is unknown, so is what it has seen and applied.
            let seen = seen.filter(|_| self.attempts.is_first());
            LimitCall { keys: engine.keys.clone(), seen, create, groups }
        });
        AcquireCall {
            now,
            id: self.id,
            expects_expired: self.known.expects_expired,
            audit_limit,
            hold_ms: self.call.hold_ms.into(),
            earlier,
            share: self.call.share,
            reserve: self.call.reserve,
            headroom: self.lane.headroom,
            limits: limits.collect(),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.has_ended {
            self.observer.tell(CallEvent::Abandoned);
            self.give_back_unconfirmed();
            // Dropped unanswered, the callers start over.
            drop(self.abandoned());
        }
    }
}
