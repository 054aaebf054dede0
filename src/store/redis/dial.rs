//! Opening a TCP stream to a host, which may have several addresses.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, lookup_host};

use super::race::{HEDGE, first_success};

/// Resolves the host anew, and connects to the first of its addresses that accepts.
pub(super) async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    first_to_accept(lookup_host((host, port)).await?).await
}

async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let attempts = addresses.map(TcpStream::connect);
    let nowhere = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    let accepted = first_success(attempts, HEDGE, |_, last| last).await;
    accepted.map_err(|failure| failure.unwrap_or_else(nowhere))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    async fn address(listener: &TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    /// An address that neither accepts nor refuses, and the sockets that keep it so.
    async fn hanging() -> (SocketAddr, TcpListener, Vec<tokio::task::JoinHandle<()>>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = address(&listener).await;
        // Nobody accepts: once the backlog is full, requests to connect are dropped.
        let fill = || {
            tokio::spawn(async move {
                let _stream = TcpStream::connect(address).await;
                std::future::pending::<()>().await;
            })
        };
        let waiting = (0..4).map(|_| fill()).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        (address, listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_hangs_or_refuses_does_not_keep_from_the_next() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (hanging, _listener, _waiting) = hanging().await;
        let refusing = {
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address(&gone).await
        };
        let begun = Instant::now();
        let addresses = [refusing, hanging, address(&server).await];
        let stream = first_to_accept(addresses.into_iter()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[2]);
        assert!(begun.elapsed() >= HEDGE, "the second one did not hang");
        // The kernel gives up much later.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn an_error_says_why_no_address_accepts() {
        let refusing = {
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address(&gone).await
        };
        let error = first_to_accept([refusing].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_to_accept([].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
