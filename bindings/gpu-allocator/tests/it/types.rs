//! A device with several memory types, some of one heap. Mesa's device for the processor has one: the others are made up below the allocator.

use ash::vk::{self, MemoryPropertyFlags as Flags};
use binpool_gpu_allocator::{
    AllocationError, MemoryLocation, Result,
    vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator},
};

use crate::{
    allocator,
    common::other::{self, Other},
    part,
};

const MIB: u64 = 1 << 20;

/// What the host sees.
fn seen() -> Flags {
    Flags::HOST_VISIBLE | Flags::HOST_COHERENT
}

/// As GPUs with memory of their own have them, after one that is not coherent.
fn types() -> [Flags; 5] {
    [
        Flags::HOST_VISIBLE,
        Flags::DEVICE_LOCAL,
        seen(),
        seen() | Flags::HOST_CACHED,
        seen() | Flags::DEVICE_LOCAL,
    ]
}

/// Two types of one heap of this size.
fn of_one_heap(bytes: u64) -> Allocator {
    let mut two = Other::of_types(&[Flags::DEVICE_LOCAL, Flags::DEVICE_LOCAL | seen()]);
    two.types[1].1 = 0;
    two.heaps = vec![other::heap(bytes)];
    allocator(&two.parts())
}

/// A request of the type with this number alone.
fn part_of(kind: u32, size: u64) -> AllocationCreateDesc<'static> {
    let mut desc = part(size, 256, MemoryLocation::Unknown);
    desc.requirements.memory_type_bits = 1 << kind;
    desc
}

/// Allocates, and returns the types that were asked in turn.
fn asked(allocator: &Allocator, desc: &AllocationCreateDesc<'_>) -> (Result<Allocation>, Vec<u32>) {
    other::asked();
    let allocated = allocator.allocate(desc);
    let mut asked: Vec<_> = other::asked().iter().map(|one| one.kind).collect();
    asked.dedup();
    (allocated, asked)
}

#[test]
fn each_location_has_the_memory_type_that_suits_it_best() {
    use MemoryLocation::{CpuToGpu, GpuOnly, GpuToCpu, Unknown};
    for (location, bits, kind) in [
        (GpuOnly, !0, Some(1)),
        (GpuOnly, 0b1_1100, Some(4)),
        (GpuOnly, 0b0_1101, None),
        (CpuToGpu, !0, Some(4)),
        (CpuToGpu, 0b0_1111, Some(2)),
        (CpuToGpu, 0b0_0011, None),
        (GpuToCpu, !0, Some(3)),
        (GpuToCpu, 0b1_0111, Some(2)),
        (GpuToCpu, 0b0_0011, None),
        (Unknown, !0, Some(0)),
        (Unknown, 0b0_1000, Some(3)),
        (Unknown, 0b10_0000, None),
    ] {
        // Pools of their own, which ask for memory.
        let allocator = allocator(&Other::of_types(&types()).parts());
        let mut desc = part(1000, 256, location);
        desc.requirements.memory_type_bits = bits;
        let (allocated, asked) = asked(&allocator, &desc);
        let case = format!("{location:?} of {bits:b}");
        assert_eq!(asked, Vec::from_iter(kind), "{case}");
        let Some(kind) = kind else {
            let refused = allocated.unwrap_err();
            let is_right = matches!(refused, AllocationError::NoCompatibleMemoryTypeFound);
            assert!(is_right, "{case}: {refused}");
            continue;
        };
        let (allocation, flags) = (allocated.unwrap(), types()[kind as usize]);
        assert_eq!(allocation.memory_properties(), flags, "{case}");
        let is_seen = flags.contains(Flags::HOST_VISIBLE);
        assert_eq!(allocation.mapped_ptr().is_some(), is_seen, "{case}");
        assert!(!allocation.is_dedicated(), "{case}");
        allocator.free(allocation).unwrap();
    }
}

