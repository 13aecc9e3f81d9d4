//! Rectangular transfers, beside a plain model.

use std::sync::Arc;

use binpool::{ImmediateAllocator, MemoryPool, PoolOptions};
use binpool_allocators::{Backend, Event, InvalidRequest, Memory, Queue};
use binpool_opencl::{ClMemory, Rect, RectPart};
use proptest::prelude::*;

use crate::common::{Bench, Error, contents, numbered, refusal};

/// Where byte `[byte, row, slice]` of a rectangle's region is.
fn place(rect: Rect, region: [usize; 3], [byte, row, slice]: [usize; 3]) -> usize {
    let row_pitch = if rect.row_pitch == 0 {
        region[0]
    } else {
        rect.row_pitch
    };
    let slice_pitch = if rect.slice_pitch == 0 {
        region[1] * row_pitch
    } else {
        rect.slice_pitch
    };
    let [x, y, z] = rect.origin;
    (x + byte) + (y + row) * row_pitch + (z + slice) * slice_pitch
}

/// Copies a rectangle byte by byte.
fn model((source, from): (&[u8], Rect), (target, to): (&mut [u8], Rect), region: [usize; 3]) {
    for slice in 0..region[2] {
        for row in 0..region[1] {
            for byte in 0..region[0] {
                let at = [byte, row, slice];
                target[place(to, region, at)] = source[place(from, region, at)];
            }
        }
    }
}

/// How many bytes the rectangle needs on the host.
fn needed(rect: Rect, region: [usize; 3]) -> usize {
    place(rect, region, region.map(|part| part - 1)) + 1
}

/// How many bytes the rectangle needs on the device: on NVIDIA's, pitches count to their ends.
fn needed_there(bench: &Bench, rect: Rect, region: [usize; 3]) -> usize {
    let [_, rows, slices] = region;
    let whole = match (rows, slices) {
        (1, 1) => 0,
        (_, 1) => rows * (place(rect, region, [0, 1, 0]) - place(rect, region, [0; 3])),
        _ => slices * (place(rect, region, [0, 0, 1]) - place(rect, region, [0; 3])),
    };
    let least = needed(rect, region);
    if bench.is_nvidia() {
        least.max(whole)
    } else {
        least
    }
}

#[derive(Clone, Debug)]
struct Case {
    region: [usize; 3],
    device: Rect,
    other: Rect,
}

