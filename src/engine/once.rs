//! Acquires for a key: the same key gets the same grant for an interval, from any process.
//!
//! They bypass the queue, because a key that has a grant must get it no matter who is waiting there, and
//! because the entry of a key contains no other request.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Decided, Granted, NoAnswer, Verdict};
use super::refund::Entry;
use super::{Engine, closed};
use crate::clock::Now;
use crate::error::Error;
use crate::observe::CallSize;
use crate::options::Fraction;
use crate::queue::Request;
use crate::store::{AcquireCall, AcquireReply, Earlier, Outcome, RequestGroup, Store};
use crate::wire::entry::EntryId;

impl Engine {
    /// Asks the store for the permits of a key. If the future is dropped, the call may still be executed;
    /// whatever it is granted belongs to the key.
    pub(crate) async fn acquire_once(self: &Arc<Self>, id: EntryId, request: Request) -> Verdict {
        if self.is_closed() {
            return Err(NoAnswer::Failed(closed()));
        }
        let lane = self.lane().map_err(NoAnswer::Failed)?;
        let behind = lane.lock().queue.wait_behind(self.core.now());
        let group = RequestGroup { permits: request.permits, max_wait_ms: 0, count: 1 };
        let call = AcquireCall {
            now: Now::Server,
            id,
            seen: self.seen(),
            expects_expired: false,
            audit_limit: 0,
            create: request.create,
            hold_ms: 0,
            earlier: Earlier::None,
            share: None,
            reserve: false,
            // The call must not overtake a waiting request: in that case it may only find an earlier grant.
            headroom: if behind.is_some() { Some(Fraction::ALL) } else { self.classes.headroom },
            groups: vec![group],
        };
        let reply = loop {
            let reply =
                self.ask_once(call.clone(), request.clone()).await.map_err(NoAnswer::Failed)?;
            // Ask again: too many entries have expired for a single call to handle.
            if reply.outcomes.first().is_none_or(|group| group.outcome != Outcome::Undecided) {
                break reply;
            }
        };
        let rate = reply.rate;
        self.knowledge().learn(&call.groups, &reply, false);
        self.server_answered();
        let permits = reply.granted_before.unwrap_or(request.permits);
        let left = u64::try_from(reply.left).unwrap_or(0).saturating_sub(self.headroom(rate));
        let entry = Entry::new(id, reply.entry_date, permits);
        let decided = Arc::new(Decided::new(self, entry, rate, left));
        match (reply.outcomes[0].outcome, behind) {
            (Outcome::Granted, _) => {
                Ok(Answer::Granted(Granted::new(decided, Request { permits, ..request.clone() })))
            }
            (Outcome::Refused(wait), _) => Ok(Answer::Denied { wait, by: None, decided }),
            (_, Some(wait)) if permits <= self.most_permits(rate) => Err(NoAnswer::Refused(wait)),
            _ => Ok(Answer::ExceedsRate { requested: permits, rate, by: None }),
        }
    }

    /// Makes the call until it is answered or its deadline passes. A repeated call finds its own grant.
    async fn ask_once(
        self: &Arc<Self>,
        call: AcquireCall,
        request: Request,
    ) -> Result<AcquireReply, Error> {
        let began = self.core.now();
        let size = CallSize { requests: 1, permits: request.permits };
        let observer = self.observer.acquire_call(size, None);
        let engine = self.clone();
        let attempt = move |_: &Store, limit| {
            let now = engine.core.clock.read().now;
            engine.attempt(AcquireCall { now, ..call.clone() }, limit)
        };
        let deadline = Duration::from_micros(request.deadline);
        let answer = self.core.call(true, deadline, observer, attempt).await;
        match &answer {
            Ok(reply) if self.core.clock.is_servers() => self.saw_server_time(reply.now),
            Ok(_) => {}
            Err(error) => self.server_failed(began, error),
        }
        answer
    }
}
