//! What parts of buffers cost on an OpenCL device: launches on them from several threads, the first launch on a fresh part, by
//! the number of its siblings, and the ways around views: an offset in the whole buffer, and buffers over shared virtual memory.
//!
//! ```text
//! cargo bench -p binpool-benches --bench views
//! ```
//!
//! The device is chosen by `BINPOOL_BENCH_DEVICE` (a selector as `binpool_opencl::DeviceSelector` has them; default `any`).
//! Without OpenCL there is nothing to measure, and the benchmark says so.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark whose device fails measures nothing"
)]

use std::{sync::Barrier, thread, time::Instant};

use binpool::{
    AsMemory, Backend, ImmediateAllocator, MemoryFlags, MemoryPool, PoolOptions, Queue, QueueOrder,
    SvmBackend, SvmGrain,
};
use binpool_conformance::Random;
use binpool_opencl::{
    ClKernel, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, Parameter, SvmPointer,
};
use comfy_table::Table;
use hdrhistogram::Histogram;

const SOURCE: &str = "kernel void part(global uint *to) { to[get_global_id(0)] = 7; }
kernel void whole(global uint *to, ulong offset) { to[offset + get_global_id(0)] = 7; }";

/// Work items of a launch, and the words that it writes.
const ITEMS: usize = 256;
/// Launches between two waits for the device.
const BATCH: usize = 64;
const LAUNCHES: usize = 20_000;
const FRESH: usize = 1000;

struct Device {
    backend: OpenClBackend,
    program: ClProgram,
}

impl Device {
    fn open() -> Option<Self> {
        let selector = std::env::var("BINPOOL_BENCH_DEVICE").unwrap_or_default();
        let backend = match OpenClBackend::open(&selector.parse().unwrap()) {
            Ok(backend) => backend,
            Err(error) => {
                eprintln!("nothing is measured: {error}");
                return None;
            }
        };
        println!("device: {}", backend.limits().device_name);
        let program = ClProgram::build(&backend, SOURCE, "").unwrap();
        Some(Self { backend, program })
    }

    fn queue(&self) -> ClQueue {
        self.backend.create_queue(QueueOrder::InOrder).unwrap()
    }

    fn kernel(&self, way: Way) -> ClKernel {
        let output = Parameter::output::<u32>(Extent::PerItem(1));
        let (name, parameters) = match way {
            Way::Offset => ("whole", vec![output, Parameter::offset_u64(0)]),
            Way::Part => ("part", vec![output]),
        };
        // SAFETY: a work item writes the word of its id, counted from the offset where there is one.
        unsafe { self.program.kernel(name, &parameters) }.unwrap()
    }

    /// The bytes from the start of a part to that of the next one.
    fn step(&self) -> usize {
        self.backend.limits().alignment.bytes().max(ITEMS * 4)
    }

    /// A pool like the default one, or of whole buffers.
    fn pool(&self, segments: bool) -> MemoryPool<OpenClBackend> {
        let allocator = ImmediateAllocator::new(&self.backend).unwrap();
        let options = PoolOptions::new().segments(segments);
        options.build(allocator, &self.queue()).unwrap()
    }
}

/// How a kernel is given a block.
#[derive(Clone, Copy)]
enum Way {
    Part,
    Offset,
}

fn launch(kernel: &ClKernel, queue: &ClQueue, memory: &dyn AsMemory<OpenClBackend>) {
    drop(
        kernel
            .launch(queue, &[ITEMS])
            .memory(memory)
            .enqueue()
            .unwrap(),
    );
}

/// The launches a second of all threads together, each on a queue and a block of its own.
fn launches_a_second(device: &Device, threads: usize, segments: bool, way: Way) -> f64 {
    let pool = device.pool(segments);
    let start = Barrier::new(threads);
    let elapsed = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (queue, kernel) = (device.queue(), device.kernel(way));
                    let block = pool.allocate_on(&queue, ITEMS * 4).unwrap();
                    launch(&kernel, &queue, &block);
                    queue.finish().unwrap();
                    start.wait();
                    let begun = Instant::now();
                    for _ in 0..LAUNCHES / threads / BATCH {
                        (0..BATCH).for_each(|_| launch(&kernel, &queue, &block));
                        queue.finish().unwrap();
                    }
                    begun.elapsed()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .max()
    });
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let launches = (LAUNCHES / threads / BATCH * BATCH * threads) as f64;
    launches / elapsed.unwrap().as_secs_f64()
}

/// Nanoseconds of several things that are done one after another.
type Times<const N: usize> = [Histogram<u64>; N];

fn no_times<const N: usize>() -> Times<N> {
    std::array::from_fn(|_| Histogram::new(3).unwrap())
}

/// Calls `run`, and notes how long it takes.
fn timed<R>(times: &mut Histogram<u64>, run: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = run();
    let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    times.record(nanoseconds).unwrap();
    result
}

#[expect(clippy::cast_precision_loss, reason = "they are shown with one digit")]
fn shown(times: &Histogram<u64>) -> String {
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    format!("{:.1} / {:.1}", at(0.5), at(0.99))
}

