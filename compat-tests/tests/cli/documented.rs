//! docs/cli.md shows what the program prints: each of its `console` blocks is run, in their order.
//!
//! `UPDATE_CLI_DOCS=1` writes what was printed into the page.

use std::fmt::Write;
use std::path::PathBuf;

use compat_tests::server::Server;
use redis::cmd;

use crate::seed::{self, Old, of_client, of_redisson};
use crate::tool::Tool;

const CLIENTS: [&str; 2] =
    ["0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11", "6d0a5a3e-52a4-4a30-8f6e-5a3f0a9d2c22"];
const MINUTE_MS: i64 = 60_000;

/// The limiters of the page. Ages are in the middle of what is shown of them.
async fn seed(server: &Server) {
    const HOUR_MS: u64 = 3_600_000;
    let old = |minutes: f64, id, permits| Old { age_ms: (minutes * 60_000.0) as i64, id, permits };
    seed::overall(server, "api", 1_000, HOUR_MS).await;
    let log = [
        old(50.5, of_redisson(1), 40),
        old(33.5, of_redisson(2), 120),
        old(32.5, of_client(1, 3), 60),
        old(9.5, of_client(2, 4), 200),
        old(3.5, of_redisson(5), 80),
    ];
    seed::budget(server, "api", None, Some("500"), &log).await;
    seed::overall(server, "search", 100, HOUR_MS).await;
    let log = [old(10.5, of_redisson(1), 20)];
    seed::budget(server, "search", None, Some("65"), &log).await;
    seed::overall(server, "mail", 50, HOUR_MS).await;
    seed::budget(server, "mail", None, Some("50"), &[]).await;
    let () = server.run(cmd("PEXPIRE").arg("mail").arg(1_000_000).take()).await;
    let mut add = cmd("ZADD");
    add.arg("{mail}:permits").arg(seed::now_ms() - MINUTE_MS * 21 / 2).arg(&[7u8; 20]);
    let () = server.run(add).await;
    seed::budget(server, "gone", None, Some("6"), &[old(3_000.0, of_redisson(1), 4)]).await;
    let fields = [("rate", "10"), ("interval", "3600000"), ("type", "1"), ("keepAliveTime", "0")];
    seed::hash(server, "login", &fields).await;
    seed::budget(server, "login", Some(CLIENTS[0]), Some("6"), &[old(70.5, of_redisson(1), 4)])
        .await;
    seed::budget(server, "login", Some(CLIENTS[1]), Some("7"), &[old(20.5, of_redisson(2), 3)])
        .await;
}

fn page() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md"))
}

/// The same for each run: without what a clock or the machine's speed decides.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        let varies = [
            "clock",
            "memory",
            "caller",
            "granted/s",
            "lives for",
            "\"now_ms\"",
            "\"date_ms\"",
            "_us\"",
            "\"memory_bytes\"",
            "within",
        ];
        match varies.iter().any(|word| line.contains(word)) {
            true => {
                let plain: String =
                    line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
                let plain = plain.replace("ahead of", "behind").replace('-', "");
                let words: Vec<&str> =
                    plain.split([' ', '.']).filter(|word| !word.is_empty()).collect();
                let short = words.join(" ").replace("callers", "caller");
                let mut last = ' ';
                masked.extend(short.chars().filter(|c| {
                    let is_new = *c != '#' || last != '#';
                    last = *c;
                    is_new
                }));
            }
            false => masked.push_str(line.trim_end()),
        }
        masked.push('\n');
    }
    masked
}

#[tokio::test]
async fn the_page_shows_what_is_printed() {
    let server = Server::start().await;
    seed(&server).await;
    let tool = Tool::on(&server);
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(page()).unwrap();
    let mut new = String::new();
    let mut blocks = 0;
    let mut parts = text.split("```console\n");
    new.push_str(parts.next().unwrap());
    for part in parts {
        let (block, rest) = part.split_once("```\n").expect("the end of a block");
        new.push_str("```console\n");
        for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let _ = writeln!(new, "$ {command}");
            new.push_str(&shown(&tool, command, folder.path()).await);
        }
        new.push_str("```\n");
        new.push_str(rest);
        blocks += 1;
    }
    assert!(blocks >= 9, "{blocks}");
    if std::env::var_os("UPDATE_CLI_DOCS").is_some() {
        std::fs::write(page(), &new).unwrap();
        return;
    }
    let (old, new) = (masked(&text), masked(&new));
    for (at, (old, new)) in old.lines().zip(new.lines()).enumerate() {
        assert_eq!(old, new, "line {} of docs/cli.md (UPDATE_CLI_DOCS=1 writes it)", at + 1);
    }
    assert_eq!(old.lines().count(), new.lines().count());
}

/// What a command prints, with the code it ends with if that is not 0; `> FILE` keeps it.
async fn shown(tool: &Tool, command: &str, folder: &std::path::Path) -> String {
    let (command, file) = match command.split_once(" > ") {
        Some((command, file)) => (command, Some(folder.join(file))),
        None => (command, None),
    };
    let mut words = Vec::new();
    for (at, part) in command.split('"').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    assert_eq!(words.remove(0), "redisson-limiter");
    for word in &mut words {
        if word.ends_with(".json") {
            *word = folder.join(&*word).display().to_string();
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = tool.run(&words).await;
    let mut text = ran.stdout;
    if let Some(file) = file {
        std::fs::write(file, &text).unwrap();
        text.clear();
    }
    text.push_str(&ran.stderr);
    if ran.code != 0 {
        let _ = writeln!(text, "[exit {}]", ran.code);
    }
    text
}

/// The page and the program have the same table of codes.
#[tokio::test]
async fn the_exit_codes_are_documented() {
    let text = std::fs::read_to_string(page()).unwrap();
    let help = Tool::at("").ends(0, &["--help"]).await.stdout;
    let codes = help.split("Exit codes:\n").nth(1).expect("the codes");
    let codes: Vec<_> = codes.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(codes.len(), 8, "{codes:?}");
    for line in codes {
        let (code, meaning) = line.trim().split_once("  ").expect("a code and its meaning");
        assert!(text.contains(&format!("| {code} | {meaning} |")), "{line}");
    }
}
