//! Checks of limits, and of creating buffers.

use binpool_allocators::{
    Backend, HostUse, InvalidRequest, Memory, MemoryFlags, MemoryKind, Region,
};

use crate::{
    Fixture,
    bench::{Bench, refusal},
};

/// No limit is zero, and each kind of SVM comes with those that it includes.
pub fn limits_make_sense<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    let limits = backend.limits();
    assert!(limits.capacity_bytes > 0);
    assert!(limits.largest_block_bytes > 0);
    assert!(!limits.device_name.is_empty());
    assert!(
        limits.svm.coarse || !limits.svm.fine,
        "fine-grained SVM comes with coarse"
    );
    assert!(
        limits.svm.fine || !limits.svm.atomics,
        "atomics come with fine-grained SVM"
    );
}

/// `bytes` is the requested size, for every size.
pub fn a_buffer_has_the_size_that_was_asked_for<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for bytes in [1, 3, 255, 256, 257, 4096, 65_537] {
        let buffer = bench.buffer(bytes);
        assert_eq!(buffer.bytes(), bytes);
        assert_eq!(buffer.kind(), MemoryKind::Buffer);
        bench.write(&buffer, &vec![7; bytes]);
        assert_eq!(bench.read(&buffer), vec![7; bytes]);
    }
}

/// No two blocks have the same identity, not even one after the other.
pub fn every_buffer_has_an_identity_of_its_own<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let first = bench.buffer(64);
    let second = bench.buffer(64);
    assert_ne!(first.id(), second.id());
    let former = second.id();
    drop(second);
    assert_ne!(bench.buffer(64).id(), former);
}

/// The error is `ZeroSize`.
pub fn a_buffer_of_no_bytes_is_refused<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    let refusal = refusal(backend.create_buffer(0, MemoryFlags::empty()));
    assert_eq!(refusal, InvalidRequest::ZeroSize);
}

/// The error is `TooLarge`, not out-of-memory: freeing never helps.
pub fn a_buffer_larger_than_the_largest_is_refused<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    let largest = backend.limits().largest_block_bytes;
    let sizes = [largest.saturating_add(1), usize::MAX / 2 + 1, usize::MAX];
    for bytes in sizes.into_iter().filter(|bytes| *bytes > largest) {
        let error = backend
            .create_buffer(bytes, MemoryFlags::empty())
            .unwrap_err();
        assert!(!error.is_out_of_memory());
        assert_eq!(
            refusal::<()>(Err(error)),
            InvalidRequest::TooLarge {
                requested: bytes,
                largest
            }
        );
    }
}

/// A buffer of the largest size may be out of memory, but is not an invalid request.
pub fn a_buffer_of_the_largest_size_is_no_invalid_request<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    let largest = backend.limits().largest_block_bytes;
    match backend.create_buffer(largest, MemoryFlags::empty()) {
        Ok(buffer) => assert_eq!(buffer.bytes(), largest),
        Err(error) => assert!(error.is_out_of_memory(), "{error:?}"),
    }
}

/// The error is `ContradictoryFlags`.
pub fn contradictory_flags_are_refused<F: Fixture>(fixture: &F) {
    let backend = fixture.backend();
    for flags in [
        MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY,
        MemoryFlags::HOST_READ_ONLY | MemoryFlags::HOST_WRITE_ONLY,
        MemoryFlags::HOST_WRITE_ONLY | MemoryFlags::HOST_NO_ACCESS,
    ] {
        let refusal = refusal(backend.create_buffer(64, flags));
        assert_eq!(refusal, InvalidRequest::ContradictoryFlags { flags });
    }
}

/// Flags about kernels and about the location of the memory do not restrict transfers by the host.
pub fn flags_leave_the_permitted_transfers<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for flags in [
        MemoryFlags::READ_ONLY,
        MemoryFlags::WRITE_ONLY,
        MemoryFlags::HOST_RESIDENT,
    ] {
        let buffer = bench.backend.create_buffer(64, flags).unwrap();
        bench.write(&buffer, &[9; 64]);
        assert_eq!(bench.read(&buffer), [9; 64], "{flags:?}");
    }
    let flags = MemoryFlags::HOST_READ_ONLY;
    let buffer = bench.backend.create_buffer(64, flags).unwrap();
    let fill = bench
        .backend
        .enqueue_fill(&bench.queue, &buffer, Region::first(64), &[3_u8]);
    drop(fill.unwrap());
    assert_eq!(bench.read(&buffer), [3; 64]);
}

/// The error is `HostAccess`, for blocking and enqueued transfers.
pub fn forbidden_transfers_of_the_host_are_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (backend, queue) = (&bench.backend, &bench.queue);
    for flags in [
        MemoryFlags::HOST_NO_ACCESS,
        MemoryFlags::HOST_READ_ONLY,
        MemoryFlags::HOST_WRITE_ONLY,
    ] {
        let buffer = backend.create_buffer(4, flags).unwrap();
        let refused = |way| InvalidRequest::HostAccess { way, flags };
        if flags != MemoryFlags::HOST_READ_ONLY {
            let way = HostUse::Read;
            let read = backend.read(queue, &buffer, 0, &mut [0_u8]);
            assert_eq!(refusal(read), refused(way));
            let read = backend.enqueue_read(queue, &buffer, Region::first(1));
            assert_eq!(refusal(read.map(drop)), refused(way));
        }
        if flags != MemoryFlags::HOST_WRITE_ONLY {
            let way = HostUse::Write;
            let write = backend.write(queue, &buffer, 0, &[1_u8]);
            assert_eq!(refusal(write), refused(way));
            let write = backend.enqueue_write(queue, &buffer, 0, [1].into());
            assert_eq!(refusal(write.map(drop)), refused(way));
        }
    }
}
