//! Checks of shared virtual memory.

use binpool_allocators::{
    Align, Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, ObjectKind,
    Queue, Region, SvmBackend, SvmGrain,
};

use crate::{
    Fixture,
    bench::{
        Bench, is_foreign, is_out_of_bounds, numbered, out_of_memory, refusal, refused_as_foreign,
        refused_as_out_of_bounds, transfers_refused,
    },
    parts::every_part,
};

const SIZE: usize = 4096;

/// The grains that the device has.
pub(super) fn grains(backend: &impl Backend) -> Vec<SvmGrain> {
    let all = [SvmGrain::Coarse, SvmGrain::Fine, SvmGrain::FineAtomics];
    let has = |grain: &SvmGrain| grain.is_in(backend.limits().svm);
    all.into_iter().filter(has).collect()
}

/// A block of each grain that the device has.
pub(super) fn blocks<B: SvmBackend>(backend: &B, bytes: usize) -> Vec<B::Memory> {
    let allocate = |grain| backend.allocate_svm(bytes, None, grain, None).unwrap();
    grains(backend).into_iter().map(allocate).collect()
}

/// A block of each grain that the device has, each bound to a queue of its own.
pub(super) fn bound_blocks<B: SvmBackend>(bench: &Bench<B>) -> Vec<(B::Queue, B::Memory)> {
    let allocate = |grain| {
        let queue = bench.another_queue();
        let block = bench.backend.allocate_svm(SIZE, None, grain, Some(&queue));
        (queue, block.unwrap())
    };
    grains(&bench.backend).into_iter().map(allocate).collect()
}

/// The error is `Unsupported`, never a block of another grain.
pub fn a_grain_that_is_not_there_is_unsupported<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    for grain in [SvmGrain::Coarse, SvmGrain::Fine, SvmGrain::FineAtomics] {
        let block = backend.allocate_svm(SIZE, None, grain, None);
        if grain.is_in(backend.limits().svm) {
            assert_eq!(block.unwrap().kind(), MemoryKind::Svm(grain));
        } else {
            assert!(matches!(block, Err(Error::Unsupported { .. })), "{block:?}");
        }
    }
}

/// The address has every requested alignment up to the largest, and the device's own where none is requested.
pub fn a_block_has_an_aligned_address<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    let limits = backend.limits();
    for grain in grains(&backend) {
        let mut alignment = 1;
        while alignment <= limits.largest_svm_alignment.bytes() {
            let align = Align::new(alignment).unwrap();
            let block = backend
                .allocate_svm(SIZE, Some(align), grain, None)
                .unwrap();
            let address = backend.svm_address(&block).expect("SVM has an address");
            assert!(
                align.divides(address.addr().get()),
                "{address:?} is not on {align}"
            );
            assert_eq!(block.bytes(), SIZE);
            alignment *= 2;
        }
        let block = backend.allocate_svm(SIZE, None, grain, None).unwrap();
        let address = backend.svm_address(&block).expect("SVM has an address");
        assert!(
            limits.alignment.divides(address.addr().get()),
            "{address:?} is not on {}, which is the device's",
            limits.alignment
        );
    }
}

/// The address is `None`.
pub fn a_buffer_has_no_address<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    assert_eq!(bench.backend.svm_address(&bench.buffer(64)), None);
}

/// The error is `AlignmentTooLarge`.
pub fn an_alignment_that_is_too_large_is_refused<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    let largest = backend.limits().largest_svm_alignment;
    // There is no larger power of two to request.
    let Some(alignment) = largest.bytes().checked_mul(2).and_then(Align::new) else {
        return;
    };
    for grain in grains(&backend) {
        let refusal = refusal(backend.allocate_svm(SIZE, Some(alignment), grain, None));
        let expected = InvalidRequest::AlignmentTooLarge { alignment, largest };
        assert_eq!(refusal, expected);
    }
}

/// The errors are `ZeroSize` and `TooLarge`.
pub fn sizes_are_checked<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    let largest = backend.limits().largest_block_bytes;
    for grain in grains(&backend) {
        let allocate = |bytes| refusal(backend.allocate_svm(bytes, None, grain, None));
        assert_eq!(allocate(0), InvalidRequest::ZeroSize);
        let sizes = [largest.saturating_add(1), usize::MAX];
        for requested in sizes.into_iter().filter(|bytes| *bytes > largest) {
            let too_large = InvalidRequest::TooLarge { requested, largest };
            assert_eq!(allocate(requested), too_large);
        }
    }
}

/// The error is `OutOfOrderQueue`.
pub fn an_out_of_order_queue_is_refused<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let Some(queue) = bench.out_of_order_queue() else {
        return;
    };
    for grain in grains(&bench.backend) {
        let block = bench.backend.allocate_svm(SIZE, None, grain, Some(&queue));
        assert_eq!(refusal(block), InvalidRequest::OutOfOrderQueue);
    }
}

