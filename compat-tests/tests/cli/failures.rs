//! Servers that are away, or that refuse; and arguments that are wrong.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use compat_tests::acl;
use compat_tests::server::{Options, Server};
use redis::cmd;

use crate::tool::Tool;

#[tokio::test]
async fn a_server_that_is_away_has_a_code_of_its_own() {
    let tool = Tool::at("redis://jane:hunter2@127.0.0.1:1");
    let ran = tool.ends(4, &["inspect", "api", "--timeout", "500ms"]).await;
    assert!(ran.stderr.contains("127.0.0.1:1") && !ran.stderr.contains("hunter2"), "{ran:?}");
    let server = Server::start().await;
    server.pause();
    Tool::on(&server).ends(4, &["acquire", "api", "--timeout", "300ms"]).await;
    server.resume();
}

#[tokio::test]
async fn passwords_come_from_the_environment_or_a_file_and_are_never_shown() {
    let server = Server::start_with(Options::default().password("correct-horse")).await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let tool = Tool::at(&url);
    let wrong = tool.clone().env("REDISSON_LIMITER_PASSWORD", "hunter2");
    let ran = wrong.ends(5, &["set", "api", "1/s"]).await;
    assert!(!ran.stderr.contains("hunter2") && ran.stderr.contains("credentials"), "{ran:?}");
    tool.ends(5, &["set", "api", "1/s"]).await;
    let odd = OsStr::from_bytes(b"\xff");
    let ran = tool.clone().env("REDISSON_LIMITER_PASSWORD", odd).ends(2, &["inspect", "api"]).await;
    assert!(ran.stderr.contains("REDISSON_LIMITER_PASSWORD: not UTF-8"), "{ran:?}");
    let right = tool.clone().env("REDISSON_LIMITER_PASSWORD", "correct-horse");
    right.ends(0, &["set", "api", "1/s"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "correct-horse\n").unwrap();
    let path = file.to_str().unwrap();
    tool.ends(0, &["set", "api", "1/s", "--password-file", path]).await;
    std::fs::remove_file(&file).unwrap();
    tool.ends(7, &["set", "api", "1/s", "--password-file", path]).await;
    let help = right.env("REDISSON_LIMITER_USER", "sesame").ends(0, &["--help"]).await;
    assert!(!help.stdout.contains("horse") && !help.stdout.contains("sesame"));
    assert!(!help.stdout.contains(&server.port().to_string()), "{help:?}");
}

/// Deployments set variables for which they have no value.
#[tokio::test]
async fn an_empty_variable_is_none() {
    let server = Server::start_with(Options::default().password("correct-horse")).await;
    let url = format!("redis://:correct-horse@127.0.0.1:{}", server.port());
    let mut empty = Tool::at(&url);
    for variable in [
        "PASSWORD",
        "PASSWORD_FILE",
        "SENTINEL_PASSWORD",
        "SENTINEL_USER",
        "REDISSON_YAML",
        "USER",
        "DATABASE",
        "CA",
        "CERT",
        "KEY",
        "KEY_PREFIX",
    ] {
        empty = empty.env(&format!("REDISSON_LIMITER_{variable}"), "");
    }
    let ran = empty.ends(0, &["set", "api", "1/s"]).await;
    assert!(ran.stderr.is_empty(), "{ran:?}");
}

/// What only `top`, `doctor --all` and the mode PER_CLIENT need.
#[tokio::test]
async fn without_the_right_to_scan_all_else_works() {
    let server = Server::start().await;
    let () = server.run(cmd("ACL").arg(&["SETUSER", acl::USER, "-scan"]).take()).await;
    let tool = Tool::on(&server);
    tool.ends(0, &["set", "api", "5/s"]).await;
    tool.ends(0, &["inspect", "api"]).await;
    tool.ends(0, &["doctor", "api"]).await;
    tool.ends(0, &["watch", "api", "--count", "1"]).await;
    for command in [&["top"][..], &["doctor", "--all"]] {
        let ran = tool.ends(5, command).await;
        assert!(ran.stderr.to_lowercase().contains("scan"), "{ran:?}");
    }
    tool.ends(0, &["set", "pc", "5/s per client"]).await;
    let ran = tool.ends(0, &["inspect", "pc"]).await;
    assert!(ran.stdout.contains("needs +scan"), "{ran:?}");
}

/// The rule for keys may be one for the names of a service.
#[tokio::test]
async fn limiters_that_the_user_may_not_read_are_left_out() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    for name in ["a", "b", "c"] {
        tool.ends(0, &["acquire", name, "--rate", "5/h"]).await;
    }
    let () = server.run(cmd("SET").arg("{c}:value").arg(5).take()).await;
    let allow = async |keys: &[&str]| {
        let mut user = cmd("ACL");
        user.arg(&["SETUSER", acl::USER, "resetkeys"]).arg(keys);
        let () = server.run(user).await;
    };
    allow(&["~c", "~{c}:*", "~{c}"]).await;
    for (code, command) in [(0, &["list"][..]), (0, &["top"]), (1, &["doctor", "--all"])] {
        let ran = tool.ends(code, command).await;
        assert!(ran.stdout.contains('c') && !ran.stdout.contains("\na "), "{ran:?}");
        let said = "redisson-limiter: 2 limiters left out: the user may not read all of the keys\n";
        assert_eq!(ran.stderr, said);
    }
    allow(&[]).await;
    let ran = tool.ends(5, &["list"]).await;
    assert!(ran.stderr.contains("refused the credentials or the command"), "{ran:?}");
}