#[test]
fn memory_of_the_host_serves_where_that_of_both_is_short() {
    use MemoryLocation::{CpuToGpu, GpuToCpu};
    for (location, refused, expected) in [
        (CpuToGpu, 0b1_0000, Some(2)),
        (CpuToGpu, 0b1_0100, None),
        (GpuToCpu, 0b0_1000, None),
    ] {
        let allocator = allocator(&Other::of_types(&types()).parts());
        other::refuse(refused, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        let (allocated, asked) = asked(&allocator, &part(1000, 256, location));
        let asked_last = asked.last().copied();
        match expected {
            Some(kind) => {
                assert_eq!(asked, [4, kind]);
                assert_eq!(allocated.unwrap().memory_properties(), types()[2]);
            }
            None => assert!(matches!(allocated, Err(AllocationError::OutOfMemory))),
        }
        let is_host_asked = location == CpuToGpu;
        assert_eq!(asked_last, Some(if is_host_asked { 2 } else { 3 }));
    }
    // Nor twice where the two are one.
    let alone = allocator(&Other::of_types(&[seen() | Flags::DEVICE_LOCAL]).parts());
    other::refuse(1, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    let mut own = part(1000, 256, CpuToGpu);
    own.allocation_scheme = AllocationScheme::DedicatedBuffer(vk::Buffer::null());
    alone.allocate(&own).unwrap_err();
    assert_eq!(other::asked().len(), 1);
}

#[test]
fn a_shortage_takes_what_pools_of_other_types_of_the_heap_keep() {
    for is_dedicated in [false, true] {
        for (first, second) in [(0, 1), (1, 0)] {
            let allocator = of_one_heap(64 * MIB);
            let kept = allocator.allocate(&part_of(first, 40 * MIB)).unwrap();
            allocator.free(kept).unwrap();
            assert!(
                other::live()[first as usize] >= 40 * MIB,
                "the pool keeps it"
            );
            let mut desc = part_of(second, 40 * MIB);
            if is_dedicated {
                desc.allocation_scheme = AllocationScheme::DedicatedBuffer(vk::Buffer::null());
            }
            let served = allocator.allocate(&desc).unwrap();
            assert_eq!(served.is_dedicated(), is_dedicated);
            assert_eq!(other::live()[first as usize], 0, "it has gone back");
            assert!(other::live()[second as usize] >= 40 * MIB);
            // What is in use stays.
            let refused = allocator.allocate(&part_of(first, 40 * MIB));
            assert!(matches!(refused, Err(AllocationError::OutOfMemory)));
            allocator.free(served).unwrap();
            allocator.allocate(&part_of(first, 40 * MIB)).unwrap();
        }
    }
}

#[test]
fn a_request_is_repeated_only_where_something_has_gone_back() {
    let allocator = of_one_heap(64 * MIB);
    let mut own = part_of(0, 64 * MIB);
    own.allocation_scheme = AllocationScheme::DedicatedImage(vk::Image::null());
    let all = allocator.allocate(&own).unwrap();
    other::asked();
    let refused = allocator.allocate(&own);
    assert!(matches!(refused, Err(AllocationError::OutOfMemory)));
    assert_eq!(other::asked().len(), 1);
    allocator.free(all).unwrap();
    // A pool's memory goes back for it.
    let small = allocator.allocate(&part_of(1, MIB)).unwrap();
    allocator.free(small).unwrap();
    other::asked();
    let all = allocator.allocate(&own).unwrap();
    assert_eq!(other::asked().len(), 2);
    assert_eq!(allocator.capacity(), 64 * MIB);
    allocator.free(all).unwrap();
}

#[test]
fn memory_that_no_allocation_of_its_type_uses_goes_back_whichever_type_is_used() {
    let allocator = of_one_heap(64 * MIB);
    let once = allocator.allocate(&part_of(0, 40 * MIB)).unwrap();
    allocator.free(once).unwrap();
    for _ in 0..21_000 {
        let next = allocator.allocate(&part_of(1, 4096)).unwrap();
        allocator.free(next).unwrap();
    }
    assert_eq!(other::live()[0], 0);
}

#[test]
fn more_than_a_heap_has_is_not_asked_for() {
    let allocator = of_one_heap(64 * MIB);
    for scheme in [
        AllocationScheme::GpuAllocatorManaged,
        AllocationScheme::DedicatedBuffer(vk::Buffer::null()),
    ] {
        let mut desc = part_of(1, 64 * MIB + 1);
        desc.allocation_scheme = scheme;
        let refused = allocator.allocate(&desc);
        assert!(matches!(refused, Err(AllocationError::OutOfMemory)));
        assert_eq!(other::asked(), []);
    }
}

#[test]
fn a_resource_has_memory_of_its_own_only_where_it_asks_for_that() {
    let schemes = [
        (AllocationScheme::GpuAllocatorManaged, false),
        (AllocationScheme::DedicatedBuffer(vk::Buffer::null()), true),
        (AllocationScheme::DedicatedImage(vk::Image::null()), true),
    ];
    for has_addresses in [true, false] {
        let parts = Other::of_types(&types()).parts();
        let allocator =
            crate::allocator_with(&parts, |desc| desc.buffer_device_address = has_addresses);
        for (scheme, is_dedicated) in schemes {
            let mut desc = part(5000, 1 << 12, MemoryLocation::GpuOnly);
            desc.allocation_scheme = scheme;
            let allocation = allocator.allocate(&desc).unwrap();
            assert_eq!(allocation.is_dedicated(), is_dedicated);
            let asked = other::asked();
            let [one] = asked[..] else {
                panic!("one memory for {scheme:?}, not {asked:?}");
            };
            assert_eq!(
                (one.is_dedicated, one.has_address),
                (is_dedicated, has_addresses)
            );
            assert_eq!(one.bytes == 5000, is_dedicated);
            // Pools keep theirs.
            let capacity = allocator.capacity();
            allocator.free(allocation).unwrap();
            let left = capacity - if is_dedicated { 5000 } else { 0 };
            assert_eq!(allocator.capacity(), left);
        }
    }
}

#[test]
fn a_failure_says_what_it_is() {
    use vk::Result as Failure;
    for (failure, is_shortage) in [
        (Failure::ERROR_OUT_OF_DEVICE_MEMORY, true),
        (Failure::ERROR_OUT_OF_HOST_MEMORY, true),
        (Failure::ERROR_TOO_MANY_OBJECTS, true),
        (Failure::ERROR_DEVICE_LOST, false),
        (Failure::ERROR_UNKNOWN, false),
    ] {
        let allocator = allocator(&Other::of_types(&types()).parts());
        other::refuse(!0, failure);
        for scheme in [
            AllocationScheme::GpuAllocatorManaged,
            AllocationScheme::DedicatedBuffer(vk::Buffer::null()),
        ] {
            let mut desc = part(1000, 256, MemoryLocation::GpuOnly);
            desc.allocation_scheme = scheme;
            let refused = allocator.allocate(&desc).unwrap_err();
            match refused {
                AllocationError::OutOfMemory => assert!(is_shortage),
                AllocationError::Internal(text) => {
                    assert!(!is_shortage && text.contains("vkAllocateMemory"), "{text}");
                    let [name, code] = [format!("{failure:?}"), failure.as_raw().to_string()];
                    assert!(text.contains(&name) || text.contains(&code), "{text}");
                }
                other => panic!("{failure:?} became {other:?}"),
            }
            assert_eq!(allocator.capacity(), 0);
        }
    }
}
