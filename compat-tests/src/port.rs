//! Ports for servers and proxies.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

/// A port on which nothing is listening.
///
/// It is below the range from which the kernel takes ports for outgoing
/// connections, so that it stays free while a server is down in the middle of a
/// test. Another process can still take it first: the caller tries again.
pub fn candidate() -> u16 {
    loop {
        let port = 10_000 + (RandomState::new().hash_one(()) % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
