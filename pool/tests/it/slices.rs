//! Slices, views and transfers are bounded by the size that was asked for, and slices count elements.

use std::sync::Arc;

use binpool::{
    AsMemory, Backend, DeferredAllocator, Error, InvalidRequest, Memory, MemoryFlags, MemoryId,
    MemoryPool, PoolOptions, PooledBuffer, Queue, QueueOrder, Region, Slice, Verdict,
};
use binpool_allocators::Align;
use binpool_conformance::{part_of, transfers_keep_to};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};

use crate::common::{MIB, Rig};

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_view_is_a_window_into_its_block() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(1024).unwrap();
    block.write(&rig.queue, 0, &[1_u8; 1024]).unwrap();
    let view = block.view(512..768).unwrap();
    assert_eq!(view.size(), 256);
    assert_eq!(view.block().size(), 1024);
    let memory = view.memory_on(&rig.queue).unwrap();
    let fill = |bytes| {
        let region = Region::first(bytes);
        rig.backend
            .enqueue_fill(&rig.queue, memory, region, &[2_u8])
    };
    fill(256).unwrap();
    assert!(fill(257).is_err());
    let mut bytes = [0_u8; 1024];
    block.read(&rig.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes[..512], [1; 512]);
    assert_eq!(bytes[512..768], [2; 256]);
    assert_eq!(bytes[768..], [1; 256]);
}

#[test]
fn a_view_lies_within_what_was_asked_for() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(1000).unwrap();
    assert_eq!(block.class_size(), 1024);
    assert_eq!(
        refusal(block.view(256..1001)),
        InvalidRequest::OutOfBounds {
            offset: 256,
            bytes: 745,
            size: 1000
        }
    );
    assert!(block.view(256..1000).is_ok());
    assert!(matches!(
        refusal(block.view(Region::new(usize::MAX, 2))),
        InvalidRequest::OutOfBounds { .. }
    ));
    assert_eq!(refusal(block.view(256..256)), InvalidRequest::ZeroSize);
    assert!(matches!(
        refusal(block.view(100..200)),
        InvalidRequest::Misaligned { offset: 100, .. }
    ));
    let empty = rig.pool.allocate(0).unwrap();
    assert_eq!(refusal(empty.view(0..0)), InvalidRequest::ZeroSize);
}

#[test]
fn transfers_stay_within_what_was_asked_for() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let (block, other) = (
        rig.pool.allocate(1000).unwrap(),
        rig.pool.allocate(999).unwrap(),
    );
    let out = |refusal| matches!(refusal, InvalidRequest::OutOfBounds { .. });
    assert!(out(refusal(block.write(queue, 1, &[0_u8; 1000]))));
    assert!(out(refusal(block.read(queue, 1, &mut [0_u8; 1000]))));
    assert!(out(refusal(block.enqueue_write(
        queue,
        usize::MAX,
        vec![0; 2].into()
    ))));
    assert!(out(refusal(block.enqueue_read(queue, 0..1001))));
    assert!(out(refusal(block.enqueue_fill(queue, 0..1024, &[0_u8]))));
    assert!(out(refusal(block.enqueue_copy_to(queue, &other))));
    assert!(out(refusal(other.enqueue_copy_region_to(
        queue,
        0..1,
        &block,
        1000
    ))));
    assert!(matches!(
        refusal(block.enqueue_fill(queue, 0..8, &[0_u8; 3])),
        InvalidRequest::PatternMismatch { pattern: 3, .. }
    ));
}

