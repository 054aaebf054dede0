//! The calls that a store can answer, a type for each: its fields are the arguments, and next to them are the
//! reply, the rule in process, and the command and the answer of a server.
//!
//! A rule and its script in `lua/` are twins: they share names, decide alike, and leave the same state.

use std::fmt;

// Also the imports that the files of this folder have in common.
use crate::clock::Now;
use crate::error::Error;
use crate::rate::Rate;
use crate::store::memory::keyspace::Keyspace;
use crate::store::redis::{ServerAnswer, ServerCommand, script};
use crate::wire::keys::Keys;

mod acquire;
mod acquire_all;
mod charge;
mod config;
mod drop_usage;
mod expire;
mod foreign;
#[cfg(any(feature = "admin", test))]
mod inspect;
mod pause;
mod peek;
mod policy;
mod policy_all;
mod policy_script;
mod refund;
mod release;
mod remove_unused;
mod repair;
mod semaphore;
mod server;
mod set_rate;
mod share;
mod try_set_rate;
mod whole_limiter;

pub(crate) use acquire::*;
pub(crate) use acquire_all::*;
pub(crate) use charge::*;
pub(crate) use config::*;
pub(crate) use drop_usage::*;
pub use expire::*;
#[cfg(any(feature = "admin", test))]
pub(crate) use inspect::*;
pub(crate) use pause::*;
pub(crate) use peek::*;
pub(crate) use policy::*;
pub(crate) use policy_all::*;
pub(crate) use refund::*;
pub(crate) use release::*;
pub(crate) use remove_unused::*;
pub use repair::*;
pub(crate) use semaphore::*;
pub(crate) use server::*;
pub(crate) use set_rate::*;
pub(crate) use share::*;
pub(crate) use try_set_rate::*;
pub(crate) use whole_limiter::*;

/// A call that a store can answer about one limiter.
pub(crate) trait StoreCall: Clone + Send + Sync + 'static {
    type Reply: fmt::Debug + Send + 'static;

    /// The rule: carries the call out in process, as one step.
    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Self::Reply, Error>;

    /// The command for a server. In a cluster a command names a key, by which it is routed to a node, and a
    /// script names all keys of the limiter.
    fn command(&self, keys: &Keys, in_cluster: bool) -> ServerCommand;

    /// Reads a server's answer; `None` if it is not an answer to this call.
    fn read(&self, answer: ServerAnswer<'_>) -> Option<Self::Reply>;

    /// Fails if the nodes of a cluster cannot carry the call out.
    fn check_in_cluster(&self, _keys: &Keys) -> Result<(), Error> {
        Ok(())
    }

    /// The call to make instead, if this answer says that nothing was done, as the call was not what the server
    /// needs: it named the wrong keys, or windows of the calendar that are not around the server's time.
    fn corrected(&self, _answer: ServerAnswer<'_>) -> Option<Self> {
        None
    }
}
