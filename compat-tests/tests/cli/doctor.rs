//! `doctor` on every kind of damage.

use std::time::Duration;

use compat_tests::acl;
use compat_tests::server::Server;
use redis::cmd;
use redisson_rate_limiter::{Client, Policy, Rate};
use serde_json::Value;

use crate::seed::{self, Old, of_redisson};
use crate::terminal::answered;
use crate::tool::Tool;

const HOUR_MS: u64 = 3_600_000;
const CLIENTS: [&str; 2] =
    ["0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11", "6d0a5a3e-52a4-4a30-8f6e-5a3f0a9d2c22"];

fn old(age_ms: i64, number: u8, permits: u32) -> Old {
    Old { age_ms, id: of_redisson(number), permits }
}

/// Of each finding, its kind and whether it can be fixed.
fn kinds(limiter: &Value, list: &str) -> Vec<(String, bool)> {
    let findings = limiter[list].as_array().unwrap_or_else(|| panic!("{limiter:#}"));
    let kind = |finding: &Value| {
        assert!(!finding["why"].as_str().unwrap().is_empty() && finding["fix"].is_string());
        let kind = finding["kind"].as_str().unwrap().to_owned();
        (kind, finding["can_be_fixed"].as_bool().unwrap())
    };
    findings.iter().map(kind).collect()
}

async fn diagnosed(tool: &Tool, name: &str) -> Vec<(String, bool)> {
    let seen = tool.json(1, &["doctor", name, "--json"]).await;
    kinds(&seen["limiters"][0], "findings")
}

fn one(kind: &str, can_be_fixed: bool) -> Vec<(String, bool)> {
    vec![(kind.to_owned(), can_be_fixed)]
}

#[tokio::test]
async fn drift_is_repaired_without_a_permit_too_many() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    // Name, value, what is in the log, the value and the permits in the log afterwards.
    type Case = (&'static str, Option<&'static str>, u32, &'static str, u64);
    let cases: [Case; 6] = [
        ("excess", Some("9"), 4, "9", 1),
        ("more than the rate", Some("11"), 4, "6", 4),
        ("deficit", Some("2"), 4, "2", 8),
        ("no value", None, 4, "6", 4),
        ("no integer", Some("1e+17"), 4, "6", 4),
        ("no log", Some("3"), 0, "3", 7),
    ];
    for (name, value, permits, value_after, log_after) in cases {
        seed::overall(&server, name, 10, HOUR_MS).await;
        let log = [old(60_000, 1, permits)];
        seed::budget(&server, name, None, value, if permits > 0 { &log } else { &[] }).await;
        let before = seed::get(&server, &format!("{{{name}}}:value")).await;
        assert_eq!(diagnosed(&tool, name).await, one("drift", true), "{name}");
        let ran = tool.ends(0, &["inspect", name]).await;
        let invariant = ran.stdout.lines().find(|line| line.starts_with("  invariant ")).unwrap();
        assert!(invariant.ends_with(": see doctor"), "{ran:?}");
        // Nothing is written without --fix, nor without an answer.
        tool.ends(1, &["doctor", name]).await;
        tool.ends(2, &["doctor", name, "--fix"]).await;
        assert_eq!(seed::get(&server, &format!("{{{name}}}:value")).await, before, "{name}");
        let ran = tool.ends(0, &["doctor", name, "--fix", "--yes"]).await;
        assert!(ran.stdout.contains("repaired"), "{ran:?}");
        let seen = tool.json(0, &["inspect", name, "--json"]).await;
        let budget = &seen["budgets"][0];
        assert_eq!(budget["value"]["text"], value_after, "{name}");
        assert_eq!((&budget["in_use"], &budget["drift"]), (&log_after.into(), &0.into()), "{name}");
        tool.ends(0, &["doctor", name]).await;
    }
}

