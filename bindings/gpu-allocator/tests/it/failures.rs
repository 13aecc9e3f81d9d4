//! Requests that are wrong or cannot be served, and allocations that are not freed.

use std::thread;

use ash::vk;
use binpool_conformance::sweep::{FaultInjector, FaultPoint};
use binpool_gpu_allocator::{
    AllocationError, AllocationSizes, AllocatorDebugSettings, MemoryLocation,
    vulkan::{Allocation, AllocationScheme, Allocator, AllocatorCreateDesc},
};

use crate::{allocator, common, common::faults::Faulty, part};

#[test]
fn wrong_requests_are_refused() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    for (size, alignment) in [(0, 16), (100, 0), (100, 24)] {
        let refused = allocator.allocate(&part(size, alignment, MemoryLocation::GpuOnly));
        assert!(matches!(
            refused,
            Err(AllocationError::InvalidAllocationCreateDesc)
        ));
    }
    let mut of_no_type = part(100, 16, MemoryLocation::GpuOnly);
    of_no_type.requirements.memory_type_bits = 0;
    let refused = allocator.allocate(&of_no_type);
    assert!(matches!(
        refused,
        Err(AllocationError::NoCompatibleMemoryTypeFound)
    ));
    let refused = allocator.allocate(&part(1 << 50, 16, MemoryLocation::GpuOnly));
    assert!(matches!(refused, Err(AllocationError::OutOfMemory)));
    let refused = Allocator::new(&AllocatorCreateDesc {
        instance: common::instance().clone(),
        device: parts.device.clone(),
        physical_device: vk::PhysicalDevice::null(),
        debug_settings: AllocatorDebugSettings::default(),
        buffer_device_address: false,
        allocation_sizes: AllocationSizes::default(),
    });
    assert!(matches!(
        refused,
        Err(AllocationError::InvalidAllocatorCreateDesc(_))
    ));
    allocator.free(Allocation::default()).unwrap();
}

#[test]
fn what_is_not_freed_is_not_given_out_again_and_goes_with_the_allocator() {
    let faults = Faulty::alone();
    let before = faults.live();
    let allocator = allocator(faults.parts());
    let desc = part(1000, 16, MemoryLocation::CpuToGpu);
    let mut kept = allocator.allocate(&desc).unwrap();
    allocator.rename_allocation(&mut kept, "kept").unwrap();
    // It is dropped here.
    let leaked = allocator.allocate(&desc).unwrap().offset();
    assert_ne!(allocator.allocate(&desc).unwrap().offset(), leaked);
    let names: Vec<_> = allocator.generate_report().allocations;
    assert_eq!(names[0].name, "kept");
    assert_eq!(names.len(), 3);
    drop(kept);
    drop(allocator);
    assert_eq!(faults.live(), before);
}

#[test]
fn mapped_bytes_stay_as_long_as_their_allocation() {
    let faults = Faulty::alone();
    let before = faults.live();
    for is_dedicated in [false, true] {
        let allocator = allocator(faults.parts());
        let mut desc = part(64 << 20, 16, MemoryLocation::CpuToGpu);
        if is_dedicated {
            desc.allocation_scheme = AllocationScheme::DedicatedBuffer(vk::Buffer::null());
        }
        let mut kept = allocator.allocate(&desc).unwrap();
        // SAFETY: It is only freed, below.
        let memory = unsafe { kept.memory() };
        let bytes = kept.mapped_slice_mut().unwrap();
        drop(allocator);
        bytes.fill(7);
        assert!(kept.mapped_slice().unwrap().iter().all(|byte| *byte == 7));
        drop(kept);
        // SAFETY: Nothing uses it, and the allocator has left it to the device.
        unsafe { faults.parts().device.free_memory(memory, None) };
        assert_eq!(faults.live(), before);
    }
}

#[test]
fn an_allocation_of_another_allocator_is_refused_whatever_its_number() {
    let parts = common::parts();
    let [one, other] = [(); 2].map(|()| allocator(&parts));
    let desc = part(4096, 256, MemoryLocation::CpuToGpu);
    let mut foreign = one.allocate(&desc).unwrap();
    let mut own = other.allocate(&desc).unwrap();
    assert_eq!(foreign.chunk_id(), own.chunk_id());
    let renamed = other.rename_allocation(&mut foreign, "renamed");
    let refused = [renamed, other.free(foreign)];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("not of this allocator"), "{error}");
    }
    let mut next = other.allocate(&desc).unwrap();
    own.mapped_slice_mut().unwrap().fill(1);
    next.mapped_slice_mut().unwrap().fill(2);
    assert_eq!(own.mapped_slice().unwrap()[0], 1);
    assert_eq!(other.generate_report().allocations[0].name, "a part");
    for allocation in [own, next] {
        other.free(allocation).unwrap();
    }
}

