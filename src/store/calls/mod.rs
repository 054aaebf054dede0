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
#[cfg(any(feature = "admin", test))]
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
#[cfg(any(feature = "admin", test))]
mod remove_unused;
#[cfg(any(feature = "admin", test))]
mod repair;
mod semaphore;
mod server;
mod set_rate;
mod share;
mod try_set_rate;
mod whole_limiter;

pub(crate) use acquire::pack_groups;
pub(crate) use acquire::{
    AcquireCall, AcquireReply, Earlier, Outcome, OutcomeGroup, RequestGroup, Wait, decided,
    push_outcome, total_permits,
};
pub(crate) use acquire_all::{AcquireAllCall, AcquireAllReply, LimitReply};
pub(crate) use charge::{ChargeCall, ChargeReply};
pub(crate) use config::ConfigCall;
#[cfg(any(feature = "admin", test))]
pub(crate) use drop_usage::DropUsageCall;
pub(crate) use expire::{ClearExpireCall, ExpireCall, Lifetime, PersistCall, RemainingTimeCall};
pub use expire::{ExpireCondition, RemainingTime};
#[cfg(test)]
#[cfg(any(feature = "admin", test))]
pub(crate) use inspect::InspectReply;
#[cfg(any(feature = "admin", test))]
pub(crate) use inspect::{InspectCall, SemaphoreInspectCall};
pub(crate) use pause::PauseCall;
pub(crate) use peek::{PeekCall, PeekReply};
pub(crate) use policy::{
    LaneCall, PolicyCall, PolicyChangeCall, PolicyPeek, PolicyPeekCall, PolicyRefundCall,
    PolicyReply,
};
pub(crate) use policy_all::PolicyAllCall;
pub(crate) use refund::RefundCall;
#[cfg(all(test, not(shuttle)))]
pub(crate) use refund::RefundReply;
pub(crate) use release::ReleaseCall;
#[cfg(any(feature = "admin", test))]
pub(crate) use remove_unused::RemoveUnusedCall;
#[cfg(any(feature = "admin", test))]
pub use repair::Repair;
#[cfg(any(feature = "admin", test))]
pub(crate) use repair::RepairCall;
pub(crate) use semaphore::*;
pub(crate) use server::{ProbeCall, ServerTimeCall};
pub(crate) use set_rate::{SetRateCall, StateRule};
pub(crate) use share::{Holders, ShareTerms};
pub(crate) use try_set_rate::TrySetRateCall;
pub(crate) use whole_limiter::{DeleteCall, ExistsCall, RenameCall, SizeCall, TouchCall};

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

    /// The keys of the limiters that it concerns, if they are several.
    fn other_keys(&self) -> impl Iterator<Item = &Keys> {
        std::iter::empty()
    }

    /// The call to make instead, if this answer says that nothing was done, as the call was not what the server
    /// needs: it named the wrong keys, or windows of the calendar that are not around the server's time.
    fn corrected(&self, _answer: ServerAnswer<'_>) -> Option<Self> {
        None
    }
}

/// The rate that a client last saw in a limiter's hash, and has applied to the value since.
///
/// A rate counts as another one if the permits or the mode differ. The mode belongs to it: if OVERALL was in
/// force for a while, the PER_CLIENT value left behind fits the rate before that, even if the number of
/// permits is the same again. The interval and the keep-alive say nothing about the value; a store that finds
/// all of it unchanged need not send it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenRate(Rate);

impl SeenRate {
    pub(crate) fn rate(self) -> Rate {
        self.0
    }

    /// Whether the value must be computed anew under this rate.
    pub(crate) fn is_another(self, rate: Rate) -> bool {
        (self.0.mode(), self.0.permits()) != (rate.mode(), rate.permits())
    }
}

impl From<Rate> for SeenRate {
    fn from(rate: Rate) -> Self {
        SeenRate(rate)
    }
}
