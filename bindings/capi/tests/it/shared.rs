//! Memory that host and device share.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use binpool::{Backend, QueueOrder};
use binpool_capi::{
    Block, Options, Pool, PoolMemory, Status, binpool_allocate, binpool_block_cl_mem,
    binpool_block_device_ptr, binpool_block_host_ptr, binpool_block_record_use, binpool_pool_free,
    binpool_pool_new_cuda,
};
use binpool_cuda::CudaBackend;
use libloading::os::unix::Library;

use crate::{
    child::over_stand_in,
    common::{Bench, failed, free, ok, options},
    logged::logged,
};

fn of(memory: PoolMemory) -> Options {
    Options {
        memory: memory as u32,
        ..options(0)
    }
}

/// A pool over the first CUDA device, which is one of the stand-in.
pub(crate) fn cuda_pool(memory: PoolMemory) -> *mut Pool {
    let (options, mut pool) = (of(memory), ptr::null_mut());
    // SAFETY: The options and the place live.
    ok(unsafe { binpool_pool_new_cuda(0, ptr::null_mut(), &raw const options, &raw mut pool) });
    pool
}

pub(crate) fn allocate(pool: *const Pool) -> *mut Block {
    let mut block = ptr::null_mut();
    // SAFETY: The pool lives.
    ok(unsafe { binpool_allocate(pool, 4096, &raw mut block) });
    block
}

pub(crate) fn free_pool(pool: *mut Pool) {
    // SAFETY: Each test frees its pools once.
    ok(unsafe { binpool_pool_free(pool) });
}

fn host_address(block: *const Block) -> *mut c_void {
    let mut address = ptr::null_mut();
    // SAFETY: The block lives.
    ok(unsafe { binpool_block_host_ptr(block, &raw mut address) });
    address
}

/// Asserts that a block has no address for the host.
fn is_of_the_device(block: *const Block) {
    let mut address = ptr::null_mut();
    // SAFETY: The block lives.
    let status = unsafe { binpool_block_host_ptr(block, &raw mut address) };
    let text = failed(status, Status::Unsupported);
    assert!(text.contains("`BINPOOL_MEMORY_SHARED`"), "{text}");
    assert!(address.is_null());
}

#[test]
fn only_shared_memory_of_opencl_is_for_the_host() {
    let bench = Bench::new(0);
    let block = bench.allocate(4096);
    is_of_the_device(block);
    free(block);

    let bench = Bench::with(of(PoolMemory::Shared));
    let block = bench.allocate(4096);
    let address = host_address(block).cast::<u8>();
    // SAFETY: The block is shared, and no command uses it.
    unsafe { address.write_bytes(7, 4096) };
    let (mut memory, mut offset) = (ptr::null_mut(), 0);
    // SAFETY: The block lives.
    let status = unsafe { binpool_block_cl_mem(block, &raw mut memory, &raw mut offset) };
    assert!(failed(status, Status::Unsupported).contains("use `binpool_block_host_ptr`"));
    free(block);
}

#[test]
fn only_shared_memory_of_cuda_is_for_the_host() {
    over_stand_in("shared::only_shared_memory_of_cuda_is_for_the_host", || {
        let pool = cuda_pool(PoolMemory::Device);
        let block = allocate(pool);
        is_of_the_device(block);
        free(block);
        free_pool(pool);

        let mut pool = ptr::null_mut();
        logged(
            || panic!("a warning"),
            || pool = cuda_pool(PoolMemory::Shared),
        );
        let block = allocate(pool);
        let mut address = 0;
        // SAFETY: The block lives.
        ok(unsafe { binpool_block_device_ptr(block, &raw mut address) });
        assert_eq!(host_address(block).addr() as u64, address);
        free(block);
        free_pool(pool);
    });
}

#[test]
fn shared_memory_of_cuda_is_released_after_the_commands_that_use_it() {
    over_stand_in(
        "shared::shared_memory_of_cuda_is_released_after_the_commands_that_use_it",
        || {
            type Wait = extern "system" fn(*mut c_void, *const AtomicU32, u32, u32) -> i32;
            type Set = extern "system" fn(*mut c_void) -> i32;
            static GATE: AtomicU32 = AtomicU32::new(0);

            // SAFETY: It is the stand-in.
            let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
            // SAFETY: The signature is right.
            let set = unsafe { driver.get::<Set>(b"cuCtxSetCurrent") }.unwrap();
            // SAFETY: The signature is right.
            let wait = unsafe { driver.get::<Wait>(b"cuStreamWaitValue32_v2") }.unwrap();
            let backend = CudaBackend::open(0).unwrap();
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let free_bytes = || backend.device_memory().unwrap().free_bytes;
            let before = free_bytes();

            let pool = cuda_pool(PoolMemory::Shared);
            let block = allocate(pool);
            assert_eq!(set(backend.raw_context()), 0);
            assert_eq!(wait(queue.raw(), &raw const GATE, 1, 0), 0);
            // SAFETY: The block and the stream live.
            ok(unsafe { binpool_block_record_use(block, queue.raw()) });
            free(block);
            // It does not wait for the stream, which would never end.
            free_pool(pool);
            assert!(free_bytes() < before);
            GATE.store(1, Ordering::Release);
            backend.finish_device().unwrap();
            // The next allocation finds that the commands have ended.
            let next = backend.create_managed(64).unwrap();
            assert_eq!(free_bytes(), before - 64);
            drop(next);
        },
    );
}
