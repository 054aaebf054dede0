//! A client's knowledge of a limiter, no matter in which runtime it was learnt.

use super::Engine;
use crate::rate::Rate;
use crate::store::limits::SHORT_LOG;
use crate::store::{AcquireReply, Outcome, RequestGroup, decided};

/// The number of entries that a client's audits read for each of its calls, on average and at most. Audits
/// therefore cost the server a small fraction of what the calls do, however many clients share the limiter;
/// and together, the clients of a large fleet make about this many audits in an interval.
const READ_PER_CALL: u64 = 4;

/// Facts about a limiter learnt from its calls. They are kept after the limiter is dropped: without them, a call could
/// not trust the value and would have to sum the log each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knowledge {
    /// The rate this client last saw in the limiter's hash and has applied to the value.
    pub(crate) seen: Option<Rate>,
    /// The rate in force at the last answer.
    pub(crate) rate: Option<Rate>,
    /// The date of the last call that asked for an audit, or of the first answer; epoch ms.
    pub(crate) audited: Option<i64>,
    /// The number of calls answered since that audit.
    pub(crate) calls: u64,
    /// The date of the last answer, epoch ms.
    pub(crate) last_answer: i64,
    /// The number of permits in use after the last answer.
    pub(crate) in_use: Option<i64>,
    /// Whether the next call will probably find expired entries. It will if permits had come back by the
    /// last answer, which happens all the time in steady use, or if requests are waiting for permits to
    /// come back.
    pub(crate) expects_expired: bool,
}

impl Knowledge {
    /// The date of the server's last answer, and the number of permits in use then.
    pub(crate) fn used(&self) -> Option<(i64, i64)> {
        self.in_use.map(|permits| (self.last_answer, permits))
    }

    /// Records what the reply to these requests says; returns whether the rate has changed.
    pub(crate) fn learn(
        &mut self,
        groups: &[RequestGroup],
        reply: &AcquireReply,
        audited: bool,
    ) -> bool {
        let (mut with_granted, mut is_waited_for) = (reply.left, false);
        for (permits, count, outcome) in decided(groups, &reply.outcomes) {
            match outcome {
                Outcome::Granted => {
                    with_granted =
                        with_granted.saturating_add_unsigned(permits.saturating_mul(count));
                }
                Outcome::Waiting(_) | Outcome::Reserved(_) => is_waited_for = true,
                _ => {}
            }
        }
        let permits = reply.rate.permits() as i64;
        let in_use = self.in_use.replace(permits.saturating_sub(reply.left));
        self.expects_expired = is_waited_for
            || in_use.is_some_and(|in_use| permits.saturating_sub(with_granted) < in_use);
        if let Some(seen) = reply.seen() {
            self.seen = Some(seen);
        }
        self.last_answer = reply.now;
        self.calls += 1;
        if audited || self.audited.is_none() {
            (self.audited, self.calls) = (Some(reply.now), 0);
        }
        self.rate.replace(reply.rate).is_some_and(|old| old != reply.rate)
    }

    /// The longest log that a call at this date should sum, 0 for none; `random` draws a number above 0 and
    /// at most 1.
    ///
    /// An audit is requested at most once an interval, and at most once a second. It takes place if the
    /// limit is at least the length of the log, the probability of which is (64 + 4 calls) ÷ entries. A
    /// client that is alone, whose calls wrote all the entries, therefore makes every audit, and the amount
    /// a client reads does not grow with the fleet. Audits are random rather than every nth time because
    /// clients that started together would otherwise audit together.
    pub(crate) fn audit_limit(&self, now: i64, random: impl FnOnce() -> f64) -> u64 {
        let Some((last, rate)) = self.audited.zip(self.rate) else { return 0 };
        if now.abs_diff(last) < rate.interval_ms().max(1000) {
            return 0;
        }
        let entries = self.calls.saturating_mul(READ_PER_CALL).saturating_add(SHORT_LOG as u64);
        (entries as f64 / random()) as u64
    }

    /// Whether the limiter was used less than an interval ago. If it was not, its next call is due to be an
    /// audit, which needs no prior knowledge.
    pub(crate) fn is_recent(&self, now: i64) -> bool {
        self.rate.is_some_and(|rate| {
            now.saturating_sub(self.last_answer).unsigned_abs() < rate.interval_ms().max(1000)
        })
    }
}

pub(crate) struct MeetsRate<'a>(Option<&'a Engine>);

impl MeetsRate<'_> {
    /// The call was answered, and met this rate.
    pub(crate) fn met(mut self, rate: Rate) {
        let seen = self.0.and_then(Engine::seen);
        self.0.take_if(|_| seen == Some(rate));
    }
}

impl Drop for MeetsRate<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.0 {
            engine.rate_may_have_changed();
        }
    }
}

impl Engine {
    /// Guards a call beside the queue, which fits the value to the rate that it meets, and may do so although nobody hears
    /// of it: if that is not the rate that was seen, none was.
    pub(crate) fn may_meet_another_rate(&self) -> MeetsRate<'_> {
        MeetsRate(Some(self))
    }

    /// A call's answer was lost, and it may have met another rate and fitted the value to it: at each limiter of a group.
    /// If the old rate came back, the next call would take what the other one allowed for its own.
    pub(super) fn rate_may_have_changed(&self) {
        let members = self.members.iter().map(|member| &*member.engine);
        members.chain([self]).for_each(|engine| engine.knowledge().seen = None);
    }
}
