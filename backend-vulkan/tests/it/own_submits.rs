//! Submits of the program's own: under the lock of a queue that it has given, and as commands.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    slice::from_ref,
};

use ash::vk;
use binpool_allocators::{
    Backend, Error, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder,
};
use binpool_vulkan::{OwnSubmit, VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue};

use crate::common;

/// What the host lets go on: a timeline semaphore.
struct Gate<'a> {
    backend: &'a VulkanBackend,
    semaphore: vk::Semaphore,
    is_open: Cell<bool>,
}

impl<'a> Gate<'a> {
    fn new(backend: &'a VulkanBackend) -> Self {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: The device lives, and has timeline semaphores.
        let semaphore = unsafe { backend.raw().create_semaphore(&info, None) }.unwrap();
        Self {
            backend,
            semaphore,
            is_open: Cell::new(false),
        }
    }

    fn open(&self) {
        if self.is_open.replace(true) {
            return;
        }
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.semaphore)
            .value(1);
        // SAFETY: The semaphore lives, and has a smaller number.
        unsafe { self.backend.raw().signal_semaphore(&info) }.unwrap();
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        // A test that fails ends, too.
        self.open();
        // SAFETY: The device lives.
        unsafe { self.backend.raw().device_wait_idle() }.unwrap();
        // SAFETY: No command uses it any more.
        unsafe { self.backend.raw().destroy_semaphore(self.semaphore, None) };
    }
}

/// Submits commands that wait for these semaphores to have these numbers, and signal others.
fn submit(
    backend: &VulkanBackend,
    queue: vk::Queue,
    (waits, wait_values): (&[vk::Semaphore], &[u64]),
    commands: &[vk::CommandBuffer],
    (signals, values): (&[vk::Semaphore], &[u64]),
) -> Result<(), vk::Result> {
    let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
    let mut numbers = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(wait_values)
        .signal_semaphore_values(values);
    let info = vk::SubmitInfo::default()
        .wait_semaphores(waits)
        .wait_dst_stage_mask(&stages)
        .command_buffers(commands)
        .signal_semaphores(signals)
        .push_next(&mut numbers);
    // SAFETY: The queue is locked, and all of this lives until it has ended.
    unsafe {
        backend
            .raw()
            .queue_submit(queue, &[info], vk::Fence::null())
    }
}

/// The submit that is asked for, after a gate.
fn submit_after(own: &OwnSubmit, gate: &Gate<'_>) -> Result<(), vk::Result> {
    let waits = [&own.wait_semaphores[..], &[gate.semaphore]].concat();
    let values = [&own.wait_values[..], &[1]].concat();
    let signal = (&[own.semaphore][..], &[own.value][..]);
    submit(gate.backend, own.queue, (&waits, &values), &[], signal)
}

fn queue(backend: &VulkanBackend) -> VulkanQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

fn filled(backend: &VulkanBackend, queue: &VulkanQueue, byte: u8) -> VulkanMemory {
    let memory = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
    backend.write(queue, &memory, 0, &[byte; 4096]).unwrap();
    memory
}

fn read(backend: &VulkanBackend, queue: &VulkanQueue, memory: &VulkanMemory) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    backend.read(queue, memory, 0, &mut bytes).unwrap();
    bytes
}

/// The queue takes commands and markers, which end.
#[track_caller]
fn assert_goes_on(backend: &VulkanBackend, queue: &VulkanQueue, memory: &VulkanMemory) {
    backend.enqueue_marker(queue).unwrap().wait().unwrap();
    backend.enqueue_fill(queue, memory, .., &[9_u8]).unwrap();
    assert_eq!(read(backend, queue, memory), [9; 4096]);
    queue.finish().unwrap();
}

#[test]
fn a_marker_comes_after_what_was_submitted_under_the_lock() {
    let backend = common::backend();
    let queue = queue(&backend);
    let memory = filled(&backend, &queue, 5);
    assert!(backend.enqueue_marker(&queue).unwrap().has_ended());
    let gate = Gate::new(&backend);
    let locked = queue.lock();
    let none: (&[_], &[_]) = (&[], &[]);
    let waits = (from_ref(&gate.semaphore), &[1][..]);
    submit(&backend, *locked, waits, &[], none).unwrap();
    drop(locked);
    let markers = [(); 2].map(|()| backend.enqueue_marker(&queue).unwrap());
    // The second one comes after nothing new.
    assert_eq!(markers[0].mark().value(), markers[1].mark().value());
    for _ in 0..64 {
        assert_eq!(markers[0].status().unwrap(), EventStatus::Pending);
    }
    gate.open();
    markers[0].wait().unwrap();
    assert_goes_on(&backend, &queue, &memory);
}

