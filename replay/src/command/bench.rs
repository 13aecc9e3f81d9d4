//! `binpool bench`.

use std::{error::Error, path::PathBuf, time::Duration};

use binpool_benches::{Effort, Figures, SubjectChoice, Tail, Workload, clock, measure, tail};
use binpool_opencl::DeviceSelector;
use binpool_replay::{
    BenchRow, TailRow, bench_json, bench_table, scaling_svg, tail_json, tail_table,
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::command::{
    cli::{DeviceBackend, at_least_one},
    device_bench::{bench_cuda, bench_opencl},
    output::{print, print_report, report},
    own_process::measured,
    progress_bar::bar,
    whole_file::write_file,
};

/// Measure what the pool costs the host, over a device that costs nothing, beside its peers; or on an OpenCL or CUDA device,
/// beside the device's own calls (`--device`, `--backend cuda`).
///
/// The workloads, the same for every subject on every machine:
///
/// - hot: a block of 4096 bytes is allocated and dropped, over and over.
///
/// - mixed: 1000 live blocks of 256 bytes to 64 MiB are replaced at random.
///
/// - lifo: 64 blocks of 4 KiB to 512 KiB are allocated, then dropped in reverse order.
///
/// - large: a block of 8 MiB is allocated and dropped, over and over.
///
/// - miss: a block of 8 MiB is allocated, dropped, and given back to the allocator below the pool, so that the pool can
///   serve no request; beside the same calls of that allocator without a pool. On one thread, whatever `--threads` says.
///
/// - cross-thread: a thread allocates blocks of 4096 bytes, and another one drops them, 64 at a time. The channel between
///   them costs both what `nothing` takes.
///
/// A pair is an allocation and its free. `ns a pair` is the time from the start of the first thread to the end of the last
/// over the pairs of one thread: with perfect scaling, it stays the same for any number of threads. Million pairs a
/// second are those of all threads together, in the median sample. Of 15 samples of at least 20 ms each. Each subject of each
/// workload is measured in a process of its own.
///
/// The subjects: binpool; binpool-bins, without segments, which keep every free block; binpool-watched and binpool-recorded, which tracks its blocks, and is
/// recorded; the C library's malloc; mimalloc; offset-allocator behind a
/// lock; allocator, the one below binpool; nothing, the cost of the workload itself.
///
/// With `--device`, a block of 4 KiB, 1 MiB, 64 MiB and 512 MiB each is allocated and released, over and over, on one
/// thread. The subjects are then:
///
/// - pool: a pool with the default settings over the immediate allocator. It holds the block already.
///
/// - immediate: that allocator alone: the device makes a buffer, commits its memory, and releases it.
///
/// - svm-pool, svm: the same for coarse-grained shared virtual memory, where the device has it.
///
/// With `--backend cuda`, the same is done on 1, 4 and 16 threads, or as `--threads` says, each with a stream of its own. The subjects are
/// then:
///
/// - pool: as above. It holds a block for each stream already.
///
/// - virtual-memory-pool: a pool of pages that are mapped where they are wanted.
///
/// - stream-ordered: cuMemAllocFromPoolAsync and cuMemFreeAsync on the thread's stream, the bare calls. The driver's pool keeps what is free.
///
/// - immediate: cuMemAlloc and cuMemFree.
///
/// No command uses the blocks. `median / pool` is the median over that of the pool of the same memory, or, on CUDA, over that
/// of `pool`. Of up to 15 samples
/// of at least 20 ms each, within a second or so, but at least 5. A size that the device has no memory for, or not in one
/// piece, is left out and named on standard error.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 when all was measured that the device has the memory for; 1 when something could not be, or there is no \
such device; 2 for a wrong command line.

Examples:
  binpool bench
  binpool bench --workload hot,mixed --threads 1,2,4,8 --plot threads.svg
  binpool bench --tail --threads 4
  binpool bench --workload hot --subject binpool,malloc --json
  binpool bench --device nvidia
  binpool bench --backend cuda --threads 1,16")]
pub(crate) struct Bench {
    /// What to measure, several with commas between them. Default: all.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = workload())]
    pub(crate) workload: Vec<Workload>,
    /// On what. Default: all that there is for the workload.
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',', value_parser = subject())]
    pub(crate) subject: Vec<SubjectChoice>,
    /// How many threads share the subject, each with blocks of its own; in cross-thread, each with a consumer of its own.
    /// Several with commas between them. Default: 1; with `--backend cuda`, 1,4,16.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = thread_count)]
    pub(crate) threads: Vec<usize>,
    /// Measure how long single allocations and frees of the mixed workload take instead, while another thread keeps
    /// reclaiming memory from the pool: median, 99.9 %, and the longest. The clock's own time is in each of them;
    /// the subject `clock` is that alone.
    #[arg(long, conflicts_with_all = ["workload", "plot"])]
    pub(crate) tail: bool,
    /// Measure what a pooled pair costs on this device instead, beside the device's own calls: a number, a part of its name, or gpu, cpu,
    /// accelerator, any.
    #[arg(long, conflicts_with_all = ["workload", "subject", "tail", "plot"])]
    pub(crate) device: Option<DeviceSelector>,
    /// Whose device. Default: opencl with `--device`; with cuda alone, any of its devices.
    #[arg(long, value_enum, conflicts_with_all = ["workload", "subject", "tail", "plot"])]
    pub(crate) backend: Option<DeviceBackend>,
    /// Write a plot as SVG too: million pairs a second over threads, a chart a workload.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print JSON: an array, an object a workload, subject and number of threads; with `--device`, a size and subject.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do next to nothing, to see whether it works: the figures mean nothing.
    #[arg(long, hide = true)]
    pub(crate) quick: bool,
}

