//! Faults between a store and its server, and the errors that report them.

use std::error::Error as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;

use super::{Limited, Server, free_port};
use crate::error::{Error, ErrorKind, Execution};
use crate::rate::{Mode, Rate};
use crate::store::redis::reply;
use crate::store::{
    AcquireCall, AcquireReply, KeysCall, LimitCall, Outcome, RequestGroup, ServerTimeCall, SizeCall,
};
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

const DEADLINE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);
/// How long a call may take beyond its deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

fn keys() -> Keys {
    Keys::new("api", "a")
}

fn call() -> AcquireCall {
    let limit = LimitCall {
        keys: keys(),
        seen: Some(Rate::from_wire(Mode::Overall, 1000, 60_000, 0)),
        create: Some(Rate::overall(1000, Duration::from_secs(60)).unwrap()),
        groups: vec![RequestGroup { permits: 1, max_wait_ms: 0, count: 1 }],
    };
    AcquireCall::usual(Some(1_700_000_000_000), EntryId(rand::random()), limit)
}

async fn connected(server: &Server) -> Limited {
    let store = super::store(&server.url(), LONG).unwrap();
    store.run(&keys(), ServerTimeCall).await.unwrap();
    store.with_deadline(DEADLINE)
}

async fn acquire(store: &Limited) -> Result<AcquireReply, Error> {
    let started = Instant::now();
    let reply = store.run(&keys(), call()).await;
    assert!(started.elapsed() < DEADLINE + SLACK, "it took {:?}", started.elapsed());
    reply
}

async fn granted(store: &Limited) {
    assert_eq!(acquire(store).await.unwrap().outcomes[0].outcome, Outcome::Granted);
}

#[track_caller]
fn assert_failure<T>(result: Result<T, Error>, kind: ErrorKind, execution: Execution) {
    let Err(failure) = result else { panic!("it should have failed with {kind:?}") };
    assert_eq!((&failure.kind(), failure.execution()), (&kind, execution), "{failure:?}");
}

fn invalid(url: &str) -> String {
    let failure = super::store(url, DEADLINE).unwrap_err();
    assert_eq!(failure.execution(), Execution::NotExecuted);
    assert!(!format!("{failure:?}").contains("secret"));
    assert_eq!(failure.kind(), ErrorKind::InvalidArgument);
    failure.to_string()
}

#[test]
fn a_wrong_url_is_refused_before_anything_is_sent() {
    for url in [
        "",
        "localhost",
        "http://localhost",
        "redis://",
        "redis://:secret@host:port",
        "redis://:secret@host/db",
    ] {
        assert!(invalid(url).contains("must be redis://"), "{url}");
    }
    if !cfg!(feature = "tls") {
        assert!(invalid("rediss://:secret@host").contains("\"tls\""));
    }
}

#[test]
fn a_password_is_never_shown() {
    let store = super::store("redis://user:secret@host:1234/0", DEADLINE).unwrap();
    let shown = format!("{store:?}");
    assert!(shown.contains("host") && !shown.contains("secret") && !shown.contains("user"));
}

/// Otherwise the call would not be attempted again, and its error would blame the server.
#[tokio::test]
async fn a_connection_that_ends_within_a_reply_is_an_outage() {
    let Some(real) = Server::start(&[]) else { return };
    let address = real.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    for part in ["*", "*2\r\n", "*2\r\n:9\r\n:17", "$5\r\nab", ":1"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let mut upstream = TcpStream::connect(&address).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            loop {
                let read = stream.read(&mut bytes).unwrap();
                if bytes[..read].windows(7).any(|it| it == b"EVALSHA") {
                    return stream.write_all(part.as_bytes()).unwrap();
                }
                upstream.write_all(&bytes[..read]).unwrap();
                let read = upstream.read(&mut bytes).unwrap();
                stream.write_all(&bytes[..read]).unwrap();
            }
        });
        let store = super::store(&url, DEADLINE).unwrap();
        let reply = acquire(&store).await;
        assert_failure(reply, ErrorKind::Unavailable, Execution::Unknown);
        server.join().unwrap();
    }
}