/// Copies a block, by a command buffer of the program's own.
struct Copy<'a> {
    backend: &'a VulkanBackend,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
}

impl<'a> Copy<'a> {
    fn new(backend: &'a VulkanBackend, family: u32, [from, to]: [&VulkanMemory; 2]) -> Self {
        let raw = backend.raw();
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: The device lives.
        let pool = unsafe { raw.create_command_pool(&info, None) }.unwrap();
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        // SAFETY: The pool is used here alone.
        let commands = unsafe { raw.allocate_command_buffers(&info) }.unwrap()[0];
        let info = vk::CommandBufferBeginInfo::default();
        // SAFETY: It is new.
        unsafe { raw.begin_command_buffer(commands, &info) }.unwrap();
        let region = vk::BufferCopy::default().size(4096);
        let [from, to] = [from, to].map(|memory| memory.block().unwrap().buffer());
        // SAFETY: It is being recorded, and both buffers have the bytes.
        unsafe { raw.cmd_copy_buffer(commands, from, to, &[region]) };
        // SAFETY: As above.
        unsafe { raw.end_command_buffer(commands) }.unwrap();
        Self {
            backend,
            pool,
            commands,
        }
    }

    /// Enqueues it as a command, after a gate of the host's.
    fn enqueue(
        &self,
        queue: &VulkanQueue,
        memory: [&VulkanMemory; 2],
        wait_for: &[VulkanEvent],
        gate: &Gate<'_>,
    ) -> Result<VulkanEvent, Error> {
        let submit = |own: &OwnSubmit| {
            let waits = [&own.wait_semaphores[..], &[gate.semaphore]].concat();
            let values = [&own.wait_values[..], &[1]].concat();
            let signal = (&[own.semaphore][..], &[own.value][..]);
            let waits = (&waits[..], &values[..]);
            submit(self.backend, own.queue, waits, &[self.commands], signal)
        };
        // SAFETY: It waits and signals as it is told to, and copies the one block to the other.
        unsafe { self.backend.enqueue_own(queue, &memory, wait_for, submit) }
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        // SAFETY: The device lives.
        unsafe { self.backend.raw().device_wait_idle() }.unwrap();
        // SAFETY: Its commands have ended.
        unsafe { self.backend.raw().destroy_command_pool(self.pool, None) };
    }
}

#[test]
fn a_submit_of_the_programs_own_is_a_command_like_any_other() {
    let backend = common::backend();
    let [first, second] = [(); 2].map(|()| queue(&backend));
    let (from, to) = (filled(&backend, &first, 1), filled(&backend, &first, 2));
    let before = backend.enqueue_fill(&second, &from, .., &[3_u8]).unwrap();
    backend.enqueue_fill(&first, &to, .., &[4_u8]).unwrap();
    let copy = Copy::new(&backend, first.family(), [&from, &to]);
    let gate = Gate::new(&backend);
    let event = copy
        .enqueue(&first, [&from, &to], &[before], &gate)
        .unwrap();
    assert_eq!(event.status().unwrap(), EventStatus::Pending);
    let marker = backend.enqueue_marker(&first).unwrap();
    assert_eq!(
        marker.mark().value(),
        event.mark().value(),
        "it is the marker"
    );
    gate.open();
    event.wait().unwrap();
    assert_eq!(read(&backend, &first, &to), [3; 4096]);
    assert_goes_on(&backend, &first, &to);
}

/// One that is submitted has not ended: it may run on another queue of the device.
#[test]
fn a_submit_waits_for_what_runs_on_another_queue_and_not_for_what_has_ended() {
    let backend = common::backend();
    let [first, second, third] = [(); 3].map(|()| queue(&backend));
    let memory = filled(&backend, &third, 1);
    let ended = backend.enqueue_fill(&third, &memory, .., &[2_u8]).unwrap();
    ended.wait().unwrap();
    let gate = Gate::new(&backend);
    let own = |queue: &VulkanQueue, wait_for: &[VulkanEvent]| {
        let mut waits = Vec::new();
        let call = |own: &OwnSubmit| {
            let values = own.wait_values.iter().copied();
            waits.extend(own.wait_semaphores.iter().copied().zip(values));
            submit_after(own, &gate)
        };
        // SAFETY: It waits and signals as it is told to, and uses no memory.
        let event = unsafe { backend.enqueue_own(queue, &[], wait_for, call) };
        (event.unwrap(), waits)
    };
    let number = |event: &VulkanEvent| (event.mark().semaphore(), event.mark().value());
    let (held, waits) = own(&first, &[]);
    assert_eq!(waits, []);
    let (next, waits) = own(&second, &[ended, held.clone()]);
    assert_eq!(waits, [number(&held)]);
    // Not by the order of the queue of Vulkan, which submits do not end by.
    let (last, waits) = own(&second, from_ref(&next));
    assert_eq!(waits, [number(&next)]);
    gate.open();
    last.wait().unwrap();
    assert!(held.has_ended() && next.has_ended());
}