#[test]
fn memory_that_no_allocation_uses_any_more_goes_back() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let once = allocator.allocate(&part(256 << 20, 16, MemoryLocation::GpuOnly));
    allocator.free(once.unwrap()).unwrap();
    let small = part(4096, 16, MemoryLocation::GpuOnly);
    let kept = allocator.allocate(&small).unwrap();
    let repeat = |count| {
        for _ in 0..count {
            let next = allocator.allocate(&small).unwrap();
            allocator.free(next).unwrap();
        }
    };
    repeat(5000);
    assert!(allocator.capacity() >= 256 << 20, "it may be used again");
    repeat(25_000);
    assert!(allocator.capacity() < 256 << 20, "{allocator:?}");
    allocator.free(kept).unwrap();
}

/// A sweep comes after 10 000 of one thread.
#[test]
fn few_allocations_of_each_of_many_threads_release_nothing() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let once = allocator.allocate(&part(256 << 20, 16, MemoryLocation::GpuOnly));
    allocator.free(once.unwrap()).unwrap();
    let small = part(4096, 16, MemoryLocation::GpuOnly);
    for _ in 0..16 {
        let repeat = || {
            for _ in 0..1400 {
                let next = allocator.allocate(&small).unwrap();
                allocator.free(next).unwrap();
            }
        };
        thread::scope(|scope| scope.spawn(repeat).join()).unwrap();
    }
    assert!(allocator.capacity() >= 256 << 20);
}

#[test]
fn memory_that_runs_out_is_taken_from_what_other_pools_keep() {
    let faults = Faulty::alone();
    let allocator = allocator(faults.parts());
    let small = part(1 << 20, 16, MemoryLocation::GpuOnly);
    let kept = allocator.allocate(&small).unwrap();
    allocator.free(kept).unwrap();
    let capacity = allocator.capacity();
    assert!(capacity > 0, "the pool keeps it");
    // Neither the pool's first attempt nor its second succeeds.
    faults.inject(FaultPoint {
        call: 1,
        is_out_of_memory: true,
        is_permanent: true,
    });
    let large = part(1 << 20, 1 << 16, MemoryLocation::GpuOnly);
    let refused = allocator.allocate(&large);
    assert!(matches!(refused, Err(AllocationError::OutOfMemory)));
    assert_eq!(allocator.capacity(), 0, "it has gone back");
    faults.repair();
    allocator.allocate(&large).unwrap();
}

#[test]
fn a_failure_to_map_says_so_and_leaves_nothing() {
    let faults = Faulty::alone();
    let allocator = allocator(faults.parts());
    let before = faults.live();
    for scheme in [
        AllocationScheme::GpuAllocatorManaged,
        AllocationScheme::DedicatedBuffer(vk::Buffer::null()),
    ] {
        faults.fail_next("map_memory");
        let mut desc = part(1000, 16, MemoryLocation::CpuToGpu);
        desc.allocation_scheme = scheme;
        let refused = allocator.allocate(&desc);
        assert!(
            matches!(refused, Err(AllocationError::FailedToMap(_))),
            "{refused:?}"
        );
        assert_eq!(faults.live(), before);
    }
}

#[test]
fn a_resource_may_have_memory_of_its_own() {
    let faults = Faulty::alone();
    let parts = faults.parts();
    let allocator = allocator(parts);
    let info = vk::BufferCreateInfo::default()
        .size(5000)
        .usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: The device lives.
    let buffer = unsafe { parts.device.create_buffer(&info, None) }.unwrap();
    let mut desc = part(0, 0, MemoryLocation::GpuOnly);
    // SAFETY: The buffer lives.
    desc.requirements = unsafe { parts.device.get_buffer_memory_requirements(buffer) };
    desc.allocation_scheme = AllocationScheme::DedicatedBuffer(buffer);
    let own = allocator.allocate(&desc).unwrap();
    assert!(own.is_dedicated() && own.offset() == 0);
    assert_eq!(allocator.capacity(), desc.requirements.size);
    // SAFETY: The memory is the buffer's.
    unsafe { parts.device.bind_buffer_memory(buffer, own.memory(), 0) }.unwrap();
    // SAFETY: No command uses it.
    unsafe { parts.device.destroy_buffer(buffer, None) };
    allocator.free(own).unwrap();
    assert_eq!(allocator.capacity(), 0);
}
