//! What a pair of allocation and free costs where threads share the subject, each with blocks of its own: the time of the
//! slowest over the pairs of one. Perfect scaling keeps it constant.
//!
//! 1, 2, 4, 8 and 16 threads, up to those that the machine runs at once, and 2 everywhere. In `cross-thread`, each has a second thread that
//! drops its blocks.

#![expect(
    clippy::expect_used,
    reason = "a benchmark without a pool measures nothing"
)]

use std::thread;

use binpool_benches::{Subject, SubjectChoice, Visitor, Workload, race};
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::WallTime,
};

const WORKLOADS: [Workload; 5] = [
    Workload::Hot,
    Workload::Mixed,
    Workload::Lifo,
    Workload::Large,
    Workload::CrossThread,
];

struct Bench<'a, 'c> {
    group: &'a mut BenchmarkGroup<'c, WallTime>,
    workload: Workload,
    threads: usize,
}

impl Visitor for Bench<'_, '_> {
    type Output = ();

    fn visit<S: Subject>(self, subject: &S) {
        race(self.workload, subject, self.threads, |race| {
            let id = BenchmarkId::new(S::NAME, self.threads);
            self.group.bench_function(id, |bencher| {
                bencher.iter_custom(|pairs| race.run(pairs).expect("memory for every block"));
            });
        });
    }
}

fn benchmarks(criterion: &mut Criterion) {
    let at_once = thread::available_parallelism().map_or(2, |threads| threads.get().max(2));
    for workload in WORKLOADS {
        let mut group = criterion.benchmark_group(format!("{workload}, threads"));
        for threads in [1, 2, 4, 8, 16] {
            if threads > at_once {
                continue;
            }
            group.throughput(Throughput::Elements(threads as u64));
            let subjects = workload.subjects().iter();
            for subject in subjects.filter(|subject| **subject != SubjectChoice::Nothing) {
                let bench = Bench {
                    group: &mut group,
                    workload,
                    threads,
                };
                subject.show(bench).expect("a pool to measure");
            }
        }
        group.finish();
    }
}

criterion_group!(threads, benchmarks);
criterion_main!(threads);