#[test]
fn commands_of_slices_and_copies_with_them_count_from_the_slice() {
    let rig = Rig::with_capacity(MIB);
    let (queue, backend) = (&rig.queue, &rig.backend);
    for typed in [
        rig.pool.allocate_of::<u32>(400).unwrap(),
        rig.pool.allocate_of(300).unwrap(),
    ] {
        let block = typed.memory();
        for first in [0, 1, 3, 7] {
            let words = typed.slice(first..first + 200).unwrap();
            transfers_keep_to(backend, queue, (block, 4 * first), &words);
            let bytes = block.slice(first..first + 700).unwrap();
            transfers_keep_to(backend, queue, (block, first), &bytes);
            let inner = bytes.slice(5..605).unwrap();
            transfers_keep_to(backend, queue, (block, first + 5), &inner);
            // The slice's own commands: three patterns of two elements, from its first or third element on.
            typed.write(queue, 0, &vec![9; typed.len()]).unwrap();
            words.enqueue_fill(queue, ..6, &[1, 2]).unwrap();
            words.enqueue_write(queue, 6, &[3, 4]).unwrap();
            words.write(queue, 8, &[5]).unwrap();
            words
                .enqueue_copy_to(queue, &part_of(block, Region::new(1100, 100)))
                .unwrap_err();
            let short = words.slice(..9).unwrap();
            short
                .enqueue_copy_to(queue, &part_of(block, Region::new(1100, 50)))
                .unwrap();
            let expected = [1, 2, 1, 2, 1, 2, 3, 4, 5];
            assert_eq!(short.read_to_vec(queue).unwrap(), expected);
            assert_eq!(typed.read_to_vec(queue).unwrap()[275..284], expected);
            let mut two = [0; 2];
            words.read(queue, 7, &mut two).unwrap();
            assert_eq!(two, [4, 5]);
            let read = block
                .slice(4 * first..)
                .unwrap()
                .enqueue_read(queue, 24..28);
            assert_eq!(read.unwrap().wait().unwrap(), 3_u32.to_ne_bytes());
            let mismatch = InvalidRequest::PatternMismatch {
                offset: 4,
                bytes: 8,
                pattern: 8,
            };
            assert_eq!(refusal(words.enqueue_fill(queue, 1..3, &[0, 0])), mismatch);
        }
    }
}

fn contents(rig: &Rig, block: &PooledBuffer<MockBackend>) -> Vec<u8> {
    block.enqueue_read(&rig.queue, ..).unwrap().wait().unwrap()
}

#[test]
fn a_block_is_copied_to_and_from_parts_of_others() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let [block, other] = [(); 2].map(|()| rig.pool.allocate(100).unwrap());
    let numbers: Vec<u8> = (0..100).collect();
    block.write(queue, 0, &numbers).unwrap();
    other.write(queue, 0, &[200_u8; 100]).unwrap();
    let part = other.slice(13..93).unwrap();
    block
        .enqueue_copy_region_to(queue, 5..25, &part, 7)
        .unwrap();
    let mut expected = vec![200; 100];
    expected[20..40].copy_from_slice(&numbers[5..25]);
    assert_eq!(contents(&rig, &other), expected);
    block
        .enqueue_copy_region_from(queue, &part, 7..17, 50)
        .unwrap();
    assert_eq!(contents(&rig, &block)[50..60], numbers[5..15]);
    let small = rig.pool.allocate(30).unwrap();
    small.write(queue, 0, &[1_u8; 30]).unwrap();
    small.enqueue_copy_to(queue, &part).unwrap();
    expected[13..43].fill(1);
    assert_eq!(contents(&rig, &other), expected);
}

#[test]
fn blocks_are_copied_between_pools_and_other_memory_from_any_place() {
    let rig = Rig::with_capacity(MIB);
    let (queue, backend) = (&rig.queue, &rig.backend);
    let other = MemoryPool::new(DeferredAllocator::new(backend), queue).unwrap();
    let (block, far) = (
        rig.pool.allocate(1000).unwrap(),
        other.allocate(500).unwrap(),
    );
    let bare = backend.create_buffer(300, MemoryFlags::empty()).unwrap();
    let numbers: Vec<u8> = (0..=249).cycle().take(1000).collect();
    block.write(queue, 0, &numbers).unwrap();
    // To another pool, from there to bare memory, and from that into a part of the first block.
    block
        .enqueue_copy_region_to(queue, 100..200, &far, 400)
        .unwrap();
    far.enqueue_copy_region_to(queue, 450.., &bare, 7).unwrap();
    block
        .enqueue_copy_region_from(queue, &bare, 7..57, 950)
        .unwrap();
    let seen = block.enqueue_read(queue, 949..).unwrap().wait().unwrap();
    assert_eq!(seen[0], numbers[949]);
    assert_eq!(seen[1..], numbers[150..200]);
    // Both sides are bounded by what was asked for.
    let out = |result| matches!(refusal(result), InvalidRequest::OutOfBounds { .. });
    assert!(out(block.enqueue_copy_region_to(
        queue,
        100..200,
        &far,
        401
    )));
    assert!(out(far.enqueue_copy_region_from(
        queue,
        &block,
        900..1001,
        0
    )));
    assert!(out(far.enqueue_copy_to(queue, &bare)));
}

