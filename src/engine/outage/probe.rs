//! The task that looks for the server while a circuit is open.
//!
//! It runs in the runtime of the call that opened the circuit. If that ends, or nobody runs it, the
//! next call starts another one in its own. There is none while a circuit is closed.

use std::sync::{Arc, Weak};

use super::circuit::{Circuit, ProberNumber};
use crate::engine::{Core, Engine};
use crate::rt;
use crate::store::ProbeCall;

struct Prober {
    /// Weak: a client that nobody holds any more is not kept for the sake of its server.
    core: Weak<Core>,
    circuit: Arc<Circuit>,
    number: ProberNumber,
}

impl Engine {
    pub(super) fn start_prober(&self, circuit: &Arc<Circuit>, number: ProberNumber) {
        let core = Arc::downgrade(&self.core);
        let prober = Prober { core, circuit: circuit.clone(), number };
        self.core.spawn(async move { prober.run().await });
    }

    /// Starts a prober if the circuit is open and has none that runs.
    pub(super) fn replace_prober(&self, circuit: &Arc<Circuit>) {
        if let Some(number) = circuit.needs_prober(self.core.now(), self.core.attempt) {
            self.start_prober(circuit, number);
        }
    }
}

impl Prober {
    async fn run(&self) {
        while let Some(at) = self.circuit.probe_at(self.number) {
            let Some(due) = self.core().map(|core| core.instant_of(at)) else { return };
            rt::sleep_until(due).await;
            let Some(core) = self.core() else { return };
            let limit = core.attempt;
            let Some(keys) = self.circuit.begin_probe(self.number, core.now(), limit) else {
                continue;
            };
            match core.store.run(&keys, ProbeCall, limit).await {
                Err(error) if error.is_outage() => {
                    self.circuit.probe_failed(self.number, core.now(), error);
                    core.make_room_for_stand_ins();
                }
                // Anything else is an answer of the server.
                _ => self.circuit.close(core.now()),
            }
        }
        // An answer to an earlier call may have closed it. Limiters that are used no more are to be
        // written to all the same.
        if let Some(core) = self.core() {
            core.end_stand_ins().await;
        }
    }

    /// The client, unless it is gone or closed.
    fn core(&self) -> Option<Arc<Core>> {
        self.core.upgrade().filter(|core| !core.outages.is_closed())
    }
}

impl Drop for Prober {
    /// It is not needed any more, or its runtime is ending.
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            self.circuit.prober_gone(self.number, core.now());
        }
    }
}
