//! What is drawn on a terminal, and only there. `script`, which comes with `setpriv`, is the terminal.

use std::process::Stdio;
use std::time::Duration;

use compat_tests::server::Server;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::tool::{PROGRAM, Ran, Tool};

/// What a run in a terminal writes to it.
async fn in_terminal(server: &Server, arguments: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{PROGRAM} {arguments}"), "/dev/null"]);
    command.env("REDISSON_LIMITER_URL", server.url()).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(environment.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    String::from_utf8(output.expect("it ends").expect("script runs").stdout).unwrap()
}

/// Answers a question with yes, after something else has happened.
pub(crate) async fn answered(
    server: &Server,
    arguments: &str,
    meanwhile: impl Future<Output = ()>,
) -> Ran {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{PROGRAM} {arguments}"), "/dev/null"]).kill_on_drop(true);
    command.env("REDISSON_LIMITER_URL", server.url()).env("TERM", "dumb");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let run = async {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains("[y/N]") {
            assert_ne!(stdout.read_buf(&mut shown).await.unwrap(), 0, "no question: {shown:?}");
        }
        meanwhile.await;
        stdin.write_all(b"y\n").await.unwrap();
        stdout.read_to_end(&mut shown).await.unwrap();
        let code = child.wait().await.unwrap().code().unwrap_or(-1);
        Ran { code, stdout: String::from_utf8(shown).unwrap(), stderr: String::new() }
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.expect("it ends")
}

#[tokio::test]
async fn a_reset_leaves_alone_what_has_changed_since_it_asked() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let set = async || drop(tool.ends(0, &["acquire", "api", "4", "--rate", "100/h"]).await);
    let change = async |arguments: &[&str]| drop(tool.ends(0, arguments).await);

    set().await;
    let ran = answered(&server, "reset api", change(&["update", "api", "5/h"])).await;
    assert!(ran.code == 0 && ran.stdout.contains("all 5 permits are available"), "{ran:?}");
    let ran = tool.ends(0, &["acquire", "api", "5"]).await;
    assert_eq!(ran.stdout, "granted: 5 permits, 0 left of 5/h\n");

    change(&["set", "api", "100/h"]).await;
    let ran = answered(&server, "reset api", change(&["reset", "api", "--delete", "--yes"])).await;
    assert!(ran.code == 3 && ran.stdout.contains("there is no limiter \"api\""), "{ran:?}");
    tool.ends(3, &["inspect", "api"]).await;

    // The question was about one client.
    let client = "0b1f4f0e-8c7e-4d6a-9d53-3a1f6f1f7c11";
    change(&["set", "api", "9/h per client"]).await;
    let meanwhile = async {
        change(&["set", "api", "100/h"]).await;
        set().await;
    };
    let ran = answered(&server, &format!("reset api --client-id {client}"), meanwhile).await;
    assert!(ran.code == 1 && ran.stdout.contains("nothing is forgotten"), "{ran:?}");
    let ran = tool.ends(0, &["acquire", "api"]).await;
    assert!(ran.stdout.contains(", 95 left of 100/h"), "{ran:?}");
}

#[tokio::test]
async fn colours_progress_and_the_live_view_are_for_terminals() {
    let server = Server::start().await;
    let tool = Tool::on(&server);
    let plain = tool.ends(0, &["acquire", "api", "3", "--rate", "10/h"]).await;
    assert!(!plain.stdout.contains('\x1b'), "{plain:?}");
    let forced = tool.ends(0, &["inspect", "api", "--color", "always"]).await;
    assert!(forced.stdout.contains("\x1b["), "{forced:?}");
    let shown = in_terminal(&server, "inspect api", &[]).await;
    assert!(shown.contains("\x1b[") && shown.contains("value + log = rate"), "{shown}");
    let shown = in_terminal(&server, "inspect api", &[("NO_COLOR", "1")]).await;
    assert!(!shown.contains('\x1b'), "{shown}");
    let shown = in_terminal(&server, "doctor --all", &[]).await;
    assert!(shown.contains("scanning: "), "{shown}");
    // Of as many limiters as there are, however fast they are looked at; and on standard error alone.
    let shown = in_terminal(&server, "list 2>/dev/null", &[]).await;
    assert!(!shown.contains("scanning: ") && shown.contains("api"), "{shown}");
    let shown = in_terminal(&server, "watch api --count 3 --every 100ms", &[]).await;
    assert!(shown.contains("\x1b[?1049h") && shown.ends_with("\x1b[?1049l"), "{shown:?}");
    assert!(shown.contains("10/h  7 of 10 free") && shown.contains('▆'), "{shown}");
}

#[tokio::test]
async fn a_live_view_ends_by_ctrl_c_even_while_the_server_is_slow() {
    let server = Server::start().await;
    Tool::on(&server).ends(0, &["set", "api", "10/h"]).await;
    let mut command = Command::new(PROGRAM);
    command.args(["watch", "api", "--every", "50ms", "--timeout", "300s"]);
    command.env("REDISSON_LIMITER_URL", server.url()).kill_on_drop(true);
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        lines.next_line().await.unwrap().expect("a line");
    }
    let () = server.run(redis::cmd("CLIENT").arg("PAUSE").arg(120_000).take()).await;
    // So long that it is waiting for an answer.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let id = child.id().unwrap().to_string();
    Command::new("kill").args(["-INT", &id]).status().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), child.wait()).await;
    assert!(ended.expect("it ends").unwrap().success());
}
