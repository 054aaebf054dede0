//! A call that its own caller polls: one round trip, without a task.

use std::sync::Arc;
use std::task::{Context, Waker};

use futures::future::BoxFuture;

use super::lane::Lane;
use super::{Engine, driver};
use crate::queue::Ticket;
use crate::rt::lock;

/// The call in flight, if its own caller polls it; otherwise a driver does.
#[derive(Default)]
pub(super) enum DirectCall {
    #[default]
    None,
    /// Between two polls.
    Idle(Direct),
    /// Being polled, without the lock: the call locks the lane and wakes callers, whose wakers may
    /// come back here.
    Polling {
        ticket: Ticket,
        /// A driver has been asked for meanwhile: the poller starts it.
        driver_wanted: bool,
    },
}

pub(super) struct Direct {
    pub(super) ticket: Ticket,
    pub(super) call: BoxFuture<'static, ()>,
    /// Wakes the caller once somebody else polls its call.
    pub(super) waker: Option<Waker>,
}

/// Polls the call in flight, if it is this caller's own; returns whether it still is, and wakes the
/// caller when it goes on.
pub(super) fn poll(
    engine: &Arc<Engine>,
    lane: &Arc<Lane>,
    ticket: Ticket,
    cx: &mut Context<'_>,
) -> bool {
    let mut direct = {
        let mut slot = lock(&lane.direct);
        match std::mem::take(&mut *slot) {
            DirectCall::Idle(direct) if direct.ticket == ticket => {
                *slot = DirectCall::Polling { ticket, driver_wanted: false };
                direct
            }
            other => {
                *slot = other;
                return false;
            }
        }
    };
    let mut polling = Polling { engine, lane, ticket, call: None, has_ended: false };
    if direct.call.as_mut().poll(cx).is_pending() {
        direct.waker = Some(cx.waker().clone());
        polling.call = Some(direct);
    }
    polling.end()
}

/// Ends a poll, by a panic too: otherwise nobody would ever poll the queue's calls again.
struct Polling<'a> {
    engine: &'a Arc<Engine>,
    lane: &'a Arc<Lane>,
    ticket: Ticket,
    /// The call, unless it has ended.
    call: Option<Direct>,
    has_ended: bool,
}

impl Polling<'_> {
    /// Returns whether the caller keeps its call.
    fn end(&mut self) -> bool {
        self.has_ended = true;
        let call = self.call.take();
        let is_pending = call.is_some();
        {
            let mut slot = lock(&self.lane.direct);
            match *slot {
                DirectCall::Polling { ticket, driver_wanted } if ticket == self.ticket => {
                    if !driver_wanted {
                        *slot = call.map_or(DirectCall::None, DirectCall::Idle);
                        return is_pending;
                    }
                    *slot = DirectCall::None;
                }
                // The call has ended, and the next caller's may be here already.
                _ => return false,
            }
        }
        start_driver_with(self.engine, self.lane, call);
        false
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end();
        }
    }
}

/// Starts the driver that was found to be needed, with the call in flight if a caller had it.
pub(super) fn hand_to_driver(engine: &Arc<Engine>, lane: &Arc<Lane>) {
    let call = {
        let mut slot = lock(&lane.direct);
        match std::mem::take(&mut *slot) {
            DirectCall::Polling { ticket, .. } => {
                *slot = DirectCall::Polling { ticket, driver_wanted: true };
                return;
            }
            DirectCall::Idle(direct) => Some(direct),
            DirectCall::None => None,
        }
    };
    start_driver_with(engine, lane, call);
}

fn start_driver_with(engine: &Arc<Engine>, lane: &Arc<Lane>, call: Option<Direct>) {
    let call = call.map(|Direct { ticket, call, waker }| {
        // From now on its caller is woken as any other. If it has been polled meanwhile, it has left
        // its waker itself: this one may be an older one that wakes nobody.
        let unwanted = waker.and_then(|waker| lane.lock().queue.set_first_waker(ticket, waker));
        drop(unwanted);
        call
    });
    driver::start(engine, lane, call);
}

/// Takes the call of a caller that goes away.
pub(super) fn take(lane: &Lane, ticket: Ticket) -> Option<BoxFuture<'static, ()>> {
    let mut slot = lock(&lane.direct);
    match std::mem::take(&mut *slot) {
        DirectCall::Idle(direct) if direct.ticket == ticket => Some(direct.call),
        other => {
            *slot = other;
            None
        }
    }
}
