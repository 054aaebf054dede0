//! The calls that a store can answer, a type for each: its fields are the arguments, and next to them are the
//! reply, the rule in process, and the command and the answer of a server.
//!
//! A rule and its script in `lua/` are twins: they share names, decide alike, and leave the same state.

use std::fmt;

// Also the imports that the files of this folder have in common.
use crate::error::Error;
use crate::rate::{MAX_EXACT, Mode, Rate, exact};
use crate::store::limits::*;
use crate::store::memory::*;
use crate::store::redis::{ServerAnswer, ServerCommand, check_one_slot, check_same_slot, script};
use crate::store::refusal;
use crate::wire::entry::*;
use crate::wire::keys::Keys;
use crate::wire::{FIELDS, KEEP_ALIVE, TYPE, integer, mode_text, texts};

mod acquire;
mod charge;
mod give_back;
#[cfg(any(feature = "admin", test))]
mod inspect;
mod keys;
mod peek;
mod policy;
mod policy_script;
mod rates;
mod remove_unused;
mod repair;
mod semaphore;
mod server;

pub(crate) use acquire::*;
pub(crate) use charge::*;
pub(crate) use give_back::*;
#[cfg(any(feature = "admin", test))]
pub(crate) use inspect::*;
pub use keys::*;
pub use peek::*;
pub(crate) use policy::*;
pub(crate) use rates::*;
pub(crate) use remove_unused::*;
pub use repair::*;
pub(crate) use semaphore::*;
pub(crate) use server::*;

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

    /// The call to make instead, if this answer says that nothing was done because the call was not what the server
    /// needs: it named the wrong keys, or windows of the calendar that are not around the server's time.
    fn corrected(&self, _answer: ServerAnswer<'_>) -> Option<Self> {
        None
    }
}
