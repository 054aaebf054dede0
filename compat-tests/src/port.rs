//! Ports for servers and proxies.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

/// A port on which nothing listens now.
///
/// It lies below the range from which the kernel takes ports for outgoing
/// connections, so that nobody takes it while a server is down in the middle
/// of a test. Another process may still be faster: the caller tries again.
pub(crate) fn candidate() -> u16 {
    loop {
        let port = 10_000 + (RandomState::new().hash_one(()) % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
