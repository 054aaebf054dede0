//! TLS and passwords on a cluster: every node is reached as the first one is, wherever redirections lead.

use compat_tests::cluster::{Cluster, slot};
use compat_tests::scenario::{fresh_name, until};
use redisson_rate_limiter::{Client, ClientBuilder, ErrorKind, Execution, Rate, Tls};

use super::certificates::Authority;
use super::tls::{Clients, options};

const PASSWORD: &str = "of-all-nodes";

/// Takes a permit of limiters on all masters, and follows each to another one.
async fn use_all_nodes(client: &Client, cluster: &Cluster) {
    for name in ["a", "b", "c"].map(|name| format!("{name}:{{{}}}", fresh_name())) {
        let limiter = client.limiter(&name).unwrap().with_rate(Rate::per_hour(10));
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        cluster.move_slot(slot(&name)).await;
        assert_eq!(limiter.acquire(1).await.unwrap().left(), 8);
    }
}

#[tokio::test]
async fn all_nodes_are_logged_in_to_over_tls() {
    let authority = Authority::new();
    let certificate = authority.sign("127.0.0.1", -1..1);
    let options = options(&authority, &certificate, Clients::Known);
    let options = options.password(PASSWORD).set("masterauth", PASSWORD);
    let options = options.set("tls-cluster", "yes").set("tls-replication", "yes");
    let cluster = Cluster::start_with(options).await;
    let known = authority.sign("client", -1..1);
    let trusting = Tls::new().ca_pem(authority.pem());
    let tls = trusting.clone().identity_pem(known.pem.clone(), known.key.clone());
    let builder = Client::builder().password(PASSWORD).tls(tls.clone());
    let url = cluster.tls_url("127.0.0.1");

    let client = builder.clone().connect(&url).await.unwrap();
    use_all_nodes(&client, &cluster).await;
    let failed = async |builder: ClientBuilder, url: &str| {
        let error = builder.connect(url).await.unwrap_err();
        assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error}");
        error
    };
    let error = failed(builder.clone().password("guess"), &url).await;
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let error = failed(Client::builder().tls(tls.clone()), &url).await;
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let error = failed(builder.clone().tls(trusting), &url).await;
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    assert!(error.to_string().contains("refused the handshake"), "{error}");
    let stranger = Tls::new().ca_pem(Authority::new().pem());
    let error = failed(builder.clone().tls(stranger), &url).await;
    assert!(error.to_string().contains("not from an authority"), "{error}");
    let error = failed(builder.clone().database(3), &url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("database 3 cannot be used"), "{error}");

    // The nodes announce a name, as certificates usually have one. The addresses have none.
    let named = authority.sign("localhost", -1..1);
    let [cert, key] = [("named.pem", &named.pem), ("named.key", &named.key)]
        .map(|(name, text)| authority.file(name, text));
    for node in cluster.nodes() {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(&["tls-cert-file", &cert, "tls-key-file", &key]);
        set.arg(&["cluster-announce-hostname", "localhost"]);
        node.run::<()>(set.arg(&["cluster-preferred-endpoint-type", "hostname"])).await;
    }
    until("all nodes know the names", async || {
        let mut known = true;
        for node in cluster.nodes() {
            let view: String = node.run(redis::cmd("CLUSTER").arg("NODES")).await;
            known &= view.matches(",localhost").count() == cluster.nodes().len();
        }
        known
    })
    .await;
    let error = failed(builder.clone(), &url).await;
    assert!(error.to_string().contains("for another host"), "{error}");
    let client = builder.connect(&cluster.tls_url("localhost")).await.unwrap();
    use_all_nodes(&client, &cluster).await;
}

#[tokio::test]
async fn a_password_in_the_address_is_that_of_all_nodes() {
    let cluster = Cluster::start_with(
        compat_tests::server::Options::default().password("word").set("masterauth", "word"),
    )
    .await;
    let client = Client::connect(&cluster.url()).await.unwrap();
    use_all_nodes(&client, &cluster).await;
    // A node that does not say where it is: what leads to it is the host that was asked.
    for node in cluster.nodes() {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("cluster-preferred-endpoint-type");
        node.run::<()>(set.arg("unknown-endpoint")).await;
    }
    let client = Client::connect(&cluster.url()).await.unwrap();
    use_all_nodes(&client, &cluster).await;
}
