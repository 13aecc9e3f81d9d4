//! Programs on several devices, and contexts that are not current.

use std::{ffi::c_int, ptr, sync::Barrier, thread};

use crate::{
    calls::{
        Gate, MIB, ORDINARY, OUT_OF_MEMORY, PER_THREAD, allocate, allocate_from, allocate_on,
        begin_on, control, count, count_on, create_stream, cuCtxDestroy_v2, cuCtxGetCurrent,
        cuDeviceGetMemPool, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2,
        cuDevicePrimaryCtxRetain, cuMemAllocAsync, cuMemPoolSetAccess, destroy_stream, fail_once,
        free, free_on, make_current, make_pool, memory, range, used_on, wait,
    },
    child::{limited, pooled},
};

/// The handle of the legacy default stream.
const LEGACY: usize = 1;

/// The primary contexts of devices 0 and 1. The first one is current.
fn both() -> [usize; 2] {
    let other = begin_on(1, 64 * MIB);
    [begin_on(0, 64 * MIB), other]
}

fn current() -> usize {
    let mut context = 0;
    assert_eq!(unsafe { cuCtxGetCurrent(&raw mut context) }, 0);
    context
}

/// How often `body` has the driver wait for all commands of each device.
fn waits<const COUNT: usize>(body: impl FnOnce()) -> [u64; COUNT] {
    let count = |device| count_on(c_int::try_from(device).unwrap(), "cuCtxSynchronize");
    let counts = || std::array::from_fn(count);
    let before: [u64; COUNT] = counts();
    body();
    let after: [u64; COUNT] = counts();
    std::array::from_fn(|device| after[device] - before[device])
}

#[test]
fn a_free_waits_for_the_device_of_its_block_whichever_is_current() {
    pooled(|| {
        let [one, other] = both();
        for context in [one, other, 0] {
            make_current(one);
            let block = allocate(MIB).unwrap();
            make_current(context);
            assert_eq!(waits(|| free(block)), [1, 0]);
            assert_eq!(current(), context);
        }
        assert_eq!((count("cuMemAlloc"), count("cuMemFree")), (1, 0));
    });
}

/// Blocks of the current context: for a stream, for one with the handle of another, and for any.
fn blocks(of: usize, stream: usize) -> [u64; 3] {
    let of_default = allocate_on(stream.min(PER_THREAD), MIB);
    [allocate_on(of, MIB), of_default, allocate(MIB)].map(Result::unwrap)
}

#[test]
fn a_block_that_is_freed_on_a_stream_of_another_device_waits_for_that() {
    pooled(|| {
        let [one, other] = both();
        let own = create_stream();
        make_current(other);
        for stream in [create_stream(), LEGACY, PER_THREAD] {
            make_current(one);
            let freed = blocks(own, stream);
            make_current(other);
            let gate = Gate::before(stream);
            for block in freed {
                free_on(stream, block);
            }
            make_current(one);
            let others = blocks(own, stream);
            assert!(!others.iter().any(|block| freed.contains(block)));
            drop(gate);
            make_current(other);
            wait(stream);
            make_current(one);
            let again = blocks(own, stream);
            assert!(again.iter().all(|block| freed.contains(block)));
        }
    });
}

#[test]
fn a_block_that_is_freed_on_a_stream_of_a_context_without_pools_waits_for_that() {
    pooled(|| {
        let [one, other] = both();
        // Nothing retains it.
        let foreign = other + 1;
        make_current(foreign);
        for stream in [create_stream(), LEGACY, PER_THREAD] {
            make_current(one);
            let freed = blocks(create_stream(), stream);
            make_current(foreign);
            for block in freed {
                assert_eq!(waits(|| free_on(stream, block)), [0, 0, 1]);
            }
        }
    });
}

