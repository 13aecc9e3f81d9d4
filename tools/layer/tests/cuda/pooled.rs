//! What a program sees of the pools under it.

use std::{ptr, thread};

use binpool_layer::PoolFigures;

use crate::{
    calls::{
        Gate, MIB, ORDINARY, OUT_OF_MEMORY, PER_THREAD, allocate, allocate_from, allocate_on,
        begin, control, count, create_stream, cuCtxEnablePeerAccess, cuCtxSetCurrent,
        cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDevicePrimaryCtxRelease_v2,
        cuDevicePrimaryCtxReset_v2, cuMemAlloc_v2, cuMemAllocAsync, cuMemAllocAsync_ptsz,
        cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, cuMemAllocManaged,
        cuMemAllocPitch_v2, cuMemCreate, cuMemFreeAsync_ptsz, cuMemHostAlloc, cuMemPoolCreate,
        cuMemPoolDestroy, cuMemPoolSetAccess, cuMemPoolTrimTo, cuMemRelease, cuMemUnmap,
        cuPointerGetAttribute, cuPointerGetAttributes, cuStreamBeginCapture_v2, cuStreamEndCapture,
        destroy_stream, fail_once, fill, free, free_on, make_pool, map_pages, memory, range, read,
        used, wait,
    },
    child::{in_child, limited, pooled},
};

#[test]
fn blocks_of_a_stream_come_from_pages_and_are_used_again() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let first = allocate_on(stream, MIB).unwrap();
        free_on(stream, first);
        let created = count("cuMemCreate");
        for _ in 0..100 {
            let block = allocate_on(stream, MIB).unwrap();
            assert_eq!(block, first);
            free_on(stream, block);
        }
        assert_eq!(count("cuMemCreate"), created);
        assert_eq!((count("cuMemAllocAsync"), count("cuMemFreeAsync")), (0, 0));
    });
}

#[test]
fn memory_of_any_stream_is_a_whole_block_of_the_driver_and_used_again() {
    pooled(|| {
        begin(64 * MIB);
        let first = allocate(1000).unwrap();
        assert_eq!(count("cuMemAlloc"), 1);
        free(first);
        assert_eq!(allocate(1000).unwrap(), first);
        // Another size is another block.
        assert_ne!(allocate(2000).unwrap(), first);
        assert_eq!((count("cuMemAlloc"), count("cuMemFree")), (2, 0));
    });
}

#[test]
fn a_free_of_any_stream_waits_for_all_streams_as_the_driver_does() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, block) = (create_stream(), allocate(MIB).unwrap());
        let gate = Gate::before(stream);
        fill(stream, block, 7, MIB);
        let opens = thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(20));
            drop(gate);
        });
        free(block);
        // Nothing else uses the block now.
        let again = allocate(MIB).unwrap();
        assert_eq!(again, block);
        let other = create_stream();
        fill(other, again, 9, MIB);
        assert_eq!(read(other, again, MIB), vec![9; MIB]);
        opens.join().unwrap();
    });
}

#[test]
fn a_block_that_is_freed_on_another_stream_waits_for_that() {
    pooled(|| {
        begin(64 * MIB);
        let [one, other] = [(); 2].map(|()| create_stream());
        let block = allocate_on(one, MIB).unwrap();
        let gate = Gate::before(other);
        fill(other, block, 7, MIB);
        free_on(other, block);
        let next = allocate_on(one, MIB).unwrap();
        assert_ne!(next, block);
        drop(gate);
        wait(other);
        assert_eq!(allocate_on(one, MIB).unwrap(), block);
    });
}

#[test]
fn each_kind_of_block_may_be_freed_by_either_call() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let (ordered, plain) = (allocate_on(stream, MIB).unwrap(), allocate(MIB).unwrap());
        free(ordered);
        assert_eq!(allocate_on(stream, MIB).unwrap(), ordered);
        let gate = Gate::before(stream);
        fill(stream, plain, 1, MIB);
        free_on(stream, plain);
        assert_ne!(allocate(MIB).unwrap(), plain);
        drop(gate);
        wait(stream);
        assert_eq!(allocate(MIB).unwrap(), plain);
        assert_eq!((count("cuMemFree"), count("cuMemFreeAsync")), (0, 0));
    });
}

