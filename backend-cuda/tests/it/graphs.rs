//! Streams that are captured into a graph: what the commands of this crate do then, and the memory of a pool.

use std::{
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use binpool::{ImmediateAllocator, MemoryPool, VirtualMemoryAllocator};
use binpool_allocators::{
    Allocator, Backend, Error, Event, MemoryFlags, Outcome, Queue, Region, VirtualMemory,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaKernel, CudaMemory, CudaModule, CudaQueue, DriverPoolAllocator, Grid,
};

use crate::common::{Device, PAGE, bytes, queue};

const COUNT: usize = 256;
const BYTES: usize = 4 * COUNT;

fn add_to(backend: &CudaBackend) -> CudaKernel {
    let text = ".version 6.4\n.visible .entry add_to(";
    CudaModule::load_ptx(backend, text)
        .unwrap()
        .kernel("add_to")
        .unwrap()
}

/// Enqueues `result += operand`.
fn add(kernel: &CudaKernel, queue: &CudaQueue, result: &CudaMemory, operand: &CudaMemory) {
    let arguments = [
        Argument::Memory(result),
        Argument::Memory(operand),
        Argument::U64(COUNT as u64),
    ];
    // SAFETY: These are the parameters of the kernel, and no other stream uses the memory.
    unsafe { kernel.launch(queue, Grid::of_threads(256, 128), &arguments, &[]) }.unwrap();
}

fn block(backend: &CudaBackend) -> CudaMemory {
    backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap()
}

fn floats(value: f32) -> Vec<u8> {
    value.to_ne_bytes().repeat(COUNT)
}

/// `output = 3 * input`, by two temporaries, the second of which may have the memory of the first.
fn step(
    pool: &MemoryPool<CudaBackend>,
    queue: &CudaQueue,
    kernel: &CudaKernel,
    [input, output]: [&CudaMemory; 2],
) {
    let all = Region::first(BYTES);
    let backend = pool.backend();
    let temporary = || pool.allocate(BYTES).unwrap();
    backend.enqueue_fill(queue, output, all, &[0_u8]).unwrap();
    let first = temporary();
    let memory = first.memory_on(queue).unwrap();
    backend.enqueue_copy(queue, input, all, memory, 0).unwrap();
    add(kernel, queue, memory, input);
    add(kernel, queue, output, memory);
    drop(first);
    let second = temporary();
    let memory = second.memory_on(queue).unwrap();
    backend.enqueue_copy(queue, input, all, memory, 0).unwrap();
    add(kernel, queue, output, memory);
}

fn graphs_of_temporaries<A: Allocator<Backend = CudaBackend>>(
    device: &Device,
    allocator: impl Fn(&CudaBackend) -> A,
) {
    let backend = device.backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(allocator(&backend), &queue).unwrap();
    let others = MemoryPool::new(allocator(&backend), &queue).unwrap();
    let kernel = add_to(&backend);
    let [input, output] = [(); 2].map(|()| block(&backend));
    step(&pool, &queue, &kernel, [&input, &output]); // The pool has the memory afterwards.
    queue.finish().unwrap();

    let kept = pool.keep_addresses();
    let watched = [
        "cuMemAlloc",
        "cuMemCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuMemFree",
    ];
    let before = watched.map(|call| device.calls(call));
    let ((), graph) = device.capture(&queue, || step(&pool, &queue, &kernel, [&input, &output]));
    assert_eq!(watched.map(|call| device.calls(call)), before);
    let graph = graph.ok().unwrap();
    assert_eq!(bytes(&backend, &queue, &output), vec![0; BYTES]); // Nothing has run but the first step.
    let held = pool.managed_bytes();
    for value in [1.0, 2.0, 5.0_f32] {
        backend.write(&queue, &input, 0, &floats(value)).unwrap();
        let other = others.allocate(BYTES).unwrap();
        other.enqueue_fill(&queue, .., &[7_u8]).unwrap();
        assert_eq!(pool.free_held() + pool.trim_to(0) + pool.sweep(), 0);
        graph.launch(&queue);
        assert_eq!(bytes(&backend, &queue, &output), floats(3.0 * value));
        let mut kept = [0_u8];
        other.read(&queue, BYTES - 1, &mut kept).unwrap();
        assert_eq!(kept, [7]);
    }
    assert_eq!(pool.managed_bytes(), held);
    drop(graph);
    drop(kept);
    assert_eq!(pool.free_held(), held); // So it would have been before.
    assert!(!backend.is_lost());
    drop((pool, others, kernel, input, output, queue, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

#[test]
fn a_graph_uses_temporaries_of_a_pool_at_each_launch() {
    let device = Device::new(1 << 28);
    graphs_of_temporaries(&device, |backend| ImmediateAllocator::new(backend).unwrap());
}

#[test]
fn a_graph_uses_temporaries_in_pages_at_each_launch() {
    let device = Device::new(256 * PAGE);
    graphs_of_temporaries(&device, VirtualMemoryAllocator::new);
}

#[test]
fn without_kept_addresses_the_memory_of_a_graph_leaves_the_pool() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let kernel = add_to(&backend);
    let [input, output] = [(); 2].map(|()| block(&backend));
    step(&pool, &queue, &kernel, [&input, &output]);
    queue.finish().unwrap();
    let ((), graph) = device.capture(&queue, || step(&pool, &queue, &kernel, [&input, &output]));
    assert!(pool.free_held() > 0);
    graph.ok().unwrap().launch(&queue);
    assert!(queue.finish().is_err() && backend.enqueue_marker(&queue).is_err());
}

/// A backend with two blocks, and another one that was dropped, and whose command has ended, which no call has noticed yet.
fn with_a_grave(device: &Device) -> (CudaBackend, [CudaQueue; 2], [CudaMemory; 2]) {
    let backend = device.backend();
    let queues = [(); 2].map(|()| queue(&backend));
    let [one, two, dropped] = [(); 3].map(|()| block(&backend));
    let gate = backend.create_user_event().unwrap();
    let all = Region::first(BYTES);
    let fill = backend.enqueue_fill(queues[0].after(from_ref(&gate)), &dropped, all, &[1_u8]);
    drop((dropped, fill));
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    queues[0].finish().unwrap();
    assert_eq!(device.used(), 3 * BYTES);
    (backend, queues, [one, two])
}

/// Uses a queue and memory of its own, as a program does that knows of no capture.
fn works_beside(backend: &CudaBackend, queue: &CudaQueue) {
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let block = backend.create_buffer(BYTES, flags).unwrap();
        let all = Region::first(BYTES);
        let fill = backend.enqueue_fill(queue, &block, all, &[7_u8]).unwrap();
        fill.wait().unwrap();
        assert!(fill.has_ended());
        assert_eq!(bytes(backend, queue, &block), [7; BYTES]);
    }
    let [reservation, pages] = [backend.reserve(PAGE), backend.create_pages(PAGE)];
    let (reservation, pages) = (reservation.unwrap(), pages.unwrap());
    backend.map(&reservation, 0, &pages).unwrap();
    backend.write(queue, &reservation, 0, &[7_u8]).unwrap();
    queue.finish().unwrap();
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    let pool = DriverPoolAllocator::new(backend).unwrap();
    drop(pool.allocate(BYTES).unwrap());
    pool.trim_to(0).unwrap();
    pool.peaks().unwrap();
    backend.create_managed(BYTES).unwrap();
}

#[test]
fn other_queues_and_memory_are_used_and_freed_during_a_capture() {
    let device = Device::new(256 * PAGE);
    let (backend, [captured, other], [kept, dropped]) = with_a_grave(&device);
    let ((), graph) = device.capture(&captured, || {
        let all = Region::first(BYTES);
        backend
            .enqueue_fill(&captured, &kept, all, &[3_u8])
            .unwrap();
        works_beside(&backend, &other);
        thread::scope(|scope| {
            scope.spawn(|| works_beside(&backend, &other));
        });
        backend.release(dropped, &[]).unwrap();
        for _ in 0..4 {
            backend.enqueue_marker(&other).unwrap();
        }
        assert_eq!(device.used(), BYTES);
    });
    let graph = graph.ok().unwrap();
    assert_eq!(bytes(&backend, &captured, &kept), [0; BYTES]);
    graph.launch(&captured);
    assert_eq!(bytes(&backend, &captured, &kept), [3; BYTES]);
}

/// A module may only be unloaded, and mapped addresses only be freed, after a wait for the device, on which captured commands do not run.
#[test]
fn what_waits_for_the_whole_device_is_freed_after_a_capture() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let ((), graph) = device.capture(&captured, || {
        let [reservation, pages] = [backend.reserve(PAGE), backend.create_pages(PAGE)];
        let (reservation, pages) = (reservation.unwrap(), pages.unwrap());
        backend.map(&reservation, 0, &pages).unwrap();
        drop((reservation, pages, add_to(&backend)));
        backend.enqueue_marker(&other).unwrap().wait().unwrap();
        assert_eq!((device.used(), device.calls("cuModuleUnload")), (PAGE, 0));
    });
    assert!(graph.is_ok());
    backend.enqueue_marker(&other).unwrap();
    assert_eq!((device.used(), device.calls("cuModuleUnload")), (0, 1));
}

#[test]
fn a_stream_that_the_driver_says_nothing_of_counts_as_captured() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let [reservation, pages] = [backend.reserve(PAGE), backend.create_pages(PAGE)];
    let (reservation, pages) = (reservation.unwrap(), pages.unwrap());
    backend.map(&reservation, 0, &pages).unwrap();
    device.fail("cuStreamIsCapturing", 0, 1, 999);
    drop((reservation, pages));
    assert_eq!(device.used(), PAGE);
    backend.enqueue_marker(&queue).unwrap();
    assert_eq!(device.used(), 0);
}