#[test]
fn a_block_is_freed_on_streams_of_its_own_context_without_a_wait() {
    pooled(|| {
        let [_, other] = both();
        make_current(other);
        let streams = [create_stream(), create_stream(), LEGACY, PER_THREAD];
        for stream in streams {
            for of in streams {
                let block = allocate_on(of, MIB).unwrap();
                assert_eq!(waits(|| free_on(stream, block)), [0, 0]);
            }
            let block = allocate(MIB).unwrap();
            assert_eq!(waits(|| free_on(stream, block)), [0, 0]);
            let block = allocate_on(stream, MIB).unwrap();
            assert_eq!(waits(|| free(block)), [0, 0]);
        }
    });
}

#[test]
fn a_device_whose_stream_was_named_while_another_was_current_has_pools() {
    pooled(|| {
        let [one, other] = both();
        make_current(other);
        let stream = create_stream();
        make_current(one);
        // The stand-in refuses it; what counts is that the layer has seen the stream.
        assert_ne!(unsafe { cuMemAllocAsync(&mut 0, MIB, stream) }, 0);
        make_current(other);
        free_on(stream, allocate_on(stream, MIB).unwrap());
        assert_eq!(count_on(1, "cuMemAllocAsync"), 0);
    });
}

#[test]
fn the_limit_is_for_all_devices_together_and_what_one_keeps_is_released_for_another() {
    limited(|| {
        let [_, other] = both();
        let block = allocate(20 * MIB).unwrap();
        make_current(other);
        assert_eq!(memory(), (12 * MIB, 32 * MIB));
        assert_eq!(allocate(20 * MIB), Err(OUT_OF_MEMORY));
        free(block);
        assert_eq!(memory(), (32 * MIB, 32 * MIB));
        assert_eq!(used_on(0), 20 * MIB);
        let block = allocate(20 * MIB).unwrap();
        assert_eq!(memory(), (12 * MIB, 32 * MIB));
        free(block);
    });
}

#[test]
fn what_another_device_keeps_is_not_free_on_this_one() {
    pooled(|| {
        let [_, other] = both();
        free(allocate(20 * MIB).unwrap());
        make_current(other);
        free(allocate(8 * MIB).unwrap());
        let last = allocate(MIB).unwrap();
        assert_eq!(memory(), (63 * MIB, 64 * MIB));
        free(last);
    });
}

#[test]
fn the_end_of_a_context_leaves_what_the_program_has_on_other_devices() {
    pooled(|| {
        for end in [cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRelease_v2] {
            let [_, other] = both();
            let _left = (allocate(MIB), allocate_on(create_stream(), MIB));
            make_current(other);
            let stream = create_stream();
            let blocks = [
                allocate(2 * MIB).unwrap(),
                allocate_on(stream, 1000).unwrap(),
            ];
            let used = used_on(1);
            assert_eq!(waits(|| assert_eq!(unsafe { end(0) }, 0)), [1, 0]);
            assert_eq!([0, 1].map(used_on), [0, used]);
            assert_eq!(range(blocks[0]), Ok((blocks[0], 2 * MIB)));
            assert_eq!(range(blocks[1]), Ok((blocks[1], 1000)));
            free(blocks[0]);
            free_on(stream, blocks[1]);
            assert_eq!(allocate(2 * MIB), Ok(blocks[0]));
            assert_eq!(allocate_on(stream, 1000), Ok(blocks[1]));
            unsafe {
                cuDevicePrimaryCtxRelease_v2(0);
                cuDevicePrimaryCtxRelease_v2(1);
            }
        }
    });
}

#[test]
fn a_context_ends_when_it_is_released_as_often_as_it_was_retained() {
    pooled(|| {
        let [one, _] = both();
        begin_on(0, 64 * MIB);
        fail_once("cuDevicePrimaryCtxRetain");
        assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&mut 0, 0) }, 999);
        make_current(one);
        let block = allocate(MIB).unwrap();
        for device in [1, 0] {
            assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(device) }, 0);
            assert_eq!(range(block), Ok((block, MIB)));
        }
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
        assert_eq!((used_on(0), range(block)), (0, Err(1)));
    });
}

