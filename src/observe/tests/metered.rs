//! What the feature `metrics` counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use crate::{Client, InProcessStore, LimiterOptions, Rate};

/// The counters, by name and labels: `redisson_limiter_calls_total operation=acquire outcome=failed`.
#[derive(Default)]
pub(crate) struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counters {
    /// The number of a counter whose name comes without prefix; `None` if it is not registered.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        let counters = self.0.lock().unwrap();
        counters.get(&format!("redisson_limiter_{name}")).map(|it| it.load(Ordering::Relaxed))
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        Counter::from_arc(self.0.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Otherwise the first entries that cannot be read are no rise, and go without an alert.
#[test]
fn errors_that_an_alert_looks_for_are_exported_before_the_first() {
    let counters = Counters::default();
    let foreign = "errors_total operation=acquire kind=foreign_entry execution=executed";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let acquire = async {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        assert_eq!(counters.get(foreign), Some(0));
        let options = LimiterOptions::new().metrics_label("few");
        let limiter = client.limiter_with("api", options).unwrap().with_rate(Rate::per_second(1));
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        assert_eq!(counters.get(&format!("{foreign} limiter=few")), Some(0));
    };
    with_local_recorder(&counters, || runtime.block_on(acquire));
}