#[tokio::test]
async fn without_the_right_to_the_time_the_machine_has_a_clock() {
    let server = Server::start().await;
    let () = server.run(cmd("ACL").arg(&["SETUSER", acl::USER, "-time"]).take()).await;
    let tool = Tool::on(&server);
    tool.ends(5, &["acquire", "api", "--rate", "5/h"]).await;
    tool.ends(5, &["inspect", "api"]).await;
    tool.ends(0, &["acquire", "api", "--rate", "5/h", "--clock", "machine"]).await;
    let seen = tool.json(0, &["inspect", "api", "--json", "--clock", "machine"]).await;
    assert!(seen["clock_skew"].is_null());
    assert_eq!(seen["budgets"][0]["in_use"], 1);
}

/// What would be ignored is refused, or named once.
#[tokio::test]
async fn one_thing_says_which_servers() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redisson.yaml");
    let text = format!(
        "singleServerConfig:\n  address: \"redis://127.0.0.1:{}\"\n  password: {}\n  username: {}\n  \
         retryAttempts: 4\nthreads: 16\n",
        server.port(),
        acl::PASSWORD,
        acl::USER
    );
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let bare = Tool::bare();
    let by_file = bare.clone().env("REDISSON_LIMITER_REDISSON_YAML", path);
    let ran = by_file.ends(0, &["set", "api", "1/s"]).await;
    for ignored in ["retryAttempts", "threads"] {
        assert_eq!(ran.stderr.matches(ignored).count(), 1, "{ran:?}");
    }
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    bare.ends(0, &["inspect", "api", "--redisson-yaml", path]).await;
    // Wherever the two come from.
    let url = server.url();
    let by_url = Tool::on(&server);
    for (tool, arguments) in [
        (&bare, &["--redisson-yaml", path, "--url", &url][..]),
        (&by_url, &["--redisson-yaml", path]),
        (&by_file, &["--url", &url]),
        (&by_file.clone().env("REDISSON_LIMITER_URL", &url), &[]),
    ] {
        let ran = tool.ends(2, &[&["set", "api", "2/s"], arguments].concat()).await;
        for name in
            ["--redisson-yaml", "--url", "REDISSON_LIMITER_URL", "REDISSON_LIMITER_REDISSON_YAML"]
        {
            assert!(ran.stderr.contains(name), "{ran:?}");
        }
        assert!(!ran.stderr.contains(acl::PASSWORD), "{ran:?}");
    }
    for (arguments, name) in [
        (&["--replicated"][..], "--replicated"),
        (&["--address-map", "a:1=b:2"], "--address-map"),
        (&["--sentinel-user", "x"], "--sentinel-user"),
    ] {
        let ran = by_file.ends(2, &[&["set", "api", "2/s"], arguments].concat()).await;
        assert!(ran.stderr.contains(name) && ran.stderr.contains("--redisson-yaml"), "{ran:?}");
        if name != "--replicated" {
            let ran = by_url.ends(2, &[&["set", "api", "2/s"], arguments].concat()).await;
            assert!(ran.stderr.contains(name), "{ran:?}");
            let all = [&["set", "api", "2/s", "--replicated"], arguments].concat();
            let ran = by_url.ends(2, &all).await;
            assert!(ran.stderr.contains(name), "{ran:?}");
        }
    }
    // Variables may be there for other servers.
    let word = folder.path().join("password");
    std::fs::write(&word, acl::PASSWORD).unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let tool = Tool::at(&url)
        .env("REDISSON_LIMITER_USER", acl::USER)
        .env("REDISSON_LIMITER_PASSWORD_FILE", word.to_str().unwrap())
        .env("REDISSON_LIMITER_PASSWORD", "not this one")
        .env("REDISSON_LIMITER_SENTINEL_PASSWORD", "nor this one");
    let ran = tool.ends(0, &["set", "api", "2/s"]).await;
    for ignored in
        ["REDISSON_LIMITER_PASSWORD is ignored", "REDISSON_LIMITER_SENTINEL_PASSWORD is ignored"]
    {
        assert_eq!(ran.stderr.matches(ignored).count(), 1, "{ran:?}");
    }
    assert!(!ran.stderr.contains("this one"), "{ran:?}");
}