#[test]
fn the_event_of_a_captured_command_has_ended_and_is_for_its_queue_only() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let memory = block(&backend);
    let all = Region::first(BYTES);
    let (event, graph) = device.capture(&captured, || {
        let event = backend
            .enqueue_fill(&captured, &memory, all, &[3_u8])
            .unwrap();
        assert!(event.has_ended());
        event.wait().unwrap();
        // In order on its own queue; on another, no command would wait.
        backend
            .enqueue_barrier(captured.after(from_ref(&event)))
            .unwrap();
        let refused = backend.enqueue_marker(other.after(from_ref(&event)));
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
        event
    });
    graph.ok().unwrap().launch(&captured);
    assert!(
        backend
            .resolve_user_event(&event, Outcome::Complete)
            .is_err()
    );
    assert!(
        backend
            .read(other.after(from_ref(&event)), &memory, 0, &mut [0_u8])
            .is_err()
    );
    assert_eq!(bytes(&backend, &captured, &memory), [3; BYTES]);
    backend.release(memory, &[event]).unwrap();
    captured.finish().unwrap();
    backend.enqueue_marker(&captured).unwrap();
}

#[test]
fn a_captured_command_waits_for_nothing_that_is_not_in_the_graph() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let gate = backend.create_user_event().unwrap();
    let pending = backend
        .enqueue_marker(other.after(from_ref(&gate)))
        .unwrap();
    let ended = backend.enqueue_marker(&captured).unwrap();
    ended.wait().unwrap();
    let waits = device.calls("cuStreamWaitEvent");
    let ((), graph) = device.capture(&captured, || {
        for event in [&pending, &gate] {
            let refused = backend.enqueue_marker(captured.after(from_ref(event)));
            assert!(
                matches!(&refused, Err(Error::Unsupported { what }) if what.contains("before the capture")),
                "{refused:?}"
            );
        }
        backend.enqueue_marker(captured.after(from_ref(&ended))).unwrap();
        drop(gate);
    });
    assert!(graph.is_ok());
    assert_eq!(device.calls("cuStreamWaitEvent"), waits);
}

