//! Unix sockets, and users, passwords and databases, in the URL and apart from it.

use std::sync::Arc;

use compat_tests::peer::Peer;
use compat_tests::scenario::kinds;
use compat_tests::server::{Options, Server};
use redisson_rate_limiter::{Client, ClientBuilder, ErrorKind, Execution, Rate};
use serde_json::json;

use super::addresses::by_ipv6;

const PASSWORD: &str = "p%40ss/w:rd+?#@ß";

/// A server with the user `jane`, whose password needs encoding in a URL.
async fn server() -> Server {
    let server = Server::start_with(Options::default().password("default's")).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(&["jane", "on", &format!(">{PASSWORD}"), "~*", "+@all"]);
    let () = admin(&server, user).await;
    server
}

async fn admin<T: redis::FromRedisValue>(server: &Server, command: redis::Cmd) -> T {
    let login = redis::RedisConnectionInfo::default().set_password("default's");
    let address = redis::ConnectionAddr::Tcp("127.0.0.1".into(), server.port());
    let info = redis::IntoConnectionInfo::into_connection_info(address).unwrap();
    let client = redis::Client::open(info.set_redis_settings(login)).unwrap();
    command
        .query_async(&mut client.get_multiplexed_async_connection().await.unwrap())
        .await
        .unwrap()
}

/// Connects, and creates a limiter.
async fn use_it(builder: ClientBuilder, url: &str) -> Client {
    let client = builder.connect(url).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    client
}

#[tokio::test]
async fn a_user_a_password_and_a_database_need_no_url() {
    let server = server().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let builder = Client::builder().user("jane").password(PASSWORD).database(3);
    let _client = use_it(builder, &url).await;
    let keyspace: String = admin(&server, redis::cmd("INFO").arg("keyspace").take()).await;
    assert!(keyspace.contains("db3:") && !keyspace.contains("db0:"), "{keyspace}");
    let clients: String = admin(&server, redis::cmd("CLIENT").arg("LIST").take()).await;
    assert!(clients.contains("user=jane"), "{clients}");
}

#[tokio::test]
async fn the_builder_takes_the_place_of_the_url() {
    let server = server().await;
    let url = format!("redis://other:wrong@127.0.0.1:{}/2", server.port());
    use_it(Client::builder().user("jane").password(PASSWORD).database(5), &url).await;
    let keyspace: String = admin(&server, redis::cmd("INFO").arg("keyspace").take()).await;
    assert!(keyspace.contains("db5:") && !keyspace.contains("db2:"), "{keyspace}");
}

#[tokio::test]
async fn a_url_has_it_all_encoded() {
    let server = server().await;
    let encoded: String = PASSWORD.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for scheme in ["redis", "valkey"] {
        let url = format!("{scheme}://jane:{encoded}@127.0.0.1:{}/4", server.port());
        use_it(Client::builder(), &url).await;
    }
    let keyspace: String = admin(&server, redis::cmd("INFO").arg("keyspace").take()).await;
    assert!(keyspace.contains("db4:"), "{keyspace}");
}

#[tokio::test]
async fn peers_take_the_same_addresses() {
    let server = server().await;
    let encoded: String = PASSWORD.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let login = format!("%6aane:{}", encoded.replace("%2b", "+"));
    let mut urls = vec![format!("redis://{login}@127.0.0.1:{}/1", server.port())];
    urls.extend(by_ipv6(&server).await.map(|port| format!("redis://{login}@[::1]:{port}")));
    for kind in kinds() {
        for url in &urls {
            let peer = Arc::new(Peer::start(kind, url).await);
            assert!(!peer.limiter("api").exists().await.unwrap());
        }
        let sentinels = "redis+sentinel://:secret@127.0.0.1:1/mymaster";
        let error = Peer::try_start(kind, sentinels).await.unwrap_err();
        assert!(error.contains("credentials"), "{error}");
        // Nobody listens there.
        let said = match Peer::try_start(kind, "redis://127.77.0.1").await {
            Ok(peer) => {
                peer.call(json!({"op": "isExists", "name": "api"})).await.unwrap_err().message
            }
            Err(said) => said,
        };
        assert!(said.contains("127.77.0.1:6379"), "{said}");
    }
}