/// Copies in every direction.
pub fn bytes_move_between_svm_and_buffers<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let mut memories = blocks(&bench.backend, SIZE);
    memories.push(bench.buffer(SIZE));
    for source in &memories {
        for (index, target) in memories.iter().enumerate() {
            if source.id() == target.id() {
                continue;
            }
            bench.write(source, &numbered(SIZE));
            bench.write(target, &[255; SIZE]);
            let (backend, queue) = (&bench.backend, &bench.queue);
            let copy = backend.enqueue_copy(queue, source, 10..1010, target, 77);
            copy.unwrap().wait().unwrap();
            let mut expected = vec![255; SIZE];
            expected[77..1077].copy_from_slice(&numbered(SIZE)[10..1010]);
            assert_eq!(bench.read(target), expected, "memory {index}");
        }
    }
}

/// The address of a region is that of the block plus the offset, and the region keeps the block alive.
pub fn a_region_of_svm_lies_at_its_offset<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    for block in blocks(&bench.backend, 4 * start) {
        bench.write(&block, &numbered(4 * start));
        let region = bench.region(&block, Region::new(start, start));
        let address = |memory| bench.backend.svm_address(memory).unwrap().addr().get();
        assert_eq!(address(&region), address(&block) + start);
        assert_eq!(region.kind(), block.kind());
        drop(block);
        assert_eq!(bench.read(&region), numbered(4 * start)[start..2 * start]);
    }
}

/// Offsets of transfers count from the start of the part that they are given, as in buffers.
pub fn transfers_keep_to_their_part_of_svm<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let step = bench.backend.limits().alignment.bytes();
    for block in blocks(&bench.backend, 3 * step + 1600) {
        every_part(&bench.backend, &bench.queue, &block);
    }
}

/// The errors are `ContradictoryFlags`, and `Unsupported` for flags about the host.
pub fn flags_of_svm_are_those_of_kernels<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    for grain in grains(&backend) {
        let allocate = |flags| backend.allocate_svm_with_flags(SIZE, None, grain, None, flags);
        let (read, written) = (MemoryFlags::READ_ONLY, MemoryFlags::WRITE_ONLY);
        drop([read, written].map(|flags| allocate(flags).unwrap()));
        let flags = read | written;
        assert_eq!(
            refusal(allocate(flags)),
            InvalidRequest::ContradictoryFlags { flags }
        );
        let host = allocate(MemoryFlags::HOST_READ_ONLY);
        assert!(matches!(host, Err(Error::Unsupported { .. })), "{host:?}");
    }
}

/// The error is `OutOfBounds`, as for buffers.
pub fn svm_out_of_bounds_is_refused<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let other = bench.buffer(SIZE);
    for block in blocks(backend, SIZE) {
        for offset in [SIZE - 3, SIZE + 1, usize::MAX] {
            let region = Region::new(offset, 4);
            transfers_refused(backend, queue, (&block, region), &other, is_out_of_bounds);
            refused_as_out_of_bounds(backend.create_sub_region(&block, region));
        }
    }
}

/// SVM is always committed.
pub fn svm_needs_no_commit<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        bench.write(&block, &[7; SIZE]);
        bench.backend.commit(&bench.queue, &block).unwrap();
        assert_eq!(bench.read(&block), [7; SIZE]);
    }
}

/// The error is `ForeignObject`, from each call that takes memory or a queue.
pub fn foreign_svm_is_refused<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let (bench, other) = (Bench::new(fixture), Bench::new(fixture));
    let (backend, queue) = (&bench.backend, &bench.queue);
    let (own, part) = (bench.filled(64, 1), Region::first(64));
    let kind = ObjectKind::Memory;
    for block in blocks(&other.backend, SIZE) {
        transfers_refused(backend, queue, (&block, part), &own, is_foreign(kind));
        refused_as_foreign(kind, backend.create_sub_region(&block, Region::first(1)));
        refused_as_foreign(kind, backend.commit(queue, &block));
        refused_as_foreign(kind, backend.release(block, &[]));
    }
    assert_eq!(bench.read(&own), [1; 64]);
    for grain in grains(backend) {
        let block = backend.allocate_svm(SIZE, None, grain, Some(&other.queue));
        refused_as_foreign(ObjectKind::Queue, block);
    }
}

/// The result is an error, not a null pointer, where the device enforces its capacity.
pub fn svm_runs_out_with_an_error<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let Some(capacity) = fixture.enforced_capacity() else {
        return;
    };
    let bench = Bench::new(fixture);
    let half = usize::try_from(capacity / 2).expect("the capacity is small");
    for grain in grains(&bench.backend) {
        let allocate = || bench.backend.allocate_svm(half, None, grain, None);
        let first = allocate().unwrap();
        let second = allocate().unwrap();
        out_of_memory(&allocate());
        drop(first);
        let third = allocate().unwrap();
        drop((second, third));
        bench.queue.finish().unwrap();
    }
}