#[test]
fn what_waits_for_a_queue_is_refused_while_it_is_captured() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let captured = queue(&backend);
    let memory = block(&backend);
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let ordered = allocator.allocate_on(&captured, BYTES).unwrap();
    captured.finish().unwrap();
    let ((), graph) = device.capture(&captured, || {
        let refused = [
            backend.write(&captured, &memory, 0, &[1_u8]),
            backend.write::<u8>(&captured, &memory, 0, &[]),
            backend.read(&captured, &memory, 0, &mut [0_u8]),
            backend
                .enqueue_read(&captured, &memory, Region::first(4))
                .map(drop),
            captured.finish(),
            allocator.allocate_on(&captured, BYTES).map(drop),
            allocator.time_pairs(&captured, BYTES, 1).map(drop),
        ];
        for refused in refused {
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{refused:?}"
            );
        }
        drop(ordered); // Freed after the capture.
    });
    assert!(graph.is_ok());
    assert_eq!(device.calls("cuMemFreeAsync"), 0);
    bytes(&backend, &captured, &memory);
    assert_eq!(device.calls("cuMemFreeAsync"), 1);
}

#[test]
fn a_wait_for_the_whole_device_is_an_error_in_a_capture_and_spoils_it() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let (result, graph) = device.capture(&queue, || backend.finish_device());
    assert!(result.is_err() && graph.is_err());
    backend.finish_device().unwrap();
}

