//! MOVED, names in different slots, addresses that cannot be reached, nodes that are away.

use compat_tests::cluster::slot;
use compat_tests::proxy::Proxy;
use redisson_rate_limiter::{Client, Cluster, ErrorKind, Execution};

use super::{limiter, on_cluster, rate, slot_of};

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

/// Every node announces an address that cannot be reached from here, as behind a network address
/// translation: a proxy stands before each, and the nodes themselves are not named.
#[test]
fn announced_addresses_are_mapped() {
    on_cluster(async |cluster| {
        let mut proxies = Vec::new();
        for node in cluster.nodes() {
            proxies.push((node.server.port(), Proxy::start(&node.server).await));
        }
        let pairs: Vec<(String, String)> = proxies
            .iter()
            .map(|(port, proxy)| {
                let reachable = proxy.url().trim_start_matches("redis://").to_owned();
                (format!("127.0.0.1:{port}"), reachable)
            })
            .collect();
        let seed = proxies[0].1.url();
        let settings = Cluster::new([&*seed]).unwrap();
        let settings =
            settings.address_map(pairs.iter().map(|(from, to)| (&**from, &**to))).unwrap();
        let client = Client::connect(settings).await.unwrap();
        for name in ["map-1", "map-2", "map-3", "map-4"] {
            let limiter = client.limiter(name).unwrap();
            limiter.set_rate(rate(10)).await.unwrap();
            cluster.move_slot(slot(name)).await;
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        }
        for (_, proxy) in &proxies {
            proxy.refuse().await;
        }
        let error = client.limiter("map-1").unwrap().try_acquire_now(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "all calls went through the proxies");
    });
}
