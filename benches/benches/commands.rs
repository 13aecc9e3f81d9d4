//! What this crate's commands cost the host beside the runtime's bare calls: the log of accesses, the checks of arguments,
//! the events that know their queue.
//!
//! The device is chosen by `BINPOOL_BENCH_DEVICE` (a selector as `binpool_opencl::DeviceSelector` has them; default
//! `any`). Without OpenCL there is nothing to measure, and the benchmark says so.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark whose device fails measures nothing"
)]

use std::{
    ffi::c_void,
    ptr,
    time::{Duration, Instant},
};

use binpool::{Backend, MemoryFlags, Queue, QueueOrder, Region};
use binpool_opencl::{ClKernel, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, Parameter};
use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use opencl3::{context::Context, device::Device, kernel::Kernel, program::Program};

const BYTES: usize = 4096;
/// How many commands are enqueued before the device is waited for, without the clock.
const BATCH: u64 = 256;
const SOURCE: &str = "kernel void twice(global const float *from, global float *to)
{
    size_t i = get_global_id(0);
    to[i] = 2 * from[i];
}
";

struct Bench {
    backend: OpenClBackend,
    /// Another one, so that every second command conflicts with one of the other queue.
    queues: [ClQueue; 2],
    from: ClMemory,
    to: ClMemory,
    kernel: ClKernel,
    bare: Kernel,
}

impl Bench {
    fn open() -> Option<Self> {
        let selector = std::env::var("BINPOOL_BENCH_DEVICE").unwrap_or_default();
        let device = match OpenClBackend::open(&selector.parse().unwrap()) {
            Ok(backend) => Device::new(backend.raw_device()),
            Err(error) => {
                eprintln!("nothing is measured: {error}");
                return None;
            }
        };
        let context = Context::from_device(&device).unwrap();
        // SAFETY: `opencl3` has made the context by a call of OpenCL.
        let backend =
            unsafe { OpenClBackend::from_raw(context.get(), context.default_device()) }.unwrap();
        eprintln!("device: {}", backend.limits().device_name);
        let program = Program::create_and_build_from_source(&context, SOURCE, "").unwrap();
        let ours = ClProgram::build(&backend, SOURCE, "").unwrap();
        let item = Extent::PerItem(1);
        let parameters = [
            Parameter::input::<f32>(item),
            Parameter::output::<f32>(item),
        ];
        let [from, to] =
            [(); 2].map(|()| backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap());
        let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        backend.write(&queues[0], &from, 0, &[0_u8; BYTES]).unwrap();
        Some(Self {
            queues,
            from,
            to,
            // SAFETY: a work item reads the float of its id in the one and writes it in the other.
            kernel: unsafe { ours.kernel("twice", &parameters) }.unwrap(),
            bare: Kernel::create(&program, "twice").unwrap(),
            backend,
        })
    }

    fn queue(&self) -> &ClQueue {
        &self.queues[0]
    }

    fn bare_fill(&self) {
        let zero = 0_u32;
        // SAFETY: queue and buffer live, the pattern is read during the call, and the region lies in the buffer.
        let event = unsafe {
            opencl3::command_queue::enqueue_fill_buffer(
                self.queue().raw(),
                self.to.raw().unwrap(),
                (&raw const zero).cast(),
                4,
                0,
                BYTES,
                0,
                ptr::null(),
            )
        };
        release(event.unwrap());
    }

    fn fill(&self, queue: &ClQueue) {
        let all = Region::first(BYTES);
        let fill = self.backend.enqueue_fill(queue, &self.to, all, &[0_u8; 4]);
        drop(fill.unwrap());
    }

    fn bare_launch(&self) {
        for (index, memory) in [(0, &self.from), (1, &self.to)] {
            let handle = memory.raw().unwrap();
            let value = (&raw const handle).cast();
            let kernel = self.bare.get();
            // SAFETY: the argument is a buffer, and a handle of one is passed.
            unsafe { opencl3::kernel::set_kernel_arg(kernel, index, size_of_val(&handle), value) }
                .unwrap();
        }
        let items = BYTES / 4;
        // SAFETY: the kernel has its arguments, and runs once for each of their floats.
        let event = unsafe {
            opencl3::command_queue::enqueue_nd_range_kernel(
                self.queue().raw(),
                self.bare.get(),
                1,
                ptr::null(),
                &raw const items,
                ptr::null(),
                0,
                ptr::null(),
            )
        };
        release(event.unwrap());
    }

    fn launch(&self) {
        let launch = self.kernel.launch(self.queue(), &[BYTES / 4]);
        let event = launch.memory(&self.from).memory(&self.to).enqueue();
        drop(event.unwrap());
    }

    fn bare_map(&self) {
        let (queue, buffer) = (self.queue().raw(), self.to.raw().unwrap());
        let mut start = ptr::null_mut();
        // SAFETY: queue and buffer live, and the region lies in the buffer.
        let event = unsafe {
            opencl3::command_queue::enqueue_map_buffer(
                queue,
                buffer,
                1,
                1,
                0,
                BYTES,
                &mut start,
                0,
                ptr::null(),
            )
        };
        release(event.unwrap());
        // SAFETY: the address is what the map gave.
        let event = unsafe {
            opencl3::command_queue::enqueue_unmap_mem_object(queue, buffer, start, 0, ptr::null())
        };
        release(event.unwrap());
    }

    fn map(&self) {
        let map = self.backend.map::<u8>(self.queue(), &self.to, 0..BYTES);
        drop(map.unwrap());
    }

    /// The time of `command`, without that of the device's work.
    fn time(&self, commands: u64, command: impl Fn(u64)) -> Duration {
        let mut total = Duration::ZERO;
        let mut done = 0;
        while done < commands {
            let batch = BATCH.min(commands - done);
            let start = Instant::now();
            (done..done + batch).for_each(&command);
            total += start.elapsed();
            done += batch;
            for queue in &self.queues {
                queue.finish().unwrap();
            }
        }
        total
    }

    fn measure(&self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str, command: impl Fn(u64)) {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|commands| self.time(commands, &command));
        });
    }
}

/// Takes over the reference of the call that enqueued.
fn release(event: *mut c_void) {
    // SAFETY: it is the only reference that the call gave.
    unsafe { opencl3::event::release_event(event) }.unwrap();
}

fn commands(criterion: &mut Criterion) {
    let Some(bench) = Bench::open() else {
        return;
    };
    let mut group = criterion.benchmark_group("fill of 4 KiB");
    bench.measure(&mut group, "bare call", |_| bench.bare_fill());
    bench.measure(&mut group, "one queue", |_| bench.fill(bench.queue()));
    bench.measure(&mut group, "two queues in turns", |command| {
        bench.fill(&bench.queues[usize::from(command % 2 == 1)]);
    });
    group.finish();
    let mut group = criterion.benchmark_group("launch of a kernel with two buffers");
    bench.measure(&mut group, "bare calls", |_| bench.bare_launch());
    bench.measure(&mut group, "checked", |_| bench.launch());
    group.finish();
    let mut group = criterion.benchmark_group("map of 4 KiB, and its end");
    bench.measure(&mut group, "bare calls", |_| bench.bare_map());
    bench.measure(&mut group, "guard", |_| bench.map());
    group.finish();
}

criterion_group!(benches, commands);
criterion_main!(benches);