/// The first trip of a call that named the keys of another mode has written nothing.
#[tokio::test]
async fn the_second_trip_of_a_call_has_the_date_of_the_first() {
    const DATE: i64 = 1_700_000_000_123;
    let Some(real) = Server::start(&[]) else { return };
    let address = real.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let mut upstream = TcpStream::connect(&address).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        let mut trips = Vec::new();
        loop {
            let read = stream.read(&mut bytes).unwrap();
            let sent = &bytes[..read];
            if sent.windows(7).any(|it| it == b"EVALSHA") {
                trips.push(String::from_utf8_lossy(sent).contains(&DATE.to_string()));
                if trips.len() == 2 {
                    stream.write_all(b":9\r\n").unwrap();
                    return trips;
                }
                stream.write_all(format!("*2\r\n:-7\r\n:{DATE}\r\n").as_bytes()).unwrap();
                continue;
            }
            upstream.write_all(sent).unwrap();
            let read = upstream.read(&mut bytes).unwrap();
            stream.write_all(&bytes[..read]).unwrap();
        }
    });
    let store = super::store(&url, LONG).unwrap();
    let reply = store.run(&keys(), AcquireCall { now: None, ..call() }).await.unwrap();
    assert_eq!((reply.now, reply.entry_date, reply.left), (DATE, DATE, 9));
    assert_eq!(server.join().unwrap(), [false, true]);
}

#[tokio::test]
async fn a_call_that_has_no_time_left_is_not_sent() {
    let Some(server) = Server::start(&[]) else { return };
    let mut raw = server.raw();
    let mut connections = || {
        let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(&mut raw).unwrap();
        info.get::<u64>("total_connections_received").unwrap()
    };
    let store = connected(&server).await;
    let before = connections();
    let reply = store.with_deadline(Duration::ZERO).run(&keys(), call()).await;
    assert_failure(reply, ErrorKind::Timeout, Execution::NotExecuted);
    assert!(!store.run(&keys(), KeysCall::Exists).await.unwrap());
    assert_eq!(connections(), before, "the connection is as good as it was");
}

#[tokio::test]
async fn a_server_that_does_not_exist_is_unavailable() {
    let store = super::store(&format!("redis://127.0.0.1:{}", free_port()), DEADLINE).unwrap();
    for _ in 0..3 {
        assert_failure(acquire(&store).await, ErrorKind::Unavailable, Execution::NotExecuted);
    }
    let error = acquire(&store).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let source = error.get_ref().unwrap().source().unwrap().to_string();
    assert!(source.contains("refused"), "{source}");
    assert!(error.source().is_none(), "its text is part of the error's text already");
}

#[tokio::test]
async fn a_host_that_accepts_and_never_answers_times_out() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let store = super::store(&url, DEADLINE).unwrap();
    let calls = join_all((0..100).map(|_| acquire(&store))).await;
    for result in calls {
        assert_failure(result, ErrorKind::Timeout, Execution::NotExecuted);
    }
}

#[tokio::test]
async fn a_frozen_server_times_out_and_recovers() {
    let Some(server) = Server::start(&[]) else { return };
    let store = connected(&server).await;
    granted(&store).await;

    server.signal("-STOP");
    for result in join_all((0..50).map(|_| acquire(&store))).await {
        assert_failure(result, ErrorKind::Timeout, Execution::Unknown);
    }
    // That connection has been given up: now the handshake of a new one hangs.
    assert_failure(acquire(&store).await, ErrorKind::Timeout, Execution::NotExecuted);
    server.signal("-CONT");

    tokio::time::sleep(Duration::from_millis(200)).await;
    granted(&store).await;
}

#[tokio::test]
async fn a_slow_answer_does_not_cost_the_connection() {
    let Some(server) = Server::start(&[]) else { return };
    let store = connected(&server).await.with_deadline(LONG);
    granted(&store).await;
    server.signal("-STOP");
    let with_short_deadline = store.with_deadline(Duration::from_millis(100));
    let ((), hasty) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.signal("-CONT");
        },
        with_short_deadline.run(&keys(), call()),
    );
    assert_failure(hasty, ErrorKind::Timeout, Execution::Unknown);
    granted(&store).await;
}

/// Otherwise every call would hang until the kernel gives up, if what is between has forgotten the connection.
#[tokio::test]
async fn a_caller_that_gives_up_first_does_not_keep_a_silent_connection() {
    let Some(server) = Server::start(&[]) else { return };
    let store = connected(&server).await.with_deadline(LONG);
    let mut raw = server.raw();
    for (patience, opened) in [(100, 0), (300, 1)] {
        let mut connections = || {
            let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(&mut raw).unwrap();
            info.get::<u64>("total_connections_received").unwrap()
        };
        let before = connections();
        server.signal("-STOP");
        let patience = Duration::from_millis(patience);
        assert!(tokio::time::timeout(patience, store.run(&keys(), peek())).await.is_err());
        server.signal("-CONT");
        granted(&store).await;
        assert_eq!(connections() - before, opened, "{patience:?}");
    }
}

#[tokio::test]
async fn connecting_goes_on_when_the_call_that_began_it_is_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    server.signal("-STOP");
    let hasty = super::store(&server.url(), Duration::from_millis(50)).unwrap();
    let patient = hasty.with_deadline(LONG);
    let ((), hasty, patient) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            server.signal("-CONT");
        },
        hasty.run(&keys(), call()),
        patient.run(&keys(), call()),
    );
    assert_failure(hasty, ErrorKind::Timeout, Execution::NotExecuted);
    assert_eq!(patient.unwrap().outcomes[0].outcome, Outcome::Granted);
}

