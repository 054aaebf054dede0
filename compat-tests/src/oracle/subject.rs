//! What is tested: an implementation that executes operations at a virtual
//! time, and the site where it keeps its state.

use super::ops::{Op, Outcome, Shape};
use super::state::State;

/// One operation of one client on one limiter.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Which client makes it.
    pub client: usize,
    /// The limiter.
    pub name: &'a str,
    /// The operation.
    pub op: &'a Op,
    /// The client's clock, in milliseconds since the epoch: virtual.
    pub now: u64,
}

/// An implementation: a Redisson release, or this crate over one of its stores.
#[allow(async_fn_in_trait)]
pub trait Subject {
    /// Its name in reports.
    fn label(&self) -> String;

    /// Whether it has this operation.
    fn supports(&self, shape: Shape) -> bool;

    /// Executes one operation.
    async fn apply(&self, call: Call<'_>) -> Outcome;

    /// Forgets everything it keeps in its own memory; shared state stays.
    /// Called before each program.
    async fn forget(&self) {}
}

/// What happens to a key when virtual time advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It expires.
    Gone,
    /// It has this many milliseconds left.
    Left(u64),
}

/// Where the state of limiters is stored: a database of a server, or an
/// in-process store.
#[allow(async_fn_in_trait)]
pub trait Site {
    /// Deletes everything.
    async fn clear(&self);

    /// The contents of these keys.
    async fn capture(&self, keys: &[String]) -> State;

    /// Advances virtual time. A store with a manual clock sets that clock and
    /// needs no fates.
    async fn advance(&self, now: u64, fates: &[(String, Fate)]);

    /// Sets these keys to exactly what `state` says. False if this site cannot
    /// do that.
    async fn restore(&self, keys: &[String], state: &State) -> bool;
}
