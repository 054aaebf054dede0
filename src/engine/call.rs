//! The attempts of one call, until one is answered or nobody wants the answer.

use std::sync::Arc;
use std::time::Duration;

use super::callers::Callers;
use super::lane::Lane;
use super::opt_ins::pool::Nanos;
use super::plan::{Answered, Plan};
use super::reservation::Reservation;
use super::retry::{Attempts, FIRST_PAUSE, is_certain, longer};
use super::tasks::{TaskGuard, Tasks};
use super::{Engine, closed, micros};
use crate::clock::Now;
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::CallObserver;
use crate::queue::Time;
use crate::rt::atomic::Ordering;
use crate::rt::{self, Timer};
use crate::store::{AcquireCall, AcquireReply, Earlier, Outcome};
use crate::wire::entry::EntryId;

/// The longest back-off that a call goes on with: a server that comes back is to be found before
/// callers that wait for a short time have to give up.
const LONGEST_FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long before the last time seen of the server's clock an attempt may have been dated, in ms:
/// a failover may lead to a server whose clock is behind. Without it, a retry there would not find
/// what its first attempt was granted, and be granted it twice.
const CLOCK_MAY_GO_BACK: i64 = 60_000;

/// A call in flight.
pub(super) struct Flight {
    pub(super) callers: Callers,
    pub(super) plan: Plan,
    pub(super) id: EntryId,
    /// The dates under which earlier attempts may have been granted something.
    unconfirmed: Vec<i64>,
    /// The same of the attempt under way.
    under_way: Option<i64>,
    /// With the server's clock: the time seen before the first attempt that may have been granted
    /// something.
    unconfirmed_since: Option<i64>,
    /// The client has closed while the server did not answer: there is no use in asking it to take
    /// permits back, and they expire.
    was_left_unanswered: bool,
    /// When the last attempt began.
    pub(super) attempt_began: Time,
    pub(super) observer: CallObserver,
    _busy: TaskGuard,
}

impl Flight {
    pub(super) fn new(engine: Arc<Engine>, lane: Arc<Lane>, plan: Plan, timer: Timer) -> Self {
        Flight {
            id: plan.reservation.as_ref().map_or_else(
                || EntryId::random(engine.core.client_tag, engine.opt_ins.weight()),
                |reservation| reservation.entry.id,
            ),
            unconfirmed: Vec::new(),
            under_way: None,
            unconfirmed_since: None,
            was_left_unanswered: false,
            attempt_began: 0,
            observer: engine.observer.acquire_call(&engine.name, || plan.size()),
            _busy: Tasks::begin(&engine.core),
            callers: Callers::new(engine, lane, plan.due, timer),
            plan,
        }
    }

    /// It has failed for good: gives back what attempts may have been granted, as callers that timed
    /// out, or have gone away, hold no grant.
    pub(super) fn give_up(&mut self) {
        if !self.was_left_unanswered {
            self.give_back_unconfirmed();
        }
    }

    pub(super) fn give_back_unconfirmed(&mut self) {
        let mut dates = std::mem::take(&mut self.unconfirmed);
        dates.extend(self.under_way.take());
        dates.extend(self.plan.reservation.as_ref().map(|reservation| reservation.entry.date));
        self.callers.engine.give_back_unconfirmed(self.id, &dates, self.plan.permits());
    }

    fn is_first_attempt(&self) -> bool {
        self.unconfirmed.is_empty() && self.unconfirmed_since.is_none()
    }

    /// The last time seen of the server's clock; the server is asked if there is none.
    async fn server_time(&mut self) -> Result<i64, Error> {
        let core = self.callers.engine.core.clone();
        let seen = self.callers.engine.server_time.load(Ordering::Relaxed);
        if seen > 0 {
            return Ok(seen);
        }
        // No permits have been requested yet.
        let execution = Execution::NotExecuted;
        let keys = &self.callers.engine.keys;
        let time = core.store_for(self.plan.attempt).server_time_of(keys);
        let time = self.callers.in_time(time, execution).await;
        let time = time.map_err(|error| error.with_execution(execution))? / 1000;
        self.callers.engine.saw_server_time(time);
        Ok(time)
    }
}

impl Attempts for Flight {
    type Output = Answered;

    fn first_pause(&self) -> Duration {
        self.plan.first_pause
    }

    async fn attempt(&mut self) -> Result<Answered, Error> {
        loop {
            if let Some(answered) = self.attempt_once().await? {
                return Ok(answered);
            }
            // It came late: it is confirmed by another attempt, at once.
            self.callers.expire(&Error::new(ErrorKind::Timeout, Execution::Unknown))?;
        }
    }

    async fn pause(&mut self, pause: Duration, error: Error) -> Result<(), Error> {
        // The second failure to reach the server: it is away, and a caller that does not wait has
        // its answer. One failure may be a connection that was lost while nobody used it.
        let is_certain = is_certain(&error) && pause > FIRST_PAUSE;
        if pause > FIRST_PAUSE || error.kind() == ErrorKind::Timeout {
            self.callers.engine.server_failed(self.attempt_began, &error);
        }
        self.observer.is_retried(&error, pause);
        self.callers.lane.lock().first_pause = longer(pause).min(LONGEST_FIRST_PAUSE);
        // Callers whose deadline passes meanwhile get the error; the pause is the same for that.
        let core = self.callers.engine.core.clone();
        let end = core.now().saturating_add(micros(pause));
        loop {
            if self.callers.engine.is_closed() {
                self.was_left_unanswered = error.kind() == ErrorKind::Timeout;
                return Err(closed().with_execution(error.execution()));
            }
            self.callers.expire_behind();
            if is_certain {
                self.callers.fail_those_that_do_not_wait(&error);
            }
            self.callers.expire(&error)?;
            if core.now() >= end {
                return Ok(());
            }
            rt::sleep(self.callers.next_look(end)).await;
        }
    }
}

