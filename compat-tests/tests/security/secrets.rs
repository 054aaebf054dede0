//! Secrets are in no text that this crate makes: of settings, of clients, and of errors with all that
//! is beneath them.

use std::error::Error as _;
use std::fmt::Debug;

use compat_tests::server::{Options, Server};
use redisson_rate_limiter::topology::{Cluster, Endpoint, Replicated, Sentinels, Topology};
use redisson_rate_limiter::{Client, ClientBuilder, Error, ErrorKind, Rate, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A password that needs no encoding, so that it would look the same anywhere.
const SECRET: &str = "hunter2hunter2";
const SECRET_USER: &str = "mallory-the-user";

#[track_caller]
fn assert_hidden(text: &str) {
    for secret in [SECRET, SECRET_USER] {
        assert!(!text.to_lowercase().contains(secret), "{text}");
    }
}

#[track_caller]
fn debug_hides(value: &impl Debug) {
    assert_hidden(&format!("{value:?} {value:#?}"));
}

/// All that a program can print of an error.
#[track_caller]
fn error_hides(error: &Error) {
    assert_hidden(&format!("{error} {error:?} {error:#?}"));
    if let Some(cause) = error.get_ref() {
        assert_hidden(&format!("{cause} {cause:?}"));
    }
    let mut next = error.source();
    while let Some(source) = next {
        assert_hidden(&format!("{source} {source:?}"));
        next = source.source();
    }
}

fn url(rest: &str) -> String {
    format!("redis://{SECRET_USER}:{SECRET}@{rest}")
}

#[test]
fn settings_are_shown_without_them() {
    let urls = [url("10.0.0.1:6379"), url("10.0.0.2:6379")];
    let urls = || urls.iter().map(String::as_str);
    let sentinels = Sentinels::new("m", urls()).unwrap().user(SECRET_USER).password(SECRET);
    let cluster = Cluster::new(urls()).unwrap();
    let replicated = Replicated::new(urls()).unwrap();
    let endpoint = Endpoint::try_from(url("10.0.0.1").as_str()).unwrap();
    debug_hides(&sentinels);
    debug_hides(&cluster);
    debug_hides(&replicated);
    debug_hides(&endpoint);
    let tls = Tls::new().ca_pem(SECRET).identity_pem(SECRET, SECRET);
    debug_hides(&tls);
    let builder = Client::builder().user(SECRET_USER).password(SECRET);
    debug_hides(&builder.clone().tls(tls));
    let unix = format!("unix:///nowhere.sock?user={SECRET_USER}&pass={SECRET}");
    for topology in [
        Topology::from(sentinels),
        cluster.into(),
        replicated.into(),
        endpoint.into(),
        Topology::try_from(unix.as_str()).unwrap(),
    ] {
        debug_hides(&topology);
        assert_hidden(&topology.to_string());
        let client = builder.clone().connect_lazy(topology).unwrap();
        let limiter = client.limiter("api").unwrap().with_rate(Rate::per_second(1));
        debug_hides(&client);
        debug_hides(&limiter);
    }
}

#[test]
fn addresses_that_are_refused_are_not_repeated() {
    for url in [
        url("host:port"),
        url("host:99999999"),
        url("[::1"),
        url(""),
        url("host/none"),
        url("host#insecure"),
        url("a b"),
        format!("reddis://{SECRET_USER}:{SECRET}@host"),
        format!("rediss://{SECRET_USER}:{SECRET}@host#insecure"),
        format!("{SECRET_USER}:{SECRET}@host"),
        format!("redis:{SECRET_USER}:{SECRET}@host"),
        format!("redis://{SECRET_USER}:{SECRET}:{SECRET}@%zz"),
        format!("redis+cluster://{SECRET_USER}:{SECRET}@a:1,b:none"),
        format!("redis+cluster://{SECRET_USER}:{SECRET}@"),
        format!("http+cluster://{SECRET_USER}:{SECRET}@a:1"),
        format!("unix://host?user={SECRET_USER}&pass={SECRET}&db=none"),
    ] {
        let errors = [
            Client::builder().connect_lazy(&url).err(),
            Cluster::new([url.as_str()]).err(),
            Replicated::new([url.as_str()]).err(),
            Sentinels::new("m", [url.as_str()]).err(),
        ];
        for error in errors.iter().flatten() {
            error_hides(error);
        }
    }
    let tls = Tls::new().ca_pem(SECRET).identity_pem(SECRET, SECRET);
    let key = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n");
    for tls in [tls, Tls::new().identity_pem(key.clone(), key)] {
        let error = Client::builder().tls(tls).connect_lazy("rediss://host").unwrap_err();
        error_hides(&error);
    }
}

/// A server, or a proxy, that answers each command with an error that repeats it.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let text = String::from_utf8_lossy(&bytes[..read]).replace("\r\n", " ");
                    for command in text.split('*').skip(1) {
                        let answer = format!(
                            "-ERR unknown command, with args beginning with: {command}\r\n"
                        );
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
            });
        }
    });
    address
}