#[test]
fn the_host_has_elements_of_any_type() {
    let rig = Rig::with_capacity(MIB);
    let (queue, block) = (&rig.queue, rig.pool.allocate(48).unwrap());
    block
        .enqueue_fill(queue, .., &[[1.0_f32, 2.0, 3.0]])
        .unwrap();
    block.write(queue, 12, &[7.0_f32]).unwrap();
    let mut points = [[0.0_f32; 3]; 4];
    block.read(queue, 0, &mut points).unwrap();
    assert_eq!(points[..2], [[1.0, 2.0, 3.0], [7.0, 2.0, 3.0]]);
    // Offsets are in bytes, whatever the type.
    assert!(block.write(queue, 45, &[7.0_f32]).is_err());
}

#[test]
fn transfers_move_bytes() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let (block, other) = (
        rig.pool.allocate(100).unwrap(),
        rig.pool.allocate(100).unwrap(),
    );
    block.enqueue_fill(queue, 0..100, &[1_u8, 2]).unwrap();
    block.enqueue_write(queue, 10, vec![9; 5].into()).unwrap();
    block.enqueue_copy_to(queue, &other).unwrap();
    other
        .enqueue_copy_region_to(queue, 10..15, &other, 90)
        .unwrap();
    let bytes = other.enqueue_read(queue, 0..100).unwrap().wait().unwrap();
    let mut expected: Vec<u8> = [1, 2].repeat(50);
    expected[10..15].fill(9);
    expected[90..95].fill(9);
    assert_eq!(bytes, expected);
}

#[test]
fn the_block_of_no_bytes_takes_transfers_of_no_bytes() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let (empty, other) = (
        rig.pool.allocate(0).unwrap(),
        rig.pool.allocate(10).unwrap(),
    );
    empty.write(queue, 0, &[0_u8; 0]).unwrap();
    empty.read(queue, 0, &mut [0_u8; 0]).unwrap();
    empty.enqueue_write(queue, 0, Vec::new().into()).unwrap();
    empty.enqueue_fill(queue, 0..0, &[1_u8]).unwrap();
    empty.enqueue_copy_to(queue, &other).unwrap();
    assert_eq!(
        empty.enqueue_read(queue, 0..0).unwrap().wait().unwrap(),
        Vec::<u8>::new()
    );
    assert!(empty.write(queue, 0, &[1_u8]).is_err());
}

/// What others are told of memory, and have of it for commands on this queue.
fn seen(memory: &impl AsMemory<MockBackend>, queue: &MockQueue) -> (usize, Option<MemoryId>) {
    let (size, memory) = (memory.size(), memory.memory_on(queue));
    (size, memory.map(Memory::id))
}

#[test]
fn commands_of_others_are_given_what_was_asked_for_and_count_as_uses() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::OutOfOrder);
    let block = rig.pool.allocate(1000).unwrap();
    assert_eq!(seen(&block, &rig.queue), (1000, block.memory_id()));
    let view = block.view(256..500).unwrap();
    let id = view.memory_on(&rig.queue).map(Memory::id);
    assert_ne!(id, block.memory_id());
    assert_eq!(seen(&view, &other), (244, id));
    drop(view);
    drop(block);
    assert_eq!(rig.pool.statistics().pending_blocks, 1);
    let empty = rig.pool.allocate(0).unwrap();
    assert_eq!(seen(&empty, &rig.queue), (0, None));
}

#[test]
fn a_shared_slice_keeps_its_block_and_may_start_at_any_byte() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(1000).unwrap();
    block.write(&rig.queue, 0, &[1_u8; 1000]).unwrap();
    let all = Slice::<u8, _>::new(Arc::new(block)).unwrap();
    let slice = all.slice(3..600).unwrap();
    drop(all);
    assert_eq!((slice.start(), slice.size()), (3, 597));
    let part = slice.slice(7..10).unwrap();
    drop(slice);
    assert_eq!((part.start(), part.size()), (10, 3));
    part.write(&rig.queue, 0, &[2_u8; 3]).unwrap();
    let mut bytes = [0_u8; 5];
    let around = part.memory().slice(9..14).unwrap();
    around.read(&rig.queue, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 2, 2, 1]);
    let block = part.clone().into_memory();
    drop(part);
    assert_eq!(rig.pool.active_blocks(), 1);
    drop(block);
    assert_eq!(rig.pool.active_blocks(), 0);
}

