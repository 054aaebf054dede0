//! What a Prometheus server would read from this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::observe::HISTOGRAM_BUCKETS;

/// The exporter, installed for the whole process: tests tell their limiters apart by labels.
pub fn install() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let limiters = Matcher::Prefix("redisson_limiter_".into());
        PrometheusBuilder::new()
            .set_buckets_for_metric(limiters, &HISTOGRAM_BUCKETS)
            .expect("buckets")
            .install_recorder()
            .expect("the first recorder")
    })
}

/// The series of one name.
#[derive(Debug, Default)]
pub struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub help: String,
    /// The values of each label.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// All that was exported, by name.
pub struct Scrape(pub BTreeMap<String, Metric>);

impl Scrape {
    pub fn take() -> Scrape {
        Scrape::read(&install().render())
    }

    pub fn read(text: &str) -> Scrape {
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some((name, help)) = head(line, "# HELP ") {
                metrics.entry(name).or_default().help = help;
            } else if let Some((name, kind)) = head(line, "# TYPE ") {
                metrics.entry(name).or_default().kind = kind;
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (sample, labels) = match series.split_once('{') {
                    Some((sample, rest)) => (sample, labels_of(rest.trim_end_matches('}'))),
                    None => (series, BTreeMap::new()),
                };
                let metric = metrics.get_mut(base_of(sample)).expect("its type comes first");
                for (key, value) in &labels {
                    metric.labels.entry(key.clone()).or_default().insert(value.clone());
                }
                let value = value.parse().expect("a number");
                metric.samples.push((sample.to_owned(), labels, value));
            }
        }
        Scrape(metrics)
    }

    /// The sum of all samples of this name that have these labels.
    pub fn sum(&self, sample: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.0.get(base_of(sample)).into_iter().flat_map(|metric| &metric.samples);
        let has = |found: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| found.get(*key).is_some_and(|found| found == value))
        };
        samples
            .filter(|(name, found, _)| name == sample && has(found))
            .map(|(_, _, value)| value)
            .sum()
    }

    /// All series of a name that have this label, by two others.
    pub fn by<'a>(
        &'a self,
        sample: &str,
        limiter: &str,
        keys: (&str, &str),
    ) -> BTreeMap<(&'a str, &'a str), u64> {
        let metric = &self.0[base_of(sample)];
        let of = metric.samples.iter().filter(|(_, labels, value)| {
            labels.get("limiter").is_some_and(|found| found == limiter) && *value > 0.0
        });
        of.map(|(_, labels, value)| ((&*labels[keys.0], &*labels[keys.1]), *value as u64)).collect()
    }
}

fn head(line: &str, prefix: &str) -> Option<(String, String)> {
    let (name, rest) = line.strip_prefix(prefix)?.split_once(' ')?;
    Some((name.to_owned(), rest.to_owned()))
}

/// The name of a metric, of which a histogram has several samples.
pub fn base_of(sample: &str) -> &str {
    ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| sample.strip_suffix(suffix))
        .unwrap_or(sample)
}

fn labels_of(text: &str) -> BTreeMap<String, String> {
    text.split("\",")
        .filter(|label| !label.is_empty())
        .map(|label| {
            let (key, value) = label.split_once('=').expect("a label");
            (key.to_owned(), value.trim_matches('"').to_owned())
        })
        .collect()
}