#[test]
fn a_block_answers_as_one_of_its_own() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        // It is not the first of its pages.
        let _first = allocate_on(stream, 1000);
        for block in [allocate_on(stream, 1000).unwrap(), allocate(1000).unwrap()] {
            for inside in [0, 10, 999] {
                assert_eq!(range(block + inside), Ok((block, 1000)));
            }
            assert_ne!(range(block + 1000), Ok((block, 1000)));
            let (mut start, mut bytes) = (0, 0);
            let code = unsafe { cuPointerGetAttribute(&raw mut start, 11, block + 10) };
            assert_eq!((code, start), (0, block));
            let places = [&raw mut bytes, &raw mut start];
            start = 0;
            let code = unsafe {
                cuPointerGetAttributes(2, [12, 11].as_ptr(), places.as_ptr(), block + 999)
            };
            assert_eq!((code, start, bytes), (0, block, 1000));
            free(block);
        }
    });
}

#[test]
fn nothing_and_what_is_not_there_are_answered_by_the_driver() {
    pooled(|| {
        begin(64 * MIB);
        assert_eq!((allocate(0), allocate_on(PER_THREAD, 0)), (Err(1), Err(1)));
        let nowhere = ptr::null_mut();
        assert_eq!(unsafe { cuMemAlloc_v2(nowhere, 1000) }, 1);
        assert_eq!(unsafe { cuMemAllocAsync(nowhere, 1000, PER_THREAD) }, 1);
        assert_eq!(unsafe { crate::calls::cuMemFree_v2(12345) }, 1);
        let block = allocate(1000).unwrap();
        assert_eq!(unsafe { crate::calls::cuMemFree_v2(block + 8) }, 1);
        free(block);
        assert_eq!(unsafe { crate::calls::cuMemFree_v2(block) }, 1);
    });
}

#[test]
fn the_limit_is_what_the_device_seems_to_have() {
    limited(|| {
        begin(64 * MIB);
        assert_eq!(memory(), (32 * MIB, 32 * MIB));
        let stream = create_stream();
        let block = allocate_on(stream, 20 * MIB).unwrap();
        assert_eq!(memory(), (12 * MIB, 32 * MIB));
        assert_eq!(allocate(20 * MIB), Err(OUT_OF_MEMORY));
        free_on(stream, block);
        // What is kept for one kind of memory is released for the other.
        let block = allocate(20 * MIB).unwrap();
        assert_eq!(memory().0, 12 * MIB);
        free(block);
        assert_eq!(memory().0, 32 * MIB);
        assert!(used() <= 32 * MIB);
    });
}

#[test]
fn memory_that_is_not_from_pools_counts_for_the_limit() {
    limited(|| {
        begin(64 * MIB);
        free(allocate(20 * MIB).unwrap());
        let mut pages = 0;
        // What is kept is released for it.
        let create = |pages: &mut u64| unsafe { cuMemCreate(pages, 20 * MIB, ptr::null(), 0) };
        assert_eq!(create(&mut pages), 0);
        assert_eq!(memory().0, 12 * MIB);
        assert_eq!(create(&mut 0), OUT_OF_MEMORY);
        assert_eq!(allocate(20 * MIB), Err(OUT_OF_MEMORY));
        assert_eq!(unsafe { cuMemRelease(pages) }, 0);
        assert!(allocate(20 * MIB).is_ok());
    });
}