#[tokio::test]
async fn a_restart_between_calls_is_not_noticed() {
    let Some(server) = Server::start(&[]) else { return };
    let port = server.port;
    let store = connected(&server).await;
    granted(&store).await;
    drop(server);
    let server = Server::start_at(port, &[]).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The new server does not know the scripts either.
    granted(&store).await;
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_failure(acquire(&store).await, ErrorKind::Unavailable, Execution::NotExecuted);
}

#[tokio::test]
async fn a_server_that_dies_during_a_call_leaves_it_unknown() {
    let Some(server) = Server::start(&[]) else { return };
    let store = connected(&server).await.with_deadline(LONG);
    granted(&store).await;
    server.signal("-STOP");
    let calls = join_all((0..20).map(|_| store.run(&keys(), call())));
    let killed = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.signal("-KILL");
    };
    let (results, ()) = tokio::join!(calls, killed);
    for result in results {
        assert_failure(result, ErrorKind::Unavailable, Execution::Unknown);
    }
}

#[tokio::test]
async fn scripts_are_sent_again_if_the_server_has_forgotten_them() {
    let Some(server) = Server::start(&[]) else { return };
    let store = super::store(&server.url(), DEADLINE).unwrap();
    granted(&store).await;
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.raw()).unwrap();
    granted(&store).await;
    assert_eq!(store.run(&keys(), peek()).await.unwrap().available, 998);
    assert!(store.run(&keys(), SizeCall).await.unwrap() > 0);
    assert!(store.run(&keys(), ServerTimeCall).await.unwrap() > 1_700_000_000_000_000);
}

fn peek() -> crate::store::PeekCall {
    crate::store::PeekCall {
        now: Some(1_700_000_000_000),
        permits: 0,
        seen: Some(Rate::from_wire(Mode::Overall, 1000, 60_000, 0)),
    }
}

#[tokio::test]
async fn all_calls_share_one_connection() {
    let Some(server) = Server::start(&[]) else { return };
    let store = super::store(&server.url(), LONG).unwrap();
    // A caller that is dropped while the connection is opened does not end the attempt.
    assert!(store.run(&keys(), call()).now_or_never().is_none());
    for result in join_all((0..2000).map(|_| store.run(&keys(), KeysCall::Exists))).await {
        result.unwrap();
    }
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.raw()).unwrap();
    assert_eq!(clients.lines().count(), 2, "{clients}");
}

#[test]
fn a_runtime_that_ends_takes_only_its_connection() {
    let Some(server) = Server::start(&[]) else { return };
    let store = super::store(&server.url(), DEADLINE).unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        // One ends in the middle of connecting, the other with the connection in use.
        runtime().block_on(async {
            assert!(store.run(&keys(), KeysCall::Exists).now_or_never().is_none())
        });
        runtime().block_on(granted(&store));
    }
}

#[tokio::test]
async fn errors_about_credentials_are_distinguished_from_others() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let at = |user: &str| {
        super::store(&format!("redis://{user}127.0.0.1:{}", server.port), DEADLINE).unwrap()
    };
    granted(&at(":right@")).await;
    assert_failure(acquire(&at(":wrong@")).await, ErrorKind::Auth, Execution::NotExecuted);
    assert_failure(acquire(&at("")).await, ErrorKind::Auth, Execution::NotExecuted);

    let mut raw = redis::Client::open(format!("redis://:right@127.0.0.1:{}", server.port))
        .unwrap()
        .get_connection()
        .unwrap();
    for rules in [
        vec!["none", "~*", "+@all", "-evalsha"],
        vec!["half", "~*", "+@all", "-zadd"],
        vec!["keys", "~other", "+@all"],
    ] {
        let mut cmd = redis::cmd("ACL");
        cmd.arg("SETUSER").arg(rules[0]).arg("on").arg(">word");
        cmd.arg(&rules[1..]).exec(&mut raw).unwrap();
    }
    let none = acquire(&at("none:word@")).await;
    assert_failure(none, ErrorKind::Auth, Execution::NotExecuted);
    assert_failure(acquire(&at("half:word@")).await, ErrorKind::Auth, Execution::Unknown);
    assert_failure(acquire(&at("keys:word@")).await, ErrorKind::Auth, Execution::NotExecuted);
}

