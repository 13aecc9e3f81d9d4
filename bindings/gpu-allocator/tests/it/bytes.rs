//! Bytes that the host writes and the device reads, and the other way: both find them at the same place.

use ash::vk;
use binpool_gpu_allocator::{
    MemoryLocation,
    vulkan::{Allocation, Allocator},
};

use crate::{allocator, common, common::Parts, images::run, part};

const BYTES: u64 = 5000;

/// A buffer, in a part with this alignment at least.
fn buffer(
    parts: &Parts,
    allocator: &Allocator,
    alignment: u64,
    location: MemoryLocation,
) -> (vk::Buffer, Allocation) {
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(BYTES).usage(usage);
    // SAFETY: The device lives.
    let buffer = unsafe { parts.device.create_buffer(&info, None) }.unwrap();
    // SAFETY: The buffer lives.
    let needs = unsafe { parts.device.get_buffer_memory_requirements(buffer) };
    let desc = part(needs.size, alignment.max(needs.alignment), location);
    let allocation = allocator.allocate(&desc).unwrap();
    // SAFETY: The memory is free, and of the buffer's kind.
    unsafe {
        parts
            .device
            .bind_buffer_memory(buffer, allocation.memory(), allocation.offset())
    }
    .unwrap();
    (buffer, allocation)
}

#[test]
fn the_host_and_the_device_see_the_same_bytes_at_any_alignment() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let alignments = [4, 8, 12, 15, 16, 17, 18, 20].map(|bits| 1 << bits);
    // So that the next parts begin at no multiple of more than 64 KiB.
    let odd = [(); 3].map(|()| allocator.allocate(&part(1, 1 << 16, MemoryLocation::CpuToGpu)));
    let mut all: Vec<_> = (1_u8..)
        .zip(alignments.into_iter().chain(alignments))
        .map(|(byte, alignment)| {
            let up = buffer(&parts, &allocator, alignment, MemoryLocation::CpuToGpu);
            let down = buffer(&parts, &allocator, alignment, MemoryLocation::GpuToCpu);
            (byte, up, down)
        })
        .collect();
    for (byte, (_, up), (_, down)) in &mut all {
        up.mapped_slice_mut().unwrap().fill(*byte);
        down.mapped_slice_mut().unwrap().fill(0xff);
    }
    run(&parts, |device, commands| {
        for (_, (up, _), (down, _)) in &all {
            // SAFETY: It is being recorded; the buffers live.
            unsafe {
                let region = vk::BufferCopy::default().size(BYTES);
                device.cmd_copy_buffer(commands, *up, *down, &[region]);
            }
        }
    });
    for (byte, up, down) in all {
        for allocation in [&up.1, &down.1] {
            let bytes = &allocation.mapped_slice().unwrap()[..5000];
            assert!(bytes.iter().all(|one| *one == byte), "buffer {byte}");
        }
        for (buffer, allocation) in [up, down] {
            // SAFETY: The queue has come to its end.
            unsafe { parts.device.destroy_buffer(buffer, None) };
            allocator.free(allocation).unwrap();
        }
    }
    for allocation in odd {
        allocator.free(allocation.unwrap()).unwrap();
    }
}
