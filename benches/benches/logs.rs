//! What it costs the hit path that a subscriber listens to what the pool tells through `tracing`, without doing anything
//! about it.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use binpool_benches::{Pool, Race, Workload, race};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use tracing_subscriber::{
    Layer, Registry, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt,
};

/// Takes what it is given.
struct Silent;

impl Layer<Registry> for Silent {}

fn hot(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, race: &mut Race<'_>) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|pairs| race.run(pairs).expect("memory for every block"));
    });
}

fn benchmarks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot, who listens");
    let pool = Pool::new().expect("a pool to measure");
    race(Workload::Hot, &pool, 1, |race| {
        // First, since `tracing` remembers that a subscriber was there.
        hot(&mut group, "no subscriber", race);
        for level in [LevelFilter::INFO, LevelFilter::TRACE] {
            let listening = Registry::default()
                .with(Silent.with_filter(level))
                .set_default();
            hot(&mut group, &format!("to {level}"), race);
            drop(listening);
        }
    });
    group.finish();
}

criterion_group!(logs, benchmarks);
criterion_main!(logs);