/// The validation layer checks whether the commands still use what is freed.
#[test]
fn its_memory_and_its_queue_may_be_dropped_while_it_runs() {
    let backend = common::backend();
    let first = queue(&backend);
    let (from, to) = (filled(&backend, &first, 1), filled(&backend, &first, 2));
    let copy = Copy::new(&backend, first.family(), [&from, &to]);
    let gate = Gate::new(&backend);
    let event = copy.enqueue(&first, [&from, &to], &[], &gate).unwrap();
    drop((first, from, to));
    // Whatever has ended is freed by calls like this one.
    for _ in 0..8 {
        drop(backend.create_buffer(64, MemoryFlags::empty()).unwrap());
    }
    assert_eq!(event.status().unwrap(), EventStatus::Pending);
    gate.open();
    event.wait().unwrap();
}

/// It may have submitted something that signals its number.
#[test]
fn a_submit_that_fails_leaves_nothing_waiting() {
    let backend = common::backend();
    let queue = queue(&backend);
    let memory = filled(&backend, &queue, 1);
    let gate = Gate::new(&backend);
    gate.open();
    let none = |_: &OwnSubmit| Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    let signalled = Cell::new(0);
    let after_all = |own: &OwnSubmit| {
        submit_after(own, &gate).unwrap();
        signalled.set(own.value);
        Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY)
    };
    for _ in 0..2 {
        // SAFETY: It fails, and has submitted nothing that uses memory.
        let failed = unsafe { backend.enqueue_own(&queue, &[&memory], &[], none) };
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("the program's own"), "{text}");
        assert_goes_on(&backend, &queue, &memory);
        // SAFETY: As above.
        let failed = unsafe { backend.enqueue_own(&queue, &[&memory], &[], after_all) };
        assert!(matches!(failed, Err(Error::Backend(_))));
        let first = signalled.get();
        // SAFETY: As above.
        let failed = unsafe { backend.enqueue_own(&queue, &[&memory], &[], after_all) };
        assert!(failed.is_err() && signalled.get() > first);
        let next = backend.enqueue_marker(&queue).unwrap();
        assert!(next.mark().value() > signalled.get());
        assert_goes_on(&backend, &queue, &memory);
        let panicking = |own: &OwnSubmit| {
            submit_after(own, &gate).unwrap();
            panic!("in a submit")
        };
        // SAFETY: As above.
        let call = || unsafe { backend.enqueue_own(&queue, &[&memory], &[], panicking) };
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        assert_goes_on(&backend, &queue, &memory);
    }
    // The number that was last given out is no command's: nothing waits for it at the end.
    // SAFETY: As above.
    let failed = unsafe { backend.enqueue_own(&queue, &[&memory], &[], none) };
    assert!(failed.is_err());
    drop((queue, memory));
    assert!(!backend.is_lost());
}

#[test]
fn a_submit_that_would_wait_for_a_user_event_is_refused() {
    let backend = common::backend();
    let queue = queue(&backend);
    let memory = filled(&backend, &queue, 1);
    let gate = Gate::new(&backend);
    gate.open();
    let event = backend.create_user_event().unwrap();
    let own = |wait_for: &[VulkanEvent]| {
        let call = |own: &OwnSubmit| submit_after(own, &gate);
        // SAFETY: It waits and signals as it is told to, and uses no memory.
        unsafe { backend.enqueue_own(&queue, &[], wait_for, call) }
    };
    let refused = own(from_ref(&event)).unwrap_err().to_string();
    assert!(refused.contains("resolve the event first"), "{refused}");
    let held = backend.enqueue_fill(queue.after(from_ref(&event)), &memory, .., &[2_u8]);
    // It comes after that one, which waits on the host.
    assert!(matches!(own(&[]), Err(Error::Unsupported { .. })));
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    own(&[]).unwrap().wait().unwrap();
    assert!(held.unwrap().has_ended());
    assert_eq!(read(&backend, &queue, &memory), [2; 4096]);
    assert_goes_on(&backend, &queue, &memory);
}
