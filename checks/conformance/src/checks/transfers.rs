//! Checks of writes, reads, copies and fills.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, InvalidRequest, Queue, Region, Sink, Span, Work};

use crate::{
    Fixture,
    bench::{
        Bench, is_out_of_bounds, numbered, refusal, refused_as_out_of_bounds, transfers_refused,
    },
};

const SIZE: usize = 1024;

/// A write and a read of a whole block.
pub fn what_is_written_is_read<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(SIZE);
    bench.write(&buffer, &numbered(SIZE));
    assert_eq!(bench.read(&buffer), numbered(SIZE));
}

/// Enqueued transfers move the same bytes as blocking ones.
pub fn transfers_with_events_move_the_same_bytes<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let written = backend.enqueue_write(queue, &buffer, 10, numbered(100).into());
    let written = written.unwrap();
    let after = queue.after(from_ref(&written));
    let read = backend.enqueue_read(after, &buffer, 5..115).unwrap();
    assert_ne!(read.event(), &written);
    let mut expected = vec![1; 110];
    expected[5..105].copy_from_slice(&numbered(100));
    assert_eq!(read.wait().unwrap(), expected);
    written.wait().unwrap();
}

/// Patterns of 1, 2, 4, ... 128 bytes, which devices fill by themselves, and of other lengths.
pub fn a_fill_repeats_patterns_of_every_length<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    for length in [1, 2, 4, 8, 16, 32, 64, 128, 3, 12, 100, 129] {
        let buffer = bench.filled(SIZE, 255);
        let pattern = numbered(length);
        let times = SIZE / length;
        let all = Region::first(times * length);
        let event = bench
            .backend
            .enqueue_fill(&bench.queue, &buffer, all, &pattern);
        event.unwrap().wait().unwrap();
        let mut expected = vec![255; SIZE];
        expected[..all.bytes].copy_from_slice(&pattern.repeat(times));
        assert_eq!(bench.read(&buffer), expected, "{length} bytes");
    }
}

/// The errors are `EmptyPattern` and `PatternMismatch`, from the backend itself too where the length is wrong.
pub fn a_bad_pattern_is_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let (backend, queue) = (&bench.backend, &bench.queue);
    let mismatch = |offset, bytes, pattern| InvalidRequest::PatternMismatch {
        offset,
        bytes,
        pattern,
    };
    for bytes in [0, 768] {
        let fill = backend.enqueue_fill::<u8>(queue, &buffer, ..bytes, &[]);
        assert_eq!(refusal(fill), InvalidRequest::EmptyPattern);
        let fill = Work::Fill(span(&buffer, Region::first(bytes)), &[]);
        let submitted = backend.submit(queue.into(), fill);
        assert_eq!(refusal(submitted), InvalidRequest::EmptyPattern);
    }
    for (offset, bytes) in [(2, 8), (0, 6), (1, 4), (2, 0)] {
        let region = Region::new(offset, bytes);
        let fill = backend.enqueue_fill(queue, &buffer, region, &[0_u8; 4]);
        assert_eq!(refusal(fill), mismatch(offset, bytes, 4));
    }
    let fill = Work::Fill(span(&buffer, Region::new(2, 6)), &[0; 4]);
    let submitted = backend.submit(queue.into(), fill);
    assert_eq!(refusal(submitted), mismatch(0, 6, 4));
    assert_eq!(bench.read(&buffer), vec![1; SIZE]);
}

/// A copy from one part of a block to another.
pub fn a_copy_within_a_block_moves_what_does_not_overlap<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(SIZE);
    bench.write(&buffer, &numbered(SIZE));
    let (backend, queue) = (&bench.backend, &bench.queue);
    let copy = backend.enqueue_copy(queue, &buffer, ..100, &buffer, 100);
    copy.unwrap().wait().unwrap();
    let mut expected = numbered(SIZE);
    expected.copy_within(0..100, 100);
    assert_eq!(bench.read(&buffer), expected);
}

/// The error is `OverlappingCopy`.
pub fn an_overlapping_copy_is_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.buffer(SIZE);
    bench.write(&buffer, &numbered(SIZE));
    let (backend, queue) = (&bench.backend, &bench.queue);
    for to in [0, 1, 99] {
        let (from, bytes) = (0, 100);
        let copy = backend.enqueue_copy(queue, &buffer, ..bytes, &buffer, to);
        let overlap = InvalidRequest::OverlappingCopy { from, to, bytes };
        assert_eq!(refusal(copy), overlap);
    }
    assert_eq!(bench.read(&buffer), numbered(SIZE));
}

/// The error is `OutOfBounds` from each transfer, on each side, even if an end overflows.
pub fn transfers_out_of_bounds_are_refused_and_do_nothing<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (buffer, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 2));
    let (backend, queue) = (&bench.backend, &bench.queue);
    for offset in [SIZE - 3, SIZE, SIZE + 1, usize::MAX - 3, usize::MAX] {
        let region = Region::new(offset, 4);
        transfers_refused(backend, queue, (&buffer, region), &other, is_out_of_bounds);
        let data = Work::Write(span(&buffer, region), vec![9; 4].into());
        refused_as_out_of_bounds(backend.submit(queue.into(), data));
        refused_by_the_backend(&bench, &buffer, &other, region);
    }
    assert_eq!(bench.read(&buffer), vec![1; SIZE]);
}

