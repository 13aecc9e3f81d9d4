//! What reuse across queues costs on an OpenCL device, by policy, and what a pipeline of two queues makes of it.
//!
//! The device is chosen by `BINPOOL_BENCH_DEVICE` (a selector as `binpool_opencl::DeviceSelector` has them; default
//! `any`). Without OpenCL there is nothing to measure, and the benchmark says so.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark whose device fails measures nothing"
)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool, PoolOptions, Queue, QueueOrder, ReusePolicy,
};
use binpool_array::{BinaryOperation, Kernels, OpenClKernels, open_opencl};
use binpool_opencl::{ClQueue, OpenClBackend};
use criterion::{Criterion, criterion_group, criterion_main};

type Pool = MemoryPool<OpenClBackend>;

struct Device {
    backend: OpenClBackend,
    kernels: OpenClKernels,
    queues: [ClQueue; 2],
    unordered: Option<ClQueue>,
}

impl Device {
    fn open() -> Option<Self> {
        let selector = std::env::var("BINPOOL_BENCH_DEVICE").unwrap_or_default();
        let (backend, kernels) = match open_opencl(&selector.parse().unwrap()) {
            Ok(opened) => opened,
            Err(error) => {
                eprintln!("nothing is measured: {error}");
                return None;
            }
        };
        eprintln!("device: {}", backend.limits().device_name);
        Some(Self {
            queues: [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap()),
            unordered: backend.create_queue(QueueOrder::OutOfOrder).ok(),
            backend,
            kernels,
        })
    }

    fn pool(&self, policy: ReusePolicy) -> Pool {
        PoolOptions::new()
            .reuse(policy)
            .build(
                ImmediateAllocator::new(&self.backend).unwrap(),
                &self.queues[0],
            )
            .unwrap()
    }

    fn finish(&self) {
        for queue in self.queues.iter().chain(&self.unordered) {
            queue.finish().unwrap();
        }
    }
}

const BYTES: usize = 4096;

/// Two blocks that `producer` has used, free again; the commands are pending when this returns.
fn produce(pool: &Pool, producer: &ClQueue) {
    let blocks = [(); 2].map(|()| pool.allocate_on(producer, BYTES).unwrap());
    for block in blocks {
        block.enqueue_fill(producer, 0..BYTES, &[1_u8]).unwrap();
    }
}

/// The time that `allocate` takes, over and over, each time after `before`.
fn time_of<R>(
    times: u64,
    mut before: impl FnMut(),
    mut allocate: impl FnMut() -> R,
    mut after: impl FnMut(R),
) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..times {
        before();
        let start = Instant::now();
        let allocated = allocate();
        total += start.elapsed();
        after(allocated);
    }
    total
}

fn hits(criterion: &mut Criterion, device: &Device) {
    let [producer, consumer] = &device.queues;
    let mut group = criterion.benchmark_group("a block of 4096 bytes");
    group.bench_function("from the device, and back", |bencher| {
        let allocator = ImmediateAllocator::new(&device.backend).unwrap();
        bencher.iter(|| {
            let memory = allocator.allocate(BYTES).unwrap();
            allocator.release(memory, &[]).unwrap();
        });
    });
    let pool = device.pool(ReusePolicy::Opportunistic);
    group.bench_function("same queue, commands pending", |bencher| {
        bencher.iter_custom(|times| {
            time_of(
                times,
                || produce(&pool, producer),
                || pool.allocate_on(producer, BYTES).unwrap(),
                drop,
            )
        });
    });
    // The fence is there, as another request has asked before; the commands have ended since.
    group.bench_function("another queue, commands ended (Opportunistic)", |bencher| {
        bencher.iter_custom(|times| {
            time_of(
                times,
                || {
                    pool.free_held();
                    produce(&pool, producer);
                    let gate = device.backend.create_user_event().unwrap();
                    device
                        .backend
                        .enqueue_barrier(producer.after(std::slice::from_ref(&gate)))
                        .unwrap();
                    drop(pool.allocate_on(consumer, 2 * BYTES));
                    let asked = pool.allocate_on(consumer, BYTES).unwrap();
                    device
                        .backend
                        .resolve_user_event(&gate, binpool::Outcome::Complete)
                        .unwrap();
                    device.finish();
                    drop(asked.detach());
                },
                || pool.allocate_on(consumer, BYTES).unwrap(),
                drop,
            )
        });
    });
    for policy in [ReusePolicy::InsertWait, ReusePolicy::WaitOnHost] {
        let pool = device.pool(policy);
        group.bench_function(
            format!("another queue, commands pending ({policy:?})"),
            |bencher| {
                bencher.iter_custom(|times| {
                    time_of(
                        times,
                        || {
                            device.finish();
                            pool.free_held();
                            produce(&pool, producer);
                        },
                        || pool.allocate_on(consumer, BYTES).unwrap(),
                        drop,
                    )
                });
            },
        );
        if let Some(unordered) = &device.unordered {
            group.bench_function(
                format!("an out-of-order queue, commands pending ({policy:?})"),
                |bencher| {
                    bencher.iter_custom(|times| {
                        time_of(
                            times,
                            || {
                                device.finish();
                                produce(&pool, unordered);
                            },
                            || pool.allocate_on(unordered, BYTES).unwrap(),
                            drop,
                        )
                    });
                },
            );
        }
    }
    group.finish();
}

