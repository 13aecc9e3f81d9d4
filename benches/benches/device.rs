//! What a pair of an allocation and its free costs on a device: with a pool, and by the device's own calls.
//!
//! ```text
//! cargo bench -p binpool-benches --bench device -- --device nvidia
//! cargo bench -p binpool-benches --bench device -- --backend cuda --json
//! ```
//!
//! Each subject allocates a block and frees it, over and over. `pool` and `immediate` are buffers that are committed before the allocation
//! returns, with a pool and without. `svm-pool` and `svm` are coarse-grained shared virtual memory, where an OpenCL device has it. On
//! CUDA, `virtual-memory-pool` is a pool of pages, `stream-ordered` a pool of the driver (`cuMemAllocFromPoolAsync`), `immediate`
//! `cuMemAlloc`, and each thread has a stream of its own. A size that the device has no memory for is left out.

use std::{
    error::Error,
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool, PoolError, QueueOrder, SvmAllocator,
    SvmBackend, SvmGrain, VirtualMemoryAllocator,
};
use binpool_allocators::{QueueOf, words::bytes};
use binpool_cuda::{CudaBackend, CudaDevice, DriverPoolAllocator};
use binpool_opencl::{DeviceSelector, OpenClBackend};
use clap::{Parser, ValueEnum};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

/// The sizes of the blocks, in bytes.
const SIZES: [usize; 4] = [4 << 10, 1 << 20, 64 << 20, 512 << 20];
/// The fewest samples, however long they last.
const FEWEST_SAMPLES: usize = 5;
/// The time after which no more samples are taken.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// Measure what a pooled pair costs on a device, beside the device's own calls.
#[derive(Parser)]
struct Options {
    /// Whose device.
    #[arg(long, value_enum, default_value_t = Driver::Opencl)]
    backend: Driver,
    /// The OpenCL device, or the number of the CUDA device. Default: any.
    #[arg(long)]
    device: Option<DeviceSelector>,
    /// How many threads share the subject on CUDA. Several with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    threads: Vec<usize>,
    /// Print JSON: an array, an object a size, number of threads and subject.
    #[arg(long)]
    json: bool,
    /// Do next to nothing, to see whether it works: the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// What cargo passes.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Driver {
    Opencl,
    Cuda,
}

/// How much is measured for a figure.
#[derive(Clone, Copy)]
struct Effort {
    samples: usize,
    /// How long a sample takes at least.
    least: Duration,
}

/// The samples of one subject in nanoseconds a pair, sorted.
struct Measured {
    subject: &'static str,
    samples: Vec<f64>,
    /// The subject whose median this one is compared with.
    pool: &'static str,
}

impl Measured {
    fn new(subject: &'static str, pool: &'static str, samples: Vec<f64>) -> Self {
        Self {
            subject,
            samples,
            pool,
        }
    }

    fn median(&self) -> f64 {
        self.samples[self.samples.len() / 2]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let effort = if options.quick {
        Effort {
            samples: 1,
            least: Duration::ZERO,
        }
    } else {
        Effort {
            samples: 15,
            least: Duration::from_millis(20),
        }
    };
    let selector = options.device.clone().unwrap_or_default();
    match options.backend {
        Driver::Opencl => {
            let backend = OpenClBackend::open(&selector)?;
            let measure = |size, _| of_opencl(&backend, size, effort);
            report(&options, "opencl", &backend, &[1], measure)
        }
        Driver::Cuda => {
            let backend = open_cuda(&selector)?;
            let measure = |size, threads| of_cuda(&backend, size, threads, effort);
            report(&options, "cuda", &backend, &options.threads, measure)
        }
    }
}

fn open_cuda(selector: &DeviceSelector) -> Result<CudaBackend, Box<dyn Error>> {
    let ordinal = match selector {
        DeviceSelector::Index(index) => *index,
        _ => 0,
    };
    let devices = CudaDevice::all()?;
    let device = devices.get(ordinal).ok_or("there is no such CUDA device")?;
    Ok(device.backend()?)
}

/// Measures each size on each number of threads, and prints the figures.
fn report<B: Backend>(
    options: &Options,
    name: &str,
    backend: &B,
    threads: &[usize],
    measure: impl Fn(usize, usize) -> Result<Vec<Measured>, PoolError>,
) -> Result<(), Box<dyn Error>> {
    let device = &backend.limits().device_name;
    let mut objects: Vec<Value> = Vec::new();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "size",
        "threads",
        "subject",
        "median / pool",
        "us a pair, median",
        "us a pair, least",
    ]);
    for size in SIZES {
        for &threads in threads {
            let all = match measure(size, threads) {
                Ok(all) => all,
                Err(error) if is_too_large(&error) => {
                    eprintln!("blocks of {} are left out: {error}", bytes(size as u64));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for one in &all {
                let pool = all.iter().find(|other| other.subject == one.pool);
                let times_pool = one.median() / pool.unwrap_or(one).median();
                table.add_row([
                    bytes(size as u64),
                    threads.to_string(),
                    one.subject.to_owned(),
                    format!("{times_pool:.1}"),
                    format!("{:.3}", one.median() / 1e3),
                    format!("{:.3}", one.samples[0] / 1e3),
                ]);
                objects.push(json!({
                    "backend": name,
                    "device": device,
                    "size_bytes": size,
                    "threads": threads,
                    "subject": one.subject,
                    "ns_per_pair_min": one.samples[0],
                    "ns_per_pair_median": one.median(),
                    "times_pool": times_pool,
                }));
            }
        }
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&objects)?);
    } else {
        println!("{name} on {device}\n\n{table}");
    }
    Ok(())
}

