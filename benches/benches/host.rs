//! What a pair of allocation and free costs the host, beside heaps of the host and another way to tell which bytes are
//! whose: every workload, on one thread (`cross-thread`: one and a consumer).
//!
//! `nothing` is what the workload itself takes. `allocator` is what the pool works over.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use binpool_benches::{Subject, Visitor, Workload, race};
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};

struct Bench<'a, 'c> {
    group: &'a mut BenchmarkGroup<'c, WallTime>,
    workload: Workload,
}

impl Visitor for Bench<'_, '_> {
    type Output = ();

    fn visit<S: Subject>(self, subject: &S) {
        race(self.workload, subject, 1, |race| {
            self.group.bench_function(S::NAME, |bencher| {
                bencher.iter_custom(|pairs| race.run(pairs).expect("memory for every block"));
            });
        });
    }
}

fn benchmarks(criterion: &mut Criterion) {
    for workload in Workload::ALL {
        let mut group = criterion.benchmark_group(workload.name());
        group.throughput(Throughput::Elements(1));
        for subject in workload.subjects() {
            let bench = Bench {
                group: &mut group,
                workload,
            };
            subject.show(bench).expect("a pool to measure");
        }
        group.finish();
    }
}

criterion_group!(host, benchmarks);
criterion_main!(host);