fn rects(region: [usize; 3]) -> impl Strategy<Value = Rect> {
    let origin = [0..6_usize, 0..4, 0..3];
    (origin, 0..8_usize, 0..3_usize, any::<bool>()).prop_map(move |(origin, gap, rows, tight)| {
        if tight {
            return Rect {
                origin,
                ..Rect::default()
            };
        }
        let row_pitch = region[0] + gap;
        let slice_pitch = row_pitch * (region[1] + rows);
        Rect {
            origin,
            row_pitch,
            slice_pitch,
        }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let region = [1..9_usize, 1..6, 1..4];
    region.prop_flat_map(|region| {
        (rects(region), rects(region)).prop_map(move |(device, other)| Case {
            region,
            device,
            other,
        })
    })
}

/// A buffer and, where there is any, shared virtual memory.
fn roots(bench: &Bench, bytes: usize) -> Vec<ClMemory> {
    let shared = bench.backend.limits().svm.coarse;
    let shared = shared.then(|| bench.svm(bytes));
    [bench.buffer(bytes)].into_iter().chain(shared).collect()
}

/// Memory of each kind, and views that start within memory of each kind.
fn memories(bench: &Bench, bytes: usize) -> Vec<ClMemory> {
    let step = bench.backend.limits().alignment.bytes();
    let longer = roots(bench, step + bytes + 7);
    let views = longer
        .iter()
        .map(|root| root.slice(step..step + bytes).unwrap());
    roots(bench, bytes).into_iter().chain(views).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rectangles_move_as_in_the_model(case in cases()) {
        let Case { region, device, other } = case;
        let bench = Bench::new();
        let (backend, queue) = (&bench.backend, &bench.queue);
        let here = needed_there(&bench, device, region);
        let there = needed_there(&bench, other, region);
        let data = numbered(there);
        for memory in memories(&bench, here) {
            // Written.
            bench.write(&memory, &vec![255; here]);
            backend.write_part(queue, RectPart::new((&memory, device), other, region), &data).unwrap();
            let mut expected = vec![255; here];
            model((&data, other), (&mut expected, device), region);
            prop_assert_eq!(&bench.read(&memory), &expected);
            // And read again, into something else and into bytes without gaps.
            let mut seen = vec![254; there];
            backend.read_part(queue, RectPart::new((&memory, device), other, region), &mut seen).unwrap();
            let mut expected_there = vec![254; there];
            model((&expected, device), (&mut expected_there, other), region);
            prop_assert_eq!(seen, expected_there);
            let bytes = backend.enqueue_read_part(queue, RectPart::new((&memory, device), Rect::default(), region)).unwrap();
            let mut tight = vec![0; region.iter().product()];
            model((&expected, device), (&mut tight, Rect::default()), region);
            prop_assert_eq!(bytes.wait().unwrap(), tight);
            // Without waiting.
            bench.write(&memory, &vec![255; here]);
            let data: Arc<[u8]> = data.clone().into();
            let write = backend.enqueue_write_part(queue, RectPart::new((&memory, device), other, region), data);
            write.unwrap();
            prop_assert_eq!(&bench.read(&memory), &expected);
            // And on to other memory.
            for target in memories(&bench, there) {
                bench.write(&target, &vec![253; there]);
                backend.enqueue_copy_rect(queue, (&memory, device), (&target, other), region).unwrap();
                let mut copied = vec![253; there];
                model((&expected, device), (&mut copied, other), region);
                prop_assert_eq!(bench.read(&target), copied);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_rectangle_is_copied_within_one_buffer_if_it_shares_no_byte_with_its_target(
        case in cases(),
        [near, far] in [0..30_usize, 0..2_usize],
        same_pitches in any::<bool>(),
    ) {
        let Case { region, device: from, mut other } = case;
        if same_pitches {
            (other.row_pitch, other.slice_pitch) = (from.row_pitch, from.slice_pitch);
        }
        other.origin[0] += near + far * needed(from, region);
        copy_within_one_buffer(&Bench::new(), from, other, region);
    }
}

/// Copies a rectangle within one buffer, and compares that with the model.
fn copy_within_one_buffer(bench: &Bench, from: Rect, to: Rect, region: [usize; 3]) {
    let (backend, queue) = (&bench.backend, &bench.queue);
    let [there, here] = [from, to].map(|rect| needed_there(bench, rect, region));
    let data = numbered(here.max(there));
    let mut expected = data.clone();
    model((&data, from), (&mut expected, to), region);
    let touched = |rect| {
        let mut touched = vec![0; data.len()];
        let ones = vec![1; region.iter().product()];
        model((&ones, Rect::default()), (&mut touched, rect), region);
        touched
    };
    let mut both = touched(from).into_iter().zip(touched(to));
    let is_shared = both.any(|(one, two)| one + two == 2);
    for memory in roots(bench, data.len()) {
        bench.write(&memory, &data);
        let copied = backend.enqueue_copy_rect(queue, (&memory, from), (&memory, to), region);
        if is_shared {
            assert!(matches!(
                refusal(copied),
                InvalidRequest::OverlappingCopy { .. }
            ));
        } else {
            copied.unwrap().wait().unwrap();
            assert_eq!(bench.read(&memory), expected);
        }
    }
}

/// `PoCL` takes some of them for overlapping ones: those whose rows touch or lie between each other.
#[test]
fn a_rectangle_is_copied_beside_itself_in_the_same_buffer() {
    let bench = Bench::new();
    let at = |column, row| Rect::in_rows([column, row, 0], 64);
    for (from, to) in [(0, 16), (16, 0), (16, 32), (0, 48), (48, 0)] {
        for (from_row, to_row) in [(0, 0), (1, 0), (0, 1), (2, 2)] {
            copy_within_one_buffer(&bench, at(from, from_row), at(to, to_row), [16, 4, 1]);
        }
    }
}

/// OpenCL has no command for it.
#[test]
fn slices_are_copied_within_one_buffer_though_only_their_pitches_differ() {
    let bench = Bench::new();
    let slices = |byte, slice_pitch| Rect {
        origin: [byte, 0, 0],
        row_pitch: 16,
        slice_pitch,
    };
    for (from, to) in [(64, 128), (128, 64)] {
        copy_within_one_buffer(&bench, slices(0, from), slices(512, to), [8, 2, 3]);
    }
}

#[test]
fn a_rectangle_in_a_view_touches_nothing_beside_the_view() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let step = bench.backend.limits().alignment.bytes();
    let (rows, region) = (Rect::in_rows([3, 1, 0], 10), [4, 2, 1]);
    let data = [7_u8; 8];
    let source = bench.filled(8, 7);
    for is_copied in [false, true] {
        for root in roots(&bench, 3 * step) {
            bench.write(&root, &vec![9; 3 * step]);
            let view = root.slice(step..2 * step).unwrap();
            let tight = Rect::default();
            if is_copied {
                let copied =
                    backend.enqueue_copy_rect(queue, (&source, tight), (&view, rows), region);
                copied.unwrap();
            } else {
                let written =
                    backend.write_part(queue, RectPart::new((&view, rows), tight, region), &data);
                written.unwrap();
            }
            let mut expected = vec![9; 3 * step];
            model((&data, tight), (&mut expected[step..], rows), region);
            let kind = root.kind();
            assert_eq!(bench.read(&root), expected, "{kind:?}, copied: {is_copied}");
        }
    }
}

#[test]
fn rectangles_that_do_not_fit_are_refused_with_the_reason() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let (memory, mut bytes) = (bench.filled(100, 1), [9_u8; 100]);
    let tight = Rect::default();
    let mut read = |device, host, region| {
        let read = backend.read_part(
            queue,
            RectPart::new((&memory, device), host, region),
            &mut bytes,
        );
        refusal(read)
    };
    assert_eq!(read(tight, tight, [10, 0, 1]), InvalidRequest::ZeroSize);
    let beyond = InvalidRequest::OutOfBounds {
        offset: 0,
        bytes: 101,
        size: 100,
    };
    assert_eq!(read(tight, tight, [101, 1, 1]), beyond);
    let shifted = Rect::in_rows([1, 0, 0], 0);
    let beyond = InvalidRequest::OutOfBounds {
        offset: 1,
        bytes: 100,
        size: 100,
    };
    assert_eq!(read(shifted, tight, [100, 1, 1]), beyond);
    assert_eq!(read(tight, shifted, [100, 1, 1]), beyond);
    let narrow = Rect::in_rows([0; 3], 5);
    let pitch = InvalidRequest::Pitch {
        pitch: 5,
        least: 10,
        multiple_of: 1,
    };
    assert_eq!(read(narrow, tight, [10, 2, 1]), pitch);
    assert_eq!(read(tight, narrow, [10, 2, 1]), pitch);
    for region in [[usize::MAX, 2, 2], [1, usize::MAX, 2], [1, 1, usize::MAX]] {
        assert!(matches!(
            read(tight, tight, region),
            InvalidRequest::OutOfBounds { .. }
        ));
        let read = backend.enqueue_read_part(
            queue,
            RectPart::new((&memory, tight), Rect::default(), region),
        );
        assert!(matches!(refusal(read), InvalidRequest::OutOfBounds { .. }));
    }
    assert_eq!(bytes, [9; 100]);
    assert_eq!(bench.read(&memory), [1; 100]);
}

#[test]
fn a_rectangle_is_not_copied_onto_itself() {
    let bench = Bench::new();
    let memory = bench.buffer(100);
    let copy = |to| {
        let (from, to) = (Rect::in_rows([0; 3], 10), Rect::in_rows(to, 10));
        let (queue, region) = (&bench.queue, [4, 4, 1]);
        bench
            .backend
            .enqueue_copy_rect(queue, (&memory, from), (&memory, to), region)
    };
    assert!(matches!(
        refusal(copy([2, 2, 0])),
        InvalidRequest::OverlappingCopy { .. }
    ));
    // Beside each other, though what the two span has bytes in common.
    copy([5, 0, 0]).unwrap();
}

#[test]
fn a_pooled_block_is_bounded_by_the_size_that_was_asked_for() {
    let bench = Bench::new();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(90).unwrap();
    let tight = Rect::default();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let write = |rows| {
        backend.write_part(
            queue,
            RectPart::new((&block, tight), tight, [10, rows, 1]),
            &[7_u8; 100],
        )
    };
    write(9).unwrap();
    let size = 90;
    assert_eq!(
        refusal(write(10)),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 100,
            size
        }
    );
    let copied = bench.buffer(100);
    backend.enqueue_copy(queue, &block, .., &copied, 0).unwrap();
    assert_eq!(bench.read(&copied)[..90], [7; 90]);
}

#[test]
fn rectangles_are_copied_between_blocks_of_one_segment_whatever_their_pitches() {
    let bench = Bench::new();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let options = PoolOptions::new().segments(true);
    let pool = options.build(allocator, &bench.queue).unwrap();
    let [from, to] = [(); 2].map(|()| pool.allocate(4096).unwrap());
    let data = numbered(4096);
    let region = [16, 4, 2];
    let source = Rect {
        origin: [3, 1, 1],
        row_pitch: 64,
        slice_pitch: 640,
    };
    let target = Rect {
        origin: [5, 0, 1],
        row_pitch: 80,
        slice_pitch: 480,
    };
    for target in [source, target] {
        from.write(&bench.queue, 0, &data).unwrap();
        to.write(&bench.queue, 0, &[255_u8; 4096]).unwrap();
        let copied =
            bench
                .backend
                .enqueue_copy_rect(&bench.queue, (&from, source), (&to, target), region);
        copied.unwrap();
        let mut expected = vec![255; 4096];
        model((&data, source), (&mut expected, target), region);
        assert_eq!(contents(&to, &bench.queue), expected);
        assert_eq!(contents(&from, &bench.queue), data);
    }
}

/// A copy whose pitches differ goes through another buffer, in two commands. `PoCL` uses the event of each that fails.
#[test]
fn a_copy_within_one_buffer_fails_with_what_it_waits_for() {
    let bench = Bench::new();
    let memory = bench.filled(4096, 7);
    let (from, to) = (Rect::in_rows([0; 3], 8), Rect::in_rows([2048, 0, 0], 16));
    let gates = [bench.gate()];
    let on = bench.queue.after(&gates);
    let copied = bench
        .backend
        .enqueue_copy_rect(on, (&memory, from), (&memory, to), [8, 4, 1])
        .unwrap();
    bench.fail_gate(&gates[0]);
    assert!(copied.wait().is_err());
    assert_eq!(bench.read(&memory), [7; 4096]);
}

#[test]
fn a_last_row_without_its_pitch_is_moved_or_refused_with_the_reason() {
    let bench = Bench::new();
    let memory = bench.filled(12, 0);
    let rows = Rect::in_rows([0; 3], 8);
    let (queue, data) = (&bench.queue, (&[1_u8; 8][..], Rect::default()));
    let written = bench.backend.write_part(
        queue,
        RectPart::new((&memory, rows), data.1, [4, 2, 1]),
        data.0,
    );
    if bench.is_nvidia() {
        let error = written.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains("memory of 16 bytes"), "{error}");
    } else {
        written.unwrap();
        assert_eq!(bench.read(&memory), [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
    }
}

/// A copy that takes two commands of the runtime does nothing and fails, as one does, after what has failed.
#[test]
fn a_copy_in_two_parts_fails_with_what_it_waits_for() {
    let bench = Bench::new();
    let memory = bench.filled(256, 7);
    let gates = [bench.gate(), bench.gate()];
    let (from, to) = (Rect::in_rows([0; 3], 8), Rect::in_rows([128, 0, 0], 16));
    let copy = |gate| {
        let behind = bench.queue.after(std::slice::from_ref(gate));
        let sides = ((&memory, from), (&memory, to));
        bench
            .backend
            .enqueue_copy_rect(behind, sides.0, sides.1, [4, 4, 1])
    };
    let before = copy(&gates[0]);
    bench.fail_gate(&gates[0]);
    assert!(before.and_then(|copied| copied.wait()).is_err());
    bench.fail_gate(&gates[1]);
    let after = copy(&gates[1]);
    assert!(after.and_then(|copied| copied.wait()).is_err());
}
