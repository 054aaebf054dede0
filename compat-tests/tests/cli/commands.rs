//! Each command on limiters that are sound.

use std::time::Duration;

use compat_tests::acl;
use compat_tests::server::Server;
use redisson_rate_limiter::{Client, LimiterOptions, Rate};

use crate::seed::{self, Old, of_client, of_redisson};
use crate::tool::Tool;

const HOUR_MS: i64 = 3_600_000;
const CLIENTS: [&str; 2] =
    ["0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11", "6d0a5a3e-52a4-4a30-8f6e-5a3f0a9d2c22"];

#[tokio::test]
async fn a_limiter_is_set_used_changed_and_reset() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    assert_eq!(tool.ends(0, &["set", "api", "10/h"]).await.stdout, "api: 10/h (a new limiter)\n");
    let ran = tool.ends(1, &["set", "api", "7/h", "--if-absent"]).await;
    assert_eq!(ran.stdout, "api: there is a limiter already\n");
    let ran = tool.ends(0, &["acquire", "api", "4"]).await;
    assert_eq!(ran.stdout, "granted: 4 permits, 6 left of 10/h\n");
    let ran = tool.ends(1, &["acquire", "api", "7"]).await;
    assert!(ran.stdout.starts_with("denied: possible in 60 min"), "{ran:?}");
    let ran = tool.ends(0, &["update", "api", "20/h"]).await;
    assert_eq!(ran.stdout, "api: 20/h (was 10/h); the usage is kept\n");
    assert_eq!(seed::get(&server, "{api}:value").await.as_deref(), Some("16"));
    let ran = tool.ends(2, &["reset", "api"]).await;
    assert!(ran.stderr.contains("give --yes"), "{ran:?}");
    tool.ends(0, &["reset", "api", "--yes"]).await;
    let ran = tool.ends(0, &["acquire", "api", "20"]).await;
    assert_eq!(ran.stdout, "granted: 20 permits, 0 left of 20/h\n");
    tool.ends(0, &["reset", "api", "--delete", "--yes"]).await;
    for missing in [
        &["inspect", "api"][..],
        &["update", "api", "1/s"],
        &["acquire", "api"],
        &["reset", "api", "--yes"],
        &["reset", "api", "--delete", "--yes"],
        &["doctor", "api"],
    ] {
        let ran = tool.ends(3, missing).await;
        assert!(ran.stderr.contains("there is no limiter \"api\""), "{ran:?}");
    }
    let ran = tool.ends(0, &["acquire", "api", "--rate", "5/s"]).await;
    assert_eq!(ran.stdout, "granted: 1 permit, 4 left of 5/s\n");
}