#[test]
fn memory_that_the_host_may_have_counts_for_no_limit() {
    limited(|| {
        begin(128 * MIB);
        let (mut managed, mut pinned) = (0, 0);
        unsafe {
            assert_eq!(cuMemAllocManaged(&raw mut managed, 40 * MIB, 1), 0);
            assert_eq!(cuMemHostAlloc(&raw mut pinned, 40 * MIB, 1), 0);
        }
        let blocks = [12, 20].map(|mib| allocate(mib * MIB).unwrap());
        free(managed);
        assert_eq!(allocate(20 * MIB), Err(OUT_OF_MEMORY));
        blocks.into_iter().for_each(free);
    });
}

#[test]
fn memory_with_a_pitch_is_the_drivers_and_counts_for_the_limit() {
    limited(|| {
        begin(64 * MIB);
        let (mut address, mut pitch) = (0, 0);
        let code =
            unsafe { cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 1 << 10, 20 << 10, 4) };
        assert_eq!((code, count("cuMemAllocPitch")), (0, 1));
        assert_eq!(memory().0, 12 * MIB);
        assert_eq!(allocate(20 * MIB), Err(OUT_OF_MEMORY));
        free(address);
        assert_eq!((memory().0, count("cuMemFree")), (32 * MIB, 1));
    });
}

#[test]
fn an_address_that_the_driver_gives_again_is_freed_by_the_driver() {
    pooled(|| {
        begin(64 * MIB);
        control::<extern "C" fn(i32)>("stand_in_reuse_addresses")(0);
        let block = allocate(40 * MIB).unwrap();
        free(block);
        // What the pool keeps is released for it.
        let other = allocate(30 * MIB).unwrap();
        let mut again = 0;
        assert_eq!(unsafe { cuMemAllocManaged(&raw mut again, 40 * MIB, 1) }, 2);
        free(other);
        assert_eq!(unsafe { cuMemAllocManaged(&raw mut again, 40 * MIB, 1) }, 0);
        assert_eq!(again, block);
        free(again);
        assert_eq!(unsafe { crate::calls::cuMemFree_v2(again) }, 1);
    });
}

#[test]
fn pages_count_for_the_limit_until_they_are_unmapped() {
    limited(|| {
        begin(64 * MIB);
        let mapped = map_pages(20 * MIB).unwrap();
        assert_eq!(memory().0, 12 * MIB);
        assert_eq!(map_pages(20 * MIB), Err(OUT_OF_MEMORY));
        assert_eq!(unsafe { cuMemUnmap(mapped, 20 * MIB) }, 0);
        assert_eq!(memory().0, 32 * MIB);
    });
}

#[test]
fn what_ends_with_its_context_counts_for_the_limit_no_more() {
    limited(|| {
        let (mut pool, mut address) = (0, 0);
        let mut take = |stream| unsafe {
            assert_eq!(cuMemPoolCreate(&raw mut pool, ptr::null()), 0);
            cuMemAllocFromPoolAsync(&raw mut address, 20 * MIB, pool, stream)
        };
        for end in [cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRelease_v2] {
            begin(256 * MIB);
            let stream = create_stream();
            assert_eq!(take(stream), 0);
            assert_eq!(take(stream), OUT_OF_MEMORY);
            assert_eq!(unsafe { end(0) }, 0);
            begin(256 * MIB);
            assert_eq!(memory().0, 32 * MIB);
            unsafe {
                cuDevicePrimaryCtxRelease_v2(0);
                cuDevicePrimaryCtxRelease_v2(0);
            }
        }
    });
}

