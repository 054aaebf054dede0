//! Whatever a limiter is called, and whatever it is asked for, nothing but its five keys is touched. (One more is
//! looked for: the hash of the limiter that has the same values and logs.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use compat_tests::keys::Keys;
use compat_tests::monitor::{Command, Monitor};
use compat_tests::server::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{Client, ErrorKind, Rate};

use crate::calls;

/// What names are made of: what means something to a server, its protocol, its patterns, its
/// clusters, Lua, and Redisson's names.
const PARTS: [&str; 34] = [
    "a",
    "api",
    "b",
    ":",
    "value",
    "permits",
    ":value",
    ":permits",
    "{",
    "}",
    "{a}",
    "{}",
    "}{",
    "\n",
    "\r\n",
    "\0",
    "\t",
    " ",
    "*",
    "?",
    "[a-z]",
    "\\",
    "'",
    "\"",
    "]]",
    "--",
    "$3\r\nDEL\r\n",
    "%00",
    "é",
    "\u{1f4a5}",
    "\u{202e}",
    "../",
    "hash",
    "0",
];

fn name(random: &mut StdRng) -> String {
    match random.random_range(0..20) {
        0 => "x".repeat(random.random_range(1_000..20_000)),
        1 => (0..random.random_range(1..9)).map(|_| random.random::<char>()).collect(),
        _ => (0..random.random_range(1..7)).map(|_| *PARTS.choose(random).unwrap()).collect(),
    }
}

/// The five keys of a limiter, as the wire format has them.
fn keys_of(name: &str, client: &str) -> BTreeSet<Vec<u8>> {
    let keys = Keys::new(name);
    let mut all = vec![keys.hash().to_owned()];
    for client in [None, Some(client)] {
        all.extend([keys.value(client), keys.log(client)]);
    }
    all.into_iter().map(String::into_bytes).collect()
}

/// The hashes of limiters that may have the same values and logs: of `api` it is that of `{api}`.
fn siblings_of(name: &str) -> [Vec<u8>; 2] {
    let inner = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
    [format!("{{{name}}}").into(), inner.unwrap_or(name).into()]
}

/// The keys of a command, as the server understands it.
fn touched(command: &Command) -> &[Vec<u8>] {
    let words = &command.words;
    let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
    match name.as_str() {
        "EVAL" | "EVALSHA" => {
            let count: usize =
                String::from_utf8_lossy(&words[2]).parse().expect("a number of keys");
            &words[3..3 + count]
        }
        "DEL" | "EXISTS" | "TOUCH" | "RENAME" => &words[1..],
        "MEMORY" => &words[2..3],
        "PING" | "TIME" | "CLIENT" | "AUTH" | "HELLO" => &[],
        "GET" | "SET" | "HGET" | "HMGET" | "HSET" | "HSETNX" | "INCRBY" | "DECRBY" | "PTTL"
        | "PERSIST" | "PEXPIRE" | "PEXPIREAT" | "ZADD" | "ZCARD" | "ZCOUNT" | "ZRANGE"
        | "ZRANGEBYSCORE" | "ZREM" | "ZREMRANGEBYRANK" | "ZSCORE" | "ZMSCORE" => &words[1..2],
        other => panic!("{other} is not a command of this crate"),
    }
}

/// All keys and what they hold.
async fn content(server: &Server) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut connection = server.connect().await;
    let keys: Vec<Vec<u8>> =
        redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let mut content = BTreeMap::new();
    for key in keys {
        let dump = redis::cmd("DUMP").arg(&key).query_async(&mut connection).await.unwrap();
        content.insert(key, dump);
    }
    content
}

/// The only way in which two names share a key: each of the two then fails, and says why.
#[tokio::test]
async fn a_name_made_of_the_keys_of_another_is_refused() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let rate = Rate::per_minute(5);
    client.limiter("api").unwrap().with_rate(rate).acquire(1).await.unwrap();
    for name in ["{api}:value", "{api}:permits"] {
        let error = client.limiter(name).unwrap().set_rate(rate).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    client.limiter("{other}:value").unwrap().set_rate(rate).await.unwrap();
    let other = client.limiter("other").unwrap().with_rate(rate);
    let error = other.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test]
async fn names_reach_their_own_keys_only() {
    let seed = std::env::var("NAMES_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    let names = std::env::var("NAMES").map_or(8, |names| names.parse().expect("NAMES is a number"));
    println!("NAMES_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = Server::start().await;
    if !server.monitor_escapes().await {
        println!("skipped: its MONITOR does not escape quotes and backslashes");
        return;
    }
    // Keys that are nobody's, and look as if they were.
    for _ in 0..200 {
        let key = name(&mut random) + PARTS.choose(&mut random).unwrap();
        let () = server.run(redis::cmd("SET").arg(key + "~").arg("mine").take()).await;
    }
    let before = content(&server).await;
    let mut monitor = Monitor::start(&server).await;
    for prefix in ["", "p:", "{t}:", "\r\n{"] {
        // Names are of up to some megabytes.
        let client = Client::builder().key_prefix(prefix).deadline(Duration::from_secs(20));
        let client = client.connect(&server.url()).await.unwrap();
        for _ in 0..names {
            let (name, renamed) = (name(&mut random), name(&mut random) + "2");
            monitor.take().await;
            let result = calls::all(&client, &name, &renamed).await;
            assert!(result.is_ok(), "{name:?}, then {renamed:?}: {result:?}");
            let mut own = keys_of(&format!("{prefix}{name}"), client.id());
            own.extend(keys_of(&format!("{prefix}{renamed}"), client.id()));
            let siblings = siblings_of(&format!("{prefix}{name}"));
            let commands = monitor.take().await;
            assert!(commands.len() > 100, "{commands:?}");
            for command in commands.iter().filter(|command| !command.is("ECHO")) {
                for key in touched(command) {
                    let shown = || String::from_utf8_lossy(key).into_owned();
                    // The script is given its name, and asks whether it exists.
                    let is_question = ["EVAL", "EVALSHA", "EXISTS"].iter().any(|it| command.is(it));
                    let is_looked_for = is_question && siblings.contains(key);
                    assert!(
                        own.contains(key) || is_looked_for,
                        "{:?} of {name:?}, {renamed:?}",
                        shown()
                    );
                }
            }
        }
        client.close().await;
    }
    assert_eq!(content(&server).await, before, "nothing is left behind, and nothing else changed");
}
