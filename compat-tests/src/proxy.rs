//! A TCP proxy on loopback that delays, loses, holds and repeats what passes
//! between a peer and its server.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::port;
use crate::server::{Server, url_of};

mod chaos;
mod pump;

pub use chaos::Chaos;

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
    /// The server sees only so many bytes of it before the connection closes.
    TruncateRequest(usize),
    /// The server executes it; the client sees only so many bytes of replies before the connection
    /// closes.
    TruncateReply(usize),
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
        tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .expect("a request springs the trap")
            .expect("the proxy is running");
    }

    /// Polls a call until its request springs the trap, and drops it. A timeout instead could end on a loaded machine
    /// before anything is sent.
    pub async fn drops<T: Debug>(&mut self, call: impl Future<Output = T>) {
        tokio::select! {
            answer = call => panic!("answered: {answer:?}"),
            () = self.sprung() => {}
        }
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
    target: AtomicU16,
    /// What passes is not read: it is encrypted.
    is_opaque: bool,
    password: Option<String>,
    to_server: Mutex<Duration>,
    to_client: Mutex<Duration>,
    traps: Mutex<Vec<Armed>>,
    chaos: Mutex<Option<chaos::Dice>>,
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
        Self::to(server.port(), server.password(), false).await
    }

    /// The same in front of its port that speaks TLS, without looking at what passes: traps have no
    /// effect.
    pub async fn start_tls(server: &Server) -> Proxy {
        Self::to(server.tls_port(), server.password(), true).await
    }

    async fn to(target: u16, password: Option<&str>, is_opaque: bool) -> Proxy {
        let password = password.map(str::to_owned);
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            is_opaque,
            password: password.clone(),
            to_server: Mutex::default(),
            to_client: Mutex::default(),
            traps: Mutex::default(),
            chaos: Mutex::default(),
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

    /// Treats all that passes in this way from now on, at random from a seed; `None`: no longer.
    pub fn disturb(&self, how: Option<(Chaos, u64)>) {
        *self.shared.chaos.lock().expect("the chaos") = how.map(chaos::Dice::new);
    }

    /// Sends new connections to another server, as a name that has moved does.
    pub fn retarget(&self, server: &Server) {
        self.shared.target.store(server.port(), Ordering::SeqCst);
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
                    _ = pump::join(client, shared) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    })
}

impl Shared {
    fn target(&self) -> u16 {
        self.target.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests;
