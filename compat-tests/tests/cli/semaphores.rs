//! Semaphores: what `inspect` shows of them, and every kind of damage that `doctor` finds.

use std::time::Duration;

use compat_tests::server::Server;
use redis::cmd;
use redisson_rate_limiter::{Client, SemaphoreOptions};

use crate::seed::now_ms;
use crate::tool::Tool;

const NO_END: i64 = 922_337_203_685_477;

async fn set(server: &Server, name: &str, value: &str) {
    let () = server.run(cmd("SET").arg(name).arg(value).take()).await;
}

/// Adds permits that are out, with these ends.
async fn add(server: &Server, name: &str, ends: &[&str]) {
    let mut add = cmd("ZADD");
    add.arg(format!("{{{name}}}:timeout"));
    for (at, end) in ends.iter().enumerate() {
        add.arg(end).arg(&(at as u128).to_be_bytes());
    }
    let () = server.run(add).await;
}

/// The kinds of the findings.
async fn found(tool: &Tool, name: &str, more: &[&str]) -> Vec<String> {
    let arguments = [&["doctor", name, "--semaphore", "--json"], more].concat();
    let seen = tool.json(1, &arguments).await;
    let findings = seen["limiters"][0]["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_is_held_is_shown_and_nothing_is_wrong() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let client = Client::connect(&server.url()).await.unwrap();
    let options = SemaphoreOptions::new().permits(5).lease(Duration::from_secs(3600));
    let permit = client.concurrency_with("jobs", options).unwrap().acquire(2).await.unwrap();
    let seen = tool.json(0, &["inspect", "jobs", "--semaphore", "--json"]).await;
    assert_eq!((&seen["free"], &seen["out"], &seen["total"]), (&3.into(), &2.into(), &5.into()));
    let entries = seen["permits"]["entries"].as_array().unwrap();
    let mut ids: Vec<_> = entries.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, permit.ids());
    let left = entries[0]["ends_ms"].as_f64().unwrap() - seen["now_ms"].as_f64().unwrap();
    assert!(left > 3_500_000.0 && entries[0]["has_lease"] == true, "{seen:#}");
    let text = tool.ends(0, &["inspect", "jobs", "--semaphore"]).await.stdout;
    for part in ["3 free, no time to live", "2 permits, no time to live", "5 permits", "ends in"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let examined = ["doctor", "jobs", "--semaphore", "--permits", "5"];
    let text = tool.ends(0, &examined).await.stdout;
    assert_eq!(text, "1 semaphore examined: nothing found\n");
    tool.ends(3, &["inspect", "none", "--semaphore"]).await;
    tool.ends(3, &["doctor", "none", "--semaphore"]).await;
    tool.ends(2, &["doctor", "jobs", "--semaphore", "--fix"]).await;
    drop(permit);
    client.close().await;
}

#[tokio::test]
async fn the_busiest_are_shown() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let (soon, later) = (now_ms() + 100_500, (now_ms() + 3_630_000).to_string());
    set(&server, "uploads", "3").await;
    add(&server, "uploads", &["1700000000000", &soon.to_string()]).await;
    set(&server, "jobs", "0").await;
    add(&server, "jobs", &[&later, &NO_END.to_string()]).await;
    set(&server, "plain", "7").await;
    let names = ["top", "plain", "uploads", "jobs", "--semaphore"];
    let text = tool.ends(0, &names).await.stdout;
    let rows: Vec<Vec<&str>> = text.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..8], ["jobs", "0", "2", "2", "ends", "in", "60", "min"], "{text}");
    assert_eq!(rows[1][8..10], ["100", "%"], "{text}");
    assert_eq!(rows[2][..6], ["uploads", "4", "1", "5", "ends", "in"], "{text}");
    assert_eq!(rows[2][8..10], ["20", "%"], "{text}");
    assert_eq!(rows[3], ["plain", "7", "0", "7", "-", "0", "%"], "{text}");
    let seen =
        tool.json(0, &["top", "--semaphore", "plain", "jobs", "--json", "--limit", "1"]).await;
    assert_eq!(seen["semaphores"].as_array().unwrap().len(), 1);
    assert_eq!(seen["semaphores"][0]["semaphore"], "jobs");
    assert_eq!(seen["semaphores"][0]["out"], 2);
    tool.ends(3, &["top", "none", "--semaphore"]).await;
    tool.ends(2, &["top", "--semaphore"]).await;
    tool.ends(2, &["top", "jobs"]).await;
}

#[tokio::test]
async fn damage_is_found() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let later = (now_ms() + 3_630_000).to_string();
    for value in ["1e+17", "100000000000000000", "1.5", "abc"] {
        set(&server, "unreadable", value).await;
        assert_eq!(found(&tool, "unreadable", &[]).await, ["unreadable"], "{value}");
        tool.ends(6, &["inspect", "unreadable", "--semaphore"]).await;
    }
    set(&server, "negative", "-2").await;
    assert_eq!(found(&tool, "negative", &[]).await, ["permits"]);
    add(&server, "lone", &[&later]).await;
    assert_eq!(found(&tool, "lone", &[]).await, ["no-value"]);
    // The value alone lives for a limited time.
    set(&server, "times", "1").await;
    add(&server, "times", &[&later]).await;
    let () = server.run(cmd("EXPIRE").arg("times").arg(100).take()).await;
    assert_eq!(found(&tool, "times", &[]).await, ["times-to-live"]);
    for end in ["-5", "1795406224070.5", "325036800000000", "1002", "inf"] {
        let name = format!("odd{end}");
        set(&server, &name, "1").await;
        add(&server, &name, &[end]).await;
        assert_eq!(found(&tool, &name, &[]).await, ["lease-ends"], "{end}");
    }
    set(&server, "far", "1").await;
    add(&server, "far", &["1e300"]).await;
    let shown = tool.ends(0, &["inspect", "far", "--semaphore"]).await.stdout;
    assert!(shown.contains("a lease that ends at 1e300\n"), "{shown}");
    set(&server, "endless", "1").await;
    add(&server, "endless", &[&later, &NO_END.to_string()]).await;
    assert_eq!(found(&tool, "endless", &["--permits", "3"]).await, ["no-lease"]);
    assert_eq!(found(&tool, "endless", &["--permits", "4"]).await, ["no-lease", "permits"]);
    set(&server, "plain", "3").await;
    for permits in ["2", "4"] {
        assert_eq!(found(&tool, "plain", &["--permits", permits]).await, ["permits"]);
    }
    tool.ends(0, &["doctor", "plain", "--semaphore"]).await;
    let () = server.run(cmd("LPUSH").arg("{list}:timeout").arg("a").take()).await;
    set(&server, "list", "1").await;
    assert_eq!(found(&tool, "list", &[]).await, ["wrong-type"]);
    set(&server, "overdue", "0").await;
    let ends = vec!["1700000000000"; 8000];
    add(&server, "overdue", &ends[..7999]).await;
    tool.ends(0, &["doctor", "overdue", "--semaphore"]).await;
    add(&server, "overdue", &ends).await;
    assert_eq!(found(&tool, "overdue", &[]).await, ["overdue"]);
}
