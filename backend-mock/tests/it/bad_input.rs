//! Requests that are wrong whatever the device does are refused before they reach it.

use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, Region, Result};
use binpool_mock::{Completion, MockDevice};

use crate::common::{MIB, Rig, code};

#[track_caller]
fn invalid<T>(result: Result<T>) -> InvalidRequest {
    match result.map(drop) {
        Err(Error::InvalidRequest(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sizes_of_blocks() {
    let rig = Rig::on(
        MockDevice::builder()
            .capacity_bytes(2 * MIB as u64)
            .largest_block_bytes(MIB),
    );
    let create = |bytes| rig.backend.create_buffer(bytes, MemoryFlags::empty());
    assert_eq!(invalid(create(0)), InvalidRequest::ZeroSize);
    for requested in [MIB + 1, usize::MAX - 1, usize::MAX] {
        let expected = InvalidRequest::TooLarge {
            requested,
            largest: MIB,
        };
        assert_eq!(invalid(create(requested)), expected);
    }
    assert!(create(MIB).is_ok());
}

#[test]
fn flags_that_contradict_each_other() {
    let rig = Rig::new(Completion::AtOnce);
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    let expected = InvalidRequest::ContradictoryFlags { flags };
    assert_eq!(invalid(rig.backend.create_buffer(4, flags)), expected);
}

#[test]
fn regions_out_of_bounds() {
    let rig = Rig::new(Completion::AtOnce);
    let (small, large) = (rig.buffer(512), rig.buffer(1024));
    let (backend, queue) = (&rig.backend, &rig.queue);
    for (offset, bytes) in [
        (512, 1),
        (0, 513),
        (513, 0),
        (1, usize::MAX),
        (usize::MAX, 2),
    ] {
        let region = Region::new(offset, bytes);
        let expected = InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size: 512,
        };
        assert_eq!(
            invalid(backend.enqueue_fill(queue, &small, region, &[1_u8])),
            expected
        );
        assert_eq!(
            invalid(backend.enqueue_read(queue, &small, region)),
            expected
        );
        assert_eq!(
            invalid(backend.enqueue_copy(queue, &small, region, &large, 0)),
            expected
        );
        assert_eq!(invalid(backend.create_sub_region(&small, region)), expected);
    }
    let expected = InvalidRequest::OutOfBounds {
        offset: 511,
        bytes: 2,
        size: 512,
    };
    assert_eq!(
        invalid(backend.write(queue, &small, 511, &[0_u8; 2])),
        expected
    );
    assert_eq!(
        invalid(backend.read(queue, &small, 511, &mut [0_u8; 2])),
        expected
    );
    assert_eq!(
        invalid(backend.enqueue_write(queue, &small, 511, [0; 2].into())),
        expected
    );
    let from = Region::first(2);
    assert_eq!(
        invalid(backend.enqueue_copy(queue, &large, from, &small, 511)),
        expected
    );
    assert_eq!(rig.device.live_events(), 0);
}

#[test]
fn views_start_on_the_alignment_of_their_whole_block() {
    let rig = Rig::new(Completion::AtOnce);
    let root = rig.buffer(4096);
    let backend = &rig.backend;
    let view = backend
        .create_sub_region(&root, Region::new(256, 1024))
        .unwrap();
    assert!(
        backend
            .create_sub_region(&view, Region::new(256, 1))
            .is_ok()
    );
    let misaligned = backend.create_sub_region(&view, Region::new(128, 1));
    let expected = InvalidRequest::Misaligned {
        offset: 384,
        alignment: rig.device.limits().alignment,
    };
    assert_eq!(invalid(misaligned), expected);
    assert_eq!(
        invalid(backend.create_sub_region(&root, Region::new(0, 0))),
        InvalidRequest::ZeroSize
    );
    // A view of a view ends with the view, not with the block.
    let beyond = backend.create_sub_region(&view, Region::new(768, 257));
    assert!(matches!(
        invalid(beyond),
        InvalidRequest::OutOfBounds { size: 1024, .. }
    ));
}

#[test]
fn fill_patterns() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(1024);
    let fill = |region, pattern: &[u8]| {
        rig.backend
            .enqueue_fill(&rig.queue, &buffer, region, pattern)
    };
    let empty = invalid(fill(Region::first(768), &[]));
    assert_eq!(empty, InvalidRequest::EmptyPattern);
    for (offset, bytes) in [(2, 8), (4, 6)] {
        let expected = InvalidRequest::PatternMismatch {
            offset,
            bytes,
            pattern: 4,
        };
        assert_eq!(invalid(fill(Region::new(offset, bytes), &[0; 4])), expected);
    }
    let pattern: Vec<u8> = (0..128).collect();
    fill(Region::first(1024), &pattern).unwrap();
    assert_eq!(rig.contents(&buffer), pattern.repeat(8));
}

#[test]
fn copies_that_overlap_within_one_block() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(64);
    let copy = |from, to| {
        rig.backend
            .enqueue_copy(&rig.queue, &buffer, from, &buffer, to)
    };
    let expected = InvalidRequest::OverlappingCopy {
        from: 0,
        to: 31,
        bytes: 32,
    };
    assert_eq!(invalid(copy(Region::first(32), 31)), expected);
    assert!(copy(Region::first(32), 32).is_ok());
}

#[test]
fn what_flags_forbid() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = |flags| rig.backend.create_buffer(4, flags).unwrap();
    let (backend, queue) = (&rig.backend, &rig.queue);
    let hidden = buffer(MemoryFlags::HOST_NO_ACCESS);
    let readable = buffer(MemoryFlags::HOST_READ_ONLY | MemoryFlags::READ_ONLY);
    let writable = buffer(MemoryFlags::HOST_WRITE_ONLY | MemoryFlags::WRITE_ONLY);
    let nothing = |_: &[&[u8]], _: &mut [&mut [u8]]| {};
    for result in [
        backend.read(queue, &hidden, 0, &mut [0_u8]),
        backend.write(queue, &hidden, 0, &[0_u8]),
        backend.write(queue, &readable, 0, &[0_u8]),
        backend.read(queue, &writable, 0, &mut [0_u8]),
    ] {
        let refused = invalid(result);
        assert!(
            matches!(refused, InvalidRequest::HostAccess { .. }),
            "{refused:?}"
        );
    }
    for result in [
        backend.launch(queue, "k", &[&writable], &[], nothing),
        backend.launch(queue, "k", &[], &[&readable], nothing),
    ] {
        assert_eq!(code(&result.unwrap_err()), Some(-59));
    }
    backend.read(queue, &readable, 0, &mut [0_u8]).unwrap();
    backend.write(queue, &writable, 0, &[0_u8]).unwrap();
    backend
        .launch(queue, "k", &[&readable], &[&writable], nothing)
        .unwrap();
    backend
        .enqueue_fill(queue, &hidden, Region::first(4), &[1_u8])
        .unwrap();
}