/// How long a marker takes on a queue that has nothing else to do: how soon a pool that asks late can know.
fn marker(criterion: &mut Criterion, device: &Device) {
    let [producer, _] = &device.queues;
    criterion.bench_function(
        "marker on an idle queue, until its event tells",
        |bencher| {
            bencher.iter_custom(|times| {
                time_of(
                    times,
                    || device.finish(),
                    || {
                        let marker = device.backend.enqueue_marker(producer).unwrap();
                        producer.flush().unwrap();
                        while !binpool::Event::status(&marker).unwrap().has_ended() {}
                    },
                    drop,
                )
            });
        },
    );
}

const CHUNK: usize = 16 << 20;
const CHUNKS: usize = 32;
/// Kernels a chunk, so that computing takes about as long as copying.
const KERNELS: usize = 32;

/// Where the blocks of a pipeline come from: one pool for both queues, or one each.
struct Source {
    name: String,
    pools: [Pool; 2],
}

impl Source {
    fn all(device: &Device) -> Vec<Self> {
        let mut sources: Vec<Self> = ReusePolicy::ALL
            .iter()
            .map(|policy| {
                let pool = device.pool(*policy);
                Self {
                    name: format!("{policy:?}"),
                    pools: [pool.clone(), pool],
                }
            })
            .collect();
        sources.push(Self {
            name: "a pool a queue".to_owned(),
            pools: [(); 2].map(|()| device.pool(ReusePolicy::SameQueue)),
        });
        let unpooled = device.pool(ReusePolicy::SameQueue);
        unpooled.stop_holding();
        sources.push(Self {
            name: "no pool".to_owned(),
            pools: [unpooled.clone(), unpooled],
        });
        sources
    }

    /// Chunks come in on the one queue and are worked on by the other; no thread waits before the end.
    fn round(&self, device: &Device, data: &Arc<[u8]>) {
        let [upload, compute] = &device.queues;
        for _ in 0..CHUNKS {
            let chunk = self.pools[0].allocate_on(upload, CHUNK).unwrap();
            chunk.enqueue_write(upload, 0, Arc::clone(data)).unwrap();
            chunk.order_before(compute).unwrap();
            let result = self.pools[1].allocate_on(compute, CHUNK).unwrap();
            for _ in 0..KERNELS {
                let operation = BinaryOperation::Multiply;
                device
                    .kernels
                    .enqueue(
                        &device.backend,
                        compute,
                        operation,
                        [&chunk, &chunk],
                        &result,
                    )
                    .unwrap();
            }
        }
        device.finish();
    }
}

fn pipeline(criterion: &mut Criterion, device: &Device) {
    let data: Arc<[u8]> = vec![1; CHUNK].into();
    let mut group = criterion.benchmark_group("pipeline of 32 chunks of 16 MiB");
    group.sample_size(10);
    for source in Source::all(device) {
        group.bench_function(&source.name, |bencher| {
            bencher.iter(|| source.round(device, &data));
        });
        let taken = source.pools.each_ref().map(MemoryPool::statistics);
        let chunks = |pools: &[binpool::PoolStatistics]| -> u64 {
            pools
                .iter()
                .map(|statistics| statistics.peak_managed_bytes / CHUNK as u64)
                .sum()
        };
        let is_shared = source.name != "a pool a queue";
        let counted = if is_shared { &taken[..1] } else { &taken[..] };
        eprintln!(
            "{}: {} chunks of device memory",
            source.name,
            chunks(counted)
        );
    }
    group.finish();
}

fn benchmarks(criterion: &mut Criterion) {
    if let Some(device) = Device::open() {
        hits(criterion, &device);
        marker(criterion, &device);
        pipeline(criterion, &device);
    }
}

criterion_group!(queues, benchmarks);
criterion_main!(queues);