/// Such as `head`, once it has seen enough.
#[tokio::test]
async fn a_reader_that_goes_away_ends_no_repair_and_changes_no_exit_code() {
    let server = Server::start().await;
    let tool = Tool::on(&server).unread();
    seed::overall(&server, "api", 10, HOUR_MS).await;
    seed::budget(&server, "api", None, Some("11"), &[old(60_000, 1, 4)]).await;
    let ran = tool.ends(1, &["doctor", "api"]).await;
    assert!(ran.stderr.is_empty(), "{ran:?}");
    tool.ends(0, &["doctor", "api", "--fix", "--yes"]).await;
    assert_eq!(seed::get(&server, "{api}:value").await.as_deref(), Some("6"));
    tool.ends(1, &["acquire", "api", "10"]).await;
    // This one only prints.
    tool.ends(0, &["watch", "api", "--every", "50ms"]).await;
}

#[tokio::test]
async fn a_pause_is_no_damage() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let client = Client::connect(&server.url()).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_second(10));
    limiter.acquire(3).await.unwrap();
    // Far longer than anything else is dated ahead.
    limiter.pause_for(Duration::from_secs(7 * 86_400)).await.unwrap();
    tool.ends(0, &["doctor", "api", "--fix", "--yes"]).await;
    let ran = tool.ends(0, &["inspect", "api"]).await;
    assert!(ran.stdout.contains("  paused     for another "), "{}", ran.stdout);
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    let budget = &seen["budgets"][0];
    let left = budget["paused_until_ms"].as_i64().unwrap() - seen["now_ms"].as_i64().unwrap();
    assert!(left > 6 * 86_400_000, "{seen:#}");
    assert_eq!((&budget["available"], &budget["drift"]), (&0.into(), &0.into()));
    assert!(budget["in_use"].as_u64().unwrap() <= 3, "{seen:#}");
    limiter.resume().await.unwrap();
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    assert!(seen["budgets"][0]["paused_until_ms"].is_null(), "{seen:#}");
    client.close().await;
}

#[tokio::test]
async fn policies_are_shown_and_two_of_one_name_are_found() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let client = Client::connect(&server.url()).await.unwrap();
    let bucket = Policy::bucket(50, 10, Duration::from_secs(1)).unwrap();
    let bucket = client.limiter_of("api", bucket).unwrap();
    assert!(bucket.try_acquire_now(50).await.unwrap().is_granted());
    tool.ends(0, &["doctor", "api"]).await;
    // Another program's key does not keep the others from being listed.
    for name in ["cart", "api"] {
        let () = server.run(cmd("SET").arg(format!("{{{name}}}:fixed")).arg("3 x").take()).await;
    }
    let ran = tool.ends(0, &["list"]).await;
    assert!(ran.stdout.contains("api      bucket, 50 at 10/s\n1 limiter with"), "{ran:?}");
    let seen = tool.json(0, &["top", "--json"]).await;
    assert_eq!(seen["limiters"][0]["permits"], 50, "{seen:#}");
    assert!(seen["limiters"][0]["granted_per_second"].is_null(), "{seen:#}");
    tool.ends(0, &["doctor", "--all"]).await;
    // Alone it is all that there is to say of the name, and does not hide what is found at others.
    tool.ends(6, &["inspect", "cart"]).await;
    let ran = tool.ends(6, &["doctor", "cart", "api"]).await;
    assert!(ran.stdout.contains("1 limiter examined: nothing found"), "{ran:?}");
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    assert_eq!(seen["policies"][0]["policy"], "bucket, 50 at 10/s", "{seen:#}");
    tool.ends(0, &["set", "cart", "10/s"]).await;
    let seen = tool.json(0, &["inspect", "cart", "--json"]).await;
    assert_eq!(seen["rate"]["text"], "10/s", "{seen:#}");
    tool.ends(0, &["doctor", "cart", "api"]).await;
    let () = server.run(cmd("DEL").arg("{api}:fixed").arg("cart").take()).await;
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    assert_eq!(seen["policies"][0]["policy"], "bucket, 50 at 10/s", "{seen:#}");
    let window = Policy::fixed_window(7, Duration::from_secs(86_400)).unwrap();
    let window = client.limiter_of("api", window).unwrap();
    assert!(window.try_acquire_now(2).await.unwrap().is_granted());
    assert_eq!(diagnosed(&tool, "api").await, one("policies", false));
    let seen = tool.json(1, &["doctor", "--all", "--json"]).await;
    assert_eq!(seen["limiters"][0]["findings"][0]["kind"], "policies", "{seen:#}");
    let seen = tool.json(0, &["list", "--json"]).await;
    assert_eq!(seen["limiters"][0]["policies"][1]["available"], 5, "{seen:#}");
    let seen = tool.json(0, &["inspect", "api", "--json"]).await;
    assert_eq!(seen["policies"][1]["available"], 5, "{seen:#}");
    // A repair of something else does not make one of them.
    seed::overall(&server, "api", 10, HOUR_MS).await;
    seed::budget(&server, "api", None, Some("2"), &[old(60_000, 1, 4)]).await;
    let seen = tool.json(1, &["doctor", "api", "--fix", "--yes", "--json"]).await;
    let [found, left] = ["findings", "left"].map(|list| kinds(&seen["limiters"][0], list));
    assert_eq!(found, [one("drift", true), one("policies", false)].concat());
    assert_eq!(left, one("policies", false));
    client.close().await;
}

