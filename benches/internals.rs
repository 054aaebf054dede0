//! The codec and the queue by themselves.
//!
//! `cargo bench --features _bench --bench internals`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use redisson_rate_limiter::bench::{Rounds, keys, pack, unpack};

fn codec(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec");
    group.bench_function("pack", |b| b.iter(|| pack(black_box([7; 16]), 513)));
    let member = pack([7; 16], 513);
    group.bench_function("unpack", |b| b.iter(|| unpack(black_box(&member))));
    group.bench_function("keys", |b| {
        b.iter(|| keys(black_box("api"), "00000000-0000-4000-8000-000000000000"));
    });
    group.finish();
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    for requests in [1, 64, 1024, 4096] {
        group.throughput(Throughput::Elements(requests));
        group.bench_with_input(BenchmarkId::new("granted", requests), &requests, |b, &requests| {
            let mut rounds = Rounds::default();
            b.iter(|| rounds.granted(requests));
        });
    }
    for waiting in [1, 64, 1024] {
        group.throughput(Throughput::Elements(1));
        group.bench_with_input(
            BenchmarkId::new("head served", waiting),
            &waiting,
            |b, &waiting| {
                let mut rounds = Rounds::blocked(waiting);
                b.iter(|| rounds.head_served());
            },
        );
    }
    group.finish();
}

criterion_group!(benches, codec, queue);
criterion_main!(benches);
