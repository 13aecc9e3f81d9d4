//! Texts that the library returns.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ffi::CStr,
    ptr,
};

use binpool_capi::{binpool_pool_report, binpool_string_free};

use crate::common::{Bench, ok};

thread_local! {
    /// A size, and how many blocks of it this thread has freed.
    static FREED: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

struct Counting;

// SAFETY: It is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: As the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let (size, count) = FREED.get();
        FREED.set((size, count + u32::from(layout.size() == size)));
        // SAFETY: As the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

#[test]
fn a_text_that_the_program_frees_is_gone() {
    let bench = Bench::new(0);
    let mut text = ptr::null_mut();
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_report(bench.pool, &raw mut text) });
    // SAFETY: It ends with a zero.
    let bytes = unsafe { CStr::from_ptr(text) }.count_bytes() + 1;
    FREED.set((bytes, 0));
    // SAFETY: It was returned to be freed.
    unsafe { binpool_string_free(text) };
    assert_eq!(FREED.get(), (bytes, 1));
}
