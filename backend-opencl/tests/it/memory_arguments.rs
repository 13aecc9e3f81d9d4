//! What commands take for memory: anything, within its own bounds.

use binpool::{ImmediateAllocator, MemoryPool, SvmAllocator, SvmGrain};
use binpool_allocators::{AsMemory, Backend, Error, Event, InvalidRequest, MemoryFlags, Slice};
use binpool_opencl::{
    ChannelOrder, ChannelType, ClMemory, ClQueue, HostPitches, ImageFormat, ImageRegion,
    ImageShape, OpenClBackend, OpenClError, Rect, RectPart, SvmOptions,
};

use crate::common::{
    Bench, Filled,
    launches::{Kernels, SCALE, SUM, parameter_refusal},
    numbered, refusal,
};

/// Memory with a size and a start of its own.
struct Told<'a> {
    memory: &'a ClMemory,
    size: usize,
    start: usize,
}

impl AsMemory<OpenClBackend> for Told<'_> {
    fn size(&self) -> usize {
        self.size
    }

    fn start(&self) -> usize {
        self.start
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        Some(self.memory)
    }
}

const SIZE: usize = 600;

/// Runs `test` with memory of every kind, of `SIZE` bytes each.
fn with_every_kind(bench: &Bench, test: impl Fn(&[(&str, &dyn AsMemory<OpenClBackend>)])) {
    let backend = &bench.backend;
    let step = backend.limits().alignment.bytes();
    let root = bench.buffer(step + SIZE + 100);
    let view = root.slice(step..step + SIZE).unwrap();
    let allocator = ImmediateAllocator::new(backend).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let [block, whole] = [SIZE, step + SIZE].map(|bytes| pool.allocate(bytes).unwrap());
    let region = whole.view(step..).unwrap();
    let large = bench.buffer(SIZE + 100);
    let elements = Slice::<u32, _>::new((backend, &large)).unwrap();
    let elements = elements.slice(3..3 + SIZE / 4).unwrap();
    let buffer = bench.buffer(SIZE);
    let other = bench.buffer(SIZE + 100);
    let told = Told {
        memory: &other,
        size: SIZE,
        start: 7,
    };
    let mut kinds: Vec<(&str, &dyn AsMemory<OpenClBackend>)> = vec![
        ("a buffer", &buffer),
        ("a view", &view),
        ("a pooled block", &block),
        ("a region of one", &region),
        ("a part of elements", &elements),
        ("the program's own", &told),
    ];
    if !backend.limits().svm.coarse {
        return test(&kinds);
    }
    let allocator = SvmAllocator::new(backend, SvmGrain::Coarse).unwrap();
    let shared = MemoryPool::new(allocator, &bench.queue).unwrap();
    let shared = shared.allocate(SIZE).unwrap();
    let typed = backend
        .svm_empty::<u16>(SIZE / 2, &SvmOptions::coarse())
        .unwrap();
    kinds.push(("pooled shared virtual memory", &shared));
    kinds.push(("typed shared virtual memory", &typed));
    test(&kinds);
}

#[test]
fn any_two_kinds_of_memory_are_copied_by_regions() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    with_every_kind(&bench, |kinds| {
        for (from, source) in kinds {
            for (to, target) in kinds {
                if std::ptr::addr_eq(*source, *target) {
                    continue;
                }
                backend.write(queue, *source, 0, &numbered(SIZE)).unwrap();
                backend.enqueue_fill(queue, *target, .., &[255_u8]).unwrap();
                let copied = backend.enqueue_copy(queue, *source, 11..51, *target, 560);
                copied.unwrap();
                let read = backend.enqueue_read(queue, *target, 559..).unwrap();
                let mut expected = vec![255];
                expected.extend(&numbered(SIZE)[11..51]);
                assert_eq!(read.wait().unwrap(), expected, "from {from} to {to}");
                let beyond = backend.enqueue_copy(queue, *source, 11..51, *target, 561);
                assert!(is_out_of_bounds(beyond), "from {from} to {to}");
            }
        }
    });
}

