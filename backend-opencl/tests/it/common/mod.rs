//! What the tests share. The device is chosen by `BINPOOL_TEST_DEVICE` (see `DeviceSelector`; default `any`).

pub(crate) mod kernels;
pub(crate) mod launches;
pub(crate) mod picture;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use binpool_allocators::{
    Backend, Event, InvalidRequest, Memory, MemoryFlags, Outcome, Queue, QueueOrder, Region, Slice,
    SliceMemory, SvmBackend, SvmGrain,
};
use binpool_opencl::{ClEvent, ClMemory, ClQueue, DeviceSelector, OpenClBackend};

pub(crate) use binpool_allocators::Error;

/// The device under test, with a context of its own.
///
/// Never skipped: without a device the test fails.
pub(crate) fn open() -> OpenClBackend {
    let selector = std::env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    let Ok(selector) = selector.parse::<DeviceSelector>();
    OpenClBackend::open(&selector).unwrap_or_else(|error| {
        panic!(
            "these tests need an OpenCL device: {error}. Run the tests through the project's test \
             script, which installs PoCL, or set BINPOOL_TEST_DEVICE"
        )
    })
}

/// A device with one in-order queue.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) backend: OpenClBackend,
    pub(crate) queue: ClQueue,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let backend = open();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        Self { backend, queue }
    }

    pub(crate) fn another_queue(&self) -> ClQueue {
        self.backend.create_queue(QueueOrder::InOrder).unwrap()
    }

    pub(crate) fn out_of_order_queue(&self) -> ClQueue {
        self.backend.create_queue(QueueOrder::OutOfOrder).unwrap()
    }

    /// Returns whether commands of an out-of-order queue overtake one that waits. NVIDIA's driver runs them in order, and on Intel's
    /// runtime the backend has them run in order.
    pub(crate) fn overtakes(&self) -> bool {
        !self.is_nvidia() && !self.is_intel()
    }

    pub(crate) fn is_intel(&self) -> bool {
        self.is_of_platform("Intel")
    }

    pub(crate) fn is_pocl(&self) -> bool {
        self.is_of_platform("Portable Computing Language")
    }

    fn is_of_platform(&self, part: &str) -> bool {
        let devices = binpool_opencl::list_devices().unwrap();
        let name = &self.backend.limits().device_name;
        let mut own = devices.iter().filter(|device| device.name() == name);
        own.any(|device| device.platform().contains(part))
    }

    pub(crate) fn is_nvidia(&self) -> bool {
        self.backend.limits().device_name.contains("NVIDIA")
    }

    pub(crate) fn buffer(&self, bytes: usize) -> ClMemory {
        self.backend
            .create_buffer(bytes, MemoryFlags::empty())
            .unwrap()
    }

    /// Shared virtual memory.
    pub(crate) fn svm(&self, bytes: usize) -> ClMemory {
        self.backend
            .allocate_svm(bytes, None, SvmGrain::Coarse, None)
            .unwrap()
    }

    /// A buffer full of `byte`.
    pub(crate) fn filled(&self, bytes: usize, byte: u8) -> ClMemory {
        let memory = self.buffer(bytes);
        self.write(&memory, &vec![byte; bytes]);
        memory
    }

    pub(crate) fn write(&self, memory: &ClMemory, data: &[u8]) {
        self.backend.write(&self.queue, memory, 0, data).unwrap();
    }

    /// All bytes of `memory`.
    pub(crate) fn read(&self, memory: &ClMemory) -> Vec<u8> {
        let mut data = vec![0_u8; memory.bytes()];
        self.backend
            .read(&self.queue, memory, 0, &mut data)
            .unwrap();
        data
    }

    /// Enqueues a fill of all of `memory`.
    pub(crate) fn fill(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        byte: u8,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let all = Region::first(memory.bytes());
        self.backend
            .enqueue_fill(queue.after(wait_for), memory, all, &[byte])
            .unwrap()
    }

    /// Checks that the queue still runs commands.
    pub(crate) fn queue_is_alive(&self) {
        assert_eq!(self.read(&self.filled(64, 5)), [5; 64]);
    }

    /// A user event: what waits for it runs when the test opens it.
    pub(crate) fn gate(&self) -> ClEvent {
        self.backend.create_user_event().unwrap()
    }

    pub(crate) fn open_gate(&self, gate: &ClEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    pub(crate) fn fail_gate(&self, gate: &ClEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Failed)
            .unwrap();
    }
}

/// Slices that get their contents where they are made.
pub(crate) trait Filled<T> {
    fn filled(self, queue: &ClQueue, value: T) -> Self;

    fn holding(self, queue: &ClQueue, data: &[T]) -> Self;
}

impl<T: bytemuck::Pod, M: SliceMemory<Backend = OpenClBackend>> Filled<T> for Slice<T, M> {
    fn filled(self, queue: &ClQueue, value: T) -> Self {
        self.enqueue_fill(queue, .., &[value]).unwrap();
        self
    }

    fn holding(self, queue: &ClQueue, data: &[T]) -> Self {
        assert_eq!(self.len(), data.len());
        self.write(queue, 0, data).unwrap();
        self
    }
}

/// What is wrong with the call that gave `result`.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> InvalidRequest {
    match result.unwrap_err() {
        Error::InvalidRequest(request) => request,
        error => panic!("not a refusal: {error}"),
    }
}

/// `count` bytes that tell their places apart.
pub(crate) fn numbered(count: usize) -> Vec<u8> {
    (0..251).cycle().take(count).collect()
}

/// Tells, from now on, whether the memory has been destroyed.
pub(crate) fn watch(memory: &ClMemory) -> Arc<AtomicBool> {
    let destroyed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&destroyed);
    memory
        .on_destroy(move || flag.store(true, Ordering::SeqCst))
        .unwrap();
    destroyed
}

pub(crate) fn wait_until(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// Waits until `data` has no other owner.
pub(crate) fn until_given_back(data: &Arc<[u8]>) {
    while Arc::strong_count(data) > 1 {
        thread::yield_now();
    }
}

/// All bytes of a pooled block.
pub(crate) fn contents(block: &binpool::PooledBuffer<OpenClBackend>, queue: &ClQueue) -> Vec<u8> {
    let mut bytes = vec![0_u8; block.size()];
    block.read(queue, 0, &mut bytes).unwrap();
    bytes
}

/// Runs commands that wait for nothing, so that others which wait for nothing run, too.
pub(crate) fn let_commands_run(bench: &Bench) {
    let idle = bench.another_queue();
    for _ in 0..50 {
        let filled = bench.fill(&idle, &bench.buffer(64), 1, &[]);
        filled.wait().unwrap();
    }
}

/// Calls `step`, and opens the gate once it is done, or when it seems to wait for it.
pub(crate) fn step_waits_for_no_gate(bench: &Bench, gate: &ClEvent, step: impl FnOnce()) {
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let opener = scope.spawn(move || {
            let told = is_done.recv_timeout(Duration::from_secs(20));
            bench.open_gate(gate);
            told
        });
        step();
        let _received_or_late = done.send(());
        assert_eq!(opener.join().unwrap(), Ok(()), "it waited for the gate");
    });
}
