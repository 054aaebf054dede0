//! How servers are reached: TLS, Unix sockets and credentials, and the topologies.

mod certificates;
mod login;
mod replicated;
mod sentinel;
mod tls;
