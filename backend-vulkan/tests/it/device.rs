//! What the backend makes of what a device tells. Mesa's device for the processor has one memory type: the others are made up below the backend.

use ash::vk::{self, MemoryPropertyFlags as Flags};
use binpool_allocators::{Backend, Error, MemoryFlags, Scope};
use binpool_vulkan::{VulkanBackend, VulkanMemory};

use crate::common::other::{self, Other};

fn seen() -> Flags {
    Flags::HOST_VISIBLE | Flags::HOST_COHERENT
}

/// As GPUs with memory of their own have them, worse ones first.
fn types() -> Vec<Flags> {
    vec![
        Flags::DEVICE_LOCAL | Flags::PROTECTED,
        Flags::DEVICE_LOCAL | Flags::LAZILY_ALLOCATED,
        Flags::HOST_VISIBLE | Flags::HOST_CACHED,
        seen() | Flags::DEVICE_LOCAL,
        Flags::DEVICE_LOCAL,
        seen(),
        seen() | Flags::HOST_CACHED | Flags::DEVICE_LOCAL,
        seen() | Flags::HOST_CACHED,
    ]
}

fn create(backend: &VulkanBackend, flags: MemoryFlags) -> Result<VulkanMemory, Error> {
    other::asked();
    backend.create_buffer(1000, flags)
}

/// The types that were asked, in their order.
fn asked() -> Vec<u32> {
    let mut kinds: Vec<_> = other::asked().iter().map(|one| one.kind).collect();
    // Memory that is short is asked for again, once what is kept has gone.
    if let (first, second) = kinds.split_at(kinds.len() / 2)
        && first == second
    {
        kinds.truncate(kinds.len() / 2);
    }
    kinds
}

#[test]
fn memory_is_of_the_best_type_that_has_room() {
    let refused = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    let backend = Other::of_types(&types()).parts().backend();
    for (flags, order) in [
        // What the host does not see is not taken from what it does see, which is scarce.
        (MemoryFlags::empty(), &[4, 3, 6][..]),
        (MemoryFlags::HOST_RESIDENT, &[7, 6, 5, 3]),
    ] {
        for (count, kind) in (1..).zip(order) {
            let full = order[..count - 1]
                .iter()
                .fold(0, |all, kind| all | 1 << kind);
            other::refuse(full, refused);
            let memory = create(&backend, flags).unwrap();
            assert_eq!(asked(), order[..count]);
            let is_mapped = memory.block().unwrap().mapped().is_some();
            assert_eq!(
                is_mapped,
                flags == MemoryFlags::HOST_RESIDENT,
                "type {kind}"
            );
        }
        other::refuse(!0, refused);
        let short = create(&backend, flags).unwrap_err();
        assert!(matches!(short, Error::OutOfMemory(_)), "{short:?}");
        assert_eq!(asked(), order);
    }
    assert!(other::live().iter().all(|bytes| *bytes == 0));
}

#[test]
fn memory_is_of_a_type_that_its_buffer_may_have() {
    let mut some = Other::of_types(&types());
    some.bits = 0b0010_1111;
    let backend = some.parts().backend();
    create(&backend, MemoryFlags::empty()).unwrap();
    assert_eq!(asked(), [3]);
    create(&backend, MemoryFlags::HOST_RESIDENT).unwrap();
    assert_eq!(asked(), [5]);
    let mut none = Other::of_types(&types());
    none.bits = 0b0000_0111;
    let backend = none.parts().backend();
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let short = create(&backend, flags).unwrap_err();
        assert!(matches!(short, Error::OutOfMemory(_)), "{short:?}");
        assert_eq!(asked(), [0_u32; 0]);
    }
}

#[test]
fn all_memory_has_addresses_for_kernels() {
    let backend = Other::of_types(&types()).parts().backend();
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        create(&backend, flags).unwrap();
        assert!(
            other::asked()
                .iter()
                .all(|one| one.has_address && !one.is_dedicated)
        );
    }
}

