//! Queues of two families. Mesa's device for the processor has one: below the backend, what is asked for the second family is done for the first, and
//! noted. So this shows what is asked for, and not what a driver makes of it.

use std::{slice::from_ref, sync::OnceLock};

use ash::vk;
use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
use binpool_vulkan::VulkanBackend;
use parking_lot::Mutex;

use crate::common;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Shared by these families; by none where one family has it at a time.
    Buffer(Vec<u32>),
    CommandPool(u32),
}

static ASKED: Mutex<Vec<Asked>> = Mutex::new(Vec::new());
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    let families = match info.sharing_mode {
        // SAFETY: There are as many.
        vk::SharingMode::CONCURRENT => unsafe {
            let count = info.queue_family_index_count as usize;
            std::slice::from_raw_parts(info.p_queue_family_indices, count)
        },
        _ => &[],
    };
    ASKED.lock().push(Asked::Buffer(families.to_vec()));
    (info.sharing_mode, info.queue_family_index_count) = (vk::SharingMode::EXCLUSIVE, 0);
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (REAL.get().unwrap().create_buffer)(device, &raw const info, callbacks, buffer) }
}

unsafe extern "system" fn create_command_pool(
    device: vk::Device,
    info: *const vk::CommandPoolCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    pool: *mut vk::CommandPool,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    ASKED
        .lock()
        .push(Asked::CommandPool(info.queue_family_index));
    info.queue_family_index = 0;
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (REAL.get().unwrap().create_command_pool)(device, &raw const info, callbacks, pool) }
}

/// A backend with a queue of each of these families.
fn backend_of(families: &[u32]) -> VulkanBackend {
    let mut parts = common::parts();
    let real = REAL.get_or_init(|| parts.device.fp_v1_0().clone());
    let mut functions = real.clone();
    functions.create_buffer = create_buffer;
    functions.create_command_pool = create_command_pool;
    parts.device = common::with_functions(&parts.device, functions);
    let (_, queue) = parts.queues[0];
    parts.queues = families.iter().map(|family| (*family, queue)).collect();
    parts.backend()
}

#[test]
fn memory_is_shared_by_the_families_of_all_queues() {
    for (families, shared_by) in [
        (vec![0, 1], vec![0, 1]),
        (vec![1, 0, 1], vec![0, 1]),
        (vec![0, 0], vec![]),
    ] {
        let backend = backend_of(&families);
        ASKED.lock().clear();
        let queues: Vec<_> = families
            .iter()
            .map(|_| backend.create_queue(QueueOrder::InOrder).unwrap())
            .collect();
        for (queue, family) in queues.iter().zip(&families) {
            assert_eq!(queue.family(), *family);
        }
        let pools = families.iter().map(|family| Asked::CommandPool(*family));
        assert_eq!(*ASKED.lock(), pools.collect::<Vec<_>>());
        ASKED.lock().clear();
        let size = 100_000;
        let [first, second] = [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT]
            .map(|flags| backend.create_buffer(size, flags).unwrap());
        // From one queue to the next, through memory that bytes pass through, too.
        let bytes = vec![7_u8; size];
        let written = backend
            .enqueue_write(&queues[0], &first, 0, bytes.clone().into())
            .unwrap();
        let copied = backend
            .enqueue_copy(queues[1].after(from_ref(&written)), &first, .., &second, 0)
            .unwrap();
        let read = backend.enqueue_read(queues[0].after(from_ref(&copied)), &second, ..);
        assert!(read.unwrap().wait().unwrap() == bytes);
        let buffers = std::mem::take(&mut *ASKED.lock());
        // The last two may be one, where the first has ended by then.
        assert!(buffers.len() >= 3);
        for buffer in buffers {
            assert_eq!(buffer, Asked::Buffer(shared_by.clone()));
        }
    }
}