/// The errors of connecting, and of calls.
async fn errors(builder: ClientBuilder, servers: impl Into<Topology>) -> Vec<Error> {
    let servers = servers.into();
    let mut errors = Vec::new();
    errors.extend(builder.clone().connect(servers.clone()).await.err());
    let client = builder.connect_lazy(servers).unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_second(1));
    errors.extend(client.ping().await.err());
    errors.extend(limiter.try_acquire_now(1).await.err());
    errors.extend(limiter.set_rate(Rate::per_second(1)).await.err());
    errors.extend(limiter.exists().await.err());
    debug_hides(&client);
    errors
}

#[tokio::test]
async fn errors_of_servers_are_shown_without_them() {
    let deadline = std::time::Duration::from_millis(600);
    let locked = Server::start_with(Options::default().password("another")).await;
    let places = [
        echo().await,
        format!("127.0.0.1:{}", locked.port()),
        // Nobody is there.
        "127.0.0.1:1".to_owned(),
        "name.invalid:1".to_owned(),
    ];
    let mut kinds = std::collections::BTreeSet::new();
    for place in &places {
        let with = url(place);
        let without = format!("redis://{place}");
        let apart = || Client::builder().deadline(deadline).user(SECRET_USER).password(SECRET);
        let plain = || Client::builder().deadline(deadline);
        let single = |url: &str| Topology::from(Endpoint::try_from(url).unwrap());
        let sentinels = |url: &str| Sentinels::new("m", [url]).unwrap();
        let of_sentinels = sentinels(&without).user(SECRET_USER).password(SECRET);
        let all = futures::future::join_all([
            Box::pin(errors(plain(), single(&with))) as std::pin::Pin<Box<dyn Future<Output = _>>>,
            Box::pin(errors(apart(), single(&without))),
            Box::pin(errors(plain(), Cluster::new([&*with]).unwrap())),
            Box::pin(errors(apart(), Cluster::new([&*without]).unwrap())),
            Box::pin(errors(plain(), Replicated::new([&*with]).unwrap())),
            Box::pin(errors(plain(), sentinels(&with))),
            Box::pin(errors(plain(), of_sentinels)),
        ]);
        for error in all.await.iter().flatten() {
            error_hides(error);
            kinds.insert(format!("{:?}", error.kind()));
        }
    }
    println!("{kinds:?}");
    assert!(kinds.len() >= 2, "{kinds:?}");
}

#[tokio::test]
async fn what_is_no_answer_is_shown_without_them() {
    // A server that answers whatever it is asked with what it was sent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    let endpoint = Endpoint::try_from(url(&address.to_string()).as_str()).unwrap();
    let deadline = std::time::Duration::from_millis(600);
    let errors = errors(Client::builder().deadline(deadline), endpoint).await;
    assert!(errors.len() >= 4, "{errors:?}");
    for error in &errors {
        error_hides(error);
        assert_ne!(error.kind(), ErrorKind::NotInitialized);
    }
}

#[test]
fn a_redisson_yaml_is_refused_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redisson.yaml");
    let start = format!("password: {SECRET}\nusername: {SECRET_USER}\n");
    for rest in [
        "singleServerConfig:\n  address: redis://host:1\n",
        "singleServerConfig:\n  address: not a url\n",
        &format!("singleServerConfig:\n  address: redis://{SECRET_USER}:{SECRET}@host:none\n"),
        &format!("singleServerConfig:\n  address: redis://h:1\n  password: [{SECRET}]\n"),
        &format!("singleServerConfig:\n  address: redis://h:1\n  password: {{a: {SECRET}}}\n"),
        &format!("singleServerConfig:\n  address: redis://h:1\n  timeout: {SECRET}\n"),
        &format!("singleServerConfig:\n  address: redis://h:1\n  passwort: {SECRET}\n"),
        &format!("singleServerConfig:\n  address: redis://h:1\n  sslKeystorePassword: {SECRET}\n"),
        &format!("sentinelServersConfig:\n  sentinelPassword: {SECRET}\n  sentinelAddresses: []\n"),
        "singleServerConfig: [\n",
        &format!("singleServerConfig:\n  address: redis://h:1\n  password: \"{SECRET}\n"),
        &format!("singleServerConfig:\n\tpassword: {SECRET}\n"),
    ] {
        std::fs::write(&file, start.clone() + rest).unwrap();
        match Client::builder().redisson_yaml(&file) {
            Ok(read) => {
                for ignored in read.ignored() {
                    assert_hidden(&format!("{ignored} {ignored:?}"));
                }
                debug_hides(&read);
                if let Err(error) = read.connect_lazy() {
                    error_hides(&error);
                }
            }
            Err(error) => error_hides(&error),
        }
    }
}
