//! Processes that fork after they have used a client: nothing that must be unique is drawn twice, and
//! what cannot work in a child fails at once.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use compat_tests::server::Server;
use redisson_rate_limiter::{Client, Rate};
use tokio::task::spawn_blocking;

/// How many processes there are, and how many permits each asks for.
const PROCESSES: usize = 5;
const CALLS: u64 = 50;
/// What is left for them: less than they ask for together.
const LEFT: u64 = 100;

/// What one process did.
struct Line {
    client: String,
    granted: u64,
    ms: u128,
    failed: String,
}

/// Has a process use a client and fork; its children's lines, and then its own.
async fn forked(kind: &str) -> Vec<Line> {
    let server = Server::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let limiter = client.limiter("api").unwrap();
    // One is taken before the fork.
    limiter.set_rate(Rate::overall(LEFT + 1, Duration::from_secs(600)).unwrap()).await.unwrap();
    // With its children, so that one that hangs is ended.
    let mut program = Command::new("timeout");
    program.args(["--signal=KILL", "30", env!("CARGO_BIN_EXE_forks"), kind, &server.url()]);
    let output = spawn_blocking(move || program.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "it hangs, or a child failed: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(line).collect();
    assert_eq!(lines.len(), PROCESSES, "{text}");
    let granted: u64 = lines.iter().map(|line| line.granted).sum();
    let left = limiter.available_permits().await.unwrap();
    assert_eq!(granted + left, LEFT, "{text}");
    lines
}

fn line(text: &str) -> Line {
    let mut words = text.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_else(|| panic!("{text}")).to_owned();
    let (client, granted, ms) = (word(), word().parse().unwrap(), word().parse().unwrap());
    Line { client, granted, ms, failed: word() }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_made_in_children_have_ids_of_their_own_and_share_no_grant() {
    let lines = forked("new").await;
    let clients: HashSet<_> = lines.iter().map(|line| &*line.client).collect();
    assert_eq!(clients.len(), PROCESSES);
    assert_eq!(lines.iter().map(|line| line.granted).sum::<u64>(), LEFT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_children_go_on_with_takes_no_grant_of_another_process() {
    let lines = forked("kept").await;
    assert_eq!(lines.iter().map(|line| line.granted).sum::<u64>(), LEFT);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_need_the_clients_thread_fail_in_a_child_and_say_why() {
    for kind in ["blocking", "outside"] {
        let mut lines = forked(kind).await;
        let parent = lines.pop().unwrap();
        assert_eq!((parent.granted, &*parent.failed), (CALLS, ""), "{kind}");
        for child in lines {
            assert_eq!(child.granted, 0, "{kind}");
            let why = "Closed acquire of limiter \"api\": the client is closed: its thread is in process ";
            assert!(child.failed.starts_with(why), "{kind}: {}", child.failed);
            assert!(child.failed.ends_with(": make a client after the fork"), "{}", child.failed);
            assert!(child.ms < 3000, "{kind}: 50 calls took {} ms", child.ms);
        }
    }
}

/// Children have copies of what their parent holds, which are nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_given_back_by_the_process_that_took_it() {
    let server = Server::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    client.concurrency("leased").unwrap().set_permits(3).await.unwrap();
    client.semaphore("plain").unwrap().set_permits(3).await.unwrap();
    let mut program = Command::new("timeout");
    program.args(["--signal=KILL", "30", env!("CARGO_BIN_EXE_forks"), "held", &server.url()]);
    let output = spawn_blocking(move || program.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "it hangs, or a child failed: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for kind in ["leased", "plain"] {
        let free: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(kind)).collect();
        assert_eq!(free, [" 2", " 2", " 2", " 2", " 3"], "{text}");
    }
}
