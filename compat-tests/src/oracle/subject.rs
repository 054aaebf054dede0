//! What is tested: something that carries out operations at a virtual time,
//! and the place where it keeps its state.

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
    /// What it is called in reports.
    fn label(&self) -> String;

    /// Whether it has this operation at all.
    fn supports(&self, shape: Shape) -> bool;

    /// Carries out one operation.
    async fn apply(&self, call: Call<'_>) -> Outcome;

    /// Everything it keeps in its own memory is forgotten; what is shared
    /// stays. Called before each program.
    async fn forget(&self) {}
}

/// What becomes of a key when virtual time goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It expires.
    Gone,
    /// This many milliseconds are left to it.
    Left(u64),
}

/// Where the state of limiters is: a database of a server, or an in-process
/// store.
#[allow(async_fn_in_trait)]
pub trait Site {
    /// Forgets everything.
    async fn clear(&self);

    /// What these keys hold.
    async fn capture(&self, keys: &[String]) -> State;

    /// Makes virtual time go on. A store with a clock of its own to set does
    /// that and needs no fates.
    async fn advance(&self, now: u64, fates: &[(String, Fate)]);

    /// Makes these keys hold what `state` says, and nothing else. False where
    /// this cannot be done here.
    async fn restore(&self, keys: &[String], state: &State) -> bool;
}
