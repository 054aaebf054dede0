//! Limiters, sound and damaged, as commands of the server write them.

use std::time::{SystemTime, UNIX_EPOCH};

use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use compat_tests::server::Server;
use redis::cmd;

/// An entry in the log: how long ago it was written, in ms (negative: it is dated ahead).
pub(crate) struct Old {
    pub(crate) age_ms: i64,
    pub(crate) id: [u8; 16],
    pub(crate) permits: u32,
}

/// An id as Redisson makes them.
pub(crate) fn of_redisson(number: u8) -> [u8; 16] {
    [number; 16]
}

/// An id of a client of this crate.
pub(crate) fn of_client(client: u8, number: u8) -> [u8; 16] {
    let mut id = [number & 0x7f; 16];
    id[..8].copy_from_slice(&[0xa7, 0x52, 0xf1, 1, 0xc1, 0x1e, 0x47, client]);
    id
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Writes the hash.
pub(crate) async fn hash(server: &Server, name: &str, fields: &[(&str, &str)]) {
    let () = server.run(cmd("HSET").arg(name).arg(fields).take()).await;
}

/// Writes the value and the log, for all clients or for one.
pub(crate) async fn budget(
    server: &Server,
    name: &str,
    client: Option<&str>,
    value: Option<&str>,
    log: &[Old],
) {
    let keys = Keys::new(name);
    if let Some(value) = value {
        let () = server.run(cmd("SET").arg(keys.value(client)).arg(value).take()).await;
    }
    for Old { age_ms, id, permits } in log {
        let mut add = cmd("ZADD");
        add.arg(keys.log(client)).arg(now_ms() - age_ms).arg(Entry::encode(id, *permits));
        let () = server.run(add).await;
    }
}

/// An OVERALL limiter.
pub(crate) async fn overall(server: &Server, name: &str, rate: u64, interval_ms: u64) {
    let (rate, interval) = (rate.to_string(), interval_ms.to_string());
    let fields = [("rate", &*rate), ("interval", &interval), ("type", "0"), ("keepAliveTime", "0")];
    hash(server, name, &fields).await;
}

pub(crate) async fn get(server: &Server, key: &str) -> Option<String> {
    server.run(cmd("GET").arg(key).take()).await
}

pub(crate) async fn exists(server: &Server, key: &str) -> bool {
    server.run(cmd("EXISTS").arg(key).take()).await
}
