//! Streams that are captured into graphs.

use crate::{
    calls::{
        MIB, PER_THREAD, allocate, allocate_on, begin, control, count, create_stream,
        cuMemFreeAsync, cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamSynchronize,
        destroy_stream, fail_once, free, free_on, range,
    },
    child::pooled,
};

/// The modes of a capture: it forbids all threads what is not safe in one, or nothing.
const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

fn begin_capture(stream: usize, mode: i32) {
    assert_eq!(unsafe { cuStreamBeginCapture_v2(stream, mode) }, 0);
}

/// Ends a capture. Returns the driver's answer.
fn end_capture(stream: usize) -> i32 {
    let mut graph = 0;
    unsafe { cuStreamEndCapture(stream, &raw mut graph) }
}

/// Whether memory of any stream comes from pools now.
fn is_pooled() -> bool {
    let before = count("cuMemFree");
    free(allocate(MIB).unwrap());
    count("cuMemFree") == before
}

#[test]
fn memory_comes_from_pools_again_after_a_capture_however_it_ends() {
    pooled(|| {
        begin(64 * MIB);
        let ends: [fn(usize); 3] = [
            |stream| assert_eq!(end_capture(stream), 0),
            |stream| {
                // To wait for the stream spoils its capture.
                assert_eq!(unsafe { cuStreamSynchronize(stream) }, 900);
                assert_eq!(end_capture(stream), 901);
            },
            destroy_stream,
        ];
        for end in ends {
            let stream = create_stream();
            begin_capture(stream, RELAXED);
            assert!(!is_pooled());
            end(stream);
            assert!(is_pooled());
        }
        assert_eq!(count("cuMemAlloc"), 4);
    });
}

#[test]
fn a_capture_that_does_not_begin_is_none() {
    pooled(|| {
        begin(64 * MIB);
        assert_eq!(unsafe { cuStreamBeginCapture_v2(PER_THREAD, RELAXED) }, 1);
        fail_once("cuStreamBeginCapture");
        let stream = create_stream();
        assert_eq!(unsafe { cuStreamBeginCapture_v2(stream, RELAXED) }, 999);
        assert!(is_pooled());
    });
}

#[test]
fn memory_is_the_drivers_until_the_last_capture_has_ended() {
    pooled(|| {
        begin(64 * MIB);
        let [one, other, never] = [(); 3].map(|()| create_stream());
        for stream in [one, other] {
            begin_capture(stream, RELAXED);
        }
        assert_eq!(end_capture(one), 0);
        assert!(!is_pooled());
        // Neither is captured.
        for stream in [one, never] {
            assert_ne!(end_capture(stream), 0);
            destroy_stream(stream);
        }
        assert!(!is_pooled());
        assert_eq!(end_capture(other), 0);
        assert!(is_pooled());
    });
}

#[test]
fn the_capture_of_a_stream_that_was_destroyed_forbids_nothing() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        // The pool needs the stream longer than the program.
        let block = allocate_on(stream, MIB).unwrap();
        let objects = || control::<extern "C" fn(i32) -> usize>("stand_in_objects")(0);
        let before = objects();
        begin_capture(stream, GLOBAL);
        destroy_stream(stream);
        // Its graph is gone.
        assert_eq!(objects(), before);
        assert!(is_pooled());
        free(block);
    });
}

#[test]
fn a_block_that_a_captured_stream_cannot_free_stays_the_programs() {
    pooled(|| {
        begin(64 * MIB);
        let stream = create_stream();
        let [_, block] = [(); 2].map(|()| allocate_on(stream, 1000).unwrap());
        begin_capture(stream, RELAXED);
        assert_eq!(unsafe { cuMemFreeAsync(block, stream) }, 1);
        assert_eq!(range(block), Ok((block, 1000)));
        // A stream that is not captured can.
        let other = create_stream();
        let [_, of_other] = [(); 2].map(|()| allocate_on(other, 1000).unwrap());
        free_on(other, of_other);
        assert_eq!(end_capture(stream), 0);
        free_on(stream, block);
        assert_eq!(allocate_on(stream, 1000), Ok(block));
    });
}