#[test]
fn a_slice_lies_within_what_was_asked_for_and_its_transfers_within_it() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(1000).unwrap();
    let slice = |range: std::ops::Range<usize>| block.slice(range);
    assert!(matches!(
        refusal(slice(0..1001)),
        InvalidRequest::OutOfBounds { .. }
    ));
    let half = slice(500..1000).unwrap();
    assert!(matches!(
        refusal(half.slice(..501)),
        InvalidRequest::OutOfBounds { .. }
    ));
    assert!(half.write(&rig.queue, 0, &[0_u8; 500]).is_ok());
    assert!(half.write(&rig.queue, 1, &[0_u8; 500]).is_err());
    // No bytes are no memory.
    let nothing = half.slice(500..).unwrap();
    assert_eq!(nothing.size(), 0);
    assert!(nothing.memory_on(&rig.queue).is_none());
    nothing.write(&rig.queue, 0, &[0_u8; 0]).unwrap();
}

#[test]
fn the_use_of_a_slice_is_recorded_for_its_block() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let rig = Rig::with_options(builder, PoolOptions::new().segments(false));
    let other = rig.backend.create_queue(QueueOrder::InOrder).unwrap();
    let block = rig.pool.allocate(4096).unwrap();
    let slice = block.slice(100..200).unwrap();
    slice.enqueue_fill(&other, .., &[7_u8]).unwrap();
    drop(block);
    assert_eq!(rig.pool.statistics().pending_blocks, 1);
    rig.device.run();
    let _again = rig.pool.allocate(4096).unwrap();
    assert_eq!(rig.pool.statistics().ended_hits, 1);
}

#[test]
fn a_kernel_of_the_mock_gets_the_bytes_of_a_slice_alone() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(64).unwrap();
    block.write(&rig.queue, 0, &[1_u8; 64]).unwrap();
    let slice = block.slice(10..20).unwrap();
    let double = |_: &[&[u8]], writes: &mut [&mut [u8]]| {
        assert_eq!(writes[0].len(), 10);
        writes[0].iter_mut().for_each(|byte| *byte *= 2);
    };
    rig.backend
        .launch(&rig.queue, "double", &[], &[&slice], double)
        .unwrap();
    let mut bytes = [0_u8; 64];
    block.read(&rig.queue, 0, &mut bytes).unwrap();
    let doubled = bytes.iter().enumerate().filter(|(_, byte)| **byte == 2);
    assert_eq!(
        doubled.map(|(place, _)| place).collect::<Vec<_>>(),
        (10..20).collect::<Vec<_>>()
    );
}

#[test]
fn typed_slices_count_elements() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let numbers = rig.pool.allocate_of::<u32>(100).unwrap();
    assert_eq!((numbers.len(), numbers.size()), (100, 400));
    assert_eq!(numbers.memory().size(), 400);
    let counted: Vec<u32> = (0..100).collect();
    numbers.write(queue, 0, &counted).unwrap();
    let some = numbers.slice(10..20).unwrap();
    assert_eq!((some.len(), some.region().offset), (10, 40));
    assert_eq!((some.start(), some.size()), (40, 40));
    assert_eq!(some.read_to_vec(queue).unwrap(), counted[10..20]);
    // Slices of slices, and indices in transfers, count from the first element of the slice.
    let fewer = some.slice(2..=3).unwrap();
    assert_eq!((fewer.len(), fewer.region().offset), (2, 48));
    some.write(queue, 9, &[7]).unwrap();
    some.enqueue_fill(queue, ..2, &[8, 9]).unwrap();
    let mut read = [0; 3];
    some.read(queue, 1, &mut read).unwrap();
    assert_eq!(read, [9, 12, 13]);
    let mut bytes = [0_u32; 2];
    numbers.memory().read(queue, 4 * 19, &mut bytes).unwrap();
    assert_eq!(bytes, [7, 20]);
    // A copy has the length of its source, wherever the slice of the destination starts.
    let copy = rig.pool.allocate_of::<u32>(12).unwrap();
    copy.enqueue_fill(queue, .., &[0]).unwrap();
    fewer
        .enqueue_copy_to(queue, &copy.slice(5..).unwrap())
        .unwrap();
    let mut expected = [0; 12];
    expected[5..7].copy_from_slice(&[12, 13]);
    assert_eq!(copy.read_to_vec(queue).unwrap(), expected);
}