#[test]
fn rights_to_the_pool_of_a_device_are_none_to_blocks_of_another() {
    pooled(|| {
        let [one, other] = both();
        make_current(other);
        let of_other = allocate_on(create_stream(), MIB).unwrap();
        make_current(one);
        let of_one = allocate_on(create_stream(), MIB).unwrap();
        let (mut pool, read_and_write_of_device_2) = (0, [1_i32, 2, 3]);
        let access = ptr::from_ref(&read_and_write_of_device_2).cast();
        unsafe {
            assert_eq!(cuDeviceGetMemPool(&raw mut pool, 0), 0);
            assert_eq!(cuMemPoolSetAccess(pool, access, 1), 0);
        }
        let can_use =
            |address| control::<extern "C" fn(i32, u64) -> bool>("stand_in_can_use")(2, address);
        assert_eq!([of_one, of_other].map(can_use), [true, false]);
    });
}

#[test]
fn a_pool_of_the_driver_is_that_of_its_device_until_the_context_ends() {
    pooled(|| {
        let contexts = both();
        let pools = [0, 1].map(|device| {
            make_current(contexts[device]);
            let mut properties = ORDINARY;
            properties[1] |= (device as u64) << 32;
            make_pool(properties)
        });
        let stream = create_stream();
        assert!(allocate_from(pools[1], stream, MIB).is_ok());
        assert_eq!(count_on(1, "cuMemAllocFromPoolAsync"), 0);
        // The stand-in has no memory of other devices.
        assert_eq!(allocate_from(pools[0], stream, MIB), Err(400));
        assert_eq!(count_on(1, "cuMemAllocFromPoolAsync"), 1);
        assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(0) }, 0);
        begin_on(0, 64 * MIB);
        assert!(allocate_from(pools[0], create_stream(), MIB).is_ok());
        assert_eq!(count("cuMemAllocFromPoolAsync"), 1);
        make_current(contexts[1]);
        assert!(allocate_from(pools[1], stream, MIB).is_ok());
        assert_eq!(count_on(1, "cuMemAllocFromPoolAsync"), 1);
    });
}

#[test]
fn a_context_at_the_address_of_one_that_was_destroyed_may_have_pools() {
    pooled(|| {
        let [one, _] = both();
        let third = one + 2;
        make_current(third);
        free(allocate(MIB).unwrap());
        assert_eq!(count_on(2, "cuMemAlloc"), 1);
        assert_eq!(unsafe { cuCtxDestroy_v2(third) }, 0);
        assert_eq!(begin_on(2, 64 * MIB), third);
        free(allocate(MIB).unwrap());
        assert_eq!(
            (count_on(2, "cuMemAlloc"), count_on(2, "cuMemFree")),
            (2, 1)
        );
    });
}

#[test]
fn streams_that_were_destroyed_end_with_their_context() {
    pooled(|| {
        let [one, other] = both();
        let ends = |context| {
            make_current(context);
            for stream in [create_stream(), create_stream()] {
                let _left = allocate_on(stream, MIB).unwrap();
                destroy_stream(stream);
            }
        };
        [other, one].into_iter().for_each(ends);
        let objects = |device| control::<extern "C" fn(i32) -> usize>("stand_in_objects")(device);
        let of_other = objects(1);
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
        assert_eq!([0, 1].map(objects), [0, of_other]);
    });
}

#[test]
fn a_block_that_another_thread_frees_on_its_default_stream_waits_for_that() {
    pooled(|| {
        let [one, _] = both();
        let block = allocate_on(PER_THREAD, MIB).unwrap();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                make_current(one);
                let gate = Gate::before(PER_THREAD);
                free_on(PER_THREAD, block);
                barrier.wait();
                barrier.wait();
                drop(gate);
            });
            barrier.wait();
            let next = allocate_on(PER_THREAD, MIB);
            barrier.wait();
            assert_ne!(next, Ok(block));
        });
    });
}
