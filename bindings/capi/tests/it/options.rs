//! The settings of a pool.

use std::ptr;

use binpool_capi::{
    Options, Reuse, Segments, Status, binpool_pool_limit, binpool_pool_new_opencl,
    binpool_pool_statistics,
};

use crate::common::{Bench, MIB, free, message, ok, options, place};

/// Tries settings that are refused.
fn refused(options: *const Options) -> (Status, String) {
    let bench = Bench::new(0);
    let mut pool = ptr::null_mut();
    // SAFETY: All of them live, and the settings have the size that they say.
    let status = unsafe {
        binpool_pool_new_opencl(
            bench.backend.raw_context(),
            bench.backend.raw_device(),
            bench.queue.raw(),
            options,
            &raw mut pool,
        )
    };
    assert!(pool.is_null());
    (status, message())
}

#[test]
fn values_that_are_none_are_refused_by_name() {
    let invalid = Status::InvalidArgument;
    let mut wrong = options(0);
    wrong.reuse = 9;
    let text = "`reuse` is 9, which is not a value of `binpool_reuse`";
    assert_eq!(refused(&raw const wrong), (invalid, text.to_owned()));
    let mut wrong = options(0);
    wrong.segments = 3;
    let text = "`segments` is 3, which is not a value of `binpool_segments`";
    assert_eq!(refused(&raw const wrong), (invalid, text.to_owned()));
    let mut wrong = options(0);
    wrong.memory = 3;
    let text = "`memory` is 3, which is not a value of `binpool_memory`";
    assert_eq!(refused(&raw const wrong), (invalid, text.to_owned()));
    let mut wrong = options(0);
    wrong.reserved = 1;
    let text = "`reserved` is not 0";
    assert_eq!(refused(&raw const wrong), (invalid, text.to_owned()));
    let unsized_ = Options::default();
    let (status, text) = refused(&raw const unsized_);
    assert_eq!(status, invalid);
    assert!(
        text.contains("set it to `sizeof(binpool_options)`"),
        "{text}"
    );
}

#[test]
fn a_program_may_know_fewer_or_more_settings_than_the_library() {
    #[repr(C)]
    struct Later {
        known: Options,
        unknown: u64,
    }

    let mut later = Later {
        known: options(MIB),
        unknown: 0,
    };
    later.known.struct_size = size_of::<Later>();
    later.unknown = 1;
    let (status, text) = refused((&raw const later).cast());
    assert_eq!(status, Status::Unsupported);
    assert!(text.contains("leave it 0"), "{text}");

    // What is behind the fields that a program knows is not read.
    let mut earlier = options(MIB);
    earlier.struct_size = std::mem::offset_of!(Options, segments);
    (earlier.segments, earlier.reuse) = (77, 77);
    let bench = Bench::with(earlier);
    let mut limit = 0;
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_limit(bench.pool, &raw mut limit) });
    assert_eq!(limit, MIB);
}

#[test]
fn without_segments_each_block_is_a_buffer_of_its_own() {
    let mut bins = options(0);
    bins.segments = Segments::Off as u32;
    let bench = Bench::with(bins);
    let blocks = [(); 2].map(|()| bench.allocate(4096));
    let [(one, first), (two, second)] = blocks.map(|block| place(block));
    assert!(one != two && first == 0 && second == 0);
    blocks.into_iter().for_each(free);

    let bench = Bench::new(0);
    let blocks = [(); 2].map(|()| bench.allocate(4096));
    let [(one, first), (two, second)] = blocks.map(|block| place(block));
    assert!(one == two && first != second);
    blocks.into_iter().for_each(free);
}

#[test]
fn each_reuse_policy_makes_a_pool() {
    for reuse in [
        Reuse::Default,
        Reuse::SameQueue,
        Reuse::Opportunistic,
        Reuse::InsertWait,
        Reuse::WaitOnHost,
    ] {
        let mut options = options(0);
        options.reuse = reuse as u32;
        let bench = Bench::with(options);
        free(bench.allocate(64));
        assert_eq!(bench.statistics().misses, 1, "{reuse:?}");
    }
}

#[test]
fn a_program_may_know_fewer_or_more_counters_than_the_library() {
    let bench = Bench::new(0);
    let block = bench.allocate(1000);
    let mut counters = [u64::MAX; 40];
    let place = counters.as_mut_ptr().cast();
    // SAFETY: There are as many bytes.
    ok(unsafe { binpool_pool_statistics(bench.pool, place, 16) });
    assert_eq!(counters[..3], [1, 1000, u64::MAX]);
    let place = counters.as_mut_ptr().cast();
    // SAFETY: There are as many bytes.
    ok(unsafe { binpool_pool_statistics(bench.pool, place, size_of_val(&counters)) });
    assert_eq!(counters[..3], [1, 1000, 1000]);
    assert_eq!(counters[39], 0);
    free(block);
}