#[test]
fn a_captured_command_does_not_stand_for_those_before_the_capture() {
    static LET_RUN: AtomicU32 = AtomicU32::new(0);

    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let all = Region::first(BYTES);
    // Freeing it waits for nothing.
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let memory = allocator.allocate(BYTES).unwrap();
    device.hold(captured.raw(), &LET_RUN);
    let fill = |byte| backend.enqueue_fill(&captured, &memory, all, &[byte]);
    fill(1_u8).unwrap();
    let (captured_fill, graph) = device.capture(&captured, || fill(2));
    assert!(captured_fill.is_ok() && graph.is_ok());
    drop(memory);
    backend.enqueue_marker(&other).unwrap(); // It looks at what can be freed.
    assert_eq!(device.used(), BYTES);
    LET_RUN.store(1, Ordering::Release);
    captured.finish().unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn a_command_on_memory_of_another_device_only_is_refused_in_a_capture() {
    let devices = Device::pair(1 << 24);
    let [here, there] = [&devices[0], &devices[1]].map(Device::backend);
    let captured = queue(&here);
    let far = block(&there);
    let ((), graph) = devices[0].capture(&captured, || {
        let refused = there.enqueue_fill(&captured, &far, Region::first(BYTES), &[1_u8]);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
        let data = [1].into();
        let refused = there.enqueue_write(&captured, &far, 0, data);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
        let refused = there.write(&captured, &far, 0, &[1_u8]);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    });
    assert!(graph.is_ok());
}

#[test]
fn each_launch_writes_the_bytes_that_were_captured() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let memory = block(&backend);
    let write = |byte: u8| {
        let data = [byte; 5].into();
        backend.enqueue_write(&queue, &memory, 0, data).unwrap();
    };
    let fill = |pattern: &[u8]| {
        let region = Region::new(6, 6);
        backend
            .enqueue_fill(&queue, &memory, region, pattern)
            .unwrap();
    };
    let warm = [(); 2].map(|()| backend.enqueue_read(&queue, &memory, Region::first(1)));
    queue.finish().unwrap();
    drop(warm); // Pinned memory for the two.
    backend.enqueue_marker(&queue).unwrap().wait().unwrap();
    backend
        .enqueue_fill(&queue, &memory, Region::first(BYTES), &[0_u8])
        .unwrap();
    let ((), graph) = device.capture(&queue, || {
        write(1);
        fill(&[1, 2, 3]);
    });
    let graph = graph.ok().unwrap();
    for _ in 0..3 {
        // Others that pass through pinned memory do not get that of the graph.
        write(9);
        fill(&[9, 8, 7]);
        queue.finish().unwrap();
        graph.launch(&queue);
        let seen = bytes(&backend, &queue, &memory);
        assert_eq!(seen[..12], [1, 1, 1, 1, 1, 0, 1, 2, 3, 1, 2, 3]);
    }
    drop((graph, memory, queue, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

#[test]
fn memory_that_is_missing_in_a_capture_is_allocated() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let kernel = add_to(&backend);
    let [input, output] = [(); 2].map(|()| block(&backend));
    backend.write(&queue, &input, 0, &floats(2.0)).unwrap();
    let buffers = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let pages = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let kept = (buffers.keep_addresses(), pages.keep_addresses());
    let of_buffers = || step(&buffers, &queue, &kernel, [&input, &output]);
    let of_pages = || step(&pages, &queue, &kernel, [&input, &output]);
    let graphs = [
        device.capture(&queue, of_buffers).1,
        device.capture(&queue, of_pages).1,
    ];
    for graph in graphs {
        graph.ok().unwrap().launch(&queue);
        assert_eq!(bytes(&backend, &queue, &output), floats(6.0));
        backend.write(&queue, &output, 0, &floats(0.0)).unwrap();
    }
    drop(kept);
}

#[test]
fn a_backend_that_is_dropped_in_a_capture_leaves_the_capture_whole() {
    for has_pages in [false, true] {
        let device = Device::new(256 * PAGE);
        let (backend, [captured, other], blocks) = with_a_grave(&device);
        let reservation = has_pages.then(|| {
            let reservation = backend.reserve(PAGE).unwrap();
            let pages = backend.create_pages(PAGE).unwrap();
            backend.map(&reservation, 0, &pages).unwrap();
            reservation
        });
        device.make_current();
        device.begin_capture(&captured);
        drop((reservation, blocks, other, backend));
        assert!(device.end_capture(&captured).is_ok());
        // The queue was the last that had the backend.
        drop(captured);
        assert_eq!(device.used(), 0);
    }
}

#[test]
fn a_thread_keeps_the_mode_that_it_has_chosen() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    for mode in [2, 1, 0] {
        device.exchange_capture_mode(mode);
        works_beside(&backend, &queue);
        assert_eq!(device.exchange_capture_mode(mode), mode);
    }
}

/// Whichever call fails during a capture and around it, nothing panics or hangs, and the next capture works.
#[test]
fn whichever_call_fails_in_a_capture_the_next_one_works() {
    for call in [
        "cuStreamIsCapturing",
        "cuMemsetD8Async",
        "cuMemcpyAsync",
        "cuLaunchKernel",
        "cuCtxGetCurrent",
        "cuThreadExchangeStreamCaptureMode",
    ] {
        for nth in 0.. {
            let device = Device::new(1 << 24);
            let backend = device.backend();
            let queue = queue(&backend);
            let kernel = add_to(&backend);
            let [memory, operand] = [(); 2].map(|()| block(&backend));
            let work = || {
                let all = Region::first(BYTES);
                let fill = backend.enqueue_fill(&queue, &memory, all, &[0_u8]);
                let write = backend.enqueue_write(&queue, &memory, 0, [1; 4].into());
                let arguments = [&memory, &operand].map(Argument::Memory);
                let arguments = [arguments[0], arguments[1], Argument::U64(COUNT as u64)];
                let grid = Grid::of_threads(256, 128);
                // SAFETY: These are the parameters of the kernel.
                let launch = unsafe { kernel.launch(&queue, grid, &arguments, &[]) };
                fill.and(write).and(launch).is_ok()
            };
            // Pinned memory for the writes.
            let warm = [(); 3].map(|()| backend.enqueue_read(&queue, &memory, Region::first(1)));
            queue.finish().unwrap();
            drop(warm);
            backend.enqueue_marker(&queue).unwrap().wait().unwrap();
            let so_far = device.calls(call);
            device.fail(call, nth, 1, 999);
            let (_, graph) = device.capture(&queue, work);
            let is_over = device.calls(call) - so_far <= nth;
            drop(graph);
            let (is_done, graph) = device.capture(&queue, work);
            assert!((is_done || is_over) && graph.is_ok(), "{call} {nth}");
            drop(graph);
            drop((kernel, memory, operand, queue, backend));
            if is_over {
                break;
            }
        }
    }
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_graph_keeps_a_value_until_it_is_gone_and_its_launches_have_ended() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [captured, other] = [(); 2].map(|()| queue(&backend));
    let is_dropped = Arc::<AtomicBool>::default();
    let dropped = || {
        backend.drop_what_graphs_kept();
        is_dropped.load(Ordering::SeqCst)
    };
    let ((), graph) = device.capture(&captured, || {
        let number = backend.capture_number(&captured).unwrap();
        assert!(number.is_some());
        assert_eq!(backend.capture_number(&other).unwrap(), None);
        let value = Dropped(Arc::clone(&is_dropped));
        backend.keep_with_graph(&captured, value).unwrap();
    });
    let graph = graph.ok().unwrap();
    assert_eq!(backend.capture_number(&captured).unwrap(), None);
    graph.launch(&captured);
    captured.finish().unwrap();
    assert!(!dropped());
    // Its launch waits for a user event.
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_marker(captured.after(from_ref(&gate)))
        .unwrap();
    graph.launch(&captured);
    drop(graph);
    assert!(!dropped());
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    captured.finish().unwrap();
    while !dropped() {
        thread::yield_now();
    }
}

#[test]
fn a_value_of_a_graph_that_is_gone_is_dropped_by_the_next_call_and_not_by_the_driver() {
    let device = Device::new(256 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let block = pool.allocate(BYTES).unwrap();
    let ((), graph) = device.capture(&queue, || {
        block.enqueue_fill(&queue, .., &[7_u8]).unwrap();
        backend.keep_with_graph(&queue, block).unwrap();
    });
    drop(graph.ok().unwrap());
    assert_eq!(pool.active_blocks(), 1);
    backend.drop_what_graphs_kept();
    assert_eq!(pool.active_blocks(), 0);
}

#[test]
fn a_value_is_not_kept_outside_a_capture() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    for queue in [queue, backend.legacy_default_queue()] {
        let is_dropped = Arc::<AtomicBool>::default();
        let value = Dropped(Arc::clone(&is_dropped));
        let refused = backend.keep_with_graph(&queue, value);
        assert!(
            matches!(&refused, Err(Error::Unsupported { what }) if what.contains("not captured")),
            "{refused:?}"
        );
        assert!(is_dropped.load(Ordering::SeqCst));
    }
}

#[test]
fn a_graph_that_cannot_keep_a_value_drops_it() {
    for call in ["cuUserObjectCreate", "cuGraphRetainUserObject"] {
        let device = Device::new(1 << 24);
        let backend = device.backend();
        let queue = queue(&backend);
        let is_dropped = Arc::<AtomicBool>::default();
        let ((), graph) = device.capture(&queue, || {
            device.fail(call, 0, 1, 1);
            let value = Dropped(Arc::clone(&is_dropped));
            assert!(backend.keep_with_graph(&queue, value).is_err());
            backend.drop_what_graphs_kept();
            assert!(is_dropped.load(Ordering::SeqCst), "{call}");
        });
        assert!(graph.is_ok());
    }
}