/// Otherwise a lower rate, set in an incident, would begin with a burst.
#[tokio::test]
async fn a_rate_that_is_set_keeps_the_usage_unless_asked_and_says_so() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    tool.ends(0, &["acquire", "api", "80", "--rate", "100/h"]).await;
    for command in ["set", "update"] {
        let ran = tool.ends(0, &[command, "api", "50/h"]).await;
        assert!(ran.stdout.starts_with("api: 50/h (was "), "{ran:?}");
        assert!(ran.stdout.ends_with("; the usage is kept\n"), "{ran:?}");
        tool.ends(1, &["acquire", "api"]).await;
    }
    let ran = tool.ends(0, &["set", "api", "50/h", "--reset-usage"]).await;
    let said = "api: 50/h (was 50/h); the usage is forgotten: all 50 permits are available\n";
    assert_eq!(ran.stdout, said);
    tool.ends(0, &["acquire", "api", "50"]).await;
    // In another mode there are other permits.
    for command in [["set", "api", "9/h per client"], ["update", "api", "50/h"]] {
        let ran = tool.ends(0, &command).await;
        assert!(ran.stdout.contains("; the usage is forgotten, because the mode was "), "{ran:?}");
    }
    tool.ends(0, &["acquire", "api", "50"]).await;
    // What a client used before counts again, and the command does not know the clients.
    tool.ends(0, &["set", "api", "9/h per client"]).await;
    tool.ends(0, &["acquire", "api", "9", "--client-id", CLIENTS[0]]).await;
    let ran = tool.ends(0, &["set", "api", "50/h"]).await;
    assert!(ran.stdout.ends_with("; the usage is forgotten, because the mode was PER_CLIENT\n"));
    let ran = tool.ends(0, &["set", "api", "9/h per client"]).await;
    let said = "because the mode was OVERALL; that of clients from an earlier time in the mode PER_CLIENT counts again\n";
    assert!(ran.stdout.ends_with(said), "{ran:?}");
    tool.ends(1, &["acquire", "api", "--client-id", CLIENTS[0]]).await;
    // Each client has its own usage: only that of this one can be forgotten.
    tool.ends(0, &["set", "pc", "10/h per client"]).await;
    for client in CLIENTS {
        tool.ends(0, &["acquire", "pc", "10", "--client-id", client]).await;
    }
    let ran = tool.ends(0, &["set", "pc", "5/h per client"]).await;
    assert!(ran.stdout.ends_with("; the usage is kept\n"), "{ran:?}");
    for client in CLIENTS {
        tool.ends(1, &["acquire", "pc", "--client-id", client]).await;
    }
    let ran = tool.ends(2, &["set", "pc", "5/h per client", "--reset-usage"]).await;
    assert!(ran.stderr.contains("name a client with --client-id"), "{ran:?}");
    let reset = ["set", "pc", "5/h per client", "--reset-usage", "--client-id", CLIENTS[0]];
    let ran = tool.ends(0, &reset).await;
    assert!(
        ran.stdout.contains(&format!("the usage of client {} is forgotten", CLIENTS[0])),
        "{ran:?}"
    );
    tool.ends(0, &["acquire", "pc", "5", "--client-id", CLIENTS[0]]).await;
    tool.ends(1, &["acquire", "pc", "--client-id", CLIENTS[1]]).await;
    // What cannot be read is written anew.
    seed::hash(&server, "bad", &[("rate", "ten"), ("interval", "5"), ("type", "0")]).await;
    let ran = tool.ends(0, &["set", "bad", "5/h"]).await;
    assert!(ran.stdout.starts_with("bad: 5/h (what was stored could not be read)"), "{ran:?}");
}

#[tokio::test]
async fn a_limiter_that_does_not_exist_is_looked_for_with_a_key_prefix() {
    let server = Server::start().await;
    let tool = Tool::on(&server).env("REDISSON_LIMITER_KEY_PREFIX", "shop:");
    tool.ends(0, &["acquire", "api", "--rate", "5/h"]).await;
    let without = Tool::on(&server);
    let wrong = Tool::on(&server).env("REDISSON_LIMITER_KEY_PREFIX", "ship:");
    for command in [
        &["inspect", "api"][..],
        &["doctor", "api"],
        &["doctor", "api", "other"],
        &["acquire", "api"],
        &["update", "api", "1/s"],
        &["reset", "api", "--yes"],
        &["reset", "api", "--delete", "--yes"],
    ] {
        let ran = without.ends(3, command).await;
        let hint = "if the services put a prefix before their names, give it as --key-prefix";
        assert!(
            ran.stderr.contains(hint) && ran.stderr.contains("`redisson-limiter list`"),
            "{ran:?}"
        );
        assert_eq!(ran.stderr.matches("--key-prefix").count(), 1, "{ran:?}");
        let ran = wrong.ends(3, command).await;
        assert!(ran.stderr.contains("its key would be \"ship:"), "{ran:?}");
    }
    let watch = ["watch", "api", "--count", "2", "--every", "50ms"];
    let ran = without.ends(0, &watch).await;
    assert_eq!(ran.stdout, "api: no limiter of this name; see --key-prefix\n".repeat(2));
    // What is there says no such thing.
    let () = server.run(redis::cmd("SET").arg("{left}:value").arg(5).take()).await;
    let ran = without.ends(3, &["inspect", "left"]).await;
    assert!(!ran.stderr.contains("--key-prefix"), "{ran:?}");
    let ran = without.ends(0, &["list"]).await;
    assert!(ran.stdout.contains("shop:api"), "{ran:?}");
}