impl Bench {
    /// Whose device is measured, if one is.
    fn backend(&self) -> Option<DeviceBackend> {
        let named = self.device.as_ref().map(|_| DeviceBackend::Opencl);
        self.backend.or(named)
    }

    /// What two options contradict each other, if any do.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let has_threads = !self.threads.is_empty();
        (has_threads && self.backend() == Some(DeviceBackend::Opencl)).then_some(
            "`--threads` cannot be used with an OpenCL device: leave it out, or use `--backend cuda`",
        )
    }

    /// The numbers of threads.
    pub(crate) fn threads(&self) -> &[usize] {
        match &self.threads[..] {
            [] if self.backend() == Some(DeviceBackend::Cuda) => &[1, 4, 16],
            [] => &[1],
            threads => threads,
        }
    }

    /// How much is measured for a figure.
    pub(crate) fn effort(&self) -> Effort {
        if self.quick {
            Effort {
                samples: 1,
                least: Duration::ZERO,
            }
        } else {
            Effort::default()
        }
    }

    /// Measures in a process of its own what `arguments` name, in so many threads.
    fn apart<T: DeserializeOwned>(
        &self,
        arguments: &[&str],
        threads: usize,
    ) -> Result<T, Box<dyn Error>> {
        let threads = threads.to_string();
        let mut all = vec!["bench", "--json", "--threads", &threads];
        all.extend_from_slice(arguments);
        if self.quick {
            all.push("--quick");
        }
        measured(&all)
    }
}

/// The pairs of each thread whose operations are timed one by one.
const TAIL_PAIRS: u64 = 500_000;

/// Runs the requested measurements and prints the report. Returns whether all succeeded.
pub(crate) fn bench_all(options: &Bench) -> Result<bool, Box<dyn Error>> {
    let selector = options.device.as_ref().unwrap_or(&DeviceSelector::Any);
    match options.backend() {
        Some(DeviceBackend::Opencl) => bench_opencl(options, selector),
        Some(DeviceBackend::Cuda) => bench_cuda(options, selector),
        None if options.tail => measure_tails(options),
        None => measure_workloads(options),
    }
}

/// A subject of a workload in so many threads.
struct Run {
    workload: Workload,
    threads: usize,
    subject: SubjectChoice,
}

/// The figures in the JSON of a run.
#[derive(Deserialize)]
struct RunFigures {
    ns_per_pair_min: f64,
    ns_per_pair_median: f64,
}

impl Run {
    /// Measures the run in this process.
    fn figures_here(&self, options: &Bench) -> Result<Figures, Box<dyn Error>> {
        let effort = options.effort();
        Ok(measure(self.workload, self.subject, self.threads, effort)?)
    }

    /// Measures the run in a process of its own.
    fn figures(&self, options: &Bench) -> Result<Figures, Box<dyn Error>> {
        let threads = self.threads;
        let named = [
            "--workload",
            self.workload.name(),
            "--subject",
            self.subject.name(),
        ];
        let [measured]: [RunFigures; 1] = options.apart(&named, threads)?;
        Ok(Figures {
            threads,
            ns_per_pair_min: measured.ns_per_pair_min,
            ns_per_pair_median: measured.ns_per_pair_median,
        })
    }
}

