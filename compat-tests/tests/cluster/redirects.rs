//! MOVED, names in different slots, addresses that cannot be reached, nodes that are away.

use compat_tests::cluster::{Cluster as Nodes, slot};
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::server::Server;
use redisson_rate_limiter::topology::Cluster;
use redisson_rate_limiter::{Client, ClientBuilder, ErrorKind, Execution};

use super::{SECOND, limiter, on_cluster, rate, slot_of};

#[test]
fn each_limiter_is_on_the_node_that_has_its_slot() {
    on_cluster(async |cluster| {
        let client = Client::connect(&cluster.url()).await.unwrap();
        for nth in 0..20 {
            let name = format!("each-{nth}");
            let limiter = client.limiter(&name).unwrap();
            limiter.set_rate(rate(10)).await.unwrap();
            assert!(limiter.try_acquire_now(3).await.unwrap().is_granted());
            let owner = cluster.owner(slot(&name)).await;
            let left: i64 = owner.run(redis::cmd("GET").arg(format!("{{{name}}}:value"))).await;
            assert_eq!(left, 7);
        }
        client.ping().await.unwrap();
    });
}

#[test]
fn a_slot_that_has_moved_is_followed() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 100).await;
        for used in 1..=3 {
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
            cluster.move_slot(slot_of(&limiter)).await;
            assert_eq!(limiter.available_permits().await.unwrap(), 100 - used);
        }
    });
}

#[test]
fn one_node_that_answers_is_enough_to_begin() {
    on_cluster(async |cluster| {
        let node = cluster.nodes()[4].server.port();
        let nodes = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{node}");
        let client = Client::connect(&nodes).await.unwrap();
        client.limiter("one").unwrap().set_rate(rate(10)).await.unwrap();

        let away = Client::connect("redis+cluster://127.0.0.1:1,127.0.0.1:2").await.unwrap_err();
        assert_eq!(away.kind(), ErrorKind::Unavailable, "{away}");
        assert_eq!(away.execution(), Execution::NotExecuted, "{away}");
    });
}

#[test]
fn names_whose_keys_are_in_different_slots_are_refused() {
    on_cluster(async |cluster| {
        let client = Client::connect(&cluster.url()).await.unwrap();
        for name in ["a}b", "a{b", "{a", "a{}b"] {
            let error = client.limiter(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("in different slots of the cluster"), "{error}");
        }
        let api = client.limiter("{api}").unwrap();
        api.set_rate(rate(10)).await.unwrap();
        let error = api.rename("web").await.unwrap_err();
        assert!(error.to_string().contains("the same hash tag"), "{error}");
        api.rename("{api}-2").await.unwrap();
        assert!(client.limiter("{api}-2").unwrap().delete().await.unwrap());
    });
}

/// A proxy before each node, in their order, and the cluster behind them with what maps its addresses.
async fn behind_proxies(cluster: &Nodes) -> (Vec<Proxy>, ClientBuilder, Cluster) {
    let mut proxies = Vec::new();
    let mut pairs = Vec::new();
    for node in cluster.nodes() {
        let proxy = Proxy::start(&node.server).await;
        let reachable = format!("127.0.0.1:{}", proxy.port());
        pairs.push((format!("127.0.0.1:{}", node.server.port()), reachable));
        proxies.push(proxy);
    }
    let seed = proxies[0].url();
    let settings = Cluster::new([&*seed]).unwrap();
    let pairs = pairs.iter().map(|(from, to)| (&**from, &**to));
    (proxies, Client::builder().address_map(pairs).unwrap(), settings)
}

