//! What blocks cost the host: the bytes of its heap that the pool has for each, by kind.
//!
//! ```text
//! cargo bench -p binpool-benches --bench memory
//! ```
//!
//! Counted are the bytes that are asked for, not what the heap adds to them: 8 to 16 bytes a piece with glibc's. The device's own objects
//! are those of a backend without any, 16 bytes a block.

#![expect(unsafe_code, reason = "it counts what the heap hands out")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use binpool_benches::{Bins, Pool, Subject};
use comfy_table::{Table, presets};

/// The heap of the system, and how many bytes of it are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is the same call of the system's heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const BLOCKS: usize = 1_000_000;

const BYTES: usize = 4096;

/// The bytes of the heap that `action` takes and keeps.
fn kept<T>(action: impl FnOnce() -> T) -> (isize, T) {
    let before = IN_USE.load(Ordering::Relaxed);
    let result = action();
    let after = IN_USE.load(Ordering::Relaxed);
    (after.cast_signed() - before.cast_signed(), result)
}

/// The bytes that a pool has for a million blocks in use, and once they are free.
fn blocks<S: Subject>(subject: &S) -> (isize, isize) {
    let mut blocks = Vec::with_capacity(BLOCKS);
    let (in_use, ()) = kept(|| blocks.extend((0..BLOCKS).filter_map(|_| subject.allocate(BYTES))));
    let (freed, ()) = kept(|| blocks.clear());
    (in_use, in_use + freed)
}

/// The bytes that a pool has for one more thread, which has had 65 blocks at once, whose blocks it caches.
fn a_thread<S: Subject>(subject: &S) -> isize {
    let work = || {
        let mut blocks = Vec::with_capacity(65);
        kept(|| {
            blocks.extend((0..65).filter_map(|_| subject.allocate(BYTES)));
            blocks.clear();
        })
        .0
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_default())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "pool",
        "bytes a block in use",
        "a free block",
        "a million in use, MiB",
        "bytes a thread with 65 cached blocks",
    ]);
    let mut add = |name: &str, (in_use, free): (isize, isize), thread: isize| {
        let blocks = BLOCKS.cast_signed();
        table.add_row([
            name.to_owned(),
            (in_use / blocks).to_string(),
            (free / blocks).to_string(),
            (in_use >> 20).to_string(),
            thread.to_string(),
        ]);
    };
    let (pool, bins) = (Pool::new()?, Bins::new()?);
    add("segments", blocks(&pool), a_thread(&pool));
    add("bins", blocks(&bins), a_thread(&bins));
    println!("{table}");
    Ok(())
}
