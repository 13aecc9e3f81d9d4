//! What a pair of allocation and free costs the host, beside the C library's `malloc`.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use std::hint::black_box;

use binpool_benches::{Bins, Malloc, Mixed, Pool, Subject};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};

fn hot_pair<S: Subject>(group: &mut BenchmarkGroup<'_, WallTime>, subject: &S) {
    // The first block comes from the device; every later one is the same again.
    drop(subject.allocate(4096));
    group.bench_function(S::NAME, |bencher| {
        bencher.iter(|| black_box(subject.allocate(black_box(4096))));
    });
}

fn mixed<S: Subject>(group: &mut BenchmarkGroup<'_, WallTime>, subject: &S) {
    let mut workload = Mixed::warmed_up(subject);
    group.bench_function(S::NAME, |bencher| bencher.iter(|| workload.step()));
    assert!(workload.is_full(), "an allocation of {} failed", S::NAME);
}

fn benchmarks(criterion: &mut Criterion) {
    let pool = || Pool::new().expect("the mock device always has a pool");
    let bins = || Bins::new().expect("the mock device always has a pool");

    let mut group = criterion.benchmark_group("hot pair of 4096 bytes");
    hot_pair(&mut group, &pool());
    hot_pair(&mut group, &bins());
    hot_pair(&mut group, &Malloc);
    group.finish();

    let mut group = criterion.benchmark_group("mixed workload");
    mixed(&mut group, &pool());
    mixed(&mut group, &bins());
    mixed(&mut group, &Malloc);
    group.finish();
}

criterion_group!(host, benchmarks);
criterion_main!(host);
