//! What a command is for Vulkan, as it is recorded: it is noted below the backend.

use std::{cell::RefCell, slice::from_ref, sync::OnceLock};

use ash::vk;
use binpool_allocators::{Backend, MemoryFlags, Outcome, Queue, QueueOrder};
use binpool_vulkan::{VulkanBackend, VulkanMemory, VulkanQueue};

use crate::common;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// The stages before and after, and the accesses.
    Barrier([u32; 2], [u32; 2]),
    Fill {
        offset: u64,
        bytes: u64,
        word: u32,
    },
    Update {
        offset: u64,
        bytes: u64,
    },
    Copy {
        bytes: u64,
    },
    End,
}

thread_local! {
    static RECORDED: RefCell<Vec<Recorded>> = const { RefCell::new(Vec::new()) };
}
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();

fn real() -> &'static ash::DeviceFnV1_0 {
    REAL.get().unwrap()
}

fn note(recorded: Recorded) {
    RECORDED.with_borrow_mut(|all| all.push(recorded));
}

unsafe extern "system" fn barrier(
    commands: vk::CommandBuffer,
    before: vk::PipelineStageFlags,
    after: vk::PipelineStageFlags,
    flags: vk::DependencyFlags,
    count: u32,
    barriers: *const vk::MemoryBarrier<'_>,
    buffer_count: u32,
    buffers: *const vk::BufferMemoryBarrier<'_>,
    image_count: u32,
    images: *const vk::ImageMemoryBarrier<'_>,
) {
    assert_eq!((count, buffer_count, image_count), (1, 0, 0));
    // SAFETY: The caller gives one struct that lives.
    let barrier = unsafe { *barriers };
    let accesses = [barrier.src_access_mask, barrier.dst_access_mask];
    note(as_recorded([before, after], accesses));
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        (real().cmd_pipeline_barrier)(
            commands,
            before,
            after,
            flags,
            count,
            barriers,
            buffer_count,
            buffers,
            image_count,
            images,
        );
    }
}

unsafe extern "system" fn fill(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    bytes: u64,
    word: u32,
) {
    note(Recorded::Fill {
        offset,
        bytes,
        word,
    });
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().cmd_fill_buffer)(commands, buffer, offset, bytes, word) };
}

unsafe extern "system" fn update(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    bytes: u64,
    data: *const std::ffi::c_void,
) {
    note(Recorded::Update { offset, bytes });
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().cmd_update_buffer)(commands, buffer, offset, bytes, data) };
}

unsafe extern "system" fn copy(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: *const vk::BufferCopy,
) {
    assert_eq!(count, 1);
    // SAFETY: The caller gives one struct that lives.
    let bytes = unsafe { (*regions).size };
    note(Recorded::Copy { bytes });
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().cmd_copy_buffer)(commands, from, to, count, regions) };
}

unsafe extern "system" fn end(commands: vk::CommandBuffer) -> vk::Result {
    note(Recorded::End);
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().end_command_buffer)(commands) }
}

struct Bench {
    backend: VulkanBackend,
    queue: VulkanQueue,
    memory: VulkanMemory,
}

const BYTES: usize = 1 << 20;

impl Bench {
    fn new() -> Self {
        let mut parts = common::parts();
        let device = &parts.device;
        let mut functions = REAL.get_or_init(|| device.fp_v1_0().clone()).clone();
        functions.cmd_pipeline_barrier = barrier;
        functions.cmd_fill_buffer = fill;
        functions.cmd_update_buffer = update;
        functions.cmd_copy_buffer = copy;
        functions.end_command_buffer = end;
        parts.device = common::with_functions(device, functions);
        let backend = parts.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap();
        Self {
            backend,
            queue,
            memory,
        }
    }

    /// What one command is, without the barriers around it.
    fn recorded(
        &self,
        command: impl FnOnce(&VulkanBackend, &VulkanQueue, &VulkanMemory),
    ) -> Vec<Recorded> {
        RECORDED.take();
        command(&self.backend, &self.queue, &self.memory);
        let recorded = RECORDED.take();
        // What it reads and writes comes after all that was written before, and the host sees what it has written.
        assert_eq!(
            recorded[0],
            barrier_before(vk::PipelineStageFlags::ALL_COMMANDS)
        );
        let (last, rest) = recorded[1..].split_last().unwrap();
        assert_eq!(*last, Recorded::End);
        let (last, rest) = rest.split_last().unwrap();
        assert_eq!(*last, barrier_before(vk::PipelineStageFlags::HOST));
        rest.to_vec()
    }
}

fn as_recorded(stages: [vk::PipelineStageFlags; 2], accesses: [vk::AccessFlags; 2]) -> Recorded {
    let (stages, accesses) = (
        stages.map(vk::PipelineStageFlags::as_raw),
        accesses.map(vk::AccessFlags::as_raw),
    );
    Recorded::Barrier(stages, accesses)
}

