//! How many instructions pairs of allocation and free, and frees of another thread's blocks, take, counted by callgrind: what `scripts/instructions` runs, which
//! holds them against the recorded figures.
//!
//! By gungraun, which runs each benchmark in a process of its own under valgrind, with addresses and environment the same
//! each time, so that counts are. Its runner takes a minute to build; crates without one, which have the program itself
//! tell valgrind when to count, need libclang wherever the workspace is built.

#![expect(missing_docs, reason = "gungraun's macros make public items")]

use binpool_benches::{Failure, SubjectChoice, Workload, counted, counted_drops};
use gungraun::{
    Callgrind, EntryPoint, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

#[library_benchmark]
#[bench::hot_pool(Workload::Hot, SubjectChoice::Pool)]
#[bench::hot_bins(Workload::Hot, SubjectChoice::Bins)]
#[bench::hot_watched(Workload::Hot, SubjectChoice::Watched)]
#[bench::mixed_pool(Workload::Mixed, SubjectChoice::Pool)]
#[bench::mixed_bins(Workload::Mixed, SubjectChoice::Bins)]
#[bench::lifo_pool(Workload::Lifo, SubjectChoice::Pool)]
#[bench::lifo_bins(Workload::Lifo, SubjectChoice::Bins)]
#[bench::miss_pool(Workload::Miss, SubjectChoice::Pool)]
#[bench::miss_bins(Workload::Miss, SubjectChoice::Bins)]
fn pairs(workload: Workload, subject: SubjectChoice) -> Result<(), Failure> {
    counted(workload, subject)
}

#[library_benchmark]
#[bench::cross_pool(SubjectChoice::Pool)]
#[bench::cross_bins(SubjectChoice::Bins)]
fn drops(subject: SubjectChoice) -> Result<(), Failure> {
    counted_drops(subject)
}

library_benchmark_group!(name = instructions, benchmarks = [pairs, drops]);

main!(
    config = LibraryBenchmarkConfig::default().tool(
        Callgrind::with_args(["--cache-sim=no"])
            .entry_point(EntryPoint::Custom("*counted_pairs*".to_owned()))
    ),
    library_benchmark_groups = instructions
);
