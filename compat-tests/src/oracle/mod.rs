//! Real Redisson releases as oracles, in virtual time.
//!
//! A Redisson of a given release runs each of its operations once, through the
//! Java peer, while a server records its commands ([`record`]). What it sent is
//! turned into templates ([`layout`]): this word is the name of the hash, that
//! one the rate, that one the time. [`replay`] sends the templates again with
//! names, numbers, times and entry ids that a test chooses. Recordings are
//! kept in memory only: nothing of Redisson is stored here.
//!
//! An oracle is a [`subject`]: something that executes [`ops`] at a virtual
//! time. So is this crate, over each of its stores. What the subjects write is
//! compared as [`state`]; [`vtime`] keeps the lifetimes of keys in
//! virtual time. Random [`program`]s are run
//!
//! - in [`lockstep`]: two subjects on separate databases must answer and write
//!   the same, except for the list of [`divergence`]s;
//! - [`mixed`]: several subjects on one limiter, verified by a [`checker`];
//! - with [`damage`]: the state is corrupted at a random point, and must heal
//!   ([`healing`]).
//!
//! A [`campaign`] spends a budget of operations on one of these, from a seed.

pub mod campaign;
pub mod checker;
pub mod damage;
pub mod database;
pub mod divergence;
pub mod healing;
pub mod in_process;
pub mod layout;
pub mod lockstep;
pub mod mixed;
pub mod ops;
pub mod ours;
pub mod program;
pub mod record;
pub mod replay;
pub mod state;
pub mod subject;
pub mod vtime;
pub mod world;
