//! The memory of graphs, over the stand-in for the driver.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]
#![expect(unsafe_code, reason = "captures are begun by the driver's calls")]

#[path = "../torch/child.rs"]
mod child;

use std::ffi::c_void;

use binpool::{
    Backend, Memory, MemoryPool, PooledBuffer, Queue, QueueOrder, VirtualMemoryAllocator,
};
use binpool_capi::graph_memory::{bytes, free_on, pool_of_capture};
use binpool_cuda::{CudaBackend, CudaQueue};
use libloading::os::unix::Library;

use child::over_stand_in;

type Set = extern "system" fn(*mut c_void) -> i32;
type Begin = extern "system" fn(*mut c_void, u32) -> i32;
type End = extern "system" fn(*mut c_void, *mut usize) -> i32;
type Destroy = extern "system" fn(usize) -> i32;

const BYTES: usize = 1 << 20;

/// A program that captures graphs by itself.
struct Program {
    driver: Library,
    backend: CudaBackend,
    queue: CudaQueue,
    pool: MemoryPool<CudaBackend>,
}

impl Program {
    fn new() -> Self {
        // SAFETY: It is the stand-in.
        let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
        let backend = CudaBackend::open(0).unwrap();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
        let program = Self {
            driver,
            backend,
            queue,
            pool,
        };
        let context = program.backend.raw_context();
        assert_eq!(program.call::<Set>(b"cuCtxSetCurrent")(context), 0);
        program
    }

    fn call<T: Copy>(&self, name: &[u8]) -> T {
        // SAFETY: The signatures here are right.
        *unsafe { self.driver.get::<T>(name) }.unwrap()
    }

    /// Captures what `work` enqueues, and returns the graph.
    fn capture(&self, queue: &CudaQueue, work: impl FnOnce()) -> usize {
        let global = 0;
        let begin = self.call::<Begin>(b"cuStreamBeginCapture_v2");
        assert_eq!(begin(queue.raw(), global), 0);
        work();
        let mut graph = 0;
        let end = self.call::<End>(b"cuStreamEndCapture");
        assert_eq!(end(queue.raw(), &raw mut graph), 0);
        graph
    }

    fn destroy(&self, graph: usize) {
        assert_eq!(self.call::<Destroy>(b"cuGraphDestroy")(graph), 0);
    }

    /// Allocates as a library does that asks whether the queue is captured.
    fn allocate(&self, queue: &CudaQueue) -> PooledBuffer<CudaBackend> {
        let of_graph = pool_of_capture(&self.pool, queue).unwrap();
        let pool = of_graph.unwrap_or_else(|| self.pool.clone());
        pool.allocate_on(queue, BYTES).unwrap()
    }

    fn address(&self, block: &PooledBuffer<CudaBackend>) -> u64 {
        let memory = block.memory_on(&self.queue).unwrap();
        memory.device_address().unwrap()
    }
}

#[test]
fn memory_that_was_requested_in_a_capture_is_kept_as_long_as_the_graph() {
    over_stand_in(
        "memory_that_was_requested_in_a_capture_is_kept_as_long_as_the_graph",
        || {
            let program = Program::new();
            let (mut dropped, mut result) = (0, None);
            let graph = program.capture(&program.queue, || {
                let temporary = program.allocate(&program.queue);
                dropped = program.address(&temporary);
                drop(temporary);
                // Commands of the same stream come later at each launch.
                let next = program.allocate(&program.queue);
                assert_eq!(program.address(&next), dropped);
                drop(next);
                result = Some(program.allocate(&program.queue));
            });
            // The result is dropped, and its memory is still the graph's.
            drop(result);
            let kept = bytes(&program.backend);
            assert!(kept >= BYTES as u64);
            let others: Vec<_> = (0..8).map(|_| program.allocate(&program.queue)).collect();
            let mut addresses = others.iter().map(|other| program.address(other));
            assert!(addresses.all(|address| address != dropped));
            assert_eq!(program.pool.active_blocks(), 8);
            program.destroy(graph);
            assert_eq!(bytes(&program.backend), 0);
        },
    );
}

#[test]
fn a_result_outlives_its_graph() {
    over_stand_in("a_result_outlives_its_graph", || {
        let program = Program::new();
        let mut result = None;
        let graph = program.capture(&program.queue, || {
            result = Some(program.allocate(&program.queue));
        });
        program.destroy(graph);
        program.backend.drop_what_graphs_kept();
        let result = result.unwrap();
        result.enqueue_fill(&program.queue, .., &[7_u8]).unwrap();
        let mut byte = [0_u8];
        result.read(&program.queue, BYTES - 1, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    });
}

#[test]
fn a_block_that_is_freed_in_a_capture_is_kept_as_long_as_the_graph() {
    over_stand_in(
        "a_block_that_is_freed_in_a_capture_is_kept_as_long_as_the_graph",
        || {
            let program = Program::new();
            let block = program.allocate(&program.queue);
            let graph = program.capture(&program.queue, || {
                free_on(&program.queue, block).unwrap();
            });
            assert_eq!(program.pool.active_blocks(), 1);
            program.destroy(graph);
            program.backend.drop_what_graphs_kept();
            assert_eq!(program.pool.active_blocks(), 0);
            let block = program.allocate(&program.queue);
            free_on(&program.queue, block).unwrap();
            assert_eq!(program.pool.active_blocks(), 0);
        },
    );
}

#[test]
fn each_capture_has_memory_of_its_own() {
    over_stand_in("each_capture_has_memory_of_its_own", || {
        let program = Program::new();
        let capture = || {
            let mut address = 0;
            let graph = program.capture(&program.queue, || {
                address = program.address(&program.allocate(&program.queue));
            });
            (graph, address)
        };
        let [one, two] = [(); 2].map(|()| capture());
        assert_ne!(one.1, two.1);
        program.destroy(one.0);
        program.destroy(two.0);
        program.queue.finish().unwrap();
        assert_eq!(bytes(&program.backend), 0);
    });
}