#[test]
fn requests_at_the_same_time_stay_within_the_limit_together() {
    limited(|| {
        begin(1024 * MIB);
        for _ in 0..50 {
            let start = std::sync::Barrier::new(4);
            let made: Vec<_> = thread::scope(|scope| {
                let request = || {
                    assert_eq!(unsafe { cuCtxSetCurrent(1 << 20) }, 0);
                    start.wait();
                    map_pages(20 * MIB).ok()
                };
                let threads = [(); 4].map(|()| scope.spawn(request));
                let made = threads.into_iter();
                made.filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(made.len(), 1);
            assert_eq!(unsafe { cuMemUnmap(made[0], 20 * MIB) }, 0);
        }
        assert_eq!(memory().0, 32 * MIB);
    });
}

#[test]
fn once_a_program_changes_who_may_use_memory_it_is_the_drivers() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let (ordered, plain) = (allocate_on(stream, MIB).unwrap(), allocate(MIB).unwrap());
        // Both may fail: there is no such pool, and a device is no peer of its own.
        unsafe {
            cuMemPoolSetAccess(1, ptr::null(), 0);
            cuCtxEnablePeerAccess(0, 0);
        }
        let others = (allocate_on(stream, MIB).unwrap(), allocate(MIB).unwrap());
        assert_eq!((count("cuMemAllocAsync"), count("cuMemAlloc")), (1, 2));
        free_on(stream, ordered);
        free(plain);
        free_on(stream, others.0);
        free(others.1);
        assert_eq!((count("cuMemFreeAsync"), count("cuMemFree")), (1, 2));
    });
}

#[test]
fn a_device_that_may_use_the_pool_of_the_driver_may_use_blocks_that_were_allocated_before() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let blocks = [1000, 5 * MIB, 1000].map(|bytes| allocate_on(stream, bytes).unwrap());
        let can_use = |device, address| {
            control::<extern "C" fn(i32, u64) -> bool>("stand_in_can_use")(device, address)
        };
        let last = blocks[1] + 5 * MIB as u64 - 1;
        assert!(!can_use(1, blocks[0]) && can_use(0, blocks[0]));
        let (mut pool, read_and_write_of_device_1) = (0, [1_i32, 1, 3]);
        unsafe {
            assert_eq!(cuDeviceGetMemPool(&raw mut pool, 0), 0);
            let access = read_and_write_of_device_1.as_ptr().cast();
            assert_eq!(cuMemPoolSetAccess(pool, access, 1), 0);
        }
        for address in blocks.into_iter().chain([last]) {
            assert!(can_use(1, address) && can_use(0, address));
        }
    });
}

#[test]
fn memory_from_ordinary_pools_of_the_driver_is_that_of_the_stream() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, own, mut default) = (create_stream(), make_pool(ORDINARY), 0);
        assert_eq!(unsafe { cuDeviceGetDefaultMemPool(&raw mut default, 0) }, 0);
        let block = allocate_on(stream, MIB).unwrap();
        free_on(stream, block);
        for pool in [default, own] {
            assert_eq!(allocate_from(pool, stream, MIB), Ok(block));
            free_on(stream, block);
        }
        let mut of_thread = 0;
        let code = unsafe { cuMemAllocFromPoolAsync_ptsz(&raw mut of_thread, MIB, own, 0) };
        assert_eq!(code, 0);
        let gate = Gate::before(PER_THREAD);
        assert_eq!(unsafe { cuMemFreeAsync_ptsz(of_thread, 0) }, 0);
        assert_eq!(allocate_from(own, PER_THREAD, MIB), Ok(of_thread));
        drop(gate);
        assert_eq!(
            (count("cuMemAllocFromPoolAsync"), count("cuMemFreeAsync")),
            (0, 0)
        );
    });
}

#[test]
fn blocks_outlive_a_pool_of_the_program_that_is_the_drivers_to_refuse_then() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, pool) = (create_stream(), make_pool(ORDINARY));
        fail_once("cuMemPoolDestroy");
        assert_eq!(unsafe { cuMemPoolDestroy(pool) }, 999);
        let block = allocate_from(pool, stream, MIB).unwrap();
        assert_eq!(count("cuMemAllocFromPoolAsync"), 0);
        assert_eq!(unsafe { cuMemPoolDestroy(pool) }, 0);
        assert_eq!(allocate_from(pool, stream, MIB), Err(400));
        assert_eq!(count("cuMemAllocFromPoolAsync"), 1);
        fill(stream, block, 7, MIB);
        assert_eq!(read(stream, block, MIB), vec![7; MIB]);
        free_on(stream, block);
        assert_eq!(allocate_on(stream, MIB), Ok(block));
    });
}

