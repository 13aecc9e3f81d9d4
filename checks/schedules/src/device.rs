//! The mock device itself, from several threads.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use binpool::{Backend, Event, MemoryFlags, Outcome, Queue, QueueOrder, Region};
use binpool_mock::{Completion, HostWait, MockBackend, MockDevice, MockMemory};

use crate::{
    program::{
        Program,
        library::thread::{self, yield_now},
    },
    world::{has_nothing_left, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("device-that-another-thread-steps", 4, another_thread_steps),
    Program::new(
        "device-with-gates-of-another-thread",
        4,
        gates_of_another_thread,
    ),
    Program::listed("device-with-one-gate", 2, one_gate),
    Program::new(
        "device-with-kernels-on-two-threads",
        3,
        kernels_on_two_threads,
    ),
    Program::new("device-with-kernels-that-enqueue", 3, kernels_that_enqueue),
    Program::new("device-that-goes-with-kernels", 3, goes_with_kernels),
    Program::new(
        "device-whose-memory-comes-and-goes",
        4,
        memory_comes_and_goes,
    ),
    Program::listed("device-with-two-writers", 2, two_writers),
];

fn device(completion: Completion, host_waits: HostWait) -> (MockDevice, MockBackend) {
    let device = MockDevice::builder()
        .completion(completion)
        .host_waits(host_waits)
        .build();
    let backend = device.backend();
    (device, backend)
}

fn buffer(backend: &MockBackend) -> MockMemory {
    backend.create_buffer(64, MemoryFlags::empty()).unwrap()
}

fn ends_clean(device: &MockDevice) {
    assert_eq!(device.pending_commands(), 0);
    has_nothing_left(device);
}

/// Two threads wait for the same commands, and two others run them.
fn another_thread_steps() {
    let (device, backend) = device(Completion::Manual, HostWait::Report);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let block = buffer(&backend);
    let fills: Vec<_> = (0..3)
        .map(|byte| {
            let all = Region::first(64);
            backend.enqueue_fill(&queue, &block, all, &[byte]).unwrap()
        })
        .collect();
    let waiting = fills[1..]
        .iter()
        .cloned()
        .map(|fill| thread::spawn(move || fill.wait().unwrap()));
    let waiting: Vec<_> = waiting.collect();
    let stepping = thread::spawn({
        let device = device.clone();
        move || while device.step() {}
    });
    device.step();
    join(waiting);
    stepping.join().unwrap();
    queue.finish().unwrap();
    drop(block);
    ends_clean(&device);
}

/// Two threads wait for commands that wait for events which others resolve, well or badly.
fn gates_of_another_thread() {
    let (device, backend) = device(Completion::AtOnce, HostWait::Block);
    let block = buffer(&backend);
    let gates = [(); 2].map(|()| backend.create_user_event().unwrap());
    let waiting: Vec<_> = gates
        .iter()
        .map(|gate| {
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let marker = backend
                .enqueue_marker(queue.after(std::slice::from_ref(gate)))
                .unwrap();
            thread::spawn(move || marker.wait().is_ok())
        })
        .collect();
    let [well, badly] = gates;
    let opening = thread::spawn({
        let backend = backend.clone();
        move || {
            backend
                .resolve_user_event(&well, Outcome::Complete)
                .unwrap();
        }
    });
    backend.resolve_user_event(&badly, Outcome::Failed).unwrap();
    opening.join().unwrap();
    assert_eq!(join(waiting), [true, false]);
    drop(block);
    ends_clean(&device);
}

fn one_gate() {
    let (device, backend) = device(Completion::AtOnce, HostWait::Block);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let gate = backend.create_user_event().unwrap();
    let marker = backend
        .enqueue_marker(queue.after(std::slice::from_ref(&gate)))
        .unwrap();
    let waiting = thread::spawn(move || marker.wait().unwrap());
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    waiting.join().unwrap();
    ends_clean(&device);
}

/// Kernels of two queues on one block, each run by any thread: one at a time, each once.
fn kernels_on_two_threads() {
    let (device, backend) = device(Completion::Manual, HostWait::Report);
    let block = buffer(&backend);
    let inside = Arc::new(AtomicU32::new(0));
    let queue = backend.create_queue(QueueOrder::OutOfOrder).unwrap();
    let gate: Vec<_> = (0..3)
        .map(|_| {
            let inside = Arc::clone(&inside);
            let kernel = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                let before = writes[0][0];
                yield_now();
                writes[0][0] = before + 1;
                inside.fetch_sub(1, Ordering::Relaxed);
            };
            backend
                .launch(&queue, "count", &[], &[&block], kernel)
                .unwrap()
        })
        .collect();
    let running = [(); 2].map(|()| {
        let device = device.clone();
        thread::spawn(move || device.run())
    });
    for kernel in &gate {
        kernel.wait().unwrap();
    }
    join(running);
    let mut count = [0_u8];
    backend.read(&queue, &block, 0, &mut count).unwrap();
    assert_eq!(count, [3]);
    drop(block);
    assert_eq!(device.pending_commands(), 0);
}

