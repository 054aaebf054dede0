//! Tests of the store, each against a server that it starts.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use futures::FutureExt;

use crate::error::Error;
use crate::store::redis::{Access, RedisStore};
use crate::store::{Reply, StoreCall};
use crate::wire::keys::Keys;

mod differential;
mod faults;
mod foreign;
mod listen;
mod once;
mod policies;
mod semaphores;

/// A store, and how long a call of it may take.
#[derive(Debug)]
struct Limited {
    store: RedisStore,
    deadline: Duration,
}

impl Limited {
    fn run<C: StoreCall>(&self, keys: &Keys, call: C) -> Reply<C::Reply> {
        self.store.clone().run(keys.clone(), call, self.deadline).boxed()
    }

    fn with_deadline(&self, deadline: Duration) -> Limited {
        Limited { store: self.store.clone(), deadline }
    }
}

/// A store of the server at this URL.
fn store(url: &str, deadline: Duration) -> Result<Limited, Error> {
    Ok(Limited { store: RedisStore::new(url.try_into()?, Access::default())?, deadline })
}

/// The variable that names the binary to start; by default `redis-server` on the path.
const BINARY: &str = "REDIS_SERVER";

/// A server with an empty keyspace, which ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server with these further arguments. If none can be started, prints that the test
    /// is skipped, and returns `None`.
    fn start(arguments: &[&str]) -> Option<Server> {
        let port = free_port();
        match Server::start_at(port, arguments) {
            Ok(server) => Some(server),
            Err(error) => {
                println!("skipped: no redis-server can be started ({error})");
                None
            }
        }
    }

    fn start_at(port: u16, arguments: &[&str]) -> std::io::Result<Server> {
        let binary = std::env::var(BINARY).unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            // A replica would leave a file, which the next server in this folder reads.
            .args(["--save", "", "--appendonly", "no", "--rdb-del-sync-files", "yes"])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Server { child, port };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "the server does not listen");
            sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection that the store does not use.
    fn raw(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Sends a signal to the process: `-STOP`, `-CONT` or `-KILL`.
    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
