//! Servers with many limiters.

use std::time::{Duration, Instant};

use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use compat_tests::proxy::Proxy;
use compat_tests::server::Server;
use redis::cmd;

use crate::seed::{self, of_redisson};
use crate::tool::Tool;

const MINUTE_MS: i64 = 60_000;

/// Limiters of 100/m with 1 permit in use, but for the last, which has 90.
async fn seed(server: &Server, limiters: usize) {
    let mut commands = redis::pipe();
    for limiter in 0..limiters {
        let name = format!("limiter {limiter:04}");
        let keys = Keys::new(&name);
        let used = if limiter + 1 == limiters { 90 } else { 1 };
        let fields =
            [("rate", "100"), ("interval", "60000"), ("type", "0"), ("keepAliveTime", "0")];
        commands.cmd("HSET").arg(&name).arg(&fields);
        commands.cmd("SET").arg(keys.value(None)).arg(100 - used);
        commands.cmd("ZADD").arg(keys.log(None)).arg(seed::now_ms() - MINUTE_MS / 4);
        commands.arg(Entry::encode(&of_redisson(1), used));
    }
    let () = commands.query_async(&mut server.connect().await).await.unwrap();
}

/// All of them are on their way to a server that is far away, rather than one after the other.
#[tokio::test]
async fn many_limiters_are_looked_at_together() {
    const LIMITERS: usize = 200;
    const ONE_WAY: Duration = Duration::from_millis(50);
    let server = Server::start().await;
    seed(&server, LIMITERS).await;
    let proxy = Proxy::start(&server).await;
    proxy.delay(ONE_WAY, ONE_WAY);
    let tool = Tool::at(&proxy.url());
    let one_after_the_other = 2 * ONE_WAY * LIMITERS as u32;
    let check = async |code, arguments: &[&str]| {
        let begun = Instant::now();
        let seen = tool.json(code, arguments).await;
        let took = begun.elapsed();
        assert!(took < one_after_the_other / 2, "{arguments:?}: {took:?}");
        seen
    };
    let top = check(0, &["top", "--json", "--limit", "1"]).await;
    assert_eq!(
        (&top["found"], &top["limiters"][0]["limiter"]),
        (&200.into(), &"limiter 0199".into())
    );
    let list = check(0, &["list", "--json"]).await;
    let names = list["limiters"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|row| row["limiter"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, (0..LIMITERS).map(|n| format!("limiter {n:04}")).collect::<Vec<_>>());
    let all = check(0, &["doctor", "--all", "--json"]).await;
    assert_eq!(all["examined"], LIMITERS);

    // An excess each.
    let mut drift = redis::pipe();
    for limiter in 0..LIMITERS {
        let name = format!("limiter {limiter:04}");
        drift.cmd("SET").arg(Keys::new(&name).value(None)).arg(100);
    }
    let () = drift.query_async(&mut server.connect().await).await.unwrap();
    let all = check(0, &["doctor", "--all", "--fix", "--yes", "--json"]).await;
    assert_eq!(all["limiters"].as_array().unwrap().len(), LIMITERS);
    assert_eq!(all["limiters"][7]["left"], serde_json::json!([]), "{all:#}");
}

/// Otherwise this would take longer than a test may.
#[tokio::test]
async fn there_is_a_pause_between_steps_of_a_scan_and_nowhere_else() {
    let server = Server::start().await;
    seed(&server, 3).await;
    let tool = Tool::on(&server);
    let one_step = ["--scan-count", "100000", "--scan-pause", "1h"];
    for command in [&["top"][..], &["list"], &["doctor", "--all"]] {
        tool.ends(0, &[command, &one_step].concat()).await;
    }
    tool.ends(0, &["doctor", "limiter 0000", "limiter 0001", "--scan-pause", "1h"]).await;
}

#[tokio::test]
async fn a_list_has_every_limiter_that_has_a_value_or_a_log() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let ran = tool.ends(0, &["list"]).await;
    assert_eq!(ran.stdout, "0 limiters with a value or a log\n");
    tool.ends(0, &["acquire", "shop:b", "--rate", "5/s"]).await;
    tool.ends(0, &["acquire", "shop:a", "--rate", "10/h per client"]).await;
    tool.ends(0, &["acquire", "{c}", "--rate", "7/m, keep-alive 1h"]).await;
    // Orphans, a hash that cannot be read, and a name on two lines.
    let () = server.run(cmd("SET").arg("{gone}:value").arg(5).take()).await;
    seed::hash(&server, "bad", &[("rate", "ten"), ("interval", "5"), ("type", "0")]).await;
    let () = server.run(cmd("SET").arg("{bad}:value").arg(5).take()).await;
    tool.ends(0, &["acquire", "two\nlines", "--rate", "1/s"]).await;
    let ran = tool.ends(0, &["list"]).await;
    let lines: Vec<_> = ran.stdout.lines().map(|line| line.trim_end().to_owned()).collect();
    assert_eq!(
        lines,
        [
            "limiter       rate",
            "bad           cannot be read: see doctor",
            "gone          no limiter any more: see doctor",
            "shop:a        10/h per client",
            "shop:b        5/s",
            "\"two\\nlines\"  1/s",
            "{c}           7/m, keep-alive 1h",
            "6 limiters with a value or a log",
        ],
    );
    let list = tool.json(0, &["list", "--json"]).await;
    assert_eq!((&list["schema"], &list["found"]), (&1.into(), &6.into()));
    assert_eq!(list["limiters"][2]["rate"]["mode"], "PER_CLIENT");
    assert_eq!(list["limiters"][2]["clients"], 1);
    assert!(list["limiters"][1]["rate"].is_null() && list["limiters"][1]["problem"].is_null());
    assert!(list["limiters"][0]["problem"].is_string());
    // With their prefix, the names are those of a client that has it.
    let ran = tool.ends(0, &["list", "--key-prefix", "shop:"]).await;
    assert!(ran.stdout.contains("\na        10/h per client\nb        5/s\n"), "{ran:?}");
}
