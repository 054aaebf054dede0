//! The task that ends leases in time: at the end of their hold, or when they are idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::pool::Nanos;
use super::{Engine, State, rt};

impl Engine {
    /// The clock that dates entries may have been set: leases may be at their end.
    pub(crate) fn clock_was_set(self: &Arc<Self>) {
        if let Some(leasing) = self.leasing.get() {
            self.with_leftovers(|state, left| state.leases.look(&self.core, leasing, left));
        }
    }

    /// Looks after the leases; answers when to do so again, `None` where there are none.
    fn look_after(self: &Arc<Self>) -> Option<Nanos> {
        let leasing = self.leasing.get()?;
        self.with_leftovers(|state, left| {
            let again = state.leases.look(&self.core, leasing, left);
            state.leases.kept &= again.is_some();
            again
        })
    }
}

/// Has a task look after the leases until none is out, unless there is one. Under the engine's
/// lock. It does not keep an engine alive that nobody else holds: what is left then expires.
pub(super) fn spawn(engine: &Arc<Engine>, state: &mut State) {
    if state.leases.kept || !state.leases.is_out() || !rt::can_spawn() {
        return;
    }
    state.leases.kept = true;
    let mut keeper = Keeper { engine: Arc::downgrade(engine), done: false };
    rt::spawn(async move {
        while let Some(at) = keeper.look() {
            rt::sleep_until(at).await;
        }
    });
}

struct Keeper {
    engine: Weak<Engine>,
    /// It has said so to the engine.
    done: bool,
}

impl Keeper {
    fn look(&mut self) -> Option<tokio::time::Instant> {
        let engine = self.engine.upgrade()?;
        let at = engine.look_after();
        self.done = at.is_none();
        Some(engine.core.origin + Duration::from_nanos(at?))
    }
}

impl Drop for Keeper {
    /// The runtime is going down: the next lease finds another keeper.
    fn drop(&mut self) {
        if !self.done
            && let Some(engine) = self.engine.upgrade()
        {
            engine.lock().leases.kept = false;
        }
    }
}
