//! Calls that the driver fails at.

use std::ptr;

use crate::{
    calls::{
        MIB, allocate, allocate_from, allocate_on, begin, control, count, create_stream,
        cuDeviceGetMemPool, cuMemFree_v2, cuMemFreeAsync, cuMemPoolCreate, cuMemPoolSetAccess,
        fail, fail_once, free, free_on, memory, range,
    },
    child::{complaints, in_child, pooled},
};

const LIMITED: [(&str, &str); 2] = [("BINPOOL_POOL", "1"), ("BINPOOL_LIMIT", "33554432")];

#[test]
fn a_block_whose_free_could_not_wait_stays_the_programs() {
    pooled(|| {
        begin(64 * MIB);
        let block = allocate(MIB).unwrap();
        fail_once("cuCtxSynchronize");
        assert_eq!(unsafe { cuMemFree_v2(block) }, 999);
        assert_eq!(range(block), Ok((block, MIB)));
        assert_ne!(allocate(MIB), Ok(block));
        free(block);
        assert_eq!(allocate(MIB), Ok(block));
    });
}

#[test]
fn the_limit_counts_what_the_driver_has_given_and_not_freed() {
    in_child(&LIMITED, || {
        begin(64 * MIB);
        let (mut pool, stream) = (0, create_stream());
        assert_eq!(unsafe { cuMemPoolCreate(&raw mut pool, ptr::null()) }, 0);
        let take = |bytes| allocate_from(pool, stream, bytes);
        let held = take(10 * MIB).unwrap();
        for _ in 0..3 {
            fail_once("cuMemAllocFromPoolAsync");
            assert_eq!(take(20 * MIB), Err(999));
            assert_eq!(memory().0, 22 * MIB);
        }
        fail_once("cuMemFreeAsync");
        assert_eq!(unsafe { cuMemFreeAsync(held, stream) }, 999);
        assert_eq!(memory().0, 22 * MIB);
        // All that is left is within the limit.
        let rest = take(22 * MIB).unwrap();
        assert_eq!(memory().0, 0);
        free_on(stream, held);
        free_on(stream, rest);
        assert_eq!(memory().0, 32 * MIB);
    });
}

#[test]
fn a_request_that_a_pool_fails_at_is_the_drivers() {
    let said = complaints(&[("BINPOOL_POOL", "1")], || {
        begin(64 * MIB);
        fail_once("cuMemAlloc");
        let block = allocate(MIB).unwrap();
        free(block);
        assert_eq!((count("cuMemAlloc"), count("cuMemFree")), (2, 1));
    });
    if let Some(said) = said {
        assert!(
            said.len() == 1 && said[0].contains("a pool for CUDA: "),
            "{said:?}"
        );
    }
}

/// Allocates a block, and gives device 1 rights to the driver's pool while the driver refuses this many times. Returns whether it may use the block.
fn share(refused: u64) -> bool {
    begin(256 * MIB);
    let block = allocate_on(create_stream(), 64 * MIB).unwrap();
    let (mut pool, read_and_write_of_device_1) = (0, [1_i32, 1, 3]);
    fail(refused, "cuMemSetAccess");
    let access = ptr::from_ref(&read_and_write_of_device_1).cast();
    unsafe {
        assert_eq!(cuDeviceGetMemPool(&raw mut pool, 0), 0);
        assert_eq!(cuMemPoolSetAccess(pool, access, 1), 0);
    }
    let can_use = control::<extern "C" fn(i32, u64) -> bool>("stand_in_can_use");
    [block, block + 64 * MIB as u64 - 1]
        .iter()
        .all(|address| can_use(1, *address))
}

#[test]
fn rights_to_a_block_that_the_driver_is_not_ready_to_give_are_asked_for_again() {
    pooled(|| assert!(share(50)));
}

#[test]
fn a_program_is_told_of_rights_to_its_blocks_that_the_driver_does_not_give() {
    let said = complaints(&[("BINPOOL_POOL", "1")], || assert!(!share(100)));
    if let Some(said) = said {
        assert!(
            said.len() == 1 && said[0].contains("before they got access"),
            "{said:?}"
        );
    }
}
