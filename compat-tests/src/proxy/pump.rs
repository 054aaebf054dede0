//! What passes through a proxy, in both directions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{Armed, Fault, Shared};
use crate::resp;

/// One connection, until both sides have closed it.
pub(super) async fn join(client: TcpStream, shared: std::sync::Arc<Shared>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target())).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let replies_left = AtomicUsize::new(usize::MAX);
    let (requests, requests_out) = mpsc::unbounded_channel();
    let (replies, replies_out) = mpsc::unbounded_channel();
    let backward = async {
        tokio::join!(
            pump_replies(from_server, replies, &shared, &replies_left),
            write_late(to_client, replies_out),
        );
    };
    tokio::select! {
        // The server's side ends the connection. The client's side alone must
        // not, or its last requests would be lost.
        () = backward => {}
        () = async {
            tokio::join!(
                pump_requests(from_client, requests, &shared, &replies_left),
                write_late(to_server, requests_out),
            );
            std::future::pending::<()>().await;
        } => {}
    }
}

type Late = (Instant, Vec<u8>);

/// `replies_left` is how many bytes of replies still pass on this connection.
async fn pump_requests(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Late>,
    shared: &Shared,
    replies_left: &AtomicUsize,
) {
    let mut bytes = Vec::new();
    while matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
        if shared.is_opaque {
            let due = Instant::now() + *shared.to_server.lock().expect("the delay");
            let _ = to.send((due, shared.mangled(std::mem::take(&mut bytes))));
            continue;
        }
        while let Some(length) = resp::request_length(&bytes) {
            let request: Vec<u8> = bytes.drain(..length).collect();
            let mut trap = spring(shared, &request);
            let (fault, held) = match &trap {
                Some(trap) => (Some(trap.fault), Duration::ZERO),
                None => shared.fate(request.len()),
            };
            let due = Instant::now() + *shared.to_server.lock().expect("the delay") + held;
            let sprung = || trap.as_ref().map(|trap| trap.sprung.send_replace(true));
            match fault {
                None => {
                    let _ = to.send((due, shared.mangled(request)));
                }
                Some(Fault::LoseRequest) => {
                    sprung();
                    replies_left.store(0, Ordering::SeqCst);
                    return; // Ends the stream to the server, and so the connection.
                }
                Some(Fault::TruncateRequest(length)) => {
                    replies_left.store(0, Ordering::SeqCst);
                    let _ = to.send((due, request[..length.min(request.len())].to_vec()));
                    sprung();
                    return;
                }
                Some(fault @ (Fault::LoseReply | Fault::TruncateReply(_))) => {
                    let passes = if let Fault::TruncateReply(length) = fault { length } else { 0 };
                    replies_left.store(passes, Ordering::SeqCst);
                    let _ = to.send((due, request));
                    sprung();
                    return; // The server reads the request before the end of the stream.
                }
                Some(Fault::Silence) => {
                    replies_left.store(0, Ordering::SeqCst);
                    let _ = to.send((due, request));
                    sprung();
                }
                Some(Fault::Hold) => {
                    sprung();
                    // A trap that was dropped no longer holds anything.
                    if let Some(trap) = &mut trap {
                        let _ = trap.release.wait_for(|released| *released).await;
                    }
                    let _ = to.send((Instant::now(), request));
                }
                Some(Fault::Duplicate) => {
                    let _ = to.send((due, request.clone()));
                    repeat(shared, &request).await;
                    sprung();
                }
            }
        }
    }
}

/// Disarms and returns the first armed trap for this request.
fn spring(shared: &Shared, request: &[u8]) -> Option<Armed> {
    let mut traps = shared.traps.lock().expect("the traps");
    let hit = traps
        .iter()
        .position(|trap| request.windows(trap.needle.len().max(1)).any(|w| w == trap.needle))?;
    Some(traps.remove(hit))
}

/// Sends a request on a fresh connection and waits for its answer to begin.
async fn repeat(shared: &Shared, request: &[u8]) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.target())).await else {
        return;
    };
    let mut answer = [0; 64];
    if let Some(password) = &shared.password {
        let login = format!("AUTH {password}\r\n");
        let _ = server.write_all(login.as_bytes()).await;
        let _ = server.read(&mut answer).await;
    }
    let _ = server.write_all(request).await;
    let _ = server.read(&mut answer).await;
}

async fn pump_replies(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Late>,
    shared: &Shared,
    replies_left: &AtomicUsize,
) {
    let mut bytes = Vec::new();
    while matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
        let mut bytes = std::mem::take(&mut bytes);
        let left = replies_left.load(Ordering::SeqCst);
        if left != usize::MAX {
            bytes.truncate(left);
            replies_left.store(left - bytes.len(), Ordering::SeqCst);
        }
        let mut due = Instant::now() + *shared.to_client.lock().expect("the delay");
        for part in shared.parts(shared.mangled(bytes)) {
            let _ = to.send((due, part));
            due += Duration::from_millis(1);
        }
    }
}

/// Writes each chunk when it is due, so that a delay does not reduce throughput.
async fn write_late(mut to: OwnedWriteHalf, mut chunks: mpsc::UnboundedReceiver<Late>) {
    while let Some((due, bytes)) = chunks.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