/// The times of making parts of one buffer, of the first launch on each, and of the second, while this many others have been
/// used before.
fn fresh_parts(device: &Device, siblings: usize, way: Way) -> Times<3> {
    let step = device.step();
    let buffer = device
        .backend
        .create_buffer((siblings + BATCH) * step, MemoryFlags::empty())
        .unwrap();
    times_of_parts(device, siblings, way, |index| {
        buffer.slice(index * step..(index + 1) * step).unwrap()
    })
}

/// The same for buffers over parts of a block of shared virtual memory.
fn fresh_buffers_over_svm(device: &Device, siblings: usize) -> Times<3> {
    let step = device.step();
    let bytes = (siblings + BATCH) * step;
    let block = device
        .backend
        .allocate_svm(bytes, None, SvmGrain::Coarse, None)
        .unwrap();
    times_of_parts(device, siblings, Way::Part, |index| {
        let part = block.slice(index * step..(index + 1) * step).unwrap();
        part.as_buffer(MemoryFlags::empty(), None).unwrap()
    })
}

fn times_of_parts(
    device: &Device,
    siblings: usize,
    way: Way,
    make: impl Fn(usize) -> ClMemory,
) -> Times<3> {
    let (queue, kernel) = (device.queue(), device.kernel(way));
    let others: Vec<ClMemory> = (0..siblings).map(&make).collect();
    for other in &others {
        launch(&kernel, &queue, other);
    }
    queue.finish().unwrap();
    let mut times = no_times();
    for _ in 0..FRESH.div_ceil(BATCH) {
        for index in siblings..siblings + BATCH {
            let part = timed(&mut times[0], || make(index));
            timed(&mut times[1], || launch(&kernel, &queue, &part));
            timed(&mut times[2], || launch(&kernel, &queue, &part));
        }
        queue.finish().unwrap();
    }
    times
}

/// The times of an allocation of a size that is new each time, and of the first launch on it, on all threads together.
fn carved(device: &Device, threads: usize) -> Times<2> {
    let pool = device.pool(true);
    let work = |thread: usize| {
        let (queue, kernel) = (device.queue(), device.kernel(Way::Part));
        let mut random = Random::new(thread as u64);
        let mut times: Times<2> = no_times();
        let mut kept = Vec::new();
        for round in 0..2 * FRESH {
            let bytes = ITEMS * 4 + random.below(1 << 20);
            let block = timed(&mut times[0], || pool.allocate_on(&queue, bytes).unwrap());
            timed(&mut times[1], || launch(&kernel, &queue, &block));
            kept.push(block);
            if kept.len() > 20 {
                drop(kept.swap_remove(random.below(20)));
            }
            if round % BATCH == 0 {
                queue.finish().unwrap();
            }
        }
        times
    };
    let mut all = no_times();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        for worker in workers {
            for (sum, times) in all.iter_mut().zip(worker.join().unwrap()) {
                sum.add(times).unwrap();
            }
        }
    });
    all
}

fn main() {
    let Some(device) = Device::open() else { return };
    let threads = [1, 4, 16];

    let mut table = Table::new();
    table.set_header(["launches a second, thousands", "1 thread", "4", "16"]);
    for (name, segments, way) in [
        ("whole buffers", false, Way::Part),
        ("parts", true, Way::Part),
        ("whole buffers with offsets", true, Way::Offset),
    ] {
        let rate = |threads| launches_a_second(&device, threads, segments, way) / 1e3;
        let rates = threads.map(|threads| format!("{:.0}", rate(threads)));
        table.add_row([vec![name.to_owned()], rates.to_vec()].concat());
    }
    println!("{table}");

    let mut table = Table::new();
    let header = [
        "us, median / 99 %",
        "siblings",
        "making a part",
        "first launch",
        "second launch",
    ];
    table.set_header(header);
    for siblings in [30, 1000, 10_000] {
        let ways = [
            ("parts", fresh_parts(&device, siblings, Way::Part)),
            ("offsets", fresh_parts(&device, siblings, Way::Offset)),
        ];
        let shares = device.backend.limits().svm.coarse;
        let svm = shares.then(|| {
            (
                "buffers over SVM",
                fresh_buffers_over_svm(&device, siblings),
            )
        });
        for (name, times) in ways.into_iter().chain(svm) {
            let times = times.each_ref().map(shown);
            let row = [vec![name.to_owned(), siblings.to_string()], times.to_vec()].concat();
            table.add_row(row);
        }
    }
    println!("{table}");

    let mut table = Table::new();
    table.set_header([
        "us, median / 99 %",
        "allocation of a new size",
        "first launch on it",
    ]);
    for threads in threads {
        let times = carved(&device, threads);
        let name = format!("{threads} threads");
        table.add_row([vec![name], times.each_ref().map(shown).to_vec()].concat());
    }
    println!("{table}");

    if device.backend.limits().svm.coarse {
        for bytes in [1 << 20, 64 << 20] {
            let begun = Instant::now();
            let block = device
                .backend
                .allocate_svm(bytes, None, SvmGrain::Coarse, None)
                .unwrap();
            let made = begun.elapsed();
            drop(block);
            println!(
                "{} MiB of shared virtual memory: {made:.1?} to allocate, {:.1?} with its end",
                bytes >> 20,
                begun.elapsed()
            );
        }
    }
}
