//! A cluster: the limiters of all masters.

use compat_tests::cluster::Cluster;
use redis::cmd;

use crate::tool::Tool;

#[tokio::test]
async fn all_masters_are_scanned_and_names_without_a_slot_are_found() {
    let cluster = Cluster::start().await;
    let tool = Tool::at(&cluster.url());
    let names: Vec<String> = (0..12).map(|n| format!("limiter-{n}")).collect();
    for name in &names {
        tool.ends(0, &["acquire", name, "--rate", "10/h"]).await;
    }
    let top = tool.json(0, &["top", "--json"]).await;
    assert_eq!((&top["found"], top["limiters"].as_array().unwrap().len()), (&12.into(), 12));
    tool.ends(0, &["doctor", "--all"]).await;
    // What a Redisson creates, and cannot use.
    let value = "{a}b}:value";
    let slot: u16 = cluster.nodes()[0].run(cmd("CLUSTER").arg("KEYSLOT").arg(value)).await;
    let () = cluster.run(slot, cmd("SET").arg(value).arg(1)).await;
    let found = tool.json(1, &["doctor", "--all", "--json"]).await;
    assert_eq!(found["examined"], 13);
    assert_eq!(found["limiters"][0]["limiter"], "a}b");
    assert_eq!(found["limiters"][0]["findings"][0]["kind"], "slots");
    tool.ends(1, &["doctor", "a}b"]).await;
    tool.ends(2, &["inspect", "a}b"]).await;
    // It is a key of `{a}b}` too, which can be used.
    tool.ends(0, &["doctor", "{a}b}", "--fix", "--yes"]).await;
    tool.ends(3, &["doctor", "{a}b}"]).await;
    // What a limiter with other braces has is left alone on a cluster as well.
    let value = "{limiter-3}:value";
    let slot: u16 = cluster.nodes()[0].run(cmd("CLUSTER").arg("KEYSLOT").arg(value)).await;
    let ran = tool.ends(3, &["doctor", "{limiter-3}", "--fix", "--yes"]).await;
    assert!(ran.stderr.contains("left alone"), "{ran:?}");
    let () = cluster.run(slot, cmd("DEL").arg("limiter-3").arg("{limiter-3}:permits")).await;
    tool.ends(0, &["doctor", "{limiter-3}", "--fix", "--yes"]).await;
    tool.ends(0, &["acquire", "limiter-3", "--rate", "10/h"]).await;
    // A value above the rate is repaired on the node that has the limiter.
    let () = cluster.run(slot, cmd("SET").arg(value).arg(20)).await;
    tool.ends(0, &["doctor", "limiter-3", "--fix", "--yes"]).await;
    let seen = tool.json(0, &["inspect", "limiter-3", "--json"]).await;
    assert_eq!(seen["budgets"][0]["value"]["number"], 9);
}