fn is_out_of_bounds<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(refusal(result), InvalidRequest::OutOfBounds { .. })
}

#[test]
fn every_command_counts_from_the_start_of_what_it_is_given_and_ends_with_it() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    with_every_kind(&bench, |kinds| {
        for (kind, memory) in kinds {
            assert_eq!(memory.size(), SIZE, "{kind}");
            backend.enqueue_fill(queue, *memory, .., &[9_u8]).unwrap();
            backend.write(queue, *memory, 4, &[1.5_f32, 2.5]).unwrap();
            let last = Rect::in_rows([SIZE - 4, 0, 0], 4);
            let rect = (&[7_u8; 4][..], Rect::default());
            backend
                .write_part(
                    queue,
                    RectPart::new((*memory, last), rect.1, [4, 1, 1]),
                    rect.0,
                )
                .unwrap();
            let mut map = backend.map_mut::<u8>(queue, *memory, 20..24).unwrap();
            map.fill(3);
            map.unmap().unwrap();
            let mut seen = vec![0_u8; SIZE];
            backend.read(queue, *memory, 0, &mut seen).unwrap();
            let mut expected = vec![9; SIZE];
            expected[4..12].copy_from_slice(bytemuck::cast_slice(&[1.5_f32, 2.5]));
            expected[20..24].fill(3);
            expected[SIZE - 4..].fill(7);
            assert_eq!(seen, expected, "{kind}");

            assert!(is_out_of_bounds(backend.write(
                queue,
                *memory,
                SIZE,
                &[1_u8]
            )));
            let mut beyond = [0_u8; 2];
            assert!(is_out_of_bounds(backend.read(
                queue,
                *memory,
                SIZE - 1,
                &mut beyond
            )));
            assert!(is_out_of_bounds(backend.map::<u8>(queue, *memory, ..=SIZE)));
            let fill = backend.enqueue_fill(queue, *memory, 596..604, &[1_u8]);
            assert!(is_out_of_bounds(fill));
            let beyond = Rect::in_rows([SIZE - 3, 0, 0], 4);
            let written = backend.write_part(
                queue,
                RectPart::new((*memory, beyond), rect.1, [4, 1, 1]),
                rect.0,
            );
            assert!(is_out_of_bounds(written));
        }
    });
}

#[test]
fn memory_that_tells_a_wrong_size_is_bounded_by_what_it_has() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let buffer = bench.filled(8192, 1);
    let mut blocks = vec![buffer];
    if backend.limits().svm.coarse {
        let shared = backend
            .svm_empty::<u8>(8192, &SvmOptions::coarse())
            .unwrap();
        blocks.push(shared.filled(queue, 1).into_memory());
    }
    let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    let shape = ImageShape::d2(32, 32);
    let pixels = [[2_u8; 4]; 32 * 32];
    let flags = MemoryFlags::empty();
    let tight = HostPitches::TIGHT;
    let image = backend
        .create_image_with_data(flags, format, shape, &pixels, tight)
        .unwrap();
    let source = bench.filled(8192, 2);
    for block in &blocks {
        let view = block.slice(..4096).unwrap();
        for (size, start) in [
            (1 << 30, 0),
            (usize::MAX, 1),
            (4096, 4096),
            (64, usize::MAX),
        ] {
            let liar = Told {
                memory: &view,
                size,
                start,
            };
            let all = 0..4097.min(size);
            assert!(is_out_of_bounds(backend.map::<u8>(
                queue,
                &liar,
                all.clone()
            )));
            assert!(is_out_of_bounds(backend.write(
                queue,
                &liar,
                0,
                &vec![2_u8; all.len()]
            )));
            assert!(is_out_of_bounds(backend.read(
                queue,
                &liar,
                0,
                &mut vec![0_u8; all.len()]
            )));
            assert!(is_out_of_bounds(backend.enqueue_fill(
                queue,
                &liar,
                all.clone(),
                &[2_u8]
            )));
            assert!(is_out_of_bounds(backend.enqueue_copy(
                queue,
                &source,
                all.clone(),
                &liar,
                0
            )));
            let row = Rect::default();
            let region = [all.len(), 1, 1];
            let copied = backend.enqueue_copy_rect(queue, (&source, row), (&liar, row), region);
            assert!(is_out_of_bounds(copied));
            if size < 8192 {
                continue;
            }
            // 4096 bytes, from the second one on.
            let whole = ImageRegion::all(shape);
            let copied = backend.enqueue_copy_image_to_buffer(queue, &image, whole, &liar, 1);
            assert!(matches!(
                copied,
                Err(OpenClError::Device(Error::InvalidRequest(
                    InvalidRequest::OutOfBounds { .. }
                )))
            ));
        }
        assert_eq!(bench.read(block), [1; 8192]);
    }
}

