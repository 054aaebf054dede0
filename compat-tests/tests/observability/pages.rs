//! The page, the dashboard and the alert rules name what is really exported, as it is exported.

use std::collections::BTreeSet;

use compat_tests::keys::Keys;
use compat_tests::server::Server;
use redisson_rate_limiter::{Client, ErrorKind, Fraction, LimiterOptions, OnOutage, Rate};
use serde_json::Value;
use tokio::time::sleep;

use crate::ms;
use crate::scrape::{Scrape, base_of, install};

const PAGE: &str = include_str!("../../../docs/observability.md");
const DASHBOARD: &str = include_str!("../../../docs/observability/dashboard.json");
const ALERTS: &str = include_str!("../../../docs/observability/alerts.yml");

/// Labels that Prometheus adds, or the exporter to histograms, or a user to limiters.
const OTHERS: [&str; 4] = ["instance", "job", "le", "limiter"];

/// Does what is rare, so that all that can be exported is.
async fn rare_events() {
    install();
    let server = Server::start().await;
    let connect = || {
        let builder = Client::builder().deadline(ms(150));
        builder.on_outage(OnOutage::Local(Fraction::ALL)).connect_lazy(server.url()).unwrap()
    };
    let rate = Rate::per_hour(10);
    let options = LimiterOptions::new().metrics_label("rare");
    let keys = Keys::new("rare");
    let set_value = |value: u64| {
        let mut command = redis::cmd("SET");
        command.arg(keys.value(None)).arg(value);
        command
    };

    let first = connect();
    let limiter = first.limiter_with("rare", options).unwrap().with_rate(rate);
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    // Permits are missing, then there are too many: a refusal sums a short log.
    let repaired = |what: &str| {
        let name = format!("redisson_limiter_{what}_permits_total");
        Scrape::take().sum(&name, &[("limiter", "rare")])
    };
    let () = server.run(set_value(3)).await;
    assert!(!limiter.try_acquire_now(4).await.unwrap().is_granted());
    assert_eq!((repaired("debt"), repaired("excess")), (6.0, 0.0));
    let () = server.run(set_value(8)).await;
    assert!(!limiter.try_acquire_now(9).await.unwrap().is_granted());
    assert_eq!((repaired("debt"), repaired("excess")), (6.0, 5.0));

    // What is granted while it is away is written when it is back.
    server.pause();
    let granted = limiter.try_acquire_now(1).await;
    server.resume();
    assert!(granted.unwrap().is_granted());
    while first.outages().written == 0 {
        sleep(ms(20)).await;
    }

    // Something that no client writes.
    let mut command = redis::cmd("ZADD");
    command.arg(keys.log(None)).arg(9_999_999_999_999_i64).arg("foreign");
    let () = server.run(command).await;
    let client = connect();
    let limiter = client.limiter_with("rare", options).unwrap();
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignEntry);
    assert!(first.clock_skew().is_some());
    first.close().await;
}

/// Checks one expression in PromQL; returns the names in it.
fn check(expression: &str, scrape: &Scrape) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut labels: BTreeSet<&str> = OTHERS.into();
    for (at, _) in expression.match_indices("redisson_limiter_") {
        let rest = &expression[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let metric = scrape.0.get(base_of(name)).filter(|metric| {
            // Only histograms have several samples of a name.
            (metric.kind == "histogram") == (base_of(name) != name)
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is not exported: {expression}"));
        labels.extend(metric.labels.keys().map(String::as_str));
        names.insert(base_of(name).to_owned());
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in matchers.map_or("", |(inside, _)| inside).split(',') {
            let Some((key, values)) = matcher.split_once('=') else { continue };
            let (key, values) = (key.trim(), values.trim_start_matches('~').trim_matches('"'));
            if key == "limiter" && values == "$limiter" {
                continue;
            }
            let known = metric.labels.get(key);
            let known = known.unwrap_or_else(|| panic!("{name} has no label {key}: {expression}"));
            for value in values.split('|') {
                assert!(known.contains(value), "{name}: {key} is never {value}: {expression}");
            }
        }
        // The value of a counter says nothing, only its increase does.
        let rises = metric.kind != "gauge";
        let before = &expression[..at];
        let is_rate = before.ends_with("rate(") || before.ends_with("increase(");
        assert_eq!(rises, is_rate, "{name} is a {}: {expression}", metric.kind);
    }
    for by in expression.split("by (").skip(1) {
        let (inside, _) = by.split_once(')').expect("a list of labels");
        for label in inside.split(',') {
            assert!(labels.contains(label.trim()), "no label {label}: {expression}");
        }
    }
    names
}

/// The words in `code` of a cell.
fn code(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn pages_name_what_is_exported() {
    rare_events().await;
    let scrape = Scrape::take();

    let mut described = BTreeSet::new();
    for line in PAGE.lines().filter(|line| line.starts_with("| `redisson_limiter_")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind, unit, labels, ..] = cells.as_slice() else { panic!("{line}") };
        let name = name.trim_matches('`');
        let metric = scrape.0.get(name).unwrap_or_else(|| panic!("{name} is not exported"));
        assert_eq!(metric.kind, *kind, "{name}");
        assert!(!metric.help.is_empty(), "{name} has no description");
        assert_eq!(name.contains("_seconds"), *unit == "seconds", "{name}");
        let mut found: BTreeSet<_> = metric.labels.keys().cloned().collect();
        found.remove("le");
        found.remove("policy");
        let of_a_limiter = found.remove("limiter");
        // One label's values may be in brackets behind it.
        let documented: BTreeSet<_> = labels
            .split(';')
            .filter_map(|part| code(part.split('(').next()?).pop_first())
            .collect();
        assert_eq!(found, documented, "{name}");
        let section = PAGE[..PAGE.find(line).unwrap()].rsplit("\n## ").next().unwrap();
        assert_eq!(section.starts_with("Of limiters"), of_a_limiter, "{name}: the limiter's label");
        for part in labels.split(';') {
            let Some((key, values)) = part.split_once('(') else { continue };
            let key = code(key).pop_first().expect("a label");
            let values = code(values);
            let unknown: Vec<_> = metric.labels[&key].difference(&values).collect();
            assert!(unknown.is_empty(), "{name}: {key} may be {unknown:?}");
        }
        described.insert(name.to_owned());
    }
    let exported: BTreeSet<_> =
        scrape.0.keys().filter(|name| name.starts_with("redisson_limiter_")).cloned().collect();
    assert_eq!(described, exported);

    let mut shown = BTreeSet::new();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            shown.extend(check(expression, &scrape));
            let plain = expression.replace("$__rate_interval", "5m").replace("$limiter", ".*");
            let number = rules.lines().count();
            rules += &format!("  - record: panel_{number}\n    expr: '{plain}'\n");
        }
    }
    // Debts are shown by their permits.
    shown.insert("redisson_limiter_debts_total".to_owned());
    shown.insert("redisson_limiter_circuit_transitions_total".to_owned());
    assert_eq!(shown, exported, "what the dashboard shows");

    // For Prometheus' own tool to read, which need not be there.
    if let Ok(path) = std::env::var("OBSERVE_RULES") {
        std::fs::write(path, rules).unwrap();
    }

    let mut alerts = BTreeSet::new();
    for line in ALERTS.lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            assert!(!check(expression, &scrape).is_empty(), "{expression}");
        } else if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.insert(format!("`{name}`"));
        }
    }
    for alert in alerts {
        assert!(PAGE.contains(&alert), "the page does not say what to do about {alert}");
    }
}