#[test]
fn a_shortage_says_whose_memory_is_short() {
    use vk::Result as Failure;
    let (device, host) = (MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT);
    let backend = Other::of_types(&types()).parts().backend();
    for (failure, flags, scope) in [
        (
            Failure::ERROR_OUT_OF_DEVICE_MEMORY,
            device,
            Some(Scope::Device),
        ),
        (Failure::ERROR_TOO_MANY_OBJECTS, device, Some(Scope::Device)),
        (Failure::ERROR_OUT_OF_HOST_MEMORY, device, Some(Scope::Host)),
        (Failure::ERROR_OUT_OF_DEVICE_MEMORY, host, Some(Scope::Host)),
        (Failure::ERROR_TOO_MANY_OBJECTS, host, Some(Scope::Host)),
        (Failure::ERROR_OUT_OF_HOST_MEMORY, host, Some(Scope::Host)),
        (Failure::ERROR_UNKNOWN, device, None),
        (Failure::ERROR_FRAGMENTED_POOL, host, None),
    ] {
        other::refuse(!0, failure);
        let error = create(&backend, flags).unwrap_err();
        match (&error, scope) {
            (Error::OutOfMemory(short), Some(scope)) => {
                assert_eq!((short.scope, short.requested), (scope, 1000), "{failure:?}");
            }
            (Error::Backend(other), None) => {
                assert_eq!(other.operation, "vkAllocateMemory");
                assert_eq!(other.code, Some(failure.as_raw()));
            }
            _ => panic!("{failure:?} became {error:?}"),
        }
        assert!(!backend.is_lost());
    }
}

#[test]
fn memory_of_a_device_that_is_lost_says_so() {
    let backend = Other::of_types(&types()).parts().backend();
    other::refuse(!0, vk::Result::ERROR_DEVICE_LOST);
    let error = create(&backend, MemoryFlags::empty()).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
    assert!(backend.is_lost());
}

/// A device of four heaps, two of which are its own.
fn of_heaps() -> Other {
    let mut device = Other::of_types(&types()[..4]);
    for (heap, bytes) in device
        .heaps
        .iter_mut()
        .zip([1 << 20, 2 << 20, 4 << 20, 8 << 20])
    {
        heap.size = bytes;
    }
    for host in [0, 2] {
        device.heaps[host].flags = vk::MemoryHeapFlags::empty();
    }
    device
}

#[test]
fn a_device_has_the_bytes_of_its_own_heaps() {
    let limits = of_heaps().parts().backend().limits().clone();
    assert_eq!(limits.capacity_bytes, 10 << 20);
    let backend = of_heaps().parts().backend();
    assert_eq!(backend.free_bytes(), None, "it does not tell");
    let mut telling = of_heaps();
    telling.budget = vec![[1, 1000], [300, 1000], [2, 2000], [50, 60]];
    let backend = telling.clone().parts().backend();
    assert_eq!(backend.free_bytes(), Some(700 + 10));
    // More than it may.
    telling.budget[1][0] = 5000;
    let backend = telling.parts().backend();
    assert_eq!(backend.free_bytes(), Some(10));
}

#[test]
fn a_block_is_at_most_what_each_limit_of_the_device_allows() {
    let largest = |device: Other| device.parts().backend().limits().largest_block_bytes;
    let mut device = of_heaps();
    device.limits_11 = |told| told.max_memory_allocation_size = 5000;
    device.limits_13 = |told| told.max_buffer_size = 3000;
    assert_eq!(largest(device.clone()), 3000);
    device.limits_13 = |told| told.max_buffer_size = 7000;
    assert_eq!(largest(device.clone()), 5000);
    device.limits_11 = |told| told.max_memory_allocation_size = 1 << 40;
    device.limits_13 = |told| told.max_buffer_size = 1 << 40;
    assert_eq!(largest(device.clone()), 10 << 20);
    // One of version 1.2 does not tell the second.
    device.limits_11 = |told| told.max_memory_allocation_size = 5000;
    device.limits_13 = |told| told.max_buffer_size = 3000;
    device.properties = |told| told.api_version = vk::API_VERSION_1_2;
    assert_eq!(largest(device), 5000);
}

#[test]
fn parts_of_blocks_begin_where_every_kind_of_buffer_may() {
    let alignment = |properties| {
        let mut device = of_heaps();
        device.properties = properties;
        device.parts().backend().limits().alignment.bytes()
    };
    assert_eq!(
        alignment(|told| {
            told.limits.min_storage_buffer_offset_alignment = 16;
            told.limits.min_uniform_buffer_offset_alignment = 64;
        }),
        128
    );
    assert_eq!(
        alignment(|told| {
            told.limits.min_storage_buffer_offset_alignment = 256;
            told.limits.min_uniform_buffer_offset_alignment = 64;
        }),
        256
    );
    assert_eq!(
        alignment(|told| {
            told.limits.min_storage_buffer_offset_alignment = 16;
            told.limits.min_uniform_buffer_offset_alignment = 512;
        }),
        512
    );
}