#[tokio::test]
async fn commands_for_redissons_limiters_say_of_a_policy_that_it_is_one() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let client = Client::connect(&server.url()).await.unwrap();
    let bucket = Policy::bucket(50, 10, Duration::from_secs(3_600)).unwrap();
    let bucket = client.limiter_of("api", bucket).unwrap();
    assert!(bucket.try_acquire_now(50).await.unwrap().is_granted());
    for command in [
        &["acquire", "api"][..],
        &["update", "api", "5/h"],
        &["reset", "api", "--yes"],
        &["reset", "api", "--delete", "--yes"],
    ] {
        let ran = tool.ends(2, command).await;
        let said = "redisson-limiter: api follows a policy (bucket, 50 at 10/h): this command is for \
                    Redisson's limiters\n";
        assert_eq!(ran.stderr, said);
    }
    let ran = tool.ends(0, &["watch", "api", "--count", "1"]).await;
    let said = "api: follows a policy (bucket, 50 at 10/h), and is not watched; see top\n";
    assert_eq!(ran.stdout, said);
    for set in [&["set", "api", "5/h"][..], &["set", "api", "5/h", "--if-absent"]] {
        let ran = tool.ends(0, set).await;
        assert_eq!(ran.stdout, "api: 5/h (a new limiter)\n");
        assert!(ran.stderr.contains("api also follows a policy (bucket, 50 at 10/h)"), "{ran:?}");
        tool.ends(0, &["reset", "api", "--delete", "--yes"]).await;
    }
    client.close().await;
}

#[tokio::test]
async fn what_is_dated_a_year_ahead_is_dated_now() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    for (name, ahead_ms, found) in [("year", 365 * 86_400_000, true), ("day", 86_400_000, false)] {
        seed::overall(&server, name, 10, 1000).await;
        seed::budget(&server, name, None, Some("0"), &[old(-ahead_ms, 1, 10)]).await;
        if found {
            assert_eq!(diagnosed(&tool, name).await, one("dated-ahead", true));
            tool.ends(0, &["doctor", name, "--fix", "--yes"]).await;
        }
        tool.ends(0, &["doctor", name]).await;
        let permits: i64 = server
            .run(
                cmd("ZCOUNT")
                    .arg(format!("{{{name}}}:permits"))
                    .arg("-inf")
                    .arg(seed::now_ms())
                    .take(),
            )
            .await;
        assert_eq!(permits, i64::from(found), "{name}");
    }
}

#[tokio::test]
async fn values_without_a_time_to_live_get_that_of_the_limiter() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    seed::overall(&server, "api", 10, HOUR_MS).await;
    seed::budget(&server, "api", None, Some("6"), &[old(1_000, 1, 4)]).await;
    let () = server.run(cmd("PEXPIRE").arg("api").arg(500_000).take()).await;
    assert_eq!(diagnosed(&tool, "api").await, one("endless", true));
    tool.ends(0, &["doctor", "api", "--fix", "--yes"]).await;
    for key in ["{api}:value", "{api}:permits"] {
        let ttl: i64 = server.run(cmd("PTTL").arg(key).take()).await;
        assert!((1..=500_000).contains(&ttl), "{key}: {ttl}");
    }
}

