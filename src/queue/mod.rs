//! The order of requests: which go into the next call, and when to ask again.
//!
//! The queue of one limiter is a state machine without I/O or clock. Events go in (a request
//! arrives, a call is answered, a caller gives up), calls and wakeups come out, and time is an
//! argument. At most one call is in flight; requests that arrive meanwhile share the next one. A waiting
//! request that does not fit blocks all requests behind it until the time that the server gave for it. The
//! queue asks nothing before that time unless a new request's answer depends on it.
//!
//! `C` is a handle by which a caller learns the outcome of its request; the queue only stores it.

mod arrive;
mod batch;
mod events;
mod head_block;
mod reply;
mod reserve;
mod share;
mod state;
mod step;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub(crate) use self::events::*;
pub(crate) use self::state::Queue;
