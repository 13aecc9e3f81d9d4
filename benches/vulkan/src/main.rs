//! 1000 live blocks of 256 bytes to 1 MiB, replaced at random: binpool's pools beside gpu-allocator and VMA, in one run.
//!
//!     cargo run --release --manifest-path benches/vulkan/Cargo.toml
//!
//! What is timed is a pair: a block is freed, and another one is allocated in its place. The peers take turns, and each figure is the median of
//! their rounds. With threads, each replaces blocks of its own, 1000 in all; gpu-allocator is behind a lock, as in wgpu.

use std::{sync::Barrier, thread, time::Instant};

use ash::vk;
use binpool::{
    Backend as _, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, QueueOrder, Retain,
};
use binpool_vulkan::VulkanBackend;
use parking_lot::Mutex;
use vk_mem::Alloc as _;

const LIVE: usize = 1000;
const ROUNDS: usize = 21;
const PAIRS: usize = 16_000;

struct Device {
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    queue: vk::Queue,
    requirements: vk::MemoryRequirements,
}

impl Device {
    fn open() -> Self {
        // SAFETY: Calls of Vulkan, with structs that live, on objects that are never destroyed.
        unsafe {
            let entry = ash::Entry::load().expect("the loader of Vulkan");
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None).unwrap();
            let physical = instance.enumerate_physical_devices().unwrap()[0];
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let mut features = vk::PhysicalDeviceVulkan12Features::default()
                .timeline_semaphore(true)
                .buffer_device_address(true);
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .push_next(&mut features);
            let device = instance.create_device(physical, &info, None).unwrap();
            let info = vk::BufferCreateInfo::default()
                .size(256)
                .usage(vk::BufferUsageFlags::STORAGE_BUFFER);
            let buffer = device.create_buffer(&info, None).unwrap();
            let requirements = device.get_buffer_memory_requirements(buffer);
            let queue = device.get_device_queue(0, 0);
            Self {
                entry,
                instance,
                physical,
                device,
                queue,
                requirements,
            }
        }
    }

    fn of(&self, size: u64) -> vk::MemoryRequirements {
        vk::MemoryRequirements {
            size,
            ..self.requirements
        }
    }
}

/// What is measured.
trait Subject: Sync {
    type Block: Send;
    const NAME: &'static str;
    fn allocate(&self, size: u64) -> Self::Block;
    fn free(&self, block: Self::Block);
    fn bytes(&self) -> u64;
}

/// The interface of gpu-allocator, which two crates have.
macro_rules! gpu_allocator {
    ($subject:ident, $name:literal, $krate:ident, $allocator:ty, $lock:ident) => {
        struct $subject<'a> {
            device: &'a Device,
            allocator: $allocator,
        }

        impl Subject for $subject<'_> {
            type Block = $krate::vulkan::Allocation;
            const NAME: &'static str = $name;

            fn allocate(&self, size: u64) -> Self::Block {
                let desc = $krate::vulkan::AllocationCreateDesc {
                    name: "a block",
                    requirements: self.device.of(size),
                    location: $krate::MemoryLocation::GpuOnly,
                    linear: true,
                    allocation_scheme: $krate::vulkan::AllocationScheme::GpuAllocatorManaged,
                };
                $lock!(self.allocator).allocate(&desc).unwrap()
            }

            fn free(&self, block: Self::Block) {
                $lock!(self.allocator).free(block).unwrap();
            }

            fn bytes(&self) -> u64 {
                $lock!(self.allocator).capacity()
            }
        }

        impl<'a> $subject<'a> {
            fn new(device: &'a Device) -> Self {
                let desc = $krate::vulkan::AllocatorCreateDesc {
                    instance: device.instance.clone(),
                    device: device.device.clone(),
                    physical_device: device.physical,
                    debug_settings: Default::default(),
                    buffer_device_address: true,
                    allocation_sizes: Default::default(),
                };
                let allocator = $krate::vulkan::Allocator::new(&desc).unwrap().into();
                Self { device, allocator }
            }
        }
    };
}

macro_rules! locked {
    ($allocator:expr) => {
        $allocator.lock()
    };
}

macro_rules! shared {
    ($allocator:expr) => {
        $allocator
    };
}

gpu_allocator!(
    GpuAllocator,
    "gpu-allocator",
    gpu_allocator,
    Mutex<gpu_allocator::vulkan::Allocator>,
    locked
);
gpu_allocator!(
    Ours,
    "binpool-gpu-allocator",
    binpool_gpu_allocator,
    binpool_gpu_allocator::vulkan::Allocator,
    shared
);

struct Vma<'a> {
    device: &'a Device,
    allocator: vk_mem::Allocator,
}

struct VmaBlock(vk_mem::Allocation);

// SAFETY: VMA's allocations may be freed on any thread.
unsafe impl Send for VmaBlock {}

impl Subject for Vma<'_> {
    type Block = VmaBlock;
    const NAME: &'static str = "VMA (vk-mem)";

    fn allocate(&self, size: u64) -> VmaBlock {
        let info = vk_mem::AllocationCreateInfo {
            required_flags: vk::MemoryPropertyFlags::DEVICE_LOCAL,
            ..Default::default()
        };
        // SAFETY: The device lives.
        VmaBlock(unsafe { self.allocator.allocate_memory(&self.device.of(size), &info) }.unwrap())
    }

    fn free(&self, mut block: VmaBlock) {
        // SAFETY: It is of this allocator, and not used.
        unsafe { self.allocator.free_memory(&mut block.0) };
    }

    fn bytes(&self) -> u64 {
        self.allocator
            .calculate_statistics()
            .unwrap()
            .total
            .statistics
            .blockBytes
    }
}