#[tokio::test]
async fn keys_without_a_hash_are_removed_once_they_are_old() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    seed::budget(&server, "young", None, Some("6"), &[old(60_000, 1, 4)]).await;
    seed::budget(&server, "old", None, Some("6"), &[old(90_000_000, 1, 4)]).await;
    seed::budget(&server, "clients", Some(CLIENTS[0]), Some("6"), &[old(90_000_000, 1, 4)]).await;
    seed::budget(&server, "alone", None, Some("6"), &[]).await;
    assert_eq!(diagnosed(&tool, "young").await, one("orphaned", false));
    assert_eq!(diagnosed(&tool, "old").await, one("orphaned", true));
    let all = tool.json(1, &["doctor", "--all", "--fix", "--yes", "--json"]).await;
    assert_eq!(all["examined"], 4);
    let mut keys: Vec<String> = server.run(cmd("KEYS").arg("*").take()).await;
    keys.sort();
    assert_eq!(keys, ["{alone}:value", "{young}:permits", "{young}:value"]);
    // Nothing but its name says that it is a limiter's, unless somebody does.
    assert_eq!(diagnosed(&tool, "alone").await, one("orphaned", true));
    tool.ends(0, &["doctor", "alone", "--fix", "--yes"]).await;
    assert!(!seed::exists(&server, "{alone}:value").await);
    tool.ends(0, &["doctor", "young", "--fix", "--yes", "--orphan-age", "1s"]).await;
    assert!(!seed::exists(&server, "{young}:value").await);
}

#[tokio::test]
async fn what_clients_have_left_behind_is_removed_and_what_they_use_is_not() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let fields = [("rate", "10"), ("interval", "3600000"), ("type", "1")];
    seed::hash(&server, "pc", &fields).await;
    seed::budget(&server, "pc", Some(CLIENTS[0]), Some("6"), &[old(4_000_000, 1, 4)]).await;
    seed::budget(&server, "pc", Some(CLIENTS[1]), Some("6"), &[old(60_000, 1, 4)]).await;
    assert_eq!(diagnosed(&tool, "pc").await, one("unused-clients", true));
    tool.ends(0, &["doctor", "--all", "--fix", "--yes"]).await;
    let mut keys: Vec<String> = server.run(cmd("KEYS").arg("*").take()).await;
    keys.sort();
    let used = CLIENTS[1];
    assert_eq!(
        keys,
        ["pc".to_owned(), format!("{{pc}}:permits:{used}"), format!("{{pc}}:value:{used}")]
    );
    // Drift of one client is repaired for it alone.
    let () = server.run(cmd("SET").arg(format!("{{pc}}:value:{used}")).arg(9).take()).await;
    assert_eq!(diagnosed(&tool, "pc").await, one("drift", true));
    tool.ends(0, &["doctor", "pc", "--fix", "--yes"]).await;
    let value = seed::get(&server, &format!("{{pc}}:value:{used}")).await;
    assert_eq!(value.as_deref(), Some("6"));
    // With --client-id the budgets of others are neither looked at nor written.
    seed::budget(&server, "pc", Some(CLIENTS[0]), Some("9"), &[old(60_000, 1, 4)]).await;
    tool.ends(0, &["doctor", "pc", "--fix", "--yes", "--client-id", used]).await;
    let of_other = format!("{{pc}}:value:{}", CLIENTS[0]);
    assert_eq!(seed::get(&server, &of_other).await.as_deref(), Some("9"));
    assert_eq!(diagnosed(&tool, "pc").await, one("drift", true));
    let neither = "00000000-0000-4000-8000-000000000000";
    let ran = tool.ends(2, &["doctor", "pc", "--client-id", neither]).await;
    assert!(ran.stderr.contains("has no budget of the client"), "{ran:?}");
    tool.ends(2, &["doctor", "--all", "--client-id", used]).await;
    tool.ends(0, &["doctor", "pc", "--fix", "--yes", "--client-id", CLIENTS[0]]).await;
    let ran = tool.ends(2, &["reset", "pc", "--yes"]).await;
    assert!(ran.stderr.contains("--client-id"), "{ran:?}");
    tool.ends(0, &["reset", "pc", "--yes", "--client-id", used]).await;
    assert!(!seed::exists(&server, &format!("{{pc}}:value:{used}")).await);
}

