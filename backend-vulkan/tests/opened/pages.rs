//! Virtual memory: pages that are bound to sparse buffers.

use ash::vk;
use binpool::{MemoryPool, PoolOptions, PooledBuffer, ReusePolicy, VirtualMemoryAllocator};
use binpool_allocators::{
    Backend as _, Error, Memory as _, Queue as _, QueueOrder, Region, Scope, VirtualMemory as _,
};
use binpool_conformance::{Fixture, Random, virtual_memory_conformance};

use super::driver;
use crate::{VulkanBackend, VulkanQueue};

struct Sparse;

impl Fixture for Sparse {
    type Backend = VulkanBackend;

    fn backend(&self) -> VulkanBackend {
        driver::device(driver::sparse()).open().unwrap()
    }
}

virtual_memory_conformance!(Sparse);

#[test]
fn pages_are_of_2_mib_at_least_and_of_the_size_that_the_device_needs() {
    assert_eq!(Sparse.backend().page_bytes(), 1 << 21);
    const { assert!(driver::PAGE < 1 << 21) };
    driver::set_page(1 << 23);
    let backend = Sparse.backend();
    assert_eq!(backend.page_bytes(), 1 << 23);
    let pages = backend.create_pages(1).unwrap();
    assert_eq!(pages.bytes(), 1 << 23);
}

#[test]
fn what_cannot_be_bound_changes_nothing_and_says_so() {
    let backend = Sparse.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let page = backend.page_bytes();
    let reservation = backend.reserve(2 * page).unwrap();
    let pages = backend.create_pages(page).unwrap();
    let failing = |result| driver::failing(result, || backend.map(&reservation, 0, &pages));
    let Err(Error::Backend(failed)) = failing(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY) else {
        panic!("the bind has failed");
    };
    assert_eq!(failed.operation, "vkQueueBindSparse");
    backend.map(&reservation, 0, &pages).unwrap();
    backend.write(&queue, &reservation, 0, &[7_u8]).unwrap();
    let all = Region::new(0, page);
    let failed = driver::failing(vk::Result::ERROR_UNKNOWN, || {
        backend.unmap(&reservation, all)
    });
    failed.unwrap_err();
    let mut byte = [0_u8];
    backend.read(&queue, &reservation, 0, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    backend.unmap(&reservation, all).unwrap();
    assert!(!backend.is_lost());
    let lost = failing(vk::Result::ERROR_DEVICE_LOST);
    assert!(matches!(lost, Err(Error::DeviceLost { .. })) && backend.is_lost());
}

#[test]
fn addresses_and_pages_that_are_short_are_memory_of_the_device_that_is() {
    let backend = Sparse.backend();
    let page = backend.page_bytes();
    let shortage = |is_pages: bool, result| {
        let asked = || {
            if is_pages {
                backend.create_pages(page)
            } else {
                backend.reserve(page)
            }
        };
        driver::failing(result, asked).unwrap_err()
    };
    for is_pages in [false, true] {
        let Error::OutOfMemory(short) = shortage(is_pages, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)
        else {
            panic!("a shortage");
        };
        assert_eq!((short.scope, short.requested), (Scope::Device, page));
        let failed = shortage(is_pages, vk::Result::ERROR_UNKNOWN);
        assert!(matches!(failed, Error::Backend(_)), "{failed:?}");
    }
    backend.reserve(page).unwrap();
    backend.create_pages(page).unwrap();
}

/// Vulkan asks for 2 GiB of addresses at least, also of a device that has more memory.
#[test]
fn a_pool_takes_what_a_device_with_few_addresses_has() {
    let mut device = driver::sparse();
    device.properties = |told| told.limits.sparse_address_space_size = 1 << 28;
    let backend = driver::device(device).open().unwrap();
    assert!(backend.limits().capacity_bytes > 1 << 28);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let blocks = [1000, 1 << 26].map(|bytes| pool.allocate(bytes).unwrap());
    for block in &blocks {
        block.enqueue_fill(&queue, ..1000, &[1_u8]).unwrap();
    }
    queue.finish().unwrap();
    // No reservation is as large.
    assert!(pool.allocate(1 << 29).is_err());
}

/// Allocates, fills, checks and frees blocks of two queues, with the pages that others leave.
#[test]
fn blocks_on_pages_keep_their_bytes() {
    type Block<'a> = (PooledBuffer<VulkanBackend>, u8, &'a VulkanQueue);
    let backend = Sparse.backend();
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    for policy in ReusePolicy::ALL {
        let options = PoolOptions::new().reuse(policy);
        let allocator = VirtualMemoryAllocator::new(&backend);
        let pool: MemoryPool<_> = options.build(allocator, &queues[0]).unwrap();
        let (mut blocks, mut random) = (Vec::<Block<'_>>::new(), Random::new(1));
        for mark in 1..=60 {
            if blocks.len() > 8 {
                let (block, mark, queue) = blocks.swap_remove(random.below(blocks.len()));
                let mut bytes = vec![0; block.size()];
                block.read(queue, 0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == mark));
            }
            let most = [5000, 300_000, 3_000_000][random.below(3)];
            let bytes = 1 + random.below(most);
            let queue = &queues[random.below(2)];
            let block = pool.allocate_on(queue, bytes).unwrap();
            block.enqueue_fill(queue, .., &[mark]).unwrap();
            blocks.push((block, mark, queue));
        }
        drop(blocks);
        assert_eq!(pool.active_blocks(), 0);
    }
}
