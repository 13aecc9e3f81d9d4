//! Programs that were recorded, replayed through the pool on a device that costs nothing: events a second.
//!
//! An event is an allocation or a free. `warm` is what a round takes from the third on, as in a program that repeats its work;
//! without it, a pool that begins empty plays the trace once. The replay's own part is in both: a loop over the events, and
//! in `warm` two counters of live bytes.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use std::path::Path;

use binpool::{ImmediateAllocator, PoolOptions, Retain};
use binpool_benches::NullBackend;
use binpool_recordings::Trace;
use binpool_replay::{ReplaySettings, replay};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const TRACES: [&str; 5] = [
    "boxtree_builds",
    "eager_arrays",
    "gnn_sampled_train",
    "gpt2_varlen_train",
    "resnet50_train",
];

/// The rounds of a warm replay.
const ROUNDS: usize = 12;

fn benchmarks(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/traces");
    let mut group = criterion.benchmark_group("events of a trace");
    group.sample_size(10);
    for name in TRACES {
        let path = folder.join(format!("{name}.trace.gz"));
        let trace = Trace::open(&path).expect("a trace of this repository");
        for (options, subject) in [
            (PoolOptions::new(), "binpool"),
            (
                PoolOptions::new()
                    .segments(false)
                    .retain(Retain::new().at_least(u64::MAX)),
                "binpool-bins",
            ),
        ] {
            let mut settings = ReplaySettings {
                pool: Some(options),
                ..ReplaySettings::default()
            };
            let run = |settings: &ReplaySettings| {
                let allocator = ImmediateAllocator::new(&NullBackend::new());
                let allocator = allocator.expect("a device that costs nothing");
                replay(&trace, allocator, settings, |_| {}).expect("memory for every block")
            };
            group.throughput(Throughput::Elements(trace.events().len() as u64));
            group.bench_function(format!("{name}/{subject}"), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| run(&settings).host_time).sum());
            });
            settings.rounds = ROUNDS;
            // Later rounds free all that they allocate.
            group.throughput(Throughput::Elements(2 * trace.frees() as u64));
            group.bench_function(format!("{name}/{subject}-warm"), |bencher| {
                let warm = |_| run(&settings).warm_host_time.expect("warm rounds");
                bencher.iter_custom(|times| (0..times).map(warm).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(traces, benchmarks);
criterion_main!(traces);