/// Transfers of no bytes succeed, also at the very end of a block, and complete like others.
pub fn transfers_of_no_bytes_do_nothing<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (buffer, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 2));
    let (backend, queue) = (&bench.backend, &bench.queue);
    for offset in [0, SIZE] {
        let none = Region::new(offset, 0);
        backend.write::<u8>(queue, &buffer, offset, &[]).unwrap();
        backend.read::<u8>(queue, &buffer, offset, &mut []).unwrap();
        let events = [
            backend.enqueue_write(queue, &buffer, offset, Vec::new().into()),
            backend.enqueue_fill(queue, &buffer, none, &[7_u8]),
            backend.enqueue_copy(queue, &other, none, &buffer, offset),
        ];
        for event in events {
            event.unwrap().wait().unwrap();
        }
        let read = backend.enqueue_read(queue, &buffer, none).unwrap();
        assert_eq!(read.wait().unwrap(), []);
    }
    assert_eq!(bench.read(&buffer), vec![1; SIZE]);
    refused_as_out_of_bounds(backend.write::<u8>(queue, &buffer, SIZE + 1, &[]));
}

/// A length is checked even where the offset is valid, and before the host allocates this many bytes.
pub fn transfers_of_impossible_lengths_are_refused<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (buffer, other) = (bench.filled(SIZE, 1), bench.filled(SIZE, 2));
    let (backend, queue) = (&bench.backend, &bench.queue);
    for bytes in [SIZE + 1, usize::MAX - SIZE, usize::MAX] {
        for region in [Region::first(bytes), Region::new(SIZE, bytes)] {
            refused_as_out_of_bounds(backend.enqueue_read(queue, &buffer, region));
            refused_as_out_of_bounds(backend.enqueue_fill(queue, &buffer, region, &[9_u8]));
            refused_as_out_of_bounds(backend.enqueue_copy(queue, &other, region, &buffer, 0));
            refused_by_the_backend(&bench, &buffer, &other, region);
        }
    }
    assert_eq!(bench.read(&buffer), vec![1; SIZE]);
}

/// The backend itself checks bounds, whatever the calls above it have checked.
fn refused_by_the_backend<B: Backend>(
    bench: &Bench<B>,
    buffer: &B::Memory,
    other: &B::Memory,
    region: Region,
) {
    let works = [
        Work::Read(span(buffer, region), Sink::default()),
        Work::Fill(span(buffer, region), &[9]),
        Work::Copy(
            span(other, region),
            span(buffer, Region::first(region.bytes)),
        ),
        Work::Copy(
            span(other, Region::first(region.bytes)),
            span(buffer, region),
        ),
    ];
    for work in works {
        refused_as_out_of_bounds(bench.backend.submit((&bench.queue).into(), work));
    }
}

fn span<M>(memory: &M, region: Region) -> Span<'_, M> {
    Span { memory, region }
}

/// Later commands of the queue do not change the bytes that it returns.
pub fn a_read_shows_the_moment_of_its_turn<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let all = Region::first(SIZE);
    let read = bench.backend.enqueue_read(&bench.queue, &buffer, all);
    bench.fill(&bench.queue, &buffer, 2, &[]).wait().unwrap();
    assert_eq!(read.unwrap().wait().unwrap(), [1; SIZE]);
    assert_eq!(bench.read(&buffer), [2; SIZE]);
}

/// Only regions of the same memory overlap.
pub fn a_copy_to_the_same_place_of_another_block_is_no_overlap<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let (source, target) = (bench.filled(SIZE, 1), bench.filled(SIZE, 2));
    let (backend, queue) = (&bench.backend, &bench.queue);
    let copy = backend.enqueue_copy(queue, &source, .., &target, 0);
    copy.unwrap().wait().unwrap();
    assert_eq!(bench.read(&target), [1; SIZE]);
    // Nor does an empty region share any byte.
    let copy = backend.enqueue_copy(queue, &source, 10..10, &source, 10);
    copy.unwrap().wait().unwrap();
}

/// Bytes that are taken early are none: the device may still write them.
pub fn a_read_that_has_not_ended_gives_no_bytes<F: Fixture>(fixture: &F) {
    let bench = Bench::new(fixture);
    let buffer = bench.filled(SIZE, 1);
    let gate = bench.gate();
    let sinks = [(); 2].map(|()| Sink::default());
    let reads = sinks.each_ref().map(|sink| {
        let work = Work::Read(span(&buffer, Region::first(SIZE)), sink.clone());
        let on = bench.queue.after(from_ref(&gate));
        bench.backend.submit(on, work).unwrap()
    });
    let [early, late] = sinks;
    assert_eq!(early.take(), []);
    bench.open(&gate);
    for read in &reads {
        read.wait().unwrap();
    }
    assert_eq!(late.take(), [1; SIZE]);
}