#[test]
fn a_device_that_may_use_a_pool_of_the_program_may_use_blocks_that_came_in_its_place() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, pool) = (create_stream(), make_pool(ORDINARY));
        let block = allocate_from(pool, stream, MIB).unwrap();
        let access = ptr::from_ref(&[1_i32, 1, 3]).cast();
        assert_eq!(unsafe { cuMemPoolSetAccess(pool, access, 1) }, 0);
        let next = allocate_from(pool, stream, MIB).unwrap();
        assert_eq!(count("cuMemAllocFromPoolAsync"), 1);
        let can_use = control::<extern "C" fn(i32, u64) -> bool>("stand_in_can_use");
        for block in [block, next] {
            assert!(can_use(1, block));
            free_on(stream, block);
        }
        assert_eq!(count("cuMemFreeAsync"), 1);
    });
}

#[test]
fn default_streams_of_threads_are_streams_of_their_own() {
    pooled(|| {
        begin(64 * MIB);
        let block = allocate_on(PER_THREAD, MIB).unwrap();
        let gate = Gate::before(PER_THREAD);
        fill(PER_THREAD, block, 7, MIB);
        free_on(PER_THREAD, block);
        let other = thread::spawn(|| {
            assert_eq!(unsafe { cuCtxSetCurrent(1 << 20) }, 0);
            allocate_on(PER_THREAD, MIB).unwrap()
        });
        assert_ne!(other.join().unwrap(), block);
        assert_eq!(allocate_on(PER_THREAD, MIB).unwrap(), block);
        drop(gate);
    });
}

#[test]
fn stream_0_of_a_function_for_threads_is_the_default_stream_of_the_thread() {
    pooled(|| {
        begin(64 * MIB);
        let mut block = 0;
        assert_eq!(unsafe { cuMemAllocAsync_ptsz(&raw mut block, MIB, 0) }, 0);
        let gate = Gate::before(PER_THREAD);
        assert_eq!(unsafe { cuMemFreeAsync_ptsz(block, 0) }, 0);
        assert_ne!(allocate_on(0, MIB), Ok(block));
        assert_eq!(allocate_on(PER_THREAD, MIB), Ok(block));
        drop(gate);
        assert_eq!((count("cuMemAllocAsync"), count("cuMemFreeAsync")), (0, 0));
    });
}

#[test]
fn kept_memory_counts_as_free() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let block = allocate_on(stream, 20 * MIB).unwrap();
        assert_eq!(memory().0, 44 * MIB);
        free_on(stream, block);
        assert_eq!(memory().0, 64 * MIB);
        assert!(used() > 0);
    });
}

#[test]
fn kept_memory_is_released_for_memory_that_is_not_from_pools() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        free_on(stream, allocate_on(stream, 40 * MIB).unwrap());
        wait(stream);
        let mut address = 0;
        assert_eq!(
            unsafe { cuMemAllocManaged(&raw mut address, 40 * MIB, 1) },
            0
        );
        assert_eq!(
            unsafe { cuMemAllocManaged(&raw mut address, 40 * MIB, 1) },
            OUT_OF_MEMORY
        );
        // With nothing to release, it is not asked again.
        assert_eq!(count("cuMemAllocManaged"), 3);
    });
}

#[test]
fn what_a_captured_stream_allocates_is_the_drivers() {
    pooled(|| {
        begin(64 * MIB);
        let [stream, other] = [(); 2].map(|()| create_stream());
        let before = allocate_on(stream, MIB).unwrap();
        assert_eq!(unsafe { cuStreamBeginCapture_v2(stream, 2) }, 0);
        let captured = allocate_on(stream, MIB).unwrap();
        assert_eq!(count("cuMemAllocAsync"), 1);
        // Another stream is not captured.
        free_on(other, allocate_on(other, MIB).unwrap());
        assert_eq!(count("cuMemAllocAsync"), 1);
        let mut graph = 0;
        assert_eq!(unsafe { cuStreamEndCapture(stream, &raw mut graph) }, 0);
        free_on(stream, before);
        free_on(stream, captured);
        assert_eq!(count("cuMemFreeAsync"), 1);
    });
}

