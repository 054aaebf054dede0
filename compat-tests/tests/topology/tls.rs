//! TLS with a real server: whom the client trusts, and what it says if it does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{self, Peer};
use compat_tests::port;
use compat_tests::scenario::kinds;
use compat_tests::sentinels::{MASTER, Passwords, Sentinel};
use compat_tests::server::{Options, Server};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use redisson_rate_limiter::topology::Sentinels;
use redisson_rate_limiter::{Client, Error, ErrorKind, Execution, Rate, Tls};
use tokio::io::AsyncWriteExt;

use super::certificates::{Authority, Certificate};

/// A server with this certificate; with `Clients::Known`, only for clients with a certificate from
/// its authority.
async fn server(authority: &Authority, certificate: &Certificate, clients: Clients) -> Server {
    Server::start_with(options(authority, certificate, clients)).await
}

/// The options of such a server.
pub fn options(authority: &Authority, certificate: &Certificate, clients: Clients) -> Options {
    let ca = authority.file("ca.pem", &authority.pem());
    let cert = authority.file("server.pem", &certificate.pem);
    let key = authority.file("server.key", &certificate.key);
    let auth = if clients == Clients::Known { "yes" } else { "no" };
    let options = Options::default().tls().set("tls-cert-file", &cert).set("tls-key-file", &key);
    options.set("tls-ca-cert-file", &ca).set("tls-auth-clients", auth)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    Any,
    Known,
}

fn url(server: &Server) -> String {
    format!("rediss://localhost:{}", server.tls_port())
}

/// Connects and makes a call.
async fn acquire(server: &Server, tls: Tls) -> Result<Client, Error> {
    let client = Client::builder().tls(tls).connect(&url(server)).await?;
    let limiter = client.limiter("api")?.with_rate(Rate::per_minute(10));
    assert!(limiter.try_acquire_now(1).await?.is_granted());
    Ok(client)
}

/// Connecting, and the first call of a client that connects lazily, fail at once with the kind
/// `Tls` and a text with this part.
async fn refused(server: &Server, tls: Tls, part: &str) {
    let begun = Stopwatch::start();
    let connecting = acquire(server, tls.clone()).await.map(drop).unwrap_err();
    let lazy = Client::builder().tls(tls).connect_lazy(url(server)).unwrap();
    let limiter = lazy.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    let calling = limiter.acquire(1).await.unwrap_err();
    for error in [connecting, calling] {
        assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
        assert_eq!(error.execution(), Execution::NotExecuted);
        assert!(!error.is_transient());
        let text = error.to_string();
        let server = format!("TLS with the server at localhost:{} failed", server.tls_port());
        assert!(text.contains(&server) && text.contains(part), "{text}");
    }
    assert!(begun.given() < Duration::from_secs(2), "{begun:?}");
}

#[tokio::test]
async fn a_server_of_a_private_authority_is_trusted() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("localhost", -1..1), Clients::Any).await;
    acquire(&server, Tls::new().ca_pem(authority.pem())).await.unwrap();
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_one() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("localhost", -1..1), Clients::Known).await;
    let known = authority.sign("client", -1..1);
    let tls = Tls::new().ca_pem(authority.pem());
    acquire(&server, tls.clone().identity_pem(known.pem, known.key)).await.unwrap();

    let part = "it refused the handshake or the client's certificate";
    refused(&server, tls.clone(), part).await;
    let stranger = Authority::new().sign("client", -1..1);
    refused(&server, tls.clone().identity_pem(stranger.pem, stranger.key), part).await;
    let expired = authority.sign("client", -2..-1);
    refused(&server, tls.identity_pem(expired.pem, expired.key), part).await;
}

#[tokio::test]
async fn an_unknown_authority_is_refused() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("localhost", -1..1), Clients::Any).await;
    let part = "its certificate is not from an authority that this client trusts";
    refused(&server, Tls::new().ca_pem(Authority::new().pem()), part).await;
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_refused_and_the_text_says_what_to_do() {
    let authority = Authority::new();
    // What `openssl req -x509` makes.
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let own = Certificate { pem, key: key.serialize_pem() };
    let server = server(&authority, &own, Clients::Any).await;
    let part = "its certificate is that of an authority (CA:TRUE)";
    refused(&server, Tls::new().ca_pem(own.pem.clone()), part).await;
    let part = "issue the server a certificate of its own (CA:FALSE)";
    refused(&server, Tls::new().ca_pem(own.pem), part).await;
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("redis.example", -1..1), Clients::Any).await;
    let tls = Tls::new().ca_pem(authority.pem());
    refused(&server, tls.clone(), "its certificate is for another host").await;
    acquire(&server, tls.server_name("redis.example")).await.unwrap();
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new();
    for (days, part) in [(-2..-1, "has expired"), (1..2, "is not valid yet")] {
        let server = server(&authority, &authority.sign("localhost", days), Clients::Any).await;
        refused(&server, Tls::new().ca_pem(authority.pem()), part).await;
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named_as_such() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"-ERR unknown command\r\n").await.unwrap();
        stream
    };
    let builder = Client::builder().tls(Tls::new().ca_pem(Authority::new().pem()));
    let (error, _stream) = futures::join!(builder.connect(&url), answer);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}

