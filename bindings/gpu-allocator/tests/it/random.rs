//! Random programs beside a model of what is allocated.

use std::thread;

use ash::vk::{self, MemoryPropertyFlags as Flags};
use binpool_conformance::Random;
use binpool_gpu_allocator::{
    MemoryLocation,
    vulkan::{Allocation, Allocator},
};

use crate::{
    allocator,
    common::{self, Parts, other::Other},
    part,
};

struct Live {
    allocation: Allocation,
    is_linear: bool,
    /// What its bytes are, where the host sees them.
    byte: u8,
}

impl Live {
    fn memory(&self) -> vk::DeviceMemory {
        // SAFETY: It is compared with others.
        unsafe { self.allocation.memory() }
    }

    fn end(&self) -> u64 {
        self.allocation.offset() + self.allocation.size()
    }

    /// Returns whether the two may not be where they are.
    fn meets(&self, other: &Self, granularity: u64) -> bool {
        let page = if self.is_linear == other.is_linear {
            1
        } else {
            granularity
        };
        let pages = |live: &Self| (live.allocation.offset() / page, (live.end() - 1) / page);
        let ((first, last), (others_first, others_last)) = (pages(self), pages(other));
        self.memory() == other.memory() && first <= others_last && others_first <= last
    }

    /// Returns whether the host sees both where they are, if they are parts of one memory.
    fn is_mapped_like(&self, other: &Self) -> bool {
        let start = |live: &Self| {
            let mapped = live.allocation.mapped_ptr()?;
            Some(mapped.as_ptr() as u64 - live.allocation.offset())
        };
        self.memory() != other.memory() || start(self) == start(other)
    }
}

fn allocate(allocator: &Allocator, random: &mut Random) -> Live {
    const LOCATIONS: [MemoryLocation; 4] = [
        MemoryLocation::Unknown,
        MemoryLocation::GpuOnly,
        MemoryLocation::CpuToGpu,
        MemoryLocation::GpuToCpu,
    ];
    let most = [600, 20_000, 3_000_000][random.below(3)];
    let size = 1 + random.below(most) as u64;
    let alignment = 1 << random.below(19);
    let mut desc = part(size, alignment, LOCATIONS[random.below(4)]);
    desc.linear = random.below(3) > 0;
    let mut allocation = allocator.allocate(&desc).unwrap();
    assert_eq!(
        (allocation.size(), allocation.offset() % alignment),
        (size, 0)
    );
    let is_seen = allocation.memory_properties().contains(Flags::HOST_VISIBLE);
    assert_eq!(is_seen, allocation.mapped_ptr().is_some());
    let byte = u8::try_from(random.below(256)).unwrap();
    if let Some(bytes) = allocation.mapped_slice_mut() {
        bytes.fill(byte);
    }
    Live {
        allocation,
        is_linear: desc.linear,
        byte,
    }
}

fn free(allocator: &Allocator, live: Live) {
    if let Some(bytes) = live.allocation.mapped_slice() {
        assert!(bytes.iter().all(|&byte| byte == live.byte));
    }
    allocator.free(live.allocation).unwrap();
}

#[test]
fn no_two_allocations_meet() {
    no_two_meet(&common::parts());
}

/// Vulkan allows up to 128 KiB.
#[test]
fn no_two_allocations_meet_where_linear_and_optimal_ones_share_no_64_or_128_kib() {
    let seen = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
    let mut coarse = Other::of_types(&[Flags::DEVICE_LOCAL, seen]);
    coarse.properties = |told| told.limits.buffer_image_granularity = 1 << 16;
    no_two_meet(&coarse.clone().parts());
    coarse.properties = |told| told.limits.buffer_image_granularity = 1 << 17;
    no_two_meet(&coarse.parts());
}

fn no_two_meet(parts: &Parts) {
    // SAFETY: The device is of the instance.
    let properties = unsafe {
        parts
            .instance
            .get_physical_device_properties(parts.physical)
    };
    let granularity = properties.limits.buffer_image_granularity;
    for seed in 0..6 {
        let (allocator, mut random) = (allocator(parts), Random::new(seed));
        let mut all: Vec<Live> = Vec::new();
        for _ in 0..300 {
            if all.len() > 40 || random.below(3) == 0 && !all.is_empty() {
                free(&allocator, all.swap_remove(random.below(all.len())));
                continue;
            }
            let live = allocate(&allocator, &mut random);
            assert!(all.iter().all(|other| !live.meets(other, granularity)));
            assert!(all.iter().all(|other| live.is_mapped_like(other)));
            all.push(live);
        }
        let report = allocator.generate_report();
        let bytes: u64 = all.iter().map(|live| live.allocation.size()).sum();
        assert_eq!(
            (report.allocations.len(), report.total_allocated_bytes),
            (all.len(), bytes)
        );
        assert_eq!(report.total_capacity_bytes, allocator.capacity());
        for block in &report.blocks {
            let mut end = 0;
            for allocation in &report.allocations[block.allocations.clone()] {
                assert!(allocation.offset >= end);
                end = allocation.offset + allocation.size;
            }
            assert!(end <= block.size);
        }
        for live in all {
            free(&allocator, live);
        }
        assert!(allocator.generate_report().allocations.is_empty());
    }
}

#[test]
fn only_optimal_resources_have_whole_pages() {
    let mut coarse = Other::of_types(&[Flags::DEVICE_LOCAL]);
    coarse.properties = |told| told.limits.buffer_image_granularity = 1 << 16;
    let allocator = allocator(&coarse.parts());
    let sixteen = |linear| {
        let mut desc = part(256, 256, MemoryLocation::GpuOnly);
        desc.linear = linear;
        [(); 16].map(|()| allocator.allocate(&desc).unwrap().offset())
    };
    assert!(sixteen(true).iter().all(|offset| *offset < 1 << 16));
    assert!(
        sixteen(false)
            .iter()
            .all(|offset| offset.is_multiple_of(1 << 16))
    );
}

/// It is the allocation that knows where it is noted, not the thread.
#[test]
fn an_allocation_is_renamed_and_freed_on_any_thread() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let desc = part(5000, 256, MemoryLocation::CpuToGpu);
    let mut all: Vec<_> = (0..20)
        .map(|_| {
            let made = thread::scope(|scope| scope.spawn(|| allocator.allocate(&desc)).join());
            made.unwrap().unwrap()
        })
        .collect();
    for (number, allocation) in all.iter_mut().enumerate() {
        let name = number.to_string();
        allocator.rename_allocation(allocation, &name).unwrap();
    }
    let mut names: Vec<_> = allocator.generate_report().allocations;
    names.sort_by_key(|one| one.name.parse::<usize>().unwrap());
    for (number, (one, allocation)) in names.iter().zip(&all).enumerate() {
        assert_eq!(one.name, number.to_string());
        assert_eq!((one.offset, one.size), (allocation.offset(), 5000));
    }
    for allocation in all {
        allocator.free(allocation).unwrap();
    }
    assert!(allocator.generate_report().allocations.is_empty());
}

#[test]
fn threads_share_an_allocator() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    thread::scope(|scope| {
        for seed in 0..4 {
            let allocator = &allocator;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut all = Vec::new();
                for _ in 0..300 {
                    all.push(allocate(allocator, &mut random));
                    if all.len() > 10 {
                        free(allocator, all.swap_remove(random.below(all.len())));
                    }
                }
                for live in all {
                    free(allocator, live);
                }
            });
        }
    });
    assert_eq!(allocator.generate_report().total_allocated_bytes, 0);
}