#[test]
fn a_free_in_a_capture_does_not_spoil_it() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, block) = (create_stream(), allocate(MIB).unwrap());
        assert_eq!(unsafe { cuStreamBeginCapture_v2(stream, 2) }, 0);
        free(block);
        let mut graph = 0;
        assert_eq!(unsafe { cuStreamEndCapture(stream, &raw mut graph) }, 0);
        assert_eq!(used(), 0);
    });
}

#[test]
fn memory_of_a_context_that_is_not_primary_is_the_drivers() {
    pooled(|| {
        begin(64 * MIB);
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
        free(allocate(MIB).unwrap());
        free(allocate(MIB).unwrap());
        assert_eq!((count("cuMemAlloc"), count("cuMemFree")), (2, 2));
    });
}

#[test]
fn a_stream_that_was_destroyed_lives_until_no_pool_needs_it() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let block = allocate_on(stream, MIB).unwrap();
        destroy_stream(stream);
        assert_eq!(count("cuStreamDestroy"), 0);
        // The block is still the program's, and may be freed on any stream.
        let other = create_stream();
        free_on(other, block);
        wait(other);
        destroy_stream(other);
        // Those whose commands have not ended are needed a little longer.
        let is_done = (0..1000).any(|_| {
            let stream = create_stream();
            free_on(stream, allocate_on(stream, MIB).unwrap());
            destroy_stream(stream);
            thread::sleep(std::time::Duration::from_millis(1));
            count("cuStreamDestroy") >= 20
        });
        assert!(is_done, "{}", count("cuStreamDestroy"));
        // It is none any more: another may get its handle.
        assert_eq!(allocate_on(stream, MIB), Err(400));
    });
}

#[test]
fn all_memory_goes_back_with_the_last_use_of_the_context() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        free_on(stream, allocate_on(stream, 8 * MIB).unwrap());
        let _left = (allocate_on(stream, 8 * MIB), allocate(MIB));
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
        assert_eq!(used(), 0);
        // The stand-in ends no streams with their context.
        assert_eq!(
            control::<extern "C" fn(i32) -> usize>("stand_in_objects")(0),
            1
        );
        // It begins anew.
        begin(64 * MIB);
        free(allocate(MIB).unwrap());
    });
}

#[test]
fn a_child_of_a_fork_is_refused_by_the_driver_and_ends_as_without_pools() {
    pooled(|| {
        begin(64 * MIB);
        let block = allocate(MIB).unwrap();
        // SAFETY: the child calls nothing but what a program may call in one.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = unsafe { crate::calls::cuMemFree_v2(block) };
            let is_the_drivers = code == 0 && count("cuMemFree") == 1;
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(if is_the_drivers { 10 } else { 11 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is a place for the answer.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 10);
        // The driver freed it, in the child's copy of the stand-in.
        free(block);
        assert_eq!(count("cuMemFree"), 0);
    });
}

#[test]
fn a_child_of_a_process_that_has_not_initialized_the_driver_has_pools() {
    pooled(|| {
        // It asks the driver something, as a program that looks for its version does.
        let _lacking = unsafe { crate::calls::cuMipmappedArrayDestroy(1) };
        // There are no such flags.
        assert_eq!(unsafe { crate::calls::cuInit(1) }, 1);
        // SAFETY: no other thread of the process uses the driver or the layer.
        let child = unsafe { libc::fork() };
        if child == 0 {
            begin(64 * MIB);
            free(allocate(MIB).unwrap());
            let is_pooled = count("cuMemFree") == 0;
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(if is_pooled { 10 } else { 11 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is a place for the answer.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 10);
    });
}

#[test]
fn blocks_of_threads_and_streams_do_not_overlap() {
    pooled(|| {
        begin(256 * MIB);
        let context = 1 << 20;
        let program = move |seed: u64| {
            assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
            let streams = [(); 3].map(|()| create_stream());
            let mut random = seed;
            let mut next = move |below: usize| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) as usize % below
            };
            let mut live: Vec<(u64, usize, u8, Option<usize>)> = Vec::new();
            for round in 0..300 {
                let stream = streams[next(3)];
                if live.len() > 8 || (next(2) == 0 && !live.is_empty()) {
                    let (address, bytes, value, own) = live.swap_remove(next(live.len()));
                    let on = own.unwrap_or(stream);
                    assert!(
                        read(on, address, bytes).iter().all(|byte| *byte == value),
                        "round {round}"
                    );
                    match next(3) {
                        0 => free(address),
                        _ => free_on(on, address),
                    }
                } else {
                    let most = 1 << (8 + next(12));
                    let bytes = 1 + next(most);
                    let own = (next(3) > 0).then_some(stream);
                    let address = match own {
                        Some(stream) => allocate_on(stream, bytes),
                        None => allocate(bytes),
                    };
                    let (address, value) = (address.unwrap(), u8::try_from(next(256)).unwrap());
                    fill(stream, address, value, bytes);
                    if own.is_none() {
                        wait(stream);
                    }
                    live.push((address, bytes, value, own));
                }
            }
            for (address, ..) in live {
                free(address);
            }
            streams.into_iter().for_each(destroy_stream);
        };
        thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || program(seed));
            }
        });
    });
}

