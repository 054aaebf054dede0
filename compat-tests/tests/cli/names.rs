//! Names that would do something to a terminal.

use compat_tests::server::Server;
use redis::cmd;

use crate::seed::{self, Old, of_redisson};
use crate::tool::{Ran, Tool};

const EVIL: [&str; 4] = [
    "\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "a\nb\r\x08\x7f",
    "\u{9b}31m\u{202e}\u{2066}\u{200b}",
    "tab\there",
];

fn is_harmless(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        for character in text.chars() {
            let is_drawn = matches!(character, '█' | '±' | 'µ');
            assert!((' '..='~').contains(&character) || character == '\n' || is_drawn, "{ran:?}");
        }
    }
}

#[tokio::test]
async fn no_name_reaches_a_terminal_as_it_is() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    for name in EVIL {
        for arguments in [
            &["set", name, "10/h"][..],
            &["acquire", name],
            &["inspect", name],
            &["watch", name, "--count", "1"],
            &["update", name, "20/h"],
        ] {
            is_harmless(&tool.ends(0, arguments).await);
        }
        let () = server.run(cmd("SET").arg(format!("{{{name}}}:value")).arg(name).take()).await;
        is_harmless(&tool.ends(0, &["inspect", name]).await);
        is_harmless(&tool.ends(1, &["doctor", name]).await);
        let ran = tool.ends(3, &["inspect", &format!("{name}!")]).await;
        is_harmless(&ran);
        assert!(ran.stderr.contains('\\') && !ran.stderr.contains("\\\\"), "escaped once: {ran:?}");
    }
    is_harmless(&tool.ends(0, &["top"]).await);
    is_harmless(&tool.ends(0, &["list"]).await);
    is_harmless(&tool.ends(1, &["doctor", "--all", "--json"]).await);
    let ran = tool.ends(0, &["doctor", "--all", "--fix", "--yes"]).await;
    is_harmless(&ran);
    assert!(ran.stdout.contains("\"\\u{1b}]0;owned\\u{7}"), "{ran:?}");
    // JSON says what the name is, and shows no character of it that a terminal obeys.
    for (code, arguments) in [
        (0, &["inspect", EVIL[2], "--json"][..]),
        (0, &["list", "--json"]),
        (0, &["top", "--json"]),
    ] {
        is_harmless(&tool.ends(code, arguments).await);
    }
    let inspected = tool.json(0, &["inspect", EVIL[2], "--json"]).await;
    assert_eq!(inspected["limiter"], EVIL[2]);
    let top = tool.json(0, &["top", "--json"]).await;
    let names = top["limiters"].as_array().unwrap().iter();
    let mut names: Vec<_> = names.map(|row| row["limiter"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut expected = EVIL;
    expected.sort_unstable();
    assert_eq!(names, expected);
    // What a hash holds is shown too.
    seed::hash(&server, "h", &[("rate", EVIL[0]), ("interval", "5"), ("type", "0")]).await;
    let ran = tool.ends(6, &["inspect", "h"]).await;
    is_harmless(&ran);
    assert!(ran.stdout.contains("rate is \"\\u{1b}]0;owned\\u{7}"), "{ran:?}");
    is_harmless(&tool.ends(6, &["inspect", "h", "--json"]).await);
    is_harmless(&tool.ends(1, &["doctor", "h"]).await);
    is_harmless(&tool.ends(6, &["acquire", "h"]).await);
    let fields = [("rate", "5"), ("interval", "3600000"), ("type", "1")];
    seed::hash(&server, "pc", &fields).await;
    let log = [Old { age_ms: 9_000, id: of_redisson(1), permits: 1 }];
    seed::budget(&server, "pc", Some(EVIL[0]), Some("1"), &log).await;
    is_harmless(&tool.ends(0, &["inspect", "pc"]).await);
    // It is no client's id, so that the keys are taken for another program's.
    let ran = tool.ends(0, &["doctor", "pc"]).await;
    assert_eq!(ran.stdout, "1 limiter examined: nothing found\n");
}

#[tokio::test]
async fn keys_that_are_not_utf_8_are_left_out() {
    let server = Server::start().await;
    let () = server.run(cmd("SET").arg(b"{\xff\xfe}:value").arg(1).take()).await;
    let ran = Tool::on(&server).ends(0, &["doctor", "--all"]).await;
    assert!(ran.stdout.contains("1 key left out, whose names are not UTF-8"), "{ran:?}");
}
