//! Tests of the store against a server of their own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

mod differential;
mod faults;
mod once;

/// The binary to start: `redis-server` on the path, or what this variable names.
const BINARY: &str = "REDIS_SERVER";

/// A server with an empty keyspace, that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts one; `None`, and a line that says so, where there is no binary to start.
    fn start(more: &[&str]) -> Option<Server> {
        let port = free_port();
        match Server::start_at(port, more) {
            Ok(server) => Some(server),
            Err(error) => {
                println!("skipped: no redis-server can be started ({error})");
                None
            }
        }
    }

    fn start_at(port: u16, more: &[&str]) -> std::io::Result<Server> {
        let binary = std::env::var(BINARY).unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(more)
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

    /// A connection of the test's own.
    fn raw(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Stops it for a while, or lets it go on.
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
