//! The access rules of docs/deployment.md, in each topology. All other tests run under them too.

use compat_tests::acl::{COMMANDS, FURTHER, PASSWORD, USER, unescaped};
use compat_tests::cluster::Cluster;
use compat_tests::sentinels::{MASTER, Passwords, Sentinels};
use compat_tests::server::Server;
use redisson_rate_limiter::topology::Replicated;
use redisson_rate_limiter::{Client, Clock, Error, ErrorKind, Execution, Rate};

use crate::calls;

/// A user that may do what the documented rule permits, on the keys of names that begin with `api`, and
/// what else is named.
async fn permit(server: &Server, further: &[&str]) {
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg(&["api", "on", ">word", "~api*", "~{api*"]);
    let further =
        FURTHER.iter().filter(|command| further.iter().any(|name| command.contains(name)));
    let commands = COMMANDS.iter().chain(further).map(|command| unescaped(command));
    let () = server.run(user.arg(commands.collect::<Vec<_>>()).take()).await;
}

/// Makes every call, with both clocks, and notices what is not permitted.
async fn use_it(connect: impl AsyncFn(Clock) -> Result<Client, Error>) {
    for clock in [Clock::system(), Clock::server()] {
        let client = connect(clock).await.unwrap();
        client.ping().await.unwrap();
        calls::all(&client, "api", "{api}-renamed").await.unwrap();
        let other = client.limiter("other").unwrap().with_rate(Rate::per_second(1));
        let error = other.try_acquire_now(1).await.unwrap_err();
        assert_eq!((error.kind(), error.execution()), (ErrorKind::Auth, Execution::NotExecuted));
    }
}

#[tokio::test]
async fn one_server() {
    let server = Server::start().await;
    permit(&server, &["select"]).await;
    let url = format!("redis://api:word@127.0.0.1:{}/3", server.port());
    use_it(async |clock| Client::builder().clock(clock).connect(&url).await).await;
    let keys: Vec<String> = server.run(redis::cmd("KEYS").arg("*").take()).await;
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn a_master_that_is_found() {
    let deployment = Sentinels::start(Passwords::default()).await;
    for server in &deployment.servers {
        permit(server, &["role"]).await;
    }
    let urls = deployment.urls();
    let urls = urls.iter().map(String::as_str);
    let sentinels = redisson_rate_limiter::topology::Sentinels::new(MASTER, urls).unwrap();
    let sentinels = sentinels.user(USER).password(PASSWORD);
    let servers = deployment.servers.each_ref().map(|server| server.port());
    let servers = servers.map(|port| format!("redis://127.0.0.1:{port}"));
    let replicated = Replicated::new(servers.iter().map(String::as_str)).unwrap();
    let builder = |clock| Client::builder().clock(clock).user("api").password("word");
    use_it(async |clock| builder(clock).connect(sentinels.clone()).await).await;
    use_it(async |clock| builder(clock).connect(replicated.clone()).await).await;
}

#[tokio::test]
async fn a_cluster() {
    let cluster = Cluster::start().await;
    for node in cluster.nodes() {
        permit(&node.server, &["cluster", "asking"]).await;
    }
    let url = cluster.url().replace(&format!("{USER}:{PASSWORD}@"), "api:word@");
    use_it(async |clock| Client::builder().clock(clock).connect(&url).await).await;
}
