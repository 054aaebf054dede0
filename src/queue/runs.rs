//! Who goes together in the next call, as groups of requests that are alike.

use super::flight::Flight;
use super::{Call, Member, Patience, Queue, Time};
use crate::rate::MAX_EXACT;
use crate::store::{Outcome, OutcomeGroup, RequestGroup};

/// The most requests in one call.
const MAX_REQUESTS: usize = 8192;

/// The most groups in one call: what a call costs the server grows with its groups, not its requests.
const MAX_GROUPS: usize = 256;

impl<W> Queue<W> {
    /// Moves the front of the backlog into a call: those who can be served by `due`, and one more
    /// who tells when to ask next. `None`: only callers that have given up stood there.
    pub(super) fn board(&mut self, now: Time, due: Time) -> Option<Call> {
        let mut groups: Vec<RequestGroup> = Vec::new();
        let mut left_out = Vec::new();
        let (mut boarded, mut requests) = (0, 0);
        let mut one_more = false;
        let mut create = None;
        let mut first_due = Time::MAX;
        for member in &self.backlog {
            if boarded == MAX_REQUESTS || one_more {
                break;
            }
            if member.gone {
                left_out.push(boarded);
                boarded += 1;
                continue;
            }
            one_more = member.free_at > due;
            let permits = member.request.permits;
            let patience_ms = match member.request.patience {
                Patience::None => 0,
                Patience::Until(end) => end.saturating_sub(now) / 1000,
                Patience::Endless => MAX_EXACT,
            };
            let full = groups.len() == MAX_GROUPS;
            match groups.last_mut() {
                Some(group) if group.permits == permits && group.patience_ms == patience_ms => {
                    group.count += 1;
                }
                _ if full => break,
                _ => groups.push(RequestGroup { permits, patience_ms, count: 1 }),
            }
            if requests == 0 {
                create = member.request.create;
            }
            requests += 1;
            boarded += 1;
        }
        let asked_before = boarded.min(self.asked_before);
        let mut members = self.take_front(boarded);
        for member in members.iter_mut().filter(|member| !member.gone) {
            member.date(now);
            first_due = first_due.min(member.due);
        }
        // Whoever found no room is no longer fresh: the next fresh ones have places of their own.
        self.asked_before = self.backlog.len();
        self.block = None;
        self.ask_now = false;
        if groups.is_empty() {
            return None;
        }
        self.flight = Some(Flight { members, asked_before, left_out });
        Some(Call { groups, create, due: first_due })
    }

    /// So many of the backlog; where that is all, they stay where they are in memory.
    fn take_front(&mut self, count: usize) -> Vec<Member<W>> {
        let mut room = std::mem::take(&mut self.spare);
        if count == self.backlog.len() {
            return std::mem::replace(&mut self.backlog, room.into()).into();
        }
        room.extend(self.backlog.drain(..count));
        room
    }
}

/// Makes room in the outcomes for members that were left out of the call. Their own outcome is
/// never read.
pub(super) fn align(outcomes: &mut Vec<OutcomeGroup>, left_out: &[usize]) {
    let gap = OutcomeGroup { count: 1, outcome: Outcome::ExceedsRate };
    let mut from = 0;
    let mut group = 0;
    for &place in left_out {
        while group < outcomes.len() && from + outcomes[group].count as usize <= place {
            from += outcomes[group].count as usize;
            group += 1;
        }
        let before = (place - from) as u64;
        if before > 0 {
            let rest = OutcomeGroup { count: outcomes[group].count - before, ..outcomes[group] };
            outcomes[group].count = before;
            outcomes.insert(group + 1, rest);
            from += before as usize;
            group += 1;
        }
        outcomes.insert(group, gap);
        from += 1;
        group += 1;
    }
}