#[tokio::test]
async fn a_unix_socket_is_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path = path.to_str().unwrap();
    let options = Options::default().set("unixsocket", path).password("word");
    let server = Server::start_with(options).await;
    use_it(Client::builder().password("word").database(1), &format!("unix://{path}")).await;
    for scheme in ["unix", "redis+unix", "valkey+unix"] {
        use_it(Client::builder(), &format!("{scheme}://{path}?pass=word&db=2")).await;
    }
    let keyspace: String = server.run(redis::cmd("INFO").arg("keyspace").take()).await;
    assert!(keyspace.contains("db1:") && keyspace.contains("db2:"), "{keyspace}");

    let url = format!("unix://{path}");
    let error = Client::builder().password("none").connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(error.to_string().starts_with(&format!("connect: the server at {path} refused")));
    server.kill();
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(path), "{error}");
}

/// In a URL `+` is itself, and `%2B` too.
#[tokio::test]
async fn odd_characters_in_names_and_passwords_are_those_of_the_user() {
    const USER: &str = "j@ne:ö%41+b/?#&=[x]";
    const WORD: &str = "a&b=c+d %41 \"e\" 'f' ${g}\\";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path = path.to_str().unwrap();
    let options = Options::default().set("unixsocket", path);
    let server = Server::start_with(options.password("default's")).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(&[USER, "on", &format!(">{WORD}"), "~*", "+@all"]);
    let () = admin(&server, user).await;

    let [name, word] = [USER, WORD]
        .map(|text| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>());
    let tcp = format!("redis://127.0.0.1:{}", server.port());
    let unix = format!("unix://{path}");
    for (builder, url) in [
        (Client::builder().user(USER).password(WORD), tcp.clone()),
        (Client::builder().user(USER).password(WORD).database(1), unix.clone()),
        (Client::builder(), tcp.replace("//", &format!("//{name}:{word}@"))),
        (Client::builder(), format!("{unix}?user={name}&pass={word}&db=1")),
        (Client::builder().password(WORD), tcp.replace("//", &format!("//{name}:wrong@"))),
    ] {
        let client = use_it(builder, &url).await;
        let whoami: String = admin(&server, redis::cmd("CLIENT").arg("LIST").take()).await;
        assert!(whoami.contains("user=j@ne:"), "{url}: {whoami}");
        let shown = format!("{client:?}");
        assert!(!shown.contains("j@ne") && !shown.contains("a&b"), "{shown}");
        let error = Client::builder().user(USER).password("no").connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("j@ne") && !said.contains(&name), "{said}");
        drop(client);
    }
}

#[tokio::test]
async fn wrong_credentials_fail_connecting_and_the_first_call() {
    let server = server().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    for builder in [
        Client::builder(),
        Client::builder().password("guess"),
        Client::builder().user("jane").password("guess"),
        Client::builder().user("nobody").password(PASSWORD),
    ] {
        let lazy = builder.clone().connect_lazy(&url).unwrap();
        let limiter = lazy.limiter("api").unwrap().with_rate(Rate::per_minute(10));
        for error in [
            builder.connect(&url).await.unwrap_err(),
            limiter.acquire(1).await.unwrap_err(),
            limiter.exists().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
            assert_eq!(error.execution(), Execution::NotExecuted, "{error:?}");
            let text = format!("{error} {error:?}");
            for secret in ["guess", "jane", "nobody", PASSWORD] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn a_user_without_a_password_is_logged_in() {
    let server = Server::start().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(&["open", "on", "nopass", "~*", "+@all"]);
    let () = server.run(user).await;
    let url = format!("redis://open@127.0.0.1:{}", server.port());
    let _client = use_it(Client::builder(), &url).await;
    let clients: String = server.run(redis::cmd("CLIENT").arg("LIST").take()).await;
    assert!(clients.contains("user=open"), "{clients}");
    let error = Client::builder().user("closed").connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named() {
    let options = Options::default().set("databases", "4").password("word");
    let server = Server::start_with(options).await;
    let error = Client::builder().database(4).connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert!(error.to_string().starts_with("connect: database 4 cannot be used: "), "{error}");
    let url = format!("redis://127.0.0.1:{}/1", server.port());
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
}
