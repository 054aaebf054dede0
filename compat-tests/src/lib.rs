//! Support for the tests that run this crate together with a real Redisson.
//!
//! A scenario is written once against the peer protocol and run with any mix
//! of Rust and Java peers on one server:
//!
//! - [`server`] starts Redis or Valkey servers that a test owns, with a user that may do no more than
//!   [`acl`] says; [`sentinels`] has a master, its
//!   replica, and the sentinels that watch them, and [`cluster`] six nodes;
//! - [`peer`] starts peer processes and calls them; [`clock`] sets the clocks of the machines on
//!   which peers and servers run;
//! - [`scenario`] combines the two: which peers take part, a fresh limiter
//!   name for each run, what is printed when a run fails;
//! - [`proxy`] sits between a peer and its server and disturbs the network;
//!   [`faults`] disturbs servers and clients too, and measures what callers see of it;
//! - [`watch`] records every log entry that any client writes, and [`ledger`]
//!   checks them, without knowing either implementation;
//! - [`fleet`] has processes of both kinds use one limiter, and compares what each
//!   kind was granted with the log;
//! - [`dump`] shows one limiter as the server stores it, and the difference
//!   between two; [`keys`] and [`entry`] have the names and the bytes;
//! - [`store`] runs one scenario on a server and on the store in this process,
//!   [`runtimes`] makes the runtimes that it is called from, and [`watchdog`]
//!   fails it if it hangs;
//! - [`empty`] calls an empty script, which benchmarks have as the lower bound,
//!   and [`busy`] keeps cores from halting meanwhile;
//! - [`oracle`] replays real Redisson releases in virtual time, against each
//!   other and against this crate, in random programs.
//!
//! A support function that fails panics with the reason: a test has no use
//! for an error value.

pub mod acl;
pub mod clock;
pub mod cluster;
pub mod dump;
pub mod empty;
pub mod entry;
pub mod faults;
pub mod fleet;
pub mod keys;
pub mod ledger;
pub mod log;
pub mod machine;
pub mod monitor;
pub mod oracle;
pub mod peer;
pub mod port;
mod process;
pub mod proxy;
mod resp;
pub mod runtimes;
pub mod scenario;
pub mod sentinels;
pub mod server;
pub mod store;
pub mod watch;
pub mod watchdog;