/// What a kernel enqueues runs after it, and who waits for the queue waits for that too, or does not see it yet.
fn kernels_that_enqueue() {
    let (device, backend) = device(Completion::AtOnce, HostWait::Report);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let launching = [(); 2].map(|()| {
        let (backend, queue) = (backend.clone(), queue.clone());
        thread::spawn(move || {
            let block = buffer(&backend);
            let (inner, inner_queue) = (backend.clone(), queue.clone());
            let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
                inner.enqueue_marker(&inner_queue).unwrap();
            };
            let done = backend
                .launch(&queue, "enqueue", &[], &[&block], kernel)
                .unwrap();
            done.wait().unwrap();
        })
    });
    queue.finish().unwrap();
    join(launching);
    queue.finish().unwrap();
    ends_clean(&device);
}

/// Handles of the device go in any order, those that kernels have among them.
fn goes_with_kernels() {
    let (device, backend) = device(Completion::Manual, HostWait::Report);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    for _ in 0..2 {
        let kept = (backend.clone(), buffer(&backend));
        let ran = Arc::clone(&ran);
        let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
            ran.fetch_add(1, Ordering::Relaxed);
            drop(kept);
        };
        backend.launch(&queue, "keep", &[], &[], kernel).unwrap();
    }
    let stepping = thread::spawn({
        let device = device.clone();
        move || usize::from(device.step()) + usize::from(device.step())
    });
    drop((queue, backend));
    let own = usize::from(device.step());
    let all = own + stepping.join().unwrap();
    device.run();
    assert!(all <= 2);
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    ends_clean(&device);
}

/// The device's books are right, whichever thread allocates.
fn memory_comes_and_goes() {
    let (device, backend) = device(Completion::AtOnce, HostWait::Report);
    let others = [(); 3].map(|()| {
        let backend = backend.clone();
        thread::spawn(move || {
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let block = buffer(&backend);
            let half = backend
                .create_sub_region(&block, Region::first(32))
                .unwrap();
            let filled = backend
                .enqueue_fill(&queue, &half, Region::first(32), &[1_u8])
                .unwrap();
            backend.release(block, &[filled]).unwrap();
        })
    });
    assert!(device.statistics().live_blocks <= 6);
    join(others);
    assert_eq!(device.statistics().committed_bytes, 0);
    ends_clean(&device);
}

/// Blocking writes of two threads on one queue come one after the other, as a whole.
fn two_writers() {
    let (device, backend) = device(Completion::AtOnce, HostWait::Report);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let block = Arc::new(buffer(&backend));
    let write = |byte: u8, backend: &MockBackend, block: &MockMemory| {
        backend.write(&queue, block, 0, &[byte; 64]).unwrap();
    };
    let other = thread::spawn({
        let (backend, block, queue) = (backend.clone(), Arc::clone(&block), queue.clone());
        move || backend.write(&queue, &block, 0, &[2_u8; 64]).unwrap()
    });
    write(1, &backend, &block);
    other.join().unwrap();
    let mut bytes = [0_u8; 64];
    backend.read(&queue, &block, 0, &mut bytes).unwrap();
    assert!(bytes == [1; 64] || bytes == [2; 64]);
    drop(block);
    ends_clean(&device);
}
