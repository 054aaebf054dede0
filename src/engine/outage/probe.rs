//! The task that probes the server while a circuit is open.
//!
//! It runs in the runtime of the call that opened the circuit. If that runtime ends or is parked, a later
//! call starts another prober in its own. There is none while a circuit is closed.

use std::sync::{Arc, Weak};

use super::circuit::Circuit;
use crate::engine::Core;
use crate::queue::Time;
use crate::rt;
use crate::store::ProbeCall;

impl Core {
    /// Starts a prober whose first probe is due at `due`.
    pub(super) fn start_prober(self: &Arc<Self>, circuit: &Arc<Circuit>, due: Time) {
        // Weak: a client that nobody holds any more must not be kept alive just to probe its server.
        self.spawn(run(Arc::downgrade(self), circuit.clone(), due));
    }
}

async fn run(client: Weak<Core>, circuit: Arc<Circuit>, mut due: Time) {
    // The client, unless it is gone or closed.
    let core = || client.upgrade().filter(|core| !core.outages.is_closed());
    loop {
        let Some(at) = core().map(|core| core.instant_of(due)) else { return };
        rt::sleep_until(at).await;
        let Some(core) = core() else { return };
        let Some((keys, answer_by)) = circuit.begin_probe(due, core.now(), core.attempt) else {
            break;
        };
        match core.store.run(&keys, ProbeCall, core.attempt).await {
            Err(error) if error.is_outage() => {
                let next = circuit.probe_failed(answer_by, core.now(), error);
                core.make_room_for_stand_ins();
                let Some(next) = next else { break };
                due = next;
            }
            // Any other result is an answer from the server.
            _ => {
                circuit.answered(core.now());
                break;
            }
        }
    }
    // An answer to an earlier call may have closed the circuit. The grants of limiters that are no longer
    // in use must be written to the log all the same.
    if let Some(core) = core() {
        core.end_stand_ins().await;
    }
}