/// Calls that are not repeated, as nobody could know whether they count twice.
#[test]
fn what_an_error_says_of_the_execution_holds() {
    on_cluster(async |cluster| {
        let name = limiter(cluster, 100).await;
        let (proxies, builder, settings) = behind_proxies(cluster).await;
        let client = builder.deadline(SECOND).connect(settings).await.unwrap();
        let limiter = client.limiter(name.name()).unwrap();
        limiter.acquire(10).await.unwrap();
        // The server knows the script from now on.
        limiter.release(1).await.unwrap();
        let owner = cluster.owner(slot_of(&limiter)).await;
        let port = owner.server.port();
        let before = |port| cluster.nodes().iter().position(|node| node.server.port() == port);
        let proxy = &proxies[before(port).unwrap()];
        for (fault, left) in [(Fault::LoseRequest, 91), (Fault::LoseReply, 92)] {
            let trap = proxy.trap(limiter.name(), fault);
            let error = limiter.release(1).await.unwrap_err();
            assert!(trap.has_sprung());
            assert_eq!(error.execution(), Execution::Unknown, "{error}");
            assert_eq!(limiter.available_permits().await.unwrap(), left);
        }
        // The node that a redirection names cannot be reached.
        let to = cluster.another_master(owner).await;
        let to_proxy = &proxies[before(to.server.port()).unwrap()];
        to_proxy.refuse().await;
        let slot = slot_of(&limiter);
        cluster.open_slot(slot, owner, to).await;
        cluster.move_all_keys(slot, owner, to).await;
        cluster.close_slot(slot, to).await;
        let error = limiter.release(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        assert_eq!(name.available_permits().await.unwrap(), 92);
    });
}

#[test]
fn a_node_that_changes_its_address_is_followed() {
    on_cluster(async |cluster| {
        let name = limiter(cluster, 100).await;
        let owner = cluster.owner(slot_of(&name)).await;
        let proxies = [Proxy::start(&owner.server).await, Proxy::start(&owner.server).await];
        let announce = async |port: u16| {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg("cluster-announce-port").arg(port);
            owner.run::<()>(&mut set).await;
            let port = if port == 0 { owner.server.port() } else { port };
            let line = format!("{} 127.0.0.1:{port}@", owner.id);
            cluster
                .until("all nodes know where it is", async || {
                    let mut known = true;
                    for node in cluster.nodes() {
                        let view: String = node.run(redis::cmd("CLUSTER").arg("NODES")).await;
                        known &= view.contains(&line);
                    }
                    Ok(known)
                })
                .await;
        };
        let others = cluster.nodes().iter().filter(|node| node.id != owner.id);
        let others: Vec<String> = others.map(|node| node.server.url()).collect();
        announce(proxies[0].port()).await;
        let client = Cluster::new(others.iter().map(String::as_str)).unwrap();
        let client = Client::connect(client).await.unwrap();
        let limiter = client.limiter(name.name()).unwrap();
        assert_eq!(limiter.acquire(1).await.unwrap().left(), 99);
        announce(proxies[1].port()).await;
        proxies[0].refuse().await;
        assert_eq!(limiter.try_acquire_now(1).await.unwrap().into_grant().unwrap().left(), 98);
        announce(0).await;
        proxies[1].refuse().await;
        assert_eq!(limiter.acquire(1).await.unwrap().left(), 97);
        cluster.settled().await;
    });
}

#[test]
fn a_topology_that_is_another_one_is_named() {
    on_cluster(async |cluster| {
        let name = limiter(cluster, 10).await;
        let owner = cluster.owner(slot_of(&name)).await;
        let other = cluster.another_master(owner).await;
        let single = Client::connect(&other.server.url()).await.unwrap();
        let error = single.limiter(name.name()).unwrap().try_acquire_now(1).await.unwrap_err();
        assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        assert!(
            error.to_string().contains("connect to a `Cluster`, or by redis+cluster:"),
            "{error}"
        );

        let server = Server::start().await;
        let url = format!("redis+cluster://127.0.0.1:{}", server.port());
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.execution(), Execution::NotExecuted, "{error}");
        assert!(error.to_string().contains("cluster support disabled"), "{error}");
    });
}

/// Every node announces an address that cannot be reached from here, as behind a network address
/// translation: a proxy stands before each, and the nodes themselves are not named.
#[test]
fn announced_addresses_are_mapped() {
    on_cluster(async |cluster| {
        let (proxies, builder, settings) = behind_proxies(cluster).await;
        let client = builder.connect(settings).await.unwrap();
        for name in ["map-1", "map-2", "map-3", "map-4"] {
            let limiter = client.limiter(name).unwrap();
            limiter.set_rate(rate(10)).await.unwrap();
            cluster.move_slot(slot(name)).await;
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        }
        for proxy in &proxies {
            proxy.refuse().await;
        }
        let error = client.limiter("map-1").unwrap().try_acquire_now(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "all calls went through the proxies");
    });
}
