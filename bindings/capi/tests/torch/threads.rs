//! Many threads at once.

use std::{
    collections::HashSet,
    ffi::c_void,
    ptr,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
};

use binpool::Queue;
use binpool_capi::torch::{
    binpool_torch_allocate, binpool_torch_free, binpool_torch_record_stream,
    binpool_torch_try_allocate, pool_of,
};
use binpool_cuda::CudaBackend;
use libloading::os::unix::Library;

use crate::child::over_stand_in;

const THREADS: isize = 8;
const ROUNDS: isize = 500;
const MIB: isize = 1 << 20;

fn allocate(bytes: isize) -> *mut c_void {
    // SAFETY: The default stream lives as long as the process.
    unsafe { binpool_torch_allocate(bytes, 0, ptr::null_mut()) }
}

fn free(pointer: *mut c_void, bytes: isize) {
    // SAFETY: As above.
    unsafe { binpool_torch_free(pointer, bytes, 0, ptr::null_mut()) };
}

#[test]
fn blocks_of_threads_are_apart_and_any_thread_frees_them() {
    over_stand_in(
        "threads::blocks_of_threads_are_apart_and_any_thread_frees_them",
        || {
            let (give, taken) = mpsc::channel();
            thread::scope(|scope| {
                for thread in 1..=THREADS {
                    let give = give.clone();
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            let bytes = 512 * (1 + (thread * round) % 40);
                            let [kept, own] = [allocate(bytes), allocate(bytes)];
                            assert_ne!(kept, own);
                            free(own, bytes);
                            give.send((kept.addr(), bytes)).unwrap();
                        }
                    });
                }
                drop(give);
                let mut held = HashSet::new();
                for (count, block) in taken.iter().enumerate() {
                    assert!(held.insert(block));
                    if count % 50 == 0 {
                        for (address, bytes) in held.drain() {
                            free(ptr::without_provenance_mut(address), bytes);
                        }
                    }
                }
                for (address, bytes) in held {
                    free(ptr::without_provenance_mut(address), bytes);
                }
            });
            assert_eq!(pool_of(0).unwrap().statistics().active_blocks, 0);
        },
    );
}

#[test]
fn what_threads_have_freed_on_their_own_default_streams_serves_others() {
    /// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
    const STREAMS: [usize; 2] = [1, 2];

    over_stand_in(
        "threads::what_threads_have_freed_on_their_own_default_streams_serves_others",
        || {
            let managed = || pool_of(0).unwrap().statistics().managed_bytes;
            let use_both = || {
                for stream in STREAMS.map(ptr::without_provenance_mut) {
                    // SAFETY: Both streams live as long as the thread.
                    let allocate = || unsafe { binpool_torch_try_allocate(MIB, 0, stream) };
                    let blocks: Vec<_> = (0..40).map(|_| allocate()).collect();
                    assert!(blocks.iter().all(|block| !block.is_null()));
                    for block in blocks {
                        // SAFETY: As above.
                        unsafe { binpool_torch_free(block, MIB, 0, stream) };
                    }
                }
            };
            let on_threads = |count| {
                (0..count).for_each(|_| thread::spawn(use_both).join().unwrap());
            };
            // Without that, they would need 4 GiB, of a device of 1 GiB.
            on_threads(100);
            assert!(managed() <= 512 << 20, "{}", managed());
            pool_of(0).unwrap().trim_to(0);
            assert_eq!(managed(), 0);
        },
    );
}

#[test]
fn a_use_on_a_threads_default_stream_is_not_one_on_that_of_another_thread() {
    over_stand_in(
        "threads::a_use_on_a_threads_default_stream_is_not_one_on_that_of_another_thread",
        || {
            type Set = extern "system" fn(*mut c_void) -> i32;
            type Wait = extern "system" fn(usize, *const AtomicU32, u32, u32) -> i32;
            const PER_THREAD: usize = 2;
            static LET_RUN: AtomicU32 = AtomicU32::new(0);

            let stream = || ptr::without_provenance_mut(PER_THREAD);
            // SAFETY: It is the stand-in.
            let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
            // SAFETY: The signature is right.
            let set = unsafe { driver.get::<Set>(b"cuCtxSetCurrent") }.unwrap();
            // SAFETY: The signature is right.
            let wait = unsafe { driver.get::<Wait>(b"cuStreamWaitValue32_v2") }.unwrap();
            let backend = CudaBackend::open(0).unwrap();
            let block = allocate(MIB);
            // SAFETY: The stream lives as long as the thread.
            unsafe { binpool_torch_record_stream(block, stream()) };
            let address = block.addr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(set(backend.raw_context()), 0);
                    assert_eq!(wait(PER_THREAD, &raw const LET_RUN, 1, 0), 0);
                    let block = ptr::without_provenance_mut(address);
                    // SAFETY: As above.
                    unsafe { binpool_torch_record_stream(block, stream()) };
                });
            });
            free(block, MIB);
            backend.per_thread_default_queue().finish().unwrap();
            backend.legacy_default_queue().finish().unwrap();
            // There is room for one more. The second takes new pages, since the block is still used.
            let others = [allocate(MIB), allocate(MIB)];
            assert!(!others.contains(&block), "{others:?}");
            LET_RUN.store(1, Ordering::Release);
        },
    );
}