#[test]
fn a_kernel_works_on_the_elements_that_it_is_given() {
    let kernels = Kernels::new();
    let (backend, queue) = (&kernels.bench.backend, &kernels.bench.queue);
    let (scale, sum) = (kernels.kernel("scale", &SCALE), kernels.kernel("sum", &SUM));
    let first = backend.limits().alignment.bytes() / 4;
    let count = first + 100;
    let ones = vec![1.0_f32; count];
    let buffer = backend
        .create_buffer_from(&ones, MemoryFlags::empty())
        .unwrap();
    let mut expected = ones.clone();
    expected[first..first + 10].fill(3.0);
    let elements = Slice::<f32, _>::new((backend, &buffer)).unwrap();
    let part = elements.slice(first..first + 10).unwrap();
    let launched = scale
        .launch(queue, &[10])
        .memory(&part)
        .value(&3.0_f32)
        .enqueue();
    match launched {
        Ok(launched) => {
            launched.wait().unwrap();
            assert_eq!(elements.read_to_vec(queue).unwrap(), expected);
        }
        Err(error) => {
            assert!(kernels.bench.is_nvidia(), "{error}");
            let (_, problem) = parameter_refusal(Err::<(), _>(error));
            assert!(problem.contains("declare its offset"), "{problem}");
        }
    }
    // Its length is that of the part, which also bounds the launch.
    let launched = scale
        .launch(queue, &[11])
        .memory(&part)
        .value(&3.0_f32)
        .enqueue();
    let (_, problem) = parameter_refusal(launched);
    assert!(
        problem.starts_with("was given 40 bytes, but this launch touches 44"),
        "{problem}"
    );
    let odd = elements.slice(3..).unwrap();
    let launched = scale
        .launch(queue, &[10])
        .memory(&odd)
        .value(&3.0_f32)
        .enqueue();
    let (parameter, problem) = parameter_refusal(launched);
    assert_eq!(parameter, 0);
    assert!(
        problem.starts_with("was given memory at byte 12 of a buffer"),
        "{problem}"
    );

    if !backend.limits().svm.coarse {
        return;
    }
    // By its address, so at any place.
    let shared = backend
        .svm_empty::<u32>(40, &SvmOptions::coarse())
        .unwrap()
        .filled(queue, 1);
    let shared = shared.into_memory();
    let words = Slice::<u32, _>::new((backend, &shared)).unwrap();
    words.enqueue_fill(queue, 3..8, &[10]).unwrap();
    let sums = kernels.bench.buffer(4);
    let part = words.slice(3..9).unwrap();
    sum.launch(queue, &[4])
        .local_size(&[4])
        .memory(&part)
        .memory(&sums)
        .local(binpool_opencl::LocalMemory::per_item::<u32>(1))
        .enqueue()
        .unwrap();
    assert_eq!(kernels.words(&sums), [51]);
}