#[tokio::test]
async fn a_limiter_per_client_is_removed_for_all_of_them_or_for_none() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    tool.ends(0, &["set", "pc", "10/h per client"]).await;
    for client in CLIENTS {
        tool.ends(0, &["acquire", "pc", "3", "--client-id", client]).await;
    }
    let ran = tool.ends(2, &["reset", "pc", "--delete", "--yes", "--client-id", CLIENTS[0]]).await;
    assert!(ran.stderr.contains("leave --delete out"), "{ran:?}");
    let ran = tool.ends(0, &["acquire", "pc"]).await;
    assert_eq!(ran.stdout, "granted: 1 permit, 9 left of 10/h per client\n");
    assert!(ran.stderr.contains("name a client with --client-id"), "{ran:?}");
    for client in CLIENTS {
        let ran = tool.ends(0, &["acquire", "pc", "1", "--client-id", client]).await;
        assert_eq!(ran.stderr, "");
        assert_eq!(ran.stdout, "granted: 1 permit, 6 left of 10/h per client\n", "{client}");
    }
    // The memory is that of the shared keys, and of those of a client that is named.
    for (id, of) in [(&["--client-id", CLIENTS[0]][..], "other clients"), (&[], "clients")] {
        let ran = tool.ends(0, &[&["inspect", "pc"], id].concat()).await;
        assert!(ran.stdout.ends_with(&format!(" bytes, without the budgets of {of}\n")), "{ran:?}");
    }
    tool.ends(0, &["reset", "pc", "--yes", "--client-id", CLIENTS[0]]).await;
    for (client, left) in [(CLIENTS[0], 9), (CLIENTS[1], 5)] {
        let ran = tool.ends(0, &["acquire", "pc", "1", "--client-id", client]).await;
        assert!(ran.stdout.contains(&format!(", {left} left")), "{ran:?}");
    }
    let ran = tool.ends(0, &["reset", "pc", "--delete", "--yes"]).await;
    assert!(ran.stdout.contains("pc: removed; the values and logs of its clients"), "{ran:?}");
    tool.ends(0, &["doctor", "pc", "--fix", "--yes", "--orphan-age", "0ms"]).await;
    let keys: Vec<String> = server.run(redis::cmd("KEYS").arg("*").take()).await;
    assert!(keys.is_empty(), "{keys:?}");
    // One usage for all is not that of a client.
    tool.ends(0, &["acquire", "api", "3", "--rate", "10/h"]).await;
    let ran = tool.ends(2, &["reset", "api", "--yes", "--client-id", CLIENTS[0]]).await;
    assert!(ran.stderr.contains("leave --client-id out"), "{ran:?}");
    assert_eq!(seed::get(&server, "{api}:value").await.as_deref(), Some("7"));
}

#[tokio::test]
async fn a_reset_removes_keys_of_limiters_only() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let delete = ["reset", "cart", "--delete", "--yes"];
    for key in ["cart", "{cart}:value"] {
        let () = server.run(redis::cmd("SET").arg(key).arg(5).take()).await;
    }
    let ran = tool.ends(6, &delete).await;
    assert!(ran.stderr.contains("a value of another type"), "{ran:?}");
    for key in ["cart", "{cart}:value"] {
        assert!(seed::exists(&server, key).await, "{key}");
    }
    // A hash that cannot be read is a limiter's.
    let () = server.run(redis::cmd("DEL").arg("cart").take()).await;
    seed::hash(&server, "cart", &[("rate", "ten"), ("interval", "5"), ("type", "0")]).await;
    tool.ends(0, &delete).await;
    assert!(!seed::exists(&server, "{cart}:value").await);
}

#[tokio::test]
async fn an_acquire_waits() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    tool.ends(0, &["acquire", "slow", "--rate", "1 per 3s"]).await;
    let begun = std::time::Instant::now();
    tool.ends(0, &["acquire", "slow", "--wait", "30s"]).await;
    assert!(begun.elapsed() > Duration::from_millis(1_000), "{:?}", begun.elapsed());
}