#[test]
fn typed_slices_are_bounded_and_say_so_in_bytes() {
    let rig = Rig::with_capacity(MIB);
    let queue = &rig.queue;
    let numbers = rig.pool.allocate_of::<f64>(10).unwrap();
    assert_eq!(
        refusal(numbers.slice(8..11)),
        InvalidRequest::OutOfBounds {
            offset: 64,
            bytes: 24,
            size: 80
        }
    );
    let some = numbers.slice(4..8).unwrap();
    let out = |refusal| matches!(refusal, InvalidRequest::OutOfBounds { .. });
    assert!(out(refusal(some.slice(5..))));
    assert!(out(refusal(some.slice(usize::MAX / 4..))));
    assert!(out(refusal(some.write(queue, 1, &[0.0; 4]))));
    assert!(out(refusal(some.read(queue, 4, &mut [0.0]))));
    assert!(out(refusal(some.read(queue, usize::MAX, &mut [0.0; 2]))));
    assert!(out(refusal(some.enqueue_fill(queue, ..5, &[0.0]))));
    let smaller = rig.pool.allocate_of::<f64>(3).unwrap();
    assert!(out(refusal(some.enqueue_copy_to(queue, &smaller))));
    assert!(matches!(
        refusal(some.enqueue_fill(queue, ..3, &[0.0; 2])),
        InvalidRequest::PatternMismatch { .. }
    ));
    assert!(some.slice(4..).unwrap().is_empty());
}

#[test]
fn a_slice_is_of_whole_elements() {
    let rig = Rig::with_capacity(MIB);
    let block = rig.pool.allocate(103).unwrap();
    let whole = |bytes, element| InvalidRequest::NotWholeElements { bytes, element };
    assert_eq!(refusal(Slice::<u32, _>::new(&block)), whole(103, 4));
    let cast = |range: std::ops::Range<usize>| block.slice(range).unwrap().cast::<u32>();
    assert_eq!(refusal(cast(2..6)), whole(2, 4));
    assert_eq!(refusal(cast(4..6)), whole(2, 4));
    let one = cast(4..8).unwrap();
    assert_eq!((one.len(), one.region().offset), (1, 4));
    let bytes = one.cast::<u8>().unwrap();
    assert_eq!((bytes.len(), bytes.region().offset), (4, 4));
}

#[test]
fn elements_are_aligned_as_blocks_are_or_refused() {
    let pool = |alignment: usize| {
        let builder = MockDevice::builder().alignment(Align::new(alignment).unwrap());
        Rig::with_options(builder, PoolOptions::new()).pool
    };
    assert_eq!(pool(16).allocate_of::<u128>(3).unwrap().size(), 48);
    let error = pool(8).allocate_of::<u128>(3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unsupported: elements aligned to 16 bytes: the blocks of this pool are aligned to 8 bytes"
    );
    assert!(pool(8).allocate_of::<f64>(3).is_ok());
}

#[test]
fn more_elements_than_any_memory_has_are_refused_as_too_many_bytes_are() {
    let rig = Rig::with_capacity(MIB);
    for len in [usize::MAX, usize::MAX / 8 + 2, 1 << 40] {
        let error = rig.pool.allocate_of::<u64>(len).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::NeverFits, "{len} elements");
    }
}

#[test]
fn no_elements_are_no_memory() {
    let rig = Rig::with_capacity(MIB);
    let nothing = rig.pool.allocate_of::<u64>(0).unwrap();
    assert!(nothing.is_empty() && nothing.memory_on(&rig.queue).is_none());
    nothing.write(&rig.queue, 0, &[]).unwrap();
    assert_eq!(nothing.read_to_vec(&rig.queue).unwrap(), [0; 0]);
    nothing.enqueue_fill(&rig.queue, .., &[1]).unwrap();
    assert_eq!(
        refusal(nothing.memory().view(nothing.region())),
        InvalidRequest::ZeroSize
    );
}

#[test]
fn a_slice_has_a_view_where_the_device_lets_memory_start() {
    let rig = Rig::with_capacity(MIB);
    let numbers = rig.pool.allocate_of::<u32>(1000).unwrap();
    let from_64 = numbers.slice(64..).unwrap();
    let view = from_64.memory().view(from_64.region()).unwrap();
    assert_eq!(view.size(), 4 * 936);
    let from_63 = numbers.slice(63..).unwrap();
    assert!(matches!(
        refusal(from_63.memory().view(from_63.region())),
        InvalidRequest::Misaligned { offset: 252, .. }
    ));
}

#[test]
fn a_typed_block_is_for_the_queue_that_it_was_asked_for() {
    let rig = Rig::with_capacity(MIB);
    let other = rig.another_queue(QueueOrder::InOrder);
    let numbers = rig.pool.allocate_of_on::<u16>(&other, 10).unwrap();
    assert_eq!(numbers.memory().queue_id(), Some(other.id()));
    let shared = numbers.into_shared();
    let part = shared.slice(3..5).unwrap();
    drop(shared);
    assert_eq!(rig.pool.active_blocks(), 1);
    drop(part);
    assert_eq!(rig.pool.active_blocks(), 0);
}