fn measure_workloads(options: &Bench) -> Result<bool, Box<dyn Error>> {
    let runs = runs(options);
    if runs.is_empty() {
        return Err("no workload that was asked for is one of these subjects'".into());
    }
    let bar = bar(runs.len(), "bench");
    let mut rows = Vec::new();
    for run in &runs {
        let Run {
            workload, subject, ..
        } = *run;
        bar.set_message(format!("{workload}, {subject}"));
        let figures = match runs.len() {
            1 => run.figures_here(options),
            _ => run.figures(options),
        };
        match figures {
            Ok(figures) => rows.push(BenchRow {
                workload,
                subject,
                figures,
            }),
            Err(failure) => bar.suspend(|| report(&*failure)),
        }
        bar.inc(1);
    }
    drop(bar);
    if options.json {
        print(&bench_json(&rows)?)?;
    } else if !rows.is_empty() {
        print_report(&bench_table(&rows), &[])?;
    }
    if let Some(path) = &options.plot
        && !rows.is_empty()
    {
        write_file(path, scaling_svg(&rows)?)?;
    }
    Ok(rows.len() == runs.len())
}

/// The requested runs: each workload with each number of threads, with the subjects of a table side by side.
fn runs(options: &Bench) -> Vec<Run> {
    let all = Workload::ALL;
    let workloads = if options.workload.is_empty() {
        &all[..]
    } else {
        &options.workload
    };
    let mut runs = Vec::new();
    for workload in workloads {
        let threads = if workload.is_for_threads() {
            options.threads()
        } else {
            &[1]
        };
        for threads in threads {
            let subjects = chosen(options, workload.subjects());
            runs.extend(subjects.map(|subject| Run {
                workload: *workload,
                threads: *threads,
                subject,
            }));
        }
    }
    runs
}

/// Those of `subjects` that were requested: all of them, unless some are named.
fn chosen<'a>(
    options: &'a Bench,
    subjects: &'a [SubjectChoice],
) -> impl Iterator<Item = SubjectChoice> + 'a {
    let named = &options.subject;
    let is_chosen = |subject: &SubjectChoice| named.is_empty() || named.contains(subject);
    subjects.iter().copied().filter(is_chosen)
}

fn measure_tails(options: &Bench) -> Result<bool, Box<dyn Error>> {
    let pairs = if options.quick { 100 } else { TAIL_PAIRS };
    let subjects: Vec<_> = chosen(options, Workload::Mixed.subjects()).collect();
    let bar = bar(options.threads().len() * (subjects.len() + 1), "tail");
    let mut rows = Vec::new();
    let mut has_failed = false;
    for threads in options.threads() {
        rows.push(TailRow {
            subject: "clock",
            tail: clock(*threads, pairs),
        });
        bar.inc(1);
        for subject in &subjects {
            bar.set_message(format!("tail, {subject}"));
            let tail = match (subjects.len(), options.threads().len()) {
                (1, 1) => tail(*subject, *threads, pairs).map_err(Into::into),
                _ => tail_apart(options, *subject, *threads),
            };
            match tail {
                Ok(tail) => rows.push(TailRow {
                    subject: subject.name(),
                    tail,
                }),
                Err(failure) => {
                    has_failed = true;
                    bar.suspend(|| report(&*failure));
                }
            }
            bar.inc(1);
        }
    }
    drop(bar);
    if options.json {
        print(&tail_json(&rows)?)?;
    } else {
        print_report(&tail_table(&rows), &[])?;
    }
    Ok(!has_failed)
}

/// The times in the JSON of a tail.
#[derive(Deserialize)]
struct TailFigures {
    ns_median: u64,
    ns_99_9: u64,
    ns_max: u64,
    operations: u64,
}

/// Measures the times of single operations in a process of its own.
fn tail_apart(
    options: &Bench,
    subject: SubjectChoice,
    threads: usize,
) -> Result<Tail, Box<dyn Error>> {
    // The clock comes first.
    let [_, measured]: [TailFigures; 2] =
        options.apart(&["--tail", "--subject", subject.name()], threads)?;
    Ok(Tail {
        threads,
        ns_median: measured.ns_median,
        ns_99_9: measured.ns_99_9,
        ns_max: measured.ns_max,
        operations: measured.operations,
    })
}

/// Reads a number of threads. The limit is above any number of cores; an operating system may refuse more threads.
fn thread_count(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        threads @ ..=1024 => Ok(threads),
        _ => Err("must be at most 1024".into()),
    }
}

fn workload() -> impl TypedValueParser<Value = Workload> {
    named(&Workload::ALL, Workload::name)
}

fn subject() -> impl TypedValueParser<Value = SubjectChoice> {
    named(&SubjectChoice::ALL, SubjectChoice::name)
}

/// A parser that reads one of `all` by its name.
fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.iter().map(|one| name(*one)));
    names.try_map(move |text| {
        let found = all.iter().find(|one| name(**one) == text);
        found.copied().ok_or("no such name")
    })
}
