//! The queue in virtual time, against a simple model of a server.

use super::{Arrival, MaxWait, Queue, Request, Ticket, Time};

mod calls;
mod fleet;
mod random;
mod reserve;
mod share;
mod waits;
mod world;

use self::world::{Fate, Server, World};

const MS: Time = 1000;
const DEADLINE: Time = 10 * MS;

/// A request arrives, in the way the engine adds it.
fn arrive<W, A: Default>(
    queue: &mut Queue<W, A>,
    now: impl Fn() -> Time,
    request: Request,
    waker: W,
) -> Arrival {
    if queue.shared.is_empty() {
        queue.share_answer(A::default());
    }
    queue.arrive(now, request, &mut Some(waker))
}
