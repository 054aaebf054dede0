//! The call in flight of a lane, while its own caller polls it: one round trip, without a task.
//!
//! Once somebody else has to poll it, it is handed over; to whom is for the callers here to say.

use std::task::{Context, Waker};

use futures::future::BoxFuture;

use crate::queue::Ticket;
use crate::rt::{Mutex, lock};

/// The call in flight, if its own caller polls it; otherwise a driver does.
#[derive(Default)]
pub(super) struct DirectCall(Mutex<PollState>);

#[derive(Default)]
enum PollState {
    #[default]
    None,
    /// Between two polls.
    Idle(Direct),
    /// Being polled, without the lock: the call locks the lane and wakes callers, whose wakers may
    /// come back here.
    Polling {
        ticket: Ticket,
        /// It is to be handed over: the poller does so.
        driver_wanted: bool,
    },
}

pub(super) struct Direct {
    pub(super) ticket: Ticket,
    pub(super) call: BoxFuture<'static, ()>,
    /// Wakes the caller once somebody else polls its call.
    pub(super) waker: Option<Waker>,
}

impl DirectCall {
    /// The call of the caller with this ticket, which is to poll it.
    pub(super) fn set(&self, ticket: Ticket, call: BoxFuture<'static, ()>) {
        *lock(&self.0) = PollState::Idle(Direct { ticket, call, waker: None });
    }

    /// Polls the call in flight, if it is this caller's own; returns whether it still is, and wakes
    /// the caller when it goes on. If it is to be handed over, the call goes `to_driver`, unless it
    /// has ended.
    pub(super) fn poll(
        &self,
        ticket: Ticket,
        cx: &mut Context<'_>,
        to_driver: impl FnMut(Option<Direct>),
    ) -> bool {
        let mut direct = {
            let mut state = lock(&self.0);
            match std::mem::take(&mut *state) {
                PollState::Idle(direct) if direct.ticket == ticket => {
                    *state = PollState::Polling { ticket, driver_wanted: false };
                    direct
                }
                other => {
                    *state = other;
                    return false;
                }
            }
        };
        let mut polling = Polling { of: self, ticket, call: None, has_ended: false, to_driver };
        if direct.call.as_mut().poll(cx).is_pending() {
            direct.waker = Some(cx.waker().clone());
            polling.call = Some(direct);
        }
        polling.end()
    }

    /// A driver is needed: it gets the call in flight if a caller has it. If that is polling the
    /// call, it hands it over itself.
    pub(super) fn hand_over(&self, to_driver: impl FnOnce(Option<Direct>)) {
        let call = {
            let mut state = lock(&self.0);
            match std::mem::take(&mut *state) {
                PollState::Polling { ticket, .. } => {
                    *state = PollState::Polling { ticket, driver_wanted: true };
                    return;
                }
                PollState::Idle(direct) => Some(direct),
                PollState::None => None,
            }
        };
        to_driver(call);
    }

    /// Takes the call of a caller that goes away.
    pub(super) fn take(&self, ticket: Ticket) -> Option<BoxFuture<'static, ()>> {
        let mut state = lock(&self.0);
        match std::mem::take(&mut *state) {
            PollState::Idle(direct) if direct.ticket == ticket => Some(direct.call),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// Ends a poll, by a panic too: otherwise nobody would ever poll the queue's calls again.
struct Polling<'a, D: FnMut(Option<Direct>)> {
    of: &'a DirectCall,
    ticket: Ticket,
    /// The call, unless it has ended.
    call: Option<Direct>,
    has_ended: bool,
    to_driver: D,
}

impl<D: FnMut(Option<Direct>)> Polling<'_, D> {
    /// Returns whether the caller keeps its call.
    fn end(&mut self) -> bool {
        self.has_ended = true;
        let call = self.call.take();
        let is_pending = call.is_some();
        {
            let mut state = lock(&self.of.0);
            match *state {
                PollState::Polling { ticket, driver_wanted } if ticket == self.ticket => {
                    if !driver_wanted {
                        *state = call.map_or(PollState::None, PollState::Idle);
                        return is_pending;
                    }
                    *state = PollState::None;
                }
                // The call has ended, and the next caller's may be here already.
                _ => return false,
            }
        }
        (self.to_driver)(call);
        false
    }
}

impl<D: FnMut(Option<Direct>)> Drop for Polling<'_, D> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end();
        }
    }
}
