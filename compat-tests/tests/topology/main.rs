//! How servers are reached: TLS, Unix sockets and credentials, and the topologies.

mod addresses;
mod certificates;
mod cluster;
mod fleet;
mod login;
mod mistakes;
mod replicated;
mod sentinel;
mod tls;
