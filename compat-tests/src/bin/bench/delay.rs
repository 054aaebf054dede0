//! A proxy that adds latency.
//!
//! The tests' proxy uses tokio's timers, which have a resolution of a millisecond; this one delays
//! by less than that, with a thread for each direction of a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a proxy in front of the server at this port, which delays each direction by `each_way`;
/// returns its own port. It ends with the process.
pub(crate) fn start(server: u16, each_way: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                pass(&client, &server, each_way);
                pass(&server, &client, each_way);
            }
        }
    });
    port
}

fn pass(from: &TcpStream, to: &TcpStream, delay: Duration) {
    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
    let (sender, receiver) = channel();
    thread::spawn(move || read(from, &sender, delay));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: TcpStream, to: &Sender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if to.send((Instant::now() + delay, bytes[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn write(mut to: TcpStream, chunks: &Receiver<(Instant, Vec<u8>)>) {
    let mut held = None;
    while let Some((due, mut bytes)) = held.take().or_else(|| chunks.recv().ok()) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // What is due by now goes in one write.
        while let Ok((due, more)) = chunks.try_recv() {
            if due > Instant::now() {
                held = Some((due, more));
                break;
            }
            bytes.extend(more);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