/// The documented schema, as far as programs may rely on it.
#[tokio::test]
async fn json_has_all_that_is_stored() {
    let server = Server::start().await;
    seed::overall(&server, "api", 100, HOUR_MS as u64).await;
    let mut debt = of_client(1, 5);
    debt[15] |= 0x80;
    let log = [
        Old { age_ms: HOUR_MS + 60_000, id: of_redisson(9), permits: 3 },
        Old { age_ms: 600_000, id: of_redisson(1), permits: 20 },
        Old { age_ms: 300_000, id: of_client(1, 2), permits: 7 },
        Old { age_ms: 200_000, id: debt, permits: 2 },
        Old { age_ms: -600_000, id: of_client(2, 3), permits: 80 },
    ];
    // Of a reservation: dated ahead, and the value is negative.
    seed::budget(&server, "api", None, Some("-12"), &log).await;
    let seen = Tool::on(&server).json(0, &["inspect", "api", "--json"]).await;
    assert_eq!(seen["schema"], 1);
    assert_eq!(seen["limiter"], "api");
    let rate = serde_json::json!({
        "text": "100/h", "mode": "OVERALL", "permits": 100, "interval_ms": HOUR_MS, "keep_alive_ms": null
    });
    assert_eq!(seen["rate"], rate);
    assert!(seen["problem"].is_null() && seen["note"].is_null());
    assert!(seen["clock_skew"]["ahead_us"].is_i64(), "{seen:#}");
    assert!(seen["clock_skew"]["uncertainty_us"].as_u64().unwrap() > 0);
    assert!(seen["memory_bytes"].as_u64().unwrap() > 100);
    assert!((seed::now_ms() - seen["now_ms"].as_i64().unwrap()).abs() < 60_000);
    assert_eq!(seen["hash"]["state"], "present");
    assert!(seen["hash"]["time_to_live_ms"].is_null());
    assert_eq!(seen["hash"]["interval"], "3600000");
    assert_eq!(seen["budgets"].as_array().unwrap().len(), 1);
    let budget = &seen["budgets"][0];
    assert!(budget["client_id"].is_null());
    assert_eq!(budget["available"], 0);
    assert_eq!((&budget["in_use"], &budget["expired"]), (&109.into(), &3.into()));
    assert_eq!(budget["drift"], 0, "what is dated ahead is no damage");
    assert_eq!(
        (&budget["value"]["text"], &budget["value"]["number"]),
        (&"-12".into(), &(-12).into())
    );
    assert_eq!(
        (&budget["log"]["length"], &budget["log"]["is_complete"]),
        (&5.into(), &true.into())
    );
    let entries = budget["log"]["entries"].as_array().unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
            (text("writer"), text("client"), text("state"), entry["permits"].as_u64().unwrap())
        })
        .collect();
    let entry = |writer: &str, client: &str, state: &str, permits| {
        (writer.to_owned(), client.to_owned(), state.to_owned(), permits)
    };
    assert_eq!(
        told,
        [
            entry("redisson", "-", "expired", 3),
            entry("redisson", "-", "live", 20),
            entry("client", "c11e4701", "live", 7),
            entry("debt", "-", "live", 2),
            entry("client", "c11e4702", "ahead", 80),
        ]
    );
    let few = Tool::on(&server).json(0, &["inspect", "api", "--json", "--entries", "2"]).await;
    assert_eq!(few["budgets"][0]["log"]["is_complete"], false);
    assert!(few["budgets"][0]["drift"].is_null());
    // The rules read all of it.
    assert_eq!(few["budgets"][0]["available"], 0);
    let ran = Tool::on(&server).ends(0, &["inspect", "api", "--entries", "2"]).await;
    assert!(ran.stdout.contains("  invariant  value + log = rate\n"), "{ran:?}");
    let ran = Tool::on(&server).ends(0, &["doctor", "api"]).await;
    assert!(ran.stdout.contains("nothing found"), "{ran:?}");
}