impl Flight {
    /// One attempt. `None`: it was answered so late that its grants must be confirmed first.
    async fn attempt_once(&mut self) -> Result<Option<Answered>, Error> {
        let engine = self.callers.engine.clone();
        let core = &engine.core;
        self.attempt_began = core.now();
        let hold_ms = i64::try_from(self.plan.hold_ms()).unwrap_or(i64::MAX);
        // Before the clock is read: the hold must not end after the date that is sent.
        let begun = core.nanos();
        let reading = core.clock.read();
        let (now, earlier) = match reading.now {
            Now::At(at) => {
                let at = self.unconfirmed.last().map_or(at, |last| at.max(last - hold_ms + 1));
                // Otherwise a grant of this attempt could not be told from the reservation.
                let reserved = self.plan.reservation.as_ref().map(|it| it.entry.date);
                let at = if reserved == Some(at) { at + 1 } else { at };
                let earlier = match self.unconfirmed.as_slice() {
                    [] => Earlier::None,
                    dates => Earlier::Dated(dates.to_vec()),
                };
                (Now::At(at), earlier)
            }
            Now::Server => {
                // This attempt may still be dated in the very millisecond that was seen.
                let since = self.server_time().await? - 1;
                let earlier = match self.unconfirmed_since {
                    None => Earlier::FirstSince(since),
                    Some(since) => Earlier::Since(since - CLOCK_MAY_GO_BACK),
                };
                (Now::Server, earlier)
            }
        };
        let audit_limit = self.plan.audit_limit(now, engine.server_time.load(Ordering::Relaxed));
        let sent = core.now();
        let call = AcquireCall {
            now,
            id: self.id,
            // What an attempt with an unknown outcome has seen and applied is not known either.
            seen: self.plan.known.seen.filter(|_| self.is_first_attempt()),
            expects_expired: self.plan.known.expects_expired,
            audit_limit,
            create: self.plan.create,
            hold_ms: self.plan.hold_ms(),
            earlier: self.reserved(earlier.clone()),
            share: self.plan.share,
            reserve: self.plan.reserve,
            groups: self.plan.groups.clone(),
        };
        if let Now::At(at) = now {
            self.under_way = Some(at.saturating_add(hold_ms));
        }
        let answer = core.store_for(self.plan.attempt).acquire(&engine.keys, call);
        let answer = self.callers.in_time(answer, Execution::Unknown).await;
        let took = core.now().saturating_sub(sent);
        let under_way = self.under_way.take();
        let error = match answer {
            Ok(reply) => {
                let asked: u64 = self.plan.groups.iter().map(|group| group.count).sum();
                if reply.outcomes.iter().map(|group| group.count).sum::<u64>() != asked {
                    let detail = "a reply that does not answer every request";
                    return Err(
                        Error::new(ErrorKind::Server, Execution::Executed).with_detail(detail)
                    );
                }
                let dated = match now {
                    Now::At(_) => sent.saturating_sub(reading.into_ms.into()),
                    Now::Server => {
                        engine.saw_server_time(reply.now);
                        core.now()
                    }
                };
                let is_late = core.latency.is_late(sent, took, reply.rate.interval_ms());
                core.latency.record(sent, took);
                self.observer.attempt_took(took);
                if is_late && self.callers.has_any && grants(&reply) {
                    self.observer.came_late(took);
                    self.remember(under_way, &earlier);
                    return Ok(None);
                }
                let into_ms = Nanos::from(reading.into_ms) * 1000;
                let hold = self.plan.hold_ms().saturating_mul(1_000_000);
                let hold_end = begun.saturating_add(hold).saturating_sub(into_ms);
                return Ok(Some(Answered { reply, dated, hold_end, audited: audit_limit > 0 }));
            }
            Err(error) => error,
        };
        if error.execution() == Execution::Unknown {
            self.remember(under_way, &earlier);
        }
        // Once an attempt may have been carried out, no later one makes that undone.
        Err(match error.execution() {
            Execution::NotExecuted if !self.is_first_attempt() => {
                error.with_execution(Execution::Unknown)
            }
            _ => error,
        })
    }

    /// Where the entry may be if it is a reservation: the date of one is not known before the answer.
    fn reserved(&self, earlier: Earlier) -> Earlier {
        if let Some(Reservation { entry, since }) = &self.plan.reservation {
            return Earlier::Reserved { since: *since, date: entry.date };
        }
        match earlier {
            Earlier::Dated(dates) if self.plan.reserve => Earlier::Since(dates[0] - 1),
            earlier => earlier,
        }
    }

    /// An attempt may have been granted something that its callers have not got.
    fn remember(&mut self, date: Option<i64>, earlier: &Earlier) {
        self.unconfirmed.extend(date);
        if let Earlier::FirstSince(since) = earlier {
            self.unconfirmed_since = Some(*since);
        }
    }
}

fn grants(reply: &AcquireReply) -> bool {
    reply.outcomes.iter().any(|group| group.outcome == Outcome::Granted)
}