#[tokio::test]
async fn a_server_that_refuses_writes_is_unavailable() {
    let Some(server) = Server::start(&[]) else { return };
    let store = connected(&server).await;
    granted(&store).await;
    let mut raw = server.raw();
    let mut set = |name: &str, value: &str| {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut raw).unwrap();
    };
    set("maxmemory", "1");
    assert_failure(acquire(&store).await, ErrorKind::Unavailable, Execution::NotExecuted);
    set("maxmemory", "0");
    set("min-replicas-to-write", "3");
    assert_failure(acquire(&store).await, ErrorKind::Unavailable, Execution::NotExecuted);
    set("min-replicas-to-write", "0");
    granted(&store).await;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(free_port()).exec(&mut raw).unwrap();
    assert_failure(acquire(&store).await, ErrorKind::Unavailable, Execution::NotExecuted);
}

/// Otherwise neither another attempt would be made nor an outage policy asked, as if the database were a mistake.
#[tokio::test]
async fn a_server_that_runs_a_script_for_too_long_is_unavailable_in_any_database() {
    let Some(server) = Server::start(&["--lua-time-limit", "10"]) else { return };
    let mut raw = server.raw();
    let endless = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut raw).unwrap_err()
    });
    let mut raw = server.raw();
    let is_busy = |raw: &mut redis::Connection| {
        redis::cmd("PING").exec(raw).is_err_and(|error| error.code() == Some("BUSY"))
    };
    while !is_busy(&mut raw) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let stores = [0, 1]
        .map(|database| super::store(&format!("{}/{database}", server.url()), DEADLINE).unwrap());
    for store in &stores {
        assert_failure(acquire(store).await, ErrorKind::Unavailable, Execution::NotExecuted);
    }
    redis::cmd("SCRIPT").arg("KILL").exec(&mut raw).unwrap();
    endless.join().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    for store in &stores {
        granted(store).await;
    }
    let none = super::store(&format!("{}/99", server.url()), DEADLINE).unwrap();
    assert_failure(acquire(&none).await, ErrorKind::InvalidArgument, Execution::NotExecuted);
}

/// The kind and execution of a server's error line.
fn read_error_line(line: &str) -> (ErrorKind, Execution) {
    let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
    let failure = reply::accepted(value).unwrap_err();
    assert!(failure.get_ref().is_some());
    (failure.kind(), failure.execution())
}

#[test]
fn error_lines_of_redis_6_2_and_7_are_read() {
    use ErrorKind::{Auth, Unavailable, WrongType};
    use Execution::{Executed, NotExecuted, Unknown};
    for (line, kind, execution) in [
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 9f1a, on \
          @user_script:3.",
            WrongType,
            Executed,
        ),
        (
            "ERR Error running script (call to f_9f1a): @user_script:3: WRONGTYPE Operation against \
          a key holding the wrong kind of value",
            WrongType,
            Executed,
        ),
        (
            "ERR Error running script (call to f_9f1a): @user_script:9: @user_script: 9: -READONLY \
          You can't write against a read only replica.",
            Unavailable,
            NotExecuted,
        ),
        (
            "READONLY You can't write against a read only replica. script: 9f1a, on @user_script:9.",
            Unavailable,
            NotExecuted,
        ),
        (
            "ERR Error running script (call to f_9f1a): @user_script:9: @user_script: 9: -OOM command \
          not allowed when used memory > 'maxmemory'.",
            Unavailable,
            NotExecuted,
        ),
        (
            "ERR Error running script (call to f_9f1a): @user_script:9: The user executing the script \
          can't run this command or subcommand script",
            Auth,
            Unknown,
        ),
        ("NOAUTH Authentication required.", Auth, NotExecuted),
        ("ERR Protocol error: unauthenticated multibulk length", Auth, NotExecuted),
        ("ERR Protocol error: unauthenticated bulk length", Auth, NotExecuted),
        ("WRONGPASS invalid username-password pair or user is disabled.", Auth, NotExecuted),
        ("NOPERM this user has no permissions to run the 'evalsha' command", Auth, NotExecuted),
        ("LOADING Redis is loading the dataset in memory", Unavailable, NotExecuted),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            Unavailable,
            NotExecuted,
        ),
        ("CLUSTERDOWN The cluster is down", Unavailable, NotExecuted),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable, NotExecuted),
        (
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            Unavailable,
            NotExecuted,
        ),
        ("ERR max number of clients reached", Unavailable, NotExecuted),
    ] {
        assert_eq!(read_error_line(line), (kind, execution), "{line}");
    }
    let (kind, execution) = read_error_line("MOVED 3999 127.0.0.1:6381");
    assert!(kind == ErrorKind::Server && execution == NotExecuted, "{kind:?}");
    let (kind, execution) = read_error_line(
        "ERR user_script:3: attempt to compare number with nil script: \
        9f1a, on @user_script:3.",
    );
    assert!(kind == ErrorKind::Server && execution == Unknown, "{kind:?}");
}