#[tokio::test]
async fn leases_are_no_damage() {
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let options = LimiterOptions::new().lease(50, Duration::from_secs(60));
    let limiter = client.limiter_with("leased", options).unwrap();
    limiter.set_rate(Rate::per_minute(1_000)).await.unwrap();
    for _ in 0..5 {
        limiter.acquire(1).await.unwrap();
    }
    let tool = Tool::on(&server);
    let seen = tool.json(0, &["inspect", "leased", "--json"]).await;
    let states: Vec<_> = seen["budgets"][0]["log"]["entries"].as_array().unwrap().iter().collect();
    assert!(states.iter().any(|entry| entry["state"] == "ahead"), "{seen:#}");
    tool.ends(0, &["doctor", "leased"]).await;
    client.close().await;
}

#[tokio::test]
async fn the_busiest_are_at_the_top() {
    let server = Server::start().await;
    for (name, permits) in [("quiet", 1), ("busy", 90), ("middle", 30)] {
        seed::overall(&server, name, 100, 60_000).await;
        let log = [Old { age_ms: 5_000, id: of_redisson(1), permits }];
        seed::budget(&server, name, None, Some(&(100 - permits).to_string()), &log).await;
    }
    let () = server.run(redis::cmd("SET").arg("unrelated:value").arg(1).take()).await;
    let tool = Tool::on(&server);
    let top = tool.json(0, &["top", "--json", "--limit", "2"]).await;
    let names: Vec<_> =
        top["limiters"].as_array().unwrap().iter().map(|row| &row["limiter"]).collect();
    assert_eq!(names, ["busy", "middle"]);
    assert_eq!((&top["found"], &top["limiters"][0]["available"]), (&3.into(), &10.into()));
    let ran = tool.ends(0, &["top"]).await;
    assert!(ran.stdout.lines().nth(1).unwrap().starts_with("busy "), "{ran:?}");
    // What nobody was granted does not count, and the wait is for the end of the pause.
    let client = Client::builder().connect_lazy(server.admin_url()).unwrap();
    client.limiter("quiet").unwrap().pause_for(Duration::from_secs(58)).await.unwrap();
    let top = tool.json(0, &["top", "--json"]).await;
    let last = &top["limiters"][2];
    assert_eq!((&last["limiter"], &last["available"]), (&"quiet".into(), &0.into()), "{top}");
    assert!(last["granted_per_second"].as_f64().unwrap() < 1.0, "{top}");
    let ran = tool.ends(0, &["watch", "quiet", "--count", "1"]).await;
    let (_, wait) = ran.stdout.split_once(" wait ").unwrap();
    let digits: String = wait.chars().take_while(char::is_ascii_digit).collect();
    assert!((55..=58).contains(&digits.parse().unwrap_or(0)), "{ran:?}");
    let ran = tool.ends(0, &["watch", "busy", "gone", "--count", "2", "--every", "100ms"]).await;
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    assert!(lines[0].starts_with("busy: 100/m, 10 of 100 free, "), "{ran:?}");
    assert_eq!(lines[3], "gone: no limiter of this name; see --key-prefix");
    // The rate that is in force: an operator may change it meanwhile.
    tool.ends(0, &["set", "pc", "7/h per client"]).await;
    let ran = tool.ends(0, &["watch", "pc", "--count", "1"]).await;
    assert_eq!(
        ran.stdout,
        "pc: 7/h per client: name a client with --client-id; `inspect` lists them\n"
    );
    let ran = tool.ends(0, &["watch", "pc", "--count", "1", "--client-id", CLIENTS[0]]).await;
    assert!(ran.stdout.starts_with("pc: 7/h per client, 7 of 7 free, "), "{ran:?}");
    // A client that has no budget, while another one has.
    tool.ends(0, &["acquire", "pc", "--client-id", CLIENTS[0]]).await;
    let ran = tool.ends(2, &["inspect", "pc", "--client-id", CLIENTS[1]]).await;
    assert!(ran.stderr.contains("has no budget of the client"), "{ran:?}");
    tool.ends(2, &["inspect", "pc", "--json", "--client-id", CLIENTS[1]]).await;
}

