//! Programs that were recorded, replayed through the pool on a device that costs nothing: events a second.
//!
//! An event is an allocation or a free. The time is that of the whole replay, which looks at the clock around each call
//! of the allocator, and counts.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use std::path::Path;

use binpool::{ImmediateAllocator, PoolOptions, Retain};
use binpool_benches::NullBackend;
use binpool_replay::{ReplaySettings, replay};
use binpool_trace::Trace;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const TRACES: [&str; 5] = [
    "boxtree_builds",
    "eager_arrays",
    "gnn_sampled_train",
    "gpt2_varlen_train",
    "resnet50_train",
];

fn benchmarks(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay/traces");
    let mut group = criterion.benchmark_group("events of a trace");
    group.sample_size(10);
    for name in TRACES {
        let path = folder.join(format!("{name}.trace.gz"));
        let trace = Trace::open(&path).expect("a trace of this repository");
        group.throughput(Throughput::Elements(trace.events().len() as u64));
        for (options, subject) in [
            (PoolOptions::new(), "binpool"),
            (
                PoolOptions::new()
                    .segments(false)
                    .retain(Retain::new().at_least(u64::MAX)),
                "binpool-bins",
            ),
        ] {
            let settings = ReplaySettings {
                pool: Some(options),
                ..ReplaySettings::default()
            };
            group.bench_function(format!("{name}/{subject}"), |bencher| {
                bencher.iter_custom(|times| {
                    let run = |_| {
                        let allocator = ImmediateAllocator::new(&NullBackend::new());
                        let allocator = allocator.expect("a device that costs nothing");
                        let outcome = replay(&trace, allocator, &settings, |_| {});
                        outcome.expect("memory for every block").host_time
                    };
                    (0..times).map(run).sum()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(traces, benchmarks);
criterion_main!(traces);