#[tokio::test]
async fn a_connection_that_has_died_is_replaced() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("localhost", -1..1), Clients::Any).await;
    let client = acquire(&server, Tls::new().ca_pem(authority.pem())).await.unwrap();
    let mut kill = redis::cmd("CLIENT");
    let _: i64 = server.run(kill.arg(&["KILL", "TYPE", "normal"]).take()).await;
    client.ping().await.unwrap();
    server.restart().await;
    client.ping().await.unwrap();
}

#[tokio::test]
async fn sentinels_and_their_master_are_reached_over_tls() {
    let authority = Authority::new();
    let certificate = authority.sign("redis.example", -1..1);
    let server = server(&authority, &certificate, Clients::Known).await;
    let port = port::candidate();
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| authority.path(name));
    let settings = format!(
        "tls-port {port}\ntls-ca-cert-file {ca}\ntls-cert-file {cert}\ntls-key-file {key}\n\
         tls-replication yes\n"
    );
    let _sentinel = Sentinel::start(server.tls_port(), Passwords::default(), &settings);
    let url = format!("rediss://127.0.0.1:{port}");
    let known = authority.sign("client", -1..1);
    // Sentinels name servers by IP address, and the certificate has a name.
    let tls = Tls::new().ca_pem(authority.pem()).server_name("redis.example");
    let tls = tls.identity_pem(known.pem, known.key);
    let connect = async |tls: Tls| {
        let sentinels = Sentinels::new(MASTER, [url.as_str()]).unwrap();
        let connecting = Client::builder().tls(tls);
        connecting.connect(sentinels).await
    };
    let begun = Instant::now();
    let client = loop {
        match connect(tls.clone()).await {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    let error = connect(Tls::new().ca_pem(authority.pem())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
}

#[test]
fn settings_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let (one, other) = (Authority::new().sign("a", -1..1), Authority::new().sign("b", -1..1));
    for (tls, part) in [
        (Tls::new().ca_pem("no certificate"), "the CA holds no certificate in PEM format"),
        (Tls::new().identity_pem(one.pem.clone(), "none"), "the client's key is no PEM text"),
        (
            Tls::new().identity_pem(one.pem, other.key),
            "the client's certificate and key do not fit",
        ),
        (Tls::new().server_name("no name"), "no valid name of a TLS server"),
    ] {
        let error = Client::builder().tls(tls).connect_lazy("rediss://localhost").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
    }
    let plain = Client::builder().tls(Tls::new()).connect_lazy("redis://localhost").unwrap_err();
    assert_eq!(plain.to_string(), "connect: TLS settings need a rediss:// address");
    let insecure = Client::builder().connect_lazy("rediss://localhost#insecure").unwrap_err();
    assert!(insecure.to_string().contains("certificates are always checked"), "{insecure}");
}

#[test]
fn the_platforms_authorities_are_the_default() {
    Client::builder().connect_lazy("rediss://localhost").unwrap();
    Client::builder().connect_lazy("valkeys://localhost").unwrap();
}

/// Both take the same words.
#[tokio::test]
async fn peers_speak_tls() {
    let authority = Authority::new();
    let server = server(&authority, &authority.sign("localhost", -1..1), Clients::Known).await;
    let known = authority.sign("client", -1..1);
    let [ca, cert, key] = [
        authority.path("ca.pem"),
        authority.file("client.pem", &known.pem),
        authority.file("client.key", &known.key),
    ];
    for kind in kinds() {
        let start = || peer::Options::new(kind, url(&server)).ca(&ca);
        let name = format!("{kind:?}");
        let peer = Arc::new(Peer::start_with(start().cert(&cert).key(&key)).await);
        let limiter = peer.limiter(&name);
        assert!(limiter.try_set_rate(peer::Rate::overall(10, 60_000)).await.unwrap(), "{name}");
        assert!(limiter.try_acquire(4).await.unwrap(), "{name}");
        assert_eq!(limiter.available().await.unwrap(), 6, "{name}");

        let error = Peer::try_start_with(start().cert(&cert)).await.unwrap_err();
        assert!(error.contains("--cert and --key belong together"), "{error}");
        let plain = peer::Options::new(kind, "redis://127.0.0.1:1").ca(&ca);
        let error = Peer::try_start_with(plain).await.unwrap_err();
        assert!(error.contains("rediss:// address"), "{error}");
        let missing = start().cert(&cert).key("/no/such/key");
        let error = Peer::try_start_with(missing).await.unwrap_err();
        assert!(error.contains("/no/such/key"), "{error}");
    }
}
