//! `{:?}` of what a program holds: array crates derive `Debug` over it, and tests that fail print it.

use std::fmt::Debug;

use binpool::{
    Backend, DeferredAllocator, ImmediateAllocator, MemoryPool, Region, adaptors::Limit,
};
use binpool_opencl::ClProgram;

use crate::common::Bench;

/// Fails unless the value is printed in less than 300 bytes.
fn assert_short(value: &impl Debug) {
    let text = format!("{value:?}");
    assert!(text.len() < 300, "{} bytes: {text}", text.len());
}

#[test]
fn objects_are_printed_in_a_line() {
    let bench = Bench::new();
    assert_short(&bench.backend);
    assert_short(&bench.queue);
    assert_short(&bench.backend.enqueue_marker(&bench.queue).unwrap());
    let buffer = bench.buffer(4096);
    let region = Region::first(128);
    assert_short(&buffer);
    assert_short(&bench.backend.create_sub_region(&buffer, region).unwrap());
    let program = ClProgram::build(
        &bench.backend,
        "kernel void f(global int *at) { *at = 1; }",
        "",
    )
    .unwrap();
    assert_short(&program);

    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    assert_short(&allocator);
    assert_short(&DeferredAllocator::new(&bench.backend));
    assert_short(&Limit::new(allocator.clone(), 1 << 30));
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(100).unwrap();
    assert_short(&pool);
    assert_short(&block);
    assert_short(&block.view(..50).unwrap());
    assert_short(&block.memory_on(&bench.queue));
}
