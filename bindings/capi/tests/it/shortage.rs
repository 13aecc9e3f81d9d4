//! Requests without memory.

use std::ptr;

use binpool_capi::{Status, binpool_allocate};

use crate::common::{Bench, MIB, failed, free};

#[test]
fn the_message_of_a_request_without_memory_is_the_whole_report() {
    let bench = Bench::new(16 * MIB);
    let kept = bench.allocate(12 << 20);
    let mut block = ptr::null_mut();
    // SAFETY: The pool lives.
    let status = unsafe { binpool_allocate(bench.pool, 8 << 20, &raw mut block) };
    let text = failed(status, Status::OutOfMemory);
    assert!(block.is_null());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "out of memory: could not allocate 8.0 MiB: a limit is reached"
    );
    let of = |start: &str| {
        lines
            .iter()
            .find(|line| line.trim().starts_with(start))
            .copied()
    };
    assert!(
        of("in use").unwrap().contains("12.0 MiB   in 1 block"),
        "{text}"
    );
    assert!(of("the limit").unwrap().contains("16.0 MiB"), "{text}");
    assert_eq!(
        lines[lines.len() - 1],
        "advice: free blocks, or raise the limit"
    );
    assert_eq!(bench.statistics().out_of_memory, 1);
    free(kept);
    free(bench.allocate(8 << 20));
}

#[test]
fn a_size_that_no_device_has_is_a_shortage_that_says_so() {
    let bench = Bench::new(0);
    let mut block = ptr::null_mut();
    // SAFETY: The pool lives.
    let status = unsafe { binpool_allocate(bench.pool, usize::MAX / 2, &raw mut block) };
    let text = failed(status, Status::OutOfMemory);
    assert!(
        text.contains("it can never fit") && text.contains("advice: split"),
        "{text}"
    );
}