#[tokio::test]
async fn wrong_arguments_end_with_two() {
    let tool = Tool::at("redis://jane:hunter2@127.0.0.1:1");
    for wrong in [
        &["inspect"][..],
        &["set", "api", "fast"],
        &["doctor"],
        &["doctor", "--all", "api"],
        &["acquire", "api", "0"],
        &["acquire", "api", "--wait", "soon"],
        &["watch", "api", "--every", "1ms"],
        &["bench", "--seconds", "61"],
        &["replay", "x"],
        &["inspect", "api", "--url", "redis://a", "--url", "redis://b"],
        &["inspect", "api", "--url", "ftp://jane:hunter2@host"],
        &["inspect", "api", "--cert", "x"],
        &["inspect", "api", "--address-map", "a=b"],
        &["nonsense"],
    ] {
        let ran = tool.run(wrong).await;
        // Some are found out only with a server.
        assert!(matches!(ran.code, 2 | 4), "{wrong:?}: {ran:?}");
        assert!(!ran.stderr.contains("hunter2") && !ran.stderr.is_empty(), "{wrong:?}: {ran:?}");
    }
}

/// As docs/cli.md says.
#[tokio::test]
async fn a_user_may_look_and_nothing_else() {
    let page = include_str!("../../../docs/cli.md");
    let rule = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let commands: Vec<&str> = rule.split_whitespace().collect();
    assert!(commands.len() > 10 && !commands.contains(&"+set"), "{commands:?}");
    let server = Server::start().await;
    let all = Tool::on(&server);
    all.ends(0, &["acquire", "api", "--rate", "5/h"]).await;
    all.ends(0, &["acquire", "pc", "--rate", "5/h per client"]).await;
    let () = server.run(cmd("SET").arg("{api}:value").arg(5).take()).await;
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "viewer", "on", ">look", "~*", "+scan", "+memory|usage"]).arg(&commands);
    let () = server.run(user).await;
    let viewer = Tool::at(&format!("redis://viewer:look@127.0.0.1:{}", server.port()));
    let seen = viewer.json(0, &["inspect", "api", "--json"]).await;
    assert!(seen["memory_bytes"].is_u64() && seen["clock_skew"].is_object(), "{seen:#}");
    viewer.ends(0, &["inspect", "pc"]).await;
    viewer.ends(0, &["watch", "api", "--count", "1"]).await;
    // The wait comes from the log.
    all.ends(0, &["acquire", "used", "5", "--rate", "5/h"]).await;
    let ran = viewer.ends(0, &["watch", "used", "--count", "1"]).await;
    assert!(ran.stdout.contains("0 of 5 free") && ran.stdout.contains("wait 59 min"), "{ran:?}");
    viewer.ends(0, &["inspect", "used"]).await;
    viewer.ends(0, &["top"]).await;
    viewer.ends(1, &["doctor", "--all"]).await;
    viewer.ends(5, &["doctor", "--all", "--fix", "--yes"]).await;
    viewer.ends(5, &["acquire", "api"]).await;
    all.ends(0, &["doctor", "--all", "--fix", "--yes"]).await;
}