#[test]
fn what_pools_did_is_in_a_file_after_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("pooled");
    let variables = [
        ("BINPOOL_POOL", "1"),
        ("BINPOOL_POOLED", sign.to_str().unwrap()),
    ];
    let ran = in_child(&variables, || {
        begin(64 * MIB);
        let first = allocate(MIB).unwrap();
        let _second = allocate(2 * MIB).unwrap();
        free(first);
        let mut managed = 0;
        assert_eq!(unsafe { cuMemAllocManaged(&raw mut managed, MIB, 1) }, 0);
        assert_eq!(allocate(100 * MIB), Err(OUT_OF_MEMORY));
    });
    if ran.is_some() {
        let files = std::fs::read_dir(folder.path()).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        let path = paths.find(|path| *path != sign).unwrap();
        let expected = PoolFigures {
            requests: 4,
            served: 2,
            refused_by_limit: 0,
            most_reserved: 3 << 20,
            held_then: 0,
        };
        assert_eq!(PoolFigures::read(&path).unwrap(), expected);
    }
}

#[test]
fn memory_of_a_pool_of_the_host_counts_for_no_limit() {
    limited(|| {
        begin(128 * MIB);
        let stream = create_stream();
        // `CU_MEM_LOCATION_TYPE_HOST` and `CU_MEM_LOCATION_TYPE_HOST_NUMA`.
        for location in [2, 3] {
            let mut properties = ORDINARY;
            properties[1] = location;
            let pool = make_pool(properties);
            assert!(allocate_from(pool, stream, 40 * MIB).is_ok(), "{location}");
        }
        assert!(allocate(20 * MIB).is_ok());
        assert!(allocate(20 * MIB).is_err());
    });
}

#[test]
fn a_pool_of_the_driver_that_is_trimmed_or_ends_gives_back_what_is_kept_in_its_place() {
    pooled(|| {
        begin(64 * MIB);
        let (stream, pool) = (create_stream(), make_pool(ORDINARY));
        let free_one = || {
            free_on(stream, allocate_from(pool, stream, 40 * MIB).unwrap());
            wait(stream);
            assert_eq!(used(), 40 * MIB, "it is kept");
        };
        free_one();
        assert_eq!(unsafe { cuMemPoolTrimTo(pool, 0) }, 0);
        assert_eq!(used(), 0);
        free_one();
        assert_eq!(unsafe { cuMemPoolDestroy(pool) }, 0);
        assert_eq!(used(), 0);
    });
}
