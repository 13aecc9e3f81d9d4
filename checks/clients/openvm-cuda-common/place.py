"""Puts a binpool pool in the place of openvm-cuda-common's virtual memory pool."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import edit  # noqa: E402

NEEDS_GPU = True
MANAGER = "src/memory_manager"
THEIR_POOL = [f"{MANAGER}/vm_pool.rs", f"{MANAGER}/cuda.rs", "cuda/src/vpmm_shim.cu"]
# They test the inside of the pool that falls away.
TESTS_OF_THE_INSIDE = [
    "test_va_exhaustion_reserves_more",
    "run_doc_scenario",
    "test_defrag_case_a_enough_free_pages",
    "test_defrag_case_b_defrag_no_new_pages",
    "test_defrag_case_c_defrag_plus_new_page",
    "test_defrag_case_d_not_enough_for_4",
    "create_test_pool",
    "test_multiple_defrag_cycles",
    "test_coalesce_all_neighbor_cases",
    "test_no_coalesce_across_streams",
    "test_defrag_tail_regions_returned",
    "test_unmapped_region_coalescing_comprehensive",
    "test_defrag_new_pages_merge_with_existing",
    "test_defrag_various_scenarios",
]


def place():
    crate = edit.Crate(
        "openvm-cuda-common", "2.0.1", sha256="b4d0306f39a3ea924abcc1851838004b02c4d032f04a60f1a987526186316f09"
    )
    manager(crate)
    stream(crate)
    without_their_pool(crate)
    crate.add_dependency("binpool", path="pool")
    crate.add_dependency("binpool-cuda", path="backend-cuda")
    return crate


def manager(crate):
    crate.add_file(f"{MANAGER}/pool.rs", HERE / "pool.rs")
    manager = crate.source(f"{MANAGER}/mod.rs")
    for item in ("mod cuda", "use vm_pool::VirtualMemoryPool", "unsafe impl Send for MemoryManager", "unsafe impl Sync for MemoryManager"):
        manager.delete_item(item)
    for item in ("fn init", "struct AllocRecord", "impl Drop for MemoryManager", "impl Default for MemoryManager"):
        manager.delete_item(item)
    manager.replace_item("mod vm_pool", "pub(crate) mod pool;")
    manager.replace_item(
        "struct MemoryManager",
        """
        pub struct MemoryManager {
            pool: pool::Pool,
            current_size: usize,
            max_used_size: usize,
        }
        """,
    )
    manager.replace_item(
        "impl MemoryManager",
        """
        impl MemoryManager {
            /// The memory manager of the process, made at the first allocation.
            fn get() -> Result<&'static Mutex<Self>, MemoryError> {
                if let Some(manager) = MEMORY_MANAGER.get() {
                    return Ok(manager);
                }
                let pool = pool::Pool::new()?;
                Ok(MEMORY_MANAGER.get_or_init(|| Mutex::new(Self { pool, current_size: 0, max_used_size: 0 })))
            }
        }
        """,
    )
    manager.replace_body(
        "d_malloc_on",
        """
        assert!(size != 0, "a request of 0 bytes");
        let mut manager = MemoryManager::get()?.lock().map_err(|_| MemoryError::LockError)?;
        let address = manager.pool.allocate(size, stream)?;
        manager.current_size += size;
        manager.max_used_size = manager.max_used_size.max(manager.current_size);
        Ok(address)
        """,
    )
    manager.replace_body(
        "d_free",
        """
        let mut manager = MemoryManager::get()?.lock().map_err(|_| MemoryError::LockError)?;
        let (size, stream) = manager.pool.free(ptr.addr())?;
        manager.current_size -= size;
        drop(manager);
        drop(stream);
        Ok(())
        """,
    )
    uses = (
        ("use std::{ collections::HashMap, ffi::c_void, ptr::NonNull, sync::{Mutex, OnceLock}, time::{SystemTime, UNIX_EPOCH}, }",
         "use std::{\n    ffi::c_void,\n    sync::{Mutex, OnceLock},\n    time::{SystemTime, UNIX_EPOCH},\n};"),
        ("use crate::{ error::{check, MemoryError}, stream::{cudaStream_t, device_synchronize, StreamGuard}, }",
         "use crate::{\n    error::MemoryError,\n    stream::{cudaStream_t, StreamGuard},\n};"),
    )
    for theirs, ours in uses:
        manager.replace_item(theirs, ours)


def stream(crate):
    stream = crate.source("src/stream.rs")
    stream.insert_inside("struct CudaStream", "pub(crate) queue: crate::memory_manager::pool::QueueOfStream,")
    stream.insert_inside("CudaStream::new_non_blocking", "queue: Default::default(),", literal="Self")
    stream.insert_inside("CudaStream::drop", "drop(self.queue.take());")


def without_their_pool(crate):
    """Deletes their pool, its tests, and the shim in CUDA, which alone needed nvcc."""
    for path in THEIR_POOL:
        (crate.after / path).unlink()
    tests = crate.source(f"{MANAGER}/tests.rs")
    for test in TESTS_OF_THE_INSIDE:
        tests.delete_item(test)
    tests.replace_item("use super::{ d_free, d_malloc_on, vm_pool::{VirtualMemoryPool, VpmmConfig}, }", "use super::{d_free, d_malloc_on};")
    build = crate.source("build.rs")
    build.replace_item("use openvm_cuda_builder::{cuda_available, CudaBuilder}", "use openvm_cuda_builder::CudaBuilder;")
    build.replace_item("use std::{env, path::PathBuf, process::exit}", "use std::{env, path::PathBuf};")
    build.replace_body(
        "main",
        """
        CudaBuilder::new().emit_link_directives();
        let manifest = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
        println!("cargo:include={}", PathBuf::from(manifest).join("include").display());
        """,
    )


if __name__ == "__main__":
    crate = place()
    crate.write()
    added, removed = crate.lines()
    removed += sum(len((crate.before / path).read_text().splitlines()) for path in THEIR_POOL)
    print(f"{added} lines added, {removed} removed")
