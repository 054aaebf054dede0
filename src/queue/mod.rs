//! The order of requests: who goes into the next call, and when to ask again.
//!
//! The queue of one limiter is a state machine without I/O or clock. Events go in (a request
//! arrives, a call is answered, a caller gives up), calls and wakeups come out, and time is an
//! argument. At most one call is in flight; requests that arrive meanwhile share the next one. A
//! waiting request that does not fit blocks all behind it until the time that the server named for
//! it, and nothing is asked before that time unless a newcomer's answer depends on it.
//!
//! `C` is how a caller learns what became of its request; the queue only keeps it.

mod arrive;
mod batch;
mod events;
mod expire;
mod head_block;
mod reply;
mod reserve;
mod share;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use self::events::*;
pub(crate) use self::state::Queue;
