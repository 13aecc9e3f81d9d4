//! Tests on the first device of Vulkan, which is Mesa's for the processor if there is no other, under the validation layer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of Vulkan come in rows"
)]

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "../../../../backend-vulkan/tests/it/common/mod.rs"]
mod common;

mod bytes;
mod failures;
mod images;
mod random;
mod reports;
mod types;

use ash::vk;
use binpool_gpu_allocator::{
    MemoryLocation,
    vulkan::{AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc},
};
use common::Parts;

fn allocator(parts: &Parts) -> Allocator {
    allocator_with(parts, |_| {})
}

fn allocator_with(parts: &Parts, change: impl FnOnce(&mut AllocatorCreateDesc)) -> Allocator {
    let mut desc = AllocatorCreateDesc {
        instance: parts.instance.clone(),
        device: parts.device.clone(),
        physical_device: parts.physical,
        debug_settings: binpool_gpu_allocator::AllocatorDebugSettings::default(),
        buffer_device_address: true,
        allocation_sizes: binpool_gpu_allocator::AllocationSizes::default(),
    };
    change(&mut desc);
    Allocator::new(&desc).unwrap()
}

/// What is asked for a part of this size.
fn part(size: u64, alignment: u64, location: MemoryLocation) -> AllocationCreateDesc<'static> {
    AllocationCreateDesc {
        name: "a part",
        requirements: vk::MemoryRequirements {
            size,
            alignment,
            memory_type_bits: !0,
        },
        location,
        linear: true,
        allocation_scheme: AllocationScheme::GpuAllocatorManaged,
    }
}

#[test]
fn no_call_is_against_the_specification() {
    common::again_one_by_one("no_call_is_against_the_specification", &[]);
}