/// What comes at these stages sees what was written before.
fn barrier_before(stages: vk::PipelineStageFlags) -> Recorded {
    use vk::AccessFlags as Access;
    let before = vk::PipelineStageFlags::ALL_COMMANDS;
    let all = Access::MEMORY_READ | Access::MEMORY_WRITE;
    as_recorded([before, stages], [Access::MEMORY_WRITE, all])
}

#[test]
fn a_fill_by_words_is_one_command() {
    let bench = Bench::new();
    for (pattern, word) in [
        (&[1_u8][..], [1, 1, 1, 1]),
        (&[1, 2], [1, 2, 1, 2]),
        (&[1, 2, 3, 4], [1, 2, 3, 4]),
    ] {
        let recorded = bench.recorded(|backend, queue, memory| {
            backend
                .enqueue_fill(queue, memory, 4..100, pattern)
                .unwrap();
        });
        let filled = Recorded::Fill {
            offset: 4,
            bytes: 96,
            word: u32::from_ne_bytes(word),
        };
        assert_eq!(recorded, [filled], "{pattern:?}");
    }
}

#[test]
fn a_fill_that_is_not_of_words_is_copied_from_the_host() {
    let bench = Bench::new();
    for (region, pattern) in [
        (2..100, &[1_u8, 2][..]),
        (4..101, &[1]),
        (3..99, &[1, 2, 3]),
        (0..96, &[1, 2, 3, 4, 5, 6, 7, 8]),
    ] {
        let bytes = region.len() as u64;
        let recorded = bench.recorded(|backend, queue, memory| {
            backend
                .enqueue_fill(queue, memory, region, pattern)
                .unwrap();
        });
        assert_eq!(recorded, [Recorded::Copy { bytes }], "{pattern:?}");
    }
}

/// Each comes after those before, and they are few.
#[test]
fn a_large_fill_repeats_what_is_there() {
    let bench = Bench::new();
    let recorded = bench.recorded(|backend, queue, memory| {
        let pattern = [1_u8, 2, 3, 4, 5];
        backend
            .enqueue_fill(queue, memory, ..1_000_000, &pattern)
            .unwrap();
    });
    let between = barrier_before(vk::PipelineStageFlags::TRANSFER);
    let mut expected = vec![Recorded::Copy { bytes: 65_535 }];
    let mut done = 65_535;
    while done < 1_000_000 {
        let bytes = done.min(1_000_000 - done);
        expected.extend([between, Recorded::Copy { bytes }]);
        done += bytes;
    }
    assert_eq!(recorded, expected);
}

#[test]
fn a_command_carries_up_to_64_kib_of_words_itself() {
    let bench = Bench::new();
    for (offset, bytes, is_carried) in [
        (4, 65_536, true),
        (4, 65_540, false),
        (4, 10, false),
        (2, 12, false),
        (8, 12, true),
    ] {
        let recorded = bench.recorded(|backend, queue, memory| {
            let data = vec![1_u8; bytes];
            backend
                .enqueue_write(queue, memory, offset, data.into())
                .unwrap();
        });
        let (offset, bytes) = (offset as u64, bytes as u64);
        let expected = if is_carried {
            Recorded::Update { offset, bytes }
        } else {
            Recorded::Copy { bytes }
        };
        assert_eq!(recorded, [expected], "{bytes} bytes at {offset}");
    }
}

#[test]
fn a_read_and_a_copy_are_one_command() {
    let bench = Bench::new();
    let recorded = bench.recorded(|backend, queue, memory| {
        drop(backend.enqueue_read(queue, memory, 3..13).unwrap());
    });
    assert_eq!(recorded, [Recorded::Copy { bytes: 10 }]);
    let recorded = bench.recorded(|backend, queue, memory| {
        let other = backend
            .create_buffer(100, MemoryFlags::HOST_RESIDENT)
            .unwrap();
        backend
            .enqueue_copy(queue, memory, 3..13, &other, 5)
            .unwrap();
    });
    assert_eq!(recorded, [Recorded::Copy { bytes: 10 }]);
}

/// It stands for all commands so far, and for what it waits for.
#[test]
fn a_marker_is_a_command_only_where_it_waits_for_other_queues() {
    let bench = Bench::new();
    let Bench {
        backend,
        queue,
        memory,
    } = &bench;
    RECORDED.take();
    let filled = backend.enqueue_fill(queue, memory, .., &[1_u8]).unwrap();
    let marker = backend
        .enqueue_marker(queue.after(from_ref(&filled)))
        .unwrap();
    assert_eq!(marker.mark().value(), filled.mark().value());
    RECORDED.take();
    let event = backend.create_user_event().unwrap();
    let recorded = bench.recorded(|backend, queue, _| {
        let marker = backend
            .enqueue_marker(queue.after(from_ref(&event)))
            .unwrap();
        assert!(marker.mark().value() > filled.mark().value());
    });
    assert_eq!(recorded, []);
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
}