#[tokio::test]
async fn what_nobody_can_repair_is_explained() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    seed::overall(&server, "foreign", 10, HOUR_MS).await;
    seed::budget(&server, "foreign", None, Some("6"), &[old(60_000, 1, 3)]).await;
    let mut add = cmd("ZADD");
    add.arg("{foreign}:permits").arg(seed::now_ms() - 30_000).arg(&[7u8; 20]);
    let () = server.run(add).await;
    assert_eq!(diagnosed(&tool, "foreign").await, one("foreign", false));
    let ran = tool.ends(1, &["doctor", "foreign", "--fix", "--yes"]).await;
    assert!(
        ran.stdout.contains("Redisson 3.16.4 to 3.16.8; the last expires in 59 min"),
        "{ran:?}"
    );
    tool.ends(6, &["acquire", "foreign"]).await;
    let ran = tool.ends(0, &["inspect", "foreign"]).await;
    assert!(!ran.stdout.contains("invariant"), "{ran:?}");

    let () = server.run(cmd("SET").arg("text").arg("x").take()).await;
    let () = server.run(cmd("SET").arg("{text}:permits").arg("x").take()).await;
    let all = diagnosed(&tool, "text").await;
    assert_eq!(all, [one("wrong-type", false), one("wrong-type", false)].concat());
    tool.ends(6, &["inspect", "text"]).await;
    seed::overall(&server, "wrong", 10, HOUR_MS).await;
    let () = server.run(cmd("LPUSH").arg("{wrong}:value").arg("x").take()).await;
    assert_eq!(diagnosed(&tool, "wrong").await, one("wrong-type", false));
    let ran = tool.ends(0, &["inspect", "wrong"]).await;
    assert!(!ran.stdout.contains("available") && !ran.stdout.contains("invariant"), "{ran:?}");
    let seen = tool.json(0, &["inspect", "wrong", "--json"]).await;
    assert!(seen["budgets"][0]["available"].is_null(), "{seen:#}");
    let ran = tool.ends(0, &["watch", "wrong", "--count", "1"]).await;
    assert!(ran.stdout.contains("? of 10 free"), "{ran:?}");

    seed::hash(&server, "text rate", &[("rate", "ten"), ("interval", "5"), ("type", "0")]).await;
    assert_eq!(diagnosed(&tool, "text rate").await, one("unreadable", false));
    let ran = tool.ends(6, &["inspect", "text rate"]).await;
    assert!(ran.stdout.contains("rate is \"ten\""), "{ran:?}");
    seed::hash(&server, "half", &[("rate", "10")]).await;
    assert_eq!(diagnosed(&tool, "half").await, one("unreadable", false));
    for command in [&["inspect", "half"][..], &["acquire", "half"], &["reset", "half", "--yes"]] {
        let ran = tool.ends(6, command).await;
        let text = ran.stdout + &ran.stderr;
        assert!(text.contains("interval and type are missing"), "{command:?}: {text}");
    }

    let fields = [("rate", "9"), ("interval", "60000"), ("type", "0"), ("keepAliveTime", "5000")];
    seed::hash(&server, "short", &fields).await;
    let () = server.run(cmd("PEXPIRE").arg("short").arg(500_000).take()).await;
    assert_eq!(diagnosed(&tool, "short").await, one("short-keep-alive", false));
}

