//! The Rust peer: one client of this crate that runs the calls it reads, by the peer protocol.
//!
//! It uses the public API only.

mod calls;
mod load;
mod policies;
mod protocol;
mod semaphores;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::str::FromStr;

use calls::Peer;
use compat_tests::peer::{KEPT_GRANTS, SERVER_CLOCK};
use protocol::{Failure, Line};
use redisson_rate_limiter::{Client, Clock, ManualClock, Tls};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

struct Options {
    redis: String,
    client_id: Option<String>,
    key_prefix: String,
    /// Files in PEM format, for `rediss://` addresses.
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    /// The worker threads of the runtime.
    tokio_threads: Option<NonZeroUsize>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let served = match args.first().map(String::as_str) {
        Some("policies") => vectors(&args[1..]),
        _ => options(args.into_iter())
            .and_then(|options| runtime(options.tokio_threads).block_on(peer(options))),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("rust-peer: {message}");
            ExitCode::from(2)
        }
    }
}

/// Answers the vectors of policies.
fn vectors(args: &[String]) -> Result<(), String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let redis = match args[..] {
        ["--redis", url] => Some(url.to_owned()),
        ["--in-process"] => None,
        _ => return Err("policies takes --redis redis://HOST:PORT or --in-process".to_owned()),
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(policies::answer(redis))
}

/// By default one worker thread fewer than cores, to leave a core to the server, which shares the
/// machine: with two busy workers on two cores both would be slower. `--tokio-threads` overrides it,
/// and so does `TOKIO_WORKER_THREADS`, which tokio reads itself.
fn runtime(threads: Option<NonZeroUsize>) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.get());
    } else if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        builder.worker_threads((cores - 1).max(1));
    }
    builder.enable_all().build().expect("a runtime")
}

async fn peer(options: Options) -> Result<(), String> {
    let (clock, manual) = Clock::manual(0);
    manual.follow_system();
    let kept_grants = number(KEPT_GRANTS)?.unwrap_or(usize::MAX);
    serve(client(options, clock)?, manual, kept_grants).await;
    Ok(())
}

/// Reads calls until standard input closes. Replies come as they are ready.
async fn serve(client: Client, clock: ManualClock, kept_grants: usize) {
    let (replies, writer) = writer();
    let ready =
        json!({"ready": true, "clientId": client.id(), "version": env!("CARGO_PKG_VERSION")});
    let _ = replies.send(ready);
    let peer = Peer::new(client.clone(), clock, replies.clone(), kept_grants);
    let mut lines = BufReader::new(stdin()).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        match Line::parse(&line) {
            Ok(line) => peer.run(line),
            Err((id, failure)) => {
                let _ = replies.send(failure.reply(&id));
            }
        }
    }
    peer.finish().await;
    client.close().await;
    drop((peer, replies));
    let _ = writer.await;
}

/// A task that owns standard output: one reply a line, flushed when no other is ready.
fn writer() -> (mpsc::UnboundedSender<Value>, tokio::task::JoinHandle<()>) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<Value>();
    let task = tokio::spawn(async move {
        let mut out = stdout();
        while let Some(first) = receiver.recv().await {
            let mut text = format!("{first}\n");
            while let Ok(reply) = receiver.try_recv() {
                text.push_str(&reply.to_string());
                text.push('\n');
            }
            if out.write_all(text.as_bytes()).await.is_err() || out.flush().await.is_err() {
                return;
            }
        }
    });
    (sender, task)
}

fn options(args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        redis: String::new(),
        client_id: None,
        key_prefix: String::new(),
        ca: None,
        cert: None,
        key: None,
        tokio_threads: None,
    };
    let mut args = args;
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--redis" => options.redis = value,
            "--client-id" => options.client_id = Some(value),
            "--key-prefix" => options.key_prefix = value,
            "--ca" => options.ca = Some(value),
            "--cert" => options.cert = Some(value),
            "--key" => options.key = Some(value),
            "--tokio-threads" => {
                let threads = value.parse();
                options.tokio_threads = Some(
                    threads.map_err(|_| format!("--tokio-threads {value}: must be at least 1"))?,
                );
            }
            _ => {
                return Err(format!(
                    "unknown option {flag}; there are --redis, --client-id, --key-prefix, --ca, --cert, \
                     --key, --tokio-threads"
                ));
            }
        }
    }
    if options.redis.is_empty() {
        return Err("--redis redis://HOST:PORT is missing".to_owned());
    }
    Ok(options)
}

fn client(options: Options, clock: Clock) -> Result<Client, String> {
    let clock = match std::env::var_os(SERVER_CLOCK) {
        Some(_) => Clock::server(),
        None => clock,
    };
    let mut builder = Client::builder().key_prefix(options.key_prefix).clock(clock);
    if let Some(id) = options.client_id {
        builder = builder.id(id);
    }
    let read = |file: &String| std::fs::read(file).map_err(|error| format!("{file}: {error}"));
    let mut tls = Tls::new();
    if let Some(ca) = &options.ca {
        tls = tls.ca_pem(read(ca)?);
    }
    match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => tls = tls.identity_pem(read(cert)?, read(key)?),
        (None, None) => {}
        _ => return Err("--cert and --key belong together: one of them is missing".to_owned()),
    }
    if options.ca.is_some() || options.cert.is_some() {
        builder = builder.tls(tls);
    }
    builder.connect_lazy(&options.redis).map_err(|error| error.to_string())
}

/// The number that an environment variable has, if it is set.
fn number<T: FromStr>(variable: &str) -> Result<Option<T>, String> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{variable}={text}: not a number"))
}

impl From<redisson_rate_limiter::Error> for Failure {
    fn from(error: redisson_rate_limiter::Error) -> Self {
        use redisson_rate_limiter::ErrorKind;
        let kind = match error.kind() {
            ErrorKind::NotInitialized => "NotInitialized",
            ErrorKind::ExceedsRate { .. } => "ExceedsRate",
            ErrorKind::InvalidArgument => "InvalidArgument",
            ErrorKind::ForeignEntry => "ForeignEntry",
            ErrorKind::WrongType => "WrongType",
            ErrorKind::CorruptState => "CorruptState",
            ErrorKind::Auth => "Auth",
            ErrorKind::Unavailable => "Unavailable",
            ErrorKind::Timeout => "Timeout",
            _ => "Other",
        };
        Failure { kind, message: error.to_string() }
    }
}
