//! Exports instrumentation to OpenTelemetry: metrics through the `metrics` facade, spans through `tracing`.
//! The exporters here keep what they receive, and the program prints it; a service uses those of
//! `opentelemetry-otlp` instead.
//!
//!     cargo run -p opentelemetry_example --example opentelemetry

use std::error::Error;
use std::time::Duration;

use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use redisson_rate_limiter::{Client, InProcessStore, LimiterOptions, Rate};
use tracing::Instrument;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let exported = run().await?;
    println!("{exported}");
    Ok(())
}

async fn run() -> Result<String, Box<dyn Error>> {
    // Metrics.
    let metric_exporter = InMemoryMetricExporter::default();
    let meters =
        SdkMeterProvider::builder().with_periodic_exporter(metric_exporter.clone()).build();
    let recorder = OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(meters.meter("limiters")));
    metrics::set_global_recorder(recorder)?;

    // Spans: this crate's are at the level DEBUG.
    let span_exporter = InMemorySpanExporter::default();
    let spans = SdkTracerProvider::builder().with_simple_exporter(span_exporter.clone()).build();
    let levels = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("redisson_rate_limiter", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer("limiters"));
    tracing_subscriber::registry().with(layer.with_filter(levels)).init();

    // The client comes last: it counts with the recorder that is installed when it is built.
    let client = Client::builder().in_process(&InProcessStore::new())?;
    let options = LimiterOptions::new().metrics_label("checkout");
    let limiter = client.limiter_with("checkout", options)?.with_rate(Rate::per_hour(3));
    for request in 0..5 {
        // The call to the server is a child of the request's span.
        let span = tracing::info_span!("request", number = request);
        let decision = limiter.try_acquire(1, Duration::ZERO).instrument(span).await?;
        println!("request {request}: {decision}");
    }
    client.close().await;

    spans.force_flush()?;
    meters.force_flush()?;
    let mut lines = Vec::new();
    for span in span_exporter.get_finished_spans()? {
        let fields: Vec<_> =
            span.attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect();
        lines.push(format!(
            "span {} of {:?}: {}",
            span.name,
            span.parent_span_id,
            fields.join(" ")
        ));
    }
    for resource in metric_exporter.get_finished_metrics()? {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
            lines.extend(counters(metric.name(), metric.data()));
        }
    }
    Ok(lines.join("\n"))
}

/// The counters above zero, one on each line.
fn counters(name: &str, data: &AggregatedMetrics) -> Vec<String> {
    let AggregatedMetrics::U64(MetricData::Sum(sum)) = data else { return Vec::new() };
    let points = sum.data_points().filter(|point| point.value() > 0);
    points
        .map(|point| {
            let labels: Vec<_> =
                point.attributes().map(|a| format!("{}={}", a.key, a.value)).collect();
            format!("{name} {{{}}} {}", labels.join(" "), point.value())
        })
        .collect()
}

#[cfg(test)]
#[tokio::test]
async fn numbers_and_spans_are_exported() {
    let exported = run().await.unwrap();
    let lines_with = |parts: &[&str]| {
        exported.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    };
    let acquires = "redisson_limiter_acquires_total";
    assert_eq!(
        lines_with(&[acquires, "result=granted", "limiter=checkout", "} 3"]),
        1,
        "{exported}"
    );
    assert_eq!(
        lines_with(&[acquires, "result=denied", "decided_by=store", "} 2"]),
        1,
        "{exported}"
    );
    let call = "span redisson_limiter.call";
    assert_eq!(lines_with(&[call, "requests=1", "granted=1", "outcome=answered"]), 3, "{exported}");
    // Each call is a child of its request.
    assert_eq!(lines_with(&[call, "of 0000000000000000"]), 0, "{exported}");
}