#[tokio::test]
async fn a_sound_server_has_no_findings() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let ran = tool.ends(0, &["doctor", "--all"]).await;
    assert_eq!(ran.stdout, "0 limiters examined: nothing found\n");
    for (name, rate) in
        [("api", "5/s"), ("{tagged}", "5/s"), ("pc", "5/s per client, keep-alive 1m")]
    {
        tool.ends(0, &["acquire", name, "--rate", rate]).await;
    }
    let ran = tool.ends(0, &["doctor", "--all", "--fix"]).await;
    assert_eq!(ran.stdout, "3 limiters examined: nothing found\n");
    assert!(ran.stderr.is_empty(), "no progress without a terminal: {ran:?}");
}

#[tokio::test]
async fn keys_of_other_programs_are_left_alone() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let fields = [("rate", "10"), ("interval", "3600000"), ("type", "1")];
    seed::hash(&server, "pc", &fields).await;
    let draft = format!("{{pc}}:value:{}", CLIENTS[0]);
    let old = seed::now_ms() - 90_000_000;
    for command in [
        cmd("SET").arg("{cart:5}:value").arg("7"),
        cmd("SET").arg("{user1}:profile:value").arg("{\"name\": 1}"),
        cmd("SET").arg("{page}:value:draft").arg("7"),
        cmd("SET").arg("{pc}:value:draft").arg("10"),
        cmd("SET").arg(&draft).arg("a text"),
        cmd("ZADD").arg("{roles}:permits").arg(old).arg("bob"),
        cmd("HSET").arg("{map}:value").arg("a").arg("b"),
        cmd("SET").arg("{list}:value").arg("7"),
        cmd("RPUSH").arg("{list}:permits").arg("a"),
    ] {
        let () = server.run(command.take()).await;
    }
    // A sound log beside a text.
    seed::budget(&server, "mixed", None, Some("a text"), &[self::old(90_000_000, 1, 4)]).await;
    let keys = async || {
        let mut keys: Vec<String> = server.run(cmd("KEYS").arg("*").take()).await;
        keys.sort();
        keys
    };
    let before = keys().await;
    let ran = tool.ends(1, &["doctor", "--all", "--fix", "--yes"]).await;
    assert_eq!(keys().await, before, "{ran:?}");
    let advice = "do: if this is a rate limiter's key, name it: doctor cart:5 --fix";
    assert!(ran.stdout.contains(advice), "{ran:?}");
    // Those that cannot be a limiter's are left alone even so.
    for name in ["{user1}:profile", "roles", "map", "list", "mixed"] {
        tool.ends(1, &["doctor", name, "--fix", "--yes"]).await;
        assert_eq!(keys().await, before, "{name}");
    }
    tool.ends(0, &["doctor", "cart:5", "--fix", "--yes"]).await;
    assert!(!seed::exists(&server, "{cart:5}:value").await);
}

#[tokio::test]
async fn a_limiter_that_changes_meanwhile_does_not_end_the_repair_of_others() {
    let server = Server::start().await;
    for name in ["first", "second"] {
        seed::budget(&server, name, None, Some("6"), &[old(90_000_000, 1, 4)]).await;
    }
    // Between the look that found it and the repair.
    let change = seed::hash(&server, "first", &[("rate", "10")]);
    let ran = answered(&server, "doctor first second --fix", change).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("first: 1 finding left\r\nsecond: repaired"), "{ran:?}");
    assert!(seed::exists(&server, "{first}:value").await);
    assert!(!seed::exists(&server, "{second}:value").await);
}

#[tokio::test]
async fn dates_at_the_end_of_the_numbers_are_shown() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    seed::overall(&server, "api", 10, HOUR_MS).await;
    for name in ["api", "gone"] {
        seed::budget(&server, name, None, Some("0"), &[old(0, 1, 10)]).await;
        let log = format!("{{{name}}}:permits");
        let mut add = cmd("ZADD");
        add.arg(&log).arg(i64::MIN).arg(compat_tests::entry::Entry::encode(&of_redisson(1), 10));
        let () = server.run(add).await;
    }
    assert_eq!(diagnosed(&tool, "gone").await, one("orphaned", true));
    tool.ends(0, &["watch", "api", "--count", "1"]).await;
}