/// Returns whether the device does not have this much memory, or not in one piece.
fn is_too_large(error: &PoolError) -> bool {
    match error {
        PoolError::Allocator(error) => error.is_out_of_memory(),
        error => error.is_out_of_memory(),
    }
}

fn of_opencl<B: SvmBackend>(
    backend: &B,
    size: usize,
    effort: Effort,
) -> Result<Vec<Measured>, PoolError> {
    let queues = [backend.create_queue(QueueOrder::InOrder)?];
    let bench = Bench {
        queues: &queues,
        size,
        effort,
    };
    let immediate = ImmediateAllocator::new(backend)?;
    let mut all = vec![
        Measured::new("pool", "pool", bench.pool(&immediate)?),
        Measured::new("immediate", "pool", bench.direct(&immediate)?),
    ];
    if SvmGrain::Coarse.is_in(backend.limits().svm) {
        let svm = SvmAllocator::new(backend, SvmGrain::Coarse)?;
        all.push(Measured::new("svm-pool", "svm-pool", bench.pool(&svm)?));
        all.push(Measured::new("svm", "svm-pool", bench.direct(&svm)?));
    }
    Ok(all)
}

fn of_cuda(
    backend: &CudaBackend,
    size: usize,
    threads: usize,
    effort: Effort,
) -> Result<Vec<Measured>, PoolError> {
    let queue = |_| backend.create_queue(QueueOrder::InOrder);
    let queues = (0..threads).map(queue).collect::<Result<Vec<_>, _>>()?;
    let bench = Bench {
        queues: &queues,
        size,
        effort,
    };
    let immediate = ImmediateAllocator::new(backend)?;
    let pool = bench.pool(&immediate)?;
    let of_pages = bench.pool(&VirtualMemoryAllocator::new(backend))?;
    let driver = DriverPoolAllocator::new(backend)?;
    let ordered = bench.samples(&|queue, pairs| {
        driver.time_pairs(queue, black_box(size), u64::from(pairs))?;
        Ok(())
    })?;
    drop(driver);
    let direct = bench.direct(&immediate)?;
    let all = [
        ("pool", pool),
        ("virtual-memory-pool", of_pages),
        ("stream-ordered", ordered),
        ("immediate", direct),
    ];
    Ok(all
        .map(|(subject, samples)| Measured::new(subject, "pool", samples))
        .into())
}

/// Makes this number of pairs on the thread's queue.
type Pairs<'a, Q> = &'a (dyn Fn(&Q, u32) -> Result<(), PoolError> + Sync);

/// What is the same for the subjects of one size.
struct Bench<'a, Q> {
    /// A queue for each thread.
    queues: &'a [Q],
    size: usize,
    effort: Effort,
}

impl<Q: Send + Sync> Bench<'_, Q> {
    /// Measures a pool over `allocator`, which gives its memory back at the end.
    fn pool<A>(&self, allocator: &A) -> Result<Vec<f64>, PoolError>
    where
        A: Allocator<Backend: Backend<Queue = Q>> + Clone,
    {
        let pool = MemoryPool::new(allocator.clone(), &self.queues[0])?;
        let pair = |queue: &QueueOf<A>| {
            let block = pool.allocate_on(queue, black_box(self.size));
            block.map(|block| drop(black_box(block)))
        };
        self.samples(&|queue, pairs| (0..pairs).try_for_each(|_| pair(queue)))
    }

    /// Measures `allocator`.
    fn direct<A: Allocator>(&self, allocator: &A) -> Result<Vec<f64>, PoolError> {
        let pair = || {
            let memory = allocator.allocate(black_box(self.size))?;
            Ok(allocator.release(black_box(memory), &[])?)
        };
        self.samples(&|_, pairs| (0..pairs).try_for_each(|_| pair()))
    }

    /// Returns the nanoseconds a pair of each sample, sorted. A sample is as many pairs as take the least time of the effort. The first
    /// pair of all, for which a pool calls the device, does not count.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn samples(&self, run: Pairs<'_, Q>) -> Result<Vec<f64>, PoolError> {
        self.queues.iter().try_for_each(|queue| run(queue, 1))?;
        let mut pairs = 1;
        while self.time(run, pairs)? < self.effort.least {
            pairs *= 2;
        }
        let start = Instant::now();
        let mut samples = Vec::new();
        while samples.len() < FEWEST_SAMPLES
            || samples.len() < self.effort.samples && start.elapsed() < LONG_ENOUGH
        {
            samples.push(self.time(run, pairs)?.as_nanos() as f64 / f64::from(pairs));
        }
        samples.sort_by(f64::total_cmp);
        Ok(samples)
    }

    /// Has a thread for each queue make this number of pairs. Returns the time from the start of the first to the end of the last.
    fn time(&self, run: Pairs<'_, Q>, pairs: u32) -> Result<Duration, PoolError> {
        let ready = Barrier::new(self.queues.len());
        let lap = |queue| {
            // What a new thread does first does not count.
            let first = run(queue, 1);
            ready.wait();
            let start = Instant::now();
            first.and_then(|()| run(queue, pairs))?;
            Ok((start, Instant::now()))
        };
        if let [queue] = self.queues {
            let (start, end) = lap(queue)?;
            return Ok(end - start);
        }
        let laps = thread::scope(|scope| {
            let lap = &lap;
            let threads: Vec<_> = self
                .queues
                .iter()
                .map(|queue| scope.spawn(move || lap(queue)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                let lap = thread.join();
                lap.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads
                .into_iter()
                .map(join)
                .collect::<Result<Vec<_>, PoolError>>()
        })?;
        let start = laps.iter().map(|(start, _)| *start).min();
        let end = laps.iter().map(|(_, end)| *end).max();
        let span = end.zip(start).map(|(end, start)| end - start);
        Ok(span.unwrap_or_default())
    }
}