/// Those read are the oldest, which say nothing of what was granted since.
#[tokio::test]
async fn of_a_log_with_more_entries_than_are_read_no_grants_are_counted() {
    let server = Server::start().await;
    let ages = (0..2_002).map(|nth| Old {
        age_ms: 5_000,
        id: of_redisson(1 + (nth % 250) as u8),
        permits: 1 + nth / 250,
    });
    let log: Vec<Old> = ages.collect();
    let used: u32 = log.iter().map(|entry| entry.permits).sum();
    for (name, log, used) in [("long", &log[..], used), ("short", &log[..1], 1), ("none", &[], 0)] {
        seed::overall(&server, name, 10_000, 60_000).await;
        seed::budget(&server, name, None, Some(&(10_000 - used).to_string()), log).await;
    }
    let tool = Tool::on(&server);
    let top = tool.json(0, &["top", "--json"]).await;
    let rows: Vec<_> = top["limiters"].as_array().unwrap().iter().collect();
    let names: Vec<_> = rows.iter().map(|row| &row["limiter"]).collect();
    assert_eq!(names, ["long", "short", "none"]);
    assert!(rows[0]["granted_per_second"].is_null(), "{top:#}");
    assert_eq!(rows[0]["available"], 10_000 - used, "{top:#}");
    assert!(rows[1]["granted_per_second"].as_f64().unwrap() > 0.0, "{top:#}");
    let ran = tool.ends(0, &["top"]).await;
    let words: Vec<_> = ran.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..3], ["long", "10000/m", "-"], "{ran:?}");
    for (entries, granted) in [("2001", " free, - granted/s,"), ("2002", " free, 0.0 granted/s,")] {
        let ran = tool.ends(0, &["watch", "long", "--count", "1", "--entries", entries]).await;
        assert!(ran.stdout.contains(granted), "{ran:?}");
    }
}

#[tokio::test]
async fn a_bench_leaves_nothing_behind() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let ran = tool.ends(0, &["bench", "--seconds", "1", "--callers", "4"]).await;
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
    assert!(ran.stdout.starts_with("1 caller "), "{ran:?}");
    let keys: Vec<String> = server.run(redis::cmd("KEYS").arg("*").take()).await;
    assert!(keys.is_empty(), "{keys:?}");
    tool.ends(0, &["set", "mine", "1/s"]).await;
    tool.ends(2, &["bench", "--name", "mine"]).await;
    assert!(seed::exists(&server, "mine").await);
}

#[tokio::test]
async fn a_replay_says_what_would_have_been_refused() {
    let server = Server::start().await;
    seed::overall(&server, "api", 100, HOUR_MS as u64).await;
    let log: Vec<_> = (0..10)
        .map(|n| Old { age_ms: 100_000 - 1_000 * i64::from(n), id: of_redisson(n), permits: 2 })
        .collect();
    seed::budget(&server, "api", None, Some("80"), &log).await;
    let exported = Tool::on(&server).ends(0, &["inspect", "api", "--json"]).await.stdout;
    // No server is needed.
    let tool = Tool::at("redis://127.0.0.1:1").input(&exported);
    let arguments = ["replay", "-", "--rate", "2/s", "--rate", "5 per 1m", "--rate", "1/s"];
    let ran = tool.ends(1, &arguments).await;
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("10 grants of 20 permits within "), "{ran:?}");
    assert!(lines[1].ends_with("nothing is refused"), "{ran:?}");
    assert!(lines[2].contains("8 calls of 16 permits refused, the first after "), "{ran:?}");
    assert!(lines[3].contains("10 calls of 20 permits refused"), "{ran:?}");
    let text = "# a date and permits\n1000 2\n1500,1\n3000\n";
    let replay =
        Tool::at("").input(text).json(1, &["replay", "-", "--rate", "2/s", "--json"]).await;
    assert_eq!(replay["requests"], 3);
    assert_eq!(replay["rates"][0]["refused"], 1);
    assert_eq!(replay["rates"][0]["first_refused_ms"], 1500);
    for bad in ["x y", "1 2 3", "{}", "{"] {
        Tool::at("").input(bad).ends(2, &["replay", "-", "--rate", "2/s"]).await;
    }
    Tool::at("").ends(7, &["replay", "/no/such/file", "--rate", "2/s"]).await;
}