struct Pool(MemoryPool<VulkanBackend>);

impl Subject for Pool {
    type Block = PooledBuffer<VulkanBackend>;
    const NAME: &'static str = "a pool of binpool-vulkan";

    fn allocate(&self, size: u64) -> Self::Block {
        self.0.allocate(size as usize).unwrap()
    }

    fn free(&self, block: Self::Block) {
        block.release().unwrap();
    }

    fn bytes(&self) -> u64 {
        self.0.managed_bytes()
    }
}

/// Numbers, by splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 256 bytes to 1 MiB, as many of each power of two.
    fn size(&mut self) -> u64 {
        let least = 256 << (self.next() % 12);
        least + self.next() % least
    }
}

struct Worker<B> {
    random: Random,
    live: Vec<Option<B>>,
    sizes: Vec<u64>,
}

impl<B> Worker<B> {
    fn new(subject: &impl Subject<Block = B>, seed: u64, live: usize) -> Self {
        let mut random = Random(seed);
        let sizes: Vec<_> = (0..live).map(|_| random.size()).collect();
        let live = sizes.iter().map(|&size| Some(subject.allocate(size)));
        Self {
            live: live.collect(),
            sizes,
            random,
        }
    }

    /// Replaces blocks, and returns when it began and ended.
    fn pairs(&mut self, subject: &impl Subject<Block = B>, pairs: usize) -> [Instant; 2] {
        let start = Instant::now();
        for _ in 0..pairs {
            let index = self.random.next() as usize % self.live.len();
            if let Some(block) = self.live[index].take() {
                subject.free(block);
            }
            let size = self.random.size();
            self.sizes[index] = size;
            self.live[index] = Some(subject.allocate(size));
        }
        [start, Instant::now()]
    }
}

/// What a subject did in its rounds.
#[derive(Default)]
struct Figures {
    nanoseconds: Vec<f64>,
    /// Memory over what was live, at its largest.
    over_live: f64,
}

/// The threads of a subject, which take turns with those of others.
fn measure<S: Subject>(subject: &S, threads: usize, turn: &dyn Fn(&mut dyn FnMut())) -> Figures {
    let figures = Mutex::new(Figures::default());
    let mut workers: Vec<_> = (0..threads)
        .map(|seed| Worker::new(subject, seed as u64, LIVE / threads))
        .collect();
    turn(&mut || {
        let barrier = Barrier::new(threads);
        let pairs = PAIRS / threads;
        let spans: Vec<[Instant; 2]> = thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        worker.pairs(subject, pairs)
                    })
                })
                .collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let start = spans.iter().map(|span| span[0]).min().unwrap();
        let end = spans.iter().map(|span| span[1]).max().unwrap();
        let live: u64 = workers.iter().flat_map(|worker| &worker.sizes).sum();
        let mut figures = figures.lock();
        figures
            .nanoseconds
            .push((end - start).as_nanos() as f64 / (pairs * threads) as f64);
        figures.over_live = figures.over_live.max(subject.bytes() as f64 / live as f64);
    });
    for block in workers.into_iter().flat_map(|worker| worker.live).flatten() {
        subject.free(block);
    }
    figures.into_inner()
}

fn main() {
    let device = Device::open();
    let _loader = &device.entry;
    for threads in [1, 16] {
        let gpu_allocator = GpuAllocator::new(&device);
        let ours = Ours::new(&device);
        let info =
            vk_mem::AllocatorCreateInfo::new(&device.instance, &device.device, device.physical);
        let vma = Vma {
            device: &device,
            // SAFETY: The handles belong together, and are never destroyed.
            allocator: unsafe { vk_mem::Allocator::new(info) }.unwrap(),
        };
        let queues = [(0, device.queue)];
        let (instance, raw) = (device.instance.clone(), device.device.clone());
        // SAFETY: As above; nothing else submits.
        let backend =
            unsafe { VulkanBackend::from_raw(instance, device.physical, raw, &queues) }.unwrap();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        // As binpool-gpu-allocator's pools: with 8 MiB for each of 16 threads, the caches would have as much as all that is live.
        let options = PoolOptions::new().retain(Retain::new().per_thread(1 << 18));
        let pool = Pool(options.build(allocator, &queue).unwrap());

        // One subject's round after the other's: each waits for its turn.
        let turns = Barrier::new(4);
        let all: Vec<(&str, Figures)> = thread::scope(|scope| {
            fn run<S: Subject>(
                subject: &S,
                own: usize,
                threads: usize,
                turns: &Barrier,
            ) -> (&'static str, Figures) {
                let turn = |work: &mut dyn FnMut()| {
                    for number in 0..4 * ROUNDS {
                        turns.wait();
                        if number % 4 == own {
                            work();
                        }
                    }
                };
                (S::NAME, measure(subject, threads, &turn))
            }
            let turns = &turns;
            let all = [
                scope.spawn(|| run(&gpu_allocator, 0, threads, turns)),
                scope.spawn(|| run(&vma, 1, threads, turns)),
                scope.spawn(|| run(&ours, 2, threads, turns)),
                scope.spawn(|| run(&pool, 3, threads, turns)),
            ];
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        println!("threads: {threads}");
        for (name, mut figures) in all {
            figures.nanoseconds.sort_by(f64::total_cmp);
            println!(
                "  {name:<28} {:>8.0} ns a pair, memory over live {:.2}",
                figures.nanoseconds[ROUNDS / 2],
                figures.over_live
            );
        }
    }
}
