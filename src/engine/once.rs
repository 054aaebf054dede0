//! Acquires for a key: the same key gets the same grant for an interval, from any process.
//!
//! They bypass the queue, because a key that has a grant must get it no matter who is waiting there, and
//! because the entry of a key contains no other request. Under a policy, the key names a lane, which has one call.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Decided, Granted, Verdict};
use super::headroom::{exceeds, left_of, most_permits};
use super::policy::LONGEST_ATTEMPTS;
use super::refund::Entry;
use super::{Engine, closed, micros};
use crate::error::{Error, Execution};
use crate::options::Fraction;
use crate::policy::Followed;
use crate::queue::Request;
use crate::store::{
    AcquireCall, AcquireReply, LaneCall, LimitCall, Outcome, OutcomeGroup, RequestGroup, Store,
};
use crate::wire::entry::EntryId;

/// Under a policy a key has its grant at least for so long.
const KEY_LASTS: Duration = Duration::from_secs(60);

impl Engine {
    /// Asks the store for the permits of a key. If the future is dropped, the call may still be executed;
    /// whatever it is granted belongs to the key.
    pub(crate) async fn acquire_once(
        self: &Arc<Self>,
        key: &[u8],
        headroom: Option<Fraction>,
        request: Request,
    ) -> Verdict {
        if self.is_closed() {
            return Err(closed());
        }
        let lane = self.lane(headroom)?;
        let behind = lane.lock().queue.wait_behind(self.core.now());
        let id = EntryId::of_key(key);
        let limit = LimitCall {
            keys: self.keys.clone(),
            seen: self.seen(),
            create: request.create.as_deref().copied(),
            groups: vec![RequestGroup { permits: request.permits, max_wait_ms: 0, count: 1 }],
        };
        let call = AcquireCall {
            // The call must not overtake a waiting request: in that case it may only find an earlier grant.
            headroom: if behind.is_some() { Some(Fraction::ALL) } else { headroom },
            ..AcquireCall::usual(None, id, limit)
        };
        let reply = loop {
            let reply = self.ask_once(&call, key, &request, behind.is_some()).await?;
            // Ask again: too many entries have expired for a single call to handle.
            if reply.outcomes.first().is_none_or(|group| group.outcome != Outcome::Undecided) {
                break reply;
            }
        };
        let rate = reply.rate;
        if self.knowledge().learn(&call.limits[0].groups, &reply, false) {
            self.rate_has_changed();
        }
        self.server_answered();
        self.observer.noted(reply.notes);
        let permits = reply.granted_before.unwrap_or(request.permits);
        let left = left_of(headroom, rate, reply.left);
        let entry = Entry::new(id, reply.entry_date, permits);
        let decided = Arc::new(Decided::new(self, entry, rate, left));
        let most = match self.rules.policy() {
            Some(policy) => policy.most(),
            None => most_permits(headroom, rate),
        };
        match (reply.outcomes.first().map(|group| group.outcome), behind) {
            (Some(Outcome::Granted), _) => {
                Ok(Answer::Granted(Granted::new(decided, permits, None)))
            }
            (Some(Outcome::Refused(wait, _)), _) => Ok(Answer::Denied { wait, by: None, decided }),
            (_, Some(wait)) if permits <= most => Ok(Answer::Refused(wait)),
            _ => Err(exceeds(headroom, permits, rate, Execution::Executed)),
        }
    }

    /// Makes the call until it is answered or its deadline passes. A repeated call finds its own grant: in the log, or
    /// under a policy in the record of the key's lane, whose only call it is.
    async fn ask_once(
        self: &Arc<Self>,
        call: &AcquireCall,
        key: &[u8],
        request: &Request,
        is_behind: bool,
    ) -> Result<AcquireReply, Error> {
        let policy = self.rules.policy().map(|policy| {
            let rules = policy.rules.of_key(key).unwrap_or_else(|| unreachable!("it was checked"));
            Followed { rules, ..policy.clone() }
        });
        let (began, rate) = (self.core.now(), policy.as_ref().map(Followed::rate));
        // Later attempts might not find the record of an earlier one.
        let longest = if policy.is_some() { LONGEST_ATTEMPTS } else { Duration::MAX };
        let deadline = Duration::from_micros(request.deadline).min(longest);
        let observer = self.observer.acquire_call((1, request.permits), None);
        let (engine, call) = (self.clone(), call.clone());
        let attempt = move |_: &Store, limit| {
            let Some(policy) = &policy else {
                let now = engine.core.clock.own_ms();
                return engine.attempt(AcquireCall { now, ..call.clone() }, limit);
            };
            let mut groups = call.limits[0].groups.clone();
            if is_behind {
                // Without a request, only the record of an earlier grant is read.
                groups[0].count = 0;
            }
            let lasts = Duration::from_millis(policy.rate().interval_ms()).max(KEY_LASTS);
            let lane = LaneCall::of_key(call.id, micros(lasts));
            engine.attempt(engine.policy_call(policy, lane, groups), limit)
        };
        let answer = self.core.call(true, deadline, observer, attempt).await;
        let mut reply = answer.inspect_err(|error| {
            if error.execution() == Execution::Unknown {
                self.rate_may_have_changed();
            }
            self.server_failed(began, error);
        })?;
        if self.core.clock.is_servers() {
            self.saw_server_time(reply.now);
        }
        if let Some(rate) = rate {
            // The reply is that of a log, without a mark: a refund would leave the key with its grant.
            (reply.mark, reply.rate) = (None, rate);
            let is_granted = reply.outcomes.iter().any(|group| group.outcome.is_grant());
            if is_granted || reply.granted_before.is_some() {
                reply.outcomes = vec![OutcomeGroup { outcome: Outcome::Granted, count: 1 }];
            }
        }
        Ok(reply)
    }
}
