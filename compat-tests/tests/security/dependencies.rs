//! A part of what `cargo deny check` does by deny.toml, without it: where the dependencies come from,
//! under which licences, and that none is there twice. Advisories are looked up by `run --long`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

const DENY: &str = include_str!("../../../deny.toml");
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The words in quotes of a list in deny.toml.
fn list(name: &str) -> BTreeSet<&'static str> {
    let start = DENY.find(&format!("\n{name} = [")).unwrap_or_else(|| panic!("no {name}"));
    let list = &DENY[start..];
    let lines = list.lines().skip(1).take_while(|line| *line != "]");
    lines.filter_map(|line| line.split('"').nth(1)).collect()
}

/// The platform that this is built for.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let output = String::from_utf8(output).unwrap();
    output.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_owned()
}

/// Whether a licence, or a choice of licences, is allowed. The only brackets that occur are around a
/// choice that is a part of all that is required.
fn is_allowed(licence: &str, allowed: &BTreeSet<&str>) -> bool {
    let licence = licence.replace('/', " OR ");
    let alone = |one: &str| allowed.contains(one.trim().trim_matches(['(', ')']));
    match licence.contains('(') {
        true => licence.split(" AND ").all(|part| part.split(" OR ").any(alone)),
        false => licence.split(" OR ").any(|part| part.split(" AND ").all(alone)),
    }
}

/// The dependencies of the crate with all its features: what its users build.
fn dependencies() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"]);
    cargo.arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    // Those of other platforms need not have been downloaded.
    cargo.arg(format!("--filter-platform={}", host()));
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let by_id: BTreeMap<_, _> = packages.iter().map(|p| (p["id"].as_str().unwrap(), p)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let nodes: BTreeMap<_, _> = nodes.iter().map(|n| (n["id"].as_str().unwrap(), n)).collect();
    let is_ours = |package: &&Value| package["name"] == "redisson-rate-limiter";
    let mut pending = vec![packages.iter().find(is_ours).unwrap()["id"].as_str().unwrap()];
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                pending.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    seen.into_iter().map(|id| by_id[id].clone()).collect()
}

#[test]
fn dependencies_are_as_agreed_on() {
    let allowed = list("allow");
    assert!(allowed.contains("MIT"), "{allowed:?}");
    let twice = list("skip").into_iter().map(|skipped| skipped.split(':').next().unwrap());
    let twice: BTreeSet<_> = twice.collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let dependencies = dependencies();
    assert!(dependencies.len() > 30, "{}", dependencies.len());
    for package in &dependencies {
        let name = package["name"].as_str().unwrap();
        if name != "redisson-rate-limiter" {
            assert_eq!(package["source"], CRATES_IO, "{name}");
        }
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name}: no licence"));
        assert!(is_allowed(licence, &allowed), "{name}: {licence}");
        let version = package["version"].as_str().unwrap().to_owned();
        versions.entry(name.to_owned()).or_default().insert(version);
    }
    for (name, versions) in versions {
        assert!(versions.len() == 1 || twice.contains(&*name), "{name}: {versions:?}");
    }
}
