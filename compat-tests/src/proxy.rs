//! A TCP proxy on loopback that delays, loses, holds and repeats what passes
//! between a peer and its server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::server::{Server, url_of};
use crate::{port, resp};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes before the server sees the request.
    LoseRequest,
    /// The server executes it; the connection closes without an answer.
    LoseReply,
    /// The server executes it; from then on the connection stays open and
    /// silent.
    Silence,
    /// The request is held until the trap is released, and with it everything
    /// that follows on its connection. It arrives even if its sender has
    /// disconnected.
    Hold,
    /// The request also arrives a second time, on a connection of its own.
    Duplicate,
}

/// A fault that waits for its request.
#[derive(Debug)]
pub struct Trap {
    sprung: watch::Receiver<bool>,
    release: watch::Sender<bool>,
}

impl Trap {
    /// Waits until the request has passed; for a held one, until it is held;
    /// for a duplicate, until both copies were answered.
    pub async fn sprung(&mut self) {
        let wait = self.sprung.wait_for(|sprung| *sprung);
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("a request springs the trap")
            .expect("the proxy is running");
    }

    /// True once the request has passed.
    pub fn has_sprung(&self) -> bool {
        *self.sprung.borrow()
    }

    /// Releases a held request.
    pub fn release(&self) {
        self.release.send_replace(true);
    }
}

/// A proxy in front of one server, on a port of its own.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    password: Option<String>,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    password: Option<String>,
    to_server: Mutex<Duration>,
    to_client: Mutex<Duration>,
    traps: Mutex<Vec<Armed>>,
    /// Incremented to cut all connections.
    cuts: watch::Sender<u64>,
}

#[derive(Debug)]
struct Armed {
    needle: Vec<u8>,
    fault: Fault,
    sprung: watch::Sender<bool>,
    release: watch::Receiver<bool>,
}

impl Proxy {
    /// A proxy in front of `server` that passes everything on unchanged.
    pub async fn start(server: &Server) -> Proxy {
        let password = server.password().map(str::to_owned);
        let shared = Arc::new(Shared {
            target: server.port(),
            password: password.clone(),
            to_server: Mutex::default(),
            to_client: Mutex::default(),
            traps: Mutex::default(),
            cuts: watch::Sender::new(0),
        });
        let (listener, port) = loop {
            let port = port::candidate();
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
                break (listener, port);
            }
        };
        let acceptor = Mutex::new(Some(accept(listener, shared.clone())));
        Proxy { port, password, shared, acceptor }
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address that peers connect to.
    pub fn url(&self) -> String {
        url_of(self.port, self.password.as_deref())
    }

    /// Delays everything from now on, by a time for each direction.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        *self.shared.to_server.lock().expect("the delay") = to_server;
        *self.shared.to_client.lock().expect("the delay") = to_client;
    }

    /// Arms a fault for the next request that contains `needle`, such as the
    /// limiter's name. A request springs one trap only; of several traps for
    /// it, the one that was armed first.
    pub fn trap(&self, needle: impl AsRef<[u8]>, fault: Fault) -> Trap {
        let (sprung, sprung_seen) = watch::channel(false);
        let (release, released) = watch::channel(false);
        self.shared.traps.lock().expect("the traps").push(Armed {
            needle: needle.as_ref().to_vec(),
            fault,
            sprung,
            release: released,
        });
        Trap { sprung: sprung_seen, release }
    }

    /// Closes every connection; new ones are accepted.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Closes every connection and refuses new ones.
    pub async fn refuse(&self) {
        let acceptor = self.acceptor.lock().expect("the acceptor").take();
        if let Some(acceptor) = acceptor {
            acceptor.abort();
            let _ = acceptor.await;
        }
        self.cut();
    }

    /// Accepts new connections again.
    pub async fn accept(&self) {
        let listener =
            TcpListener::bind(("127.0.0.1", self.port)).await.expect("the proxy's port is free");
        *self.acceptor.lock().expect("the acceptor") = Some(accept(listener, self.shared.clone()));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(acceptor) = self.acceptor.lock().expect("the acceptor").take() {
            acceptor.abort();
        }
        self.cut();
    }
}

fn accept(listener: TcpListener, shared: Arc<Shared>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let mut cuts = shared.cuts.subscribe();
            let shared = shared.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = join(client, shared) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    })
}

/// One connection, until both sides have closed it.
async fn join(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mute = AtomicBool::new(false);
    let (requests, requests_out) = mpsc::unbounded_channel();
    let (replies, replies_out) = mpsc::unbounded_channel();
    let backward = async {
        tokio::join!(
            pump_replies(from_server, replies, &shared, &mute),
            write_late(to_client, replies_out),
        );
    };
    tokio::select! {
        // The server's side ends the connection. The client's side alone must
        // not, or its last requests would be lost.
        () = backward => {}
        () = async {
            tokio::join!(
                pump_requests(from_client, requests, &shared, &mute),
                write_late(to_server, requests_out),
            );
            std::future::pending::<()>().await;
        } => {}
    }
}

type Late = (Instant, Vec<u8>);

async fn pump_requests(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Late>,
    shared: &Shared,
    mute: &AtomicBool,
) {
    let mut bytes = Vec::new();
    while matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
        while let Some(length) = resp::request_length(&bytes) {
            let request: Vec<u8> = bytes.drain(..length).collect();
            let trap = spring(shared, &request);
            let due = Instant::now() + *shared.to_server.lock().expect("the delay");
            let Some(mut trap) = trap else {
                let _ = to.send((due, request));
                continue;
            };
            match trap.fault {
                Fault::LoseRequest => {
                    trap.sprung.send_replace(true);
                    mute.store(true, Ordering::SeqCst);
                    return; // Ends the stream to the server, and so the connection.
                }
                Fault::LoseReply => {
                    mute.store(true, Ordering::SeqCst);
                    let _ = to.send((due, request));
                    trap.sprung.send_replace(true);
                    return; // The server reads the request before the end of the stream.
                }
                Fault::Silence => {
                    mute.store(true, Ordering::SeqCst);
                    let _ = to.send((due, request));
                    trap.sprung.send_replace(true);
                }
                Fault::Hold => {
                    trap.sprung.send_replace(true);
                    // A trap that was dropped no longer holds anything.
                    let _ = trap.release.wait_for(|released| *released).await;
                    let _ = to.send((Instant::now(), request));
                }
                Fault::Duplicate => {
                    let _ = to.send((due, request.clone()));
                    repeat(shared, &request).await;
                    trap.sprung.send_replace(true);
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
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.target)).await else {
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
    mute: &AtomicBool,
) {
    let mut bytes = Vec::new();
    while matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
        let bytes = std::mem::take(&mut bytes);
        if !mute.load(Ordering::SeqCst) {
            let due = Instant::now() + *shared.to_client.lock().expect("the delay");
            let _ = to.send((due, bytes));
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

#[cfg(test)]
mod tests;
