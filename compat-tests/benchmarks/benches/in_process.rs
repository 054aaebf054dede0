//! The whole path of a call, with an in-process store in place of the server:
//! `cargo bench -p micro-benchmarks --bench in_process`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use redisson_rate_limiter::{Client, InProcessStore, Rate, RateLimiter};
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// A new limiter with this rate.
fn limiter(runtime: &Runtime, rate: Rate) -> RateLimiter {
    let client = Client::builder().in_process(&InProcessStore::new()).expect("valid options");
    let limiter = client.limiter("bench").expect("a name");
    assert!(runtime.block_on(limiter.try_set_rate(rate)).expect("it is set"));
    limiter
}

/// Enough permits for any run. Entries live for a tenth of a second: with a longer interval the log
/// would grow with the time that is measured.
fn plenty() -> Rate {
    Rate::overall(1 << 40, Duration::from_millis(100)).expect("a valid rate")
}

fn alone(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("alone");

    let granting = limiter(&runtime, plenty());
    group.bench_function("granted", |b| {
        b.iter(|| {
            let decision = runtime.block_on(granting.try_acquire_now(1)).expect("a decision");
            assert!(black_box(decision).is_granted());
        });
    });

    let exhausted = limiter(&runtime, Rate::overall(1, LONG).expect("a valid rate"));
    assert!(runtime.block_on(exhausted.try_acquire_now(1)).expect("a decision").is_granted());
    group.bench_function("denied", |b| {
        b.iter(|| {
            let decision = runtime.block_on(exhausted.try_acquire_now(1)).expect("a decision");
            assert!(!black_box(decision).is_granted());
        });
    });

    group.bench_function("peek", |b| {
        b.iter(|| black_box(runtime.block_on(exhausted.peek(1)).expect("a peek")));
    });

    let refunding = limiter(&runtime, plenty());
    group.bench_function("refunded", |b| {
        b.iter_batched(
            || {
                let decision = runtime.block_on(refunding.try_acquire_now(1));
                decision.expect("a decision").into_grant().expect("granted")
            },
            |mut grant| runtime.block_on(grant.refund_all()).expect("a refund"),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn together(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("together");
    for callers in [8, 256, 4096] {
        let limiter = limiter(&runtime, plenty());
        group.throughput(Throughput::Elements(callers));
        group.bench_function(format!("{callers} callers"), |b| {
            b.iter(|| {
                let calls = (0..callers).map(|_| limiter.try_acquire_now(1));
                for decision in runtime.block_on(join_all(calls)) {
                    assert!(decision.expect("a decision").is_granted());
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, alone, together);
criterion_main!(benches);