/// `api` and `{api}` have the same values and logs.
#[tokio::test]
async fn the_keys_of_a_limiter_with_other_braces_are_no_orphans() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    const MONTH_MS: u64 = 30 * 24 * HOUR_MS;
    let used = [old(2 * 24 * HOUR_MS as i64, 1, 60)];
    for (name, same_keys, prefix, found) in [
        ("{api}", "api", "", true),
        ("mail", "{mail}", "", true),
        // With this prefix no name means it.
        ("{p:web}", "web", "p:", false),
    ] {
        let () = server.run(cmd("FLUSHALL").take()).await;
        seed::overall(&server, name, 100, MONTH_MS).await;
        seed::budget(&server, name, None, Some("40"), &used).await;
        let tool = tool.clone().env("REDISSON_LIMITER_KEY_PREFIX", prefix);
        for command in [
            &["doctor", same_keys][..],
            &["doctor", same_keys, "--fix", "--yes"],
            &["doctor", same_keys, "--fix", "--yes", "--orphan-age", "1s"],
        ] {
            let ran = tool.ends(3, command).await;
            let why = format!("left alone, as they are those of the limiter \"{name}\"");
            assert!(ran.stderr.contains(&why), "{ran:?}");
        }
        let all = tool.json(0, &["doctor", "--all", "--fix", "--yes", "--json"]).await;
        assert_eq!(all["examined"], u64::from(found), "{name}");
        let top = tool.json(0, &["top", "--json"]).await;
        let names: Vec<_> = top["limiters"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), usize::from(found), "{name}: {names:?}");
        assert!(names.iter().all(|row| row["limiter"] == name), "{name}: {names:?}");
        // Nor are they removed with another limiter.
        for command in
            [&["reset", same_keys, "--delete", "--yes"][..], &["bench", "--name", same_keys]]
        {
            let ran = tool.ends(2, command).await;
            assert!(ran.stderr.contains(&format!("the limiter {name} has the same")), "{ran:?}");
        }
        let seen = Tool::on(&server).json(0, &["inspect", name, "--json"]).await;
        assert_eq!(seen["budgets"][0]["in_use"], 60, "{name}");
    }
    // What both of them have, and neither uses.
    let fields = [("rate", "10"), ("interval", "3600000"), ("type", "1")];
    for name in ["pc", "{pc}"] {
        seed::hash(&server, name, &fields).await;
    }
    seed::budget(&server, "pc", Some(CLIENTS[0]), Some("6"), &[old(4_000_000, 1, 4)]).await;
    assert_eq!(diagnosed(&tool, "pc").await, one("unused-clients", false));
    let ran = tool.ends(1, &["doctor", "pc", "--fix", "--yes"]).await;
    assert!(ran.stdout.contains("do: left alone, as the limiter {pc} has the same"), "{ran:?}");
    assert!(seed::exists(&server, &format!("{{pc}}:value:{}", CLIENTS[0])).await);
    // A user who may not look for the other one removes nothing.
    seed::budget(&server, "{tenant}", None, Some("6"), &[old(90_000_000, 1, 4)]).await;
    let () =
        server.run(cmd("ACL").arg(&["SETUSER", acl::USER, "resetkeys", "~{tenant}*"]).take()).await;
    let ran = tool.ends(1, &["doctor", "{tenant}", "--fix", "--yes"]).await;
    assert!(ran.stdout.contains("do: left alone, as another limiter may have the same"), "{ran:?}");
    assert!(seed::exists(&server, "{tenant}:value").await);
}

/// A wrong name does not hide what is found at the others, and the code says that there was one.
#[tokio::test]
async fn a_wrong_name_does_not_hide_the_findings_of_others() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    tool.ends(0, &["set", "api", "10/s"]).await;
    let () = server.run(cmd("SET").arg(&["{api}:value", "7"]).take()).await;
    let ran = tool.ends(3, &["doctor", "nothing", "api"]).await;
    assert!(ran.stderr.contains("there is no limiter \"nothing\""), "{ran:?}");
    assert!(ran.stdout.contains("drift"), "{ran:?}");
}
