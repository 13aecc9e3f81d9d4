//! What the process has of the machine: of its memory, and of the heap.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::atomic::{AtomicU64, Ordering},
};

/// A page of Linux on the machines that this is run on.
const PAGE_BYTES: u64 = 4096;

/// The bytes of the process that are in memory. `None` if there is no such file: no Linux.
pub(crate) fn resident_bytes() -> Option<u64> {
    let figures = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = figures.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// The allocated bytes of the heap.
pub(crate) fn heap_bytes() -> u64 {
    let freed = FREED.load(Ordering::Relaxed);
    ALLOCATED.load(Ordering::Relaxed) - freed
}

/// The system's allocator, counted: what is resident tells of fragments, too.
struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

// SAFETY: every call is the system allocator's, with the caller's own arguments; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the one that this asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: likewise; the pointer came from the system allocator, as all of ours do.
        unsafe { System.dealloc(pointer, layout) }
    }
}