#[tokio::test]
async fn a_replay_has_a_limiter_for_each_client() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    tool.ends(0, &["set", "pc", "10/h per client"]).await;
    for client in CLIENTS {
        tool.ends(0, &["acquire", "pc", "10", "--client-id", client]).await;
    }
    let exported = tool.ends(0, &["inspect", "pc", "--json"]).await.stdout;
    let replay = Tool::at("").input(&exported);
    let ran = replay.ends(0, &["replay", "-", "--rate", "10/h per client"]).await;
    assert!(ran.stdout.starts_with("2 grants of 20 permits of 2 clients within "), "{ran:?}");
    assert!(ran.stdout.ends_with("nothing is refused\n"), "{ran:?}");
    // Under a rate for all of them they have one limiter.
    let rates = ["replay", "-", "--rate", "10/h", "--rate", "9/h per client", "--json"];
    let seen = replay.json(1, &rates).await;
    assert_eq!(
        (&seen["rates"][0]["refused"], &seen["rates"][1]["refused"]),
        (&1.into(), &2.into())
    );

    let () = server.run(redis::cmd("ACL").arg(&["SETUSER", acl::USER, "-scan"]).take()).await;
    let exported =
        tool.ends(0, &["inspect", "pc", "--json", "--client-id", CLIENTS[0]]).await.stdout;
    let ran = Tool::at("").input(&exported).ends(0, &["replay", "-", "--rate", "10/h"]).await;
    assert!(ran.stderr.contains("clients of this limiter cannot be listed"), "{ran:?}");
}

#[tokio::test]
async fn a_part_of_a_log_is_not_replayed() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    for _ in 0..3 {
        tool.ends(0, &["acquire", "api", "20", "--rate", "100/h"]).await;
    }
    let exported = tool.ends(0, &["inspect", "api", "--json", "--entries", "1"]).await.stdout;
    let ran = Tool::at("").input(&exported).ends(2, &["replay", "-", "--rate", "30/h"]).await;
    assert!(ran.stdout.is_empty() && ran.stderr.contains("inspect with --entries 3"), "{ran:?}");
    let exported = tool.ends(0, &["inspect", "api", "--json", "--entries", "3"]).await.stdout;
    let ran = Tool::at("").input(&exported).ends(1, &["replay", "-", "--rate", "30/h"]).await;
    assert!(ran.stdout.contains("2 calls of 40 permits refused"), "{ran:?}");
}

#[tokio::test]
async fn doctor_without_a_limiter_says_that_it_can_examine_all() {
    let ran = Tool::at("redis://127.0.0.1:1").ends(2, &["doctor"]).await;
    assert!(ran.stderr.contains("<NAME>...") && ran.stderr.contains("--all"), "{ran:?}");
    assert!(!ran.stderr.contains("--url"), "it is in the environment: {ran:?}");
}

#[tokio::test]
async fn shells_and_man_have_their_pages() {
    let tool = Tool::at("redis://127.0.0.1:1");
    for shell in ["bash", "zsh", "fish"] {
        let ran = tool.ends(0, &["completions", shell]).await;
        assert!(
            ran.stdout.contains("redisson-limiter") && ran.stdout.contains("doctor"),
            "{shell}"
        );
    }
    let page = tool.ends(0, &["man"]).await.stdout;
    assert!(page.contains(".TH redisson-limiter 1") && page.contains("Exit codes"), "{page}");
    let page = tool.ends(0, &["man", "doctor"]).await.stdout;
    assert!(page.contains("redisson\\-limiter\\-doctor") && page.contains("orphan"), "{page}");
    tool.ends(2, &["man", "nothing"]).await;
}

/// As bash asks for them: the options of a command too.
#[tokio::test]
async fn bash_completes_the_options_of_a_command() {
    let ran = Tool::at("redis://127.0.0.1:1").ends(0, &["completions", "bash"]).await;
    let asks = "\nCOMP_WORDS=(redisson-limiter doctor --o); COMP_CWORD=2\n\
        _redisson__limiter redisson-limiter --o doctor; echo \"${COMPREPLY[@]}\"\n";
    let mut bash = std::process::Command::new("bash");
    let answer = bash.args(["-c", &(ran.stdout + asks)]).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "--orphan-age", "{answer:?}");
}
