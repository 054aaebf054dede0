//! The task that ends leases in time: at the end of their hold, or when they are not used.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::oneshot;

use super::pool::Nanos;
use crate::engine::Engine;
use crate::rt;

impl Engine {
    /// The clock that dates entries may have been set: leases may be at their end.
    pub(crate) fn clock_was_set(self: &Arc<Self>) {
        if let Some(leasing) = self.opt_ins.leasing.get() {
            self.with_leftovers(|knowledge, left| knowledge.leases.look(&self.core, leasing, left));
        }
    }

    /// Ends leases that are at their end; returns when to do so again, `None` if there are none.
    fn maintain_leases(self: &Arc<Self>) -> Option<Nanos> {
        let leasing = self.opt_ins.leasing.get()?;
        self.with_leftovers(|knowledge, left| {
            let again = knowledge.leases.look(&self.core, leasing, left);
            if again.is_none() {
                knowledge.leases.expiry_task = None;
            }
            again
        })
    }

    /// Has a task end the leases in time, unless there is one. It does not keep alive a limiter
    /// that nobody else holds: what is leased then expires.
    pub(in crate::engine) fn start_lease_expiry(self: &Arc<Self>) {
        let (lives, mut gone) = oneshot::channel();
        {
            let leases = &mut self.knowledge().leases;
            if leases.expiry_task.is_some() || !leases.is_out() {
                return;
            }
            leases.expiry_task = Some(lives);
        }
        // Without the lock: a runtime that is ending drops the task at once, and its drop takes the
        // lock.
        let mut expiry = Expiry { engine: Arc::downgrade(self), is_done: false };
        self.core.spawn(async move {
            while let Some(at) = expiry.look() {
                let timer = rt::sleep_until(at);
                futures::pin_mut!(timer);
                if let Either::Right(_) = select(timer, &mut gone).await {
                    return;
                }
            }
        });
    }
}

struct Expiry {
    engine: Weak<Engine>,
    /// It has said so to the engine.
    is_done: bool,
}

impl Expiry {
    fn look(&mut self) -> Option<tokio::time::Instant> {
        let engine = self.engine.upgrade()?;
        let at = engine.maintain_leases();
        self.is_done = at.is_none();
        Some(engine.core.origin + Duration::from_nanos(at?))
    }
}

impl Drop for Expiry {
    /// The runtime is ending: the next lease starts another task.
    fn drop(&mut self) {
        if !self.is_done
            && let Some(engine) = self.engine.upgrade()
        {
            engine.knowledge().leases.expiry_task = None;
        }
    }
}
