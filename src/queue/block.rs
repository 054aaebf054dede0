//! A head that does not fit, and what that means for those behind it.

use super::{Patience, Queue, Ticket, Time};
use crate::store::Wait;

/// The head of the queue is known not to fit yet.
#[derive(Debug)]
pub(super) struct Block {
    /// When the head can be served.
    pub(super) head_at: Time,
    /// Whoever comes now cannot be served before this.
    pub(super) tail_at: Time,
    /// The next question: `head_at`, or earlier to notice what others changed.
    pub(super) ask_at: Time,
    /// Permits an interval.
    pub(super) rate: u64,
    /// In microseconds.
    pub(super) interval: Time,
    /// The permits that stand in the queue.
    pub(super) demand: u64,
}

/// What a blocked queue means for a request that has not been asked for.
pub(super) enum Prospect {
    /// It cannot be served in time.
    Hopeless,
    /// Only the server can tell.
    Open,
    /// Nobody else drawing, it is served in time.
    Good,
}

impl Block {
    pub(super) fn prospect(&self, patience: Patience) -> Prospect {
        let end = match patience {
            Patience::None => return Prospect::Hopeless,
            Patience::Until(end) => end,
            Patience::Endless => return Prospect::Good,
        };
        let rounds = self.demand / self.rate.max(1) + 1;
        if end < self.tail_at {
            Prospect::Hopeless
        } else if end < self.tail_at.saturating_add(rounds.saturating_mul(self.interval)) {
            Prospect::Open
        } else {
            Prospect::Good
        }
    }
}

impl<W> Queue<W> {
    /// Takes out those who, behind a head that is known not to fit, cannot be served in time.
    pub(super) fn refuse_hopeless(&mut self, now: Time) -> Vec<(Ticket, Wait, Option<W>)> {
        let mut refused = Vec::new();
        let Some(block) = &self.block else { return refused };
        let nothing_to_judge = self.fresh() == 0 && now < self.earliest;
        if self.ask_now || now >= block.ask_at || nothing_to_judge {
            return refused;
        }
        self.earliest = Time::MAX;
        let mut index = 0;
        while index < self.backlog.len() {
            let asked = index < self.asked_before;
            let member = &mut self.backlog[index];
            let hopeless = match block.prospect(member.request.patience) {
                _ if member.gone => false,
                Prospect::Hopeless if !asked => true,
                Prospect::Open if !asked => {
                    self.ask_now = true;
                    false
                }
                // Those who were asked for were told that they can be served in time.
                _ => match member.request.patience {
                    Patience::None => true,
                    Patience::Until(end) => end <= now && end < block.head_at,
                    Patience::Endless => false,
                },
            };
            if hopeless {
                let wait = wait_until(member.free_at.max(block.head_at), now);
                refused.push((member.ticket, wait, member.waker.take()));
                // A fresh one keeps its place for the sake of those behind it.
                member.gone = true;
                self.ask_now |= index == 0;
            } else if let Patience::Until(end) = member.request.patience {
                self.earliest = self.earliest.min(end);
            }
            if asked && member.gone {
                self.backlog.remove(index);
                self.asked_before -= 1;
            } else {
                index += 1;
            }
        }
        self.drop_gone_tail();
        if self.backlog.is_empty() {
            self.block = None;
        }
        refused
    }
}

/// At least so long until `then`, in whole milliseconds.
pub(super) fn wait_until(then: Time, now: Time) -> Wait {
    Wait { ms: then.saturating_sub(now).div_ceil(1000).max(1), at_least: true }
}
