//! The two styles of shared virtual memory, opaque and of one type, buffers over it, and vectors of the program's own.

use std::ptr::NonNull;

use binpool_allocators::{
    Align, AsMemory, Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, Queue,
    Region, Slice, SvmBackend, SvmGrain,
};
use binpool_opencl::{
    ClMemory, ImageRegion, ImageShape, MapMode, MigrationFlags, OpenClBackend, OpenClError,
    SvmOptions, SvmPointer,
};

use crate::common::{
    Bench, Filled,
    launches::{ADD, Kernels, SCALE},
    numbered,
    picture::RGBA8,
    refusal,
};

const GRAINS: [SvmGrain; 3] = [SvmGrain::Coarse, SvmGrain::Fine, SvmGrain::FineAtomics];

/// The size of blocks that are looked for after they were dropped.
const BYTES: usize = 1 << 20;

impl Bench {
    fn options(&self) -> Vec<SvmOptions> {
        let svm = self.backend.limits().svm;
        assert!(
            svm.coarse,
            "the device under test has no SVM: choose another one"
        );
        let grains = GRAINS.into_iter().filter(|grain| grain.is_in(svm));
        grains.map(SvmOptions::new).collect()
    }

    fn zeros(&self, length: usize) -> Slice<u32, ClMemory> {
        let empty = self
            .backend
            .svm_empty(length, &SvmOptions::coarse())
            .unwrap();
        empty.filled(&self.queue, 0)
    }
}

fn is_unsupported<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unsupported { .. }))
}

#[test]
fn both_styles_are_pointers_with_a_size_and_an_address() {
    let bench = Bench::new();
    for options in bench.options() {
        let elements = bench.backend.svm_empty::<u32>(25, &options).unwrap();
        let address = elements.address().unwrap();
        assert_eq!((elements.size(), elements.len()), (100, 25));
        let written = elements;
        assert_eq!((written.size(), written.len()), (100, 25));
        assert_eq!(written.address().unwrap(), address);
        let opaque = written.into_memory();
        assert_eq!(opaque.address().unwrap(), address);
        assert_eq!(bench.backend.svm_address(&opaque), Some(address));
        assert!(matches!(opaque.kind(), MemoryKind::Svm(_)));
    }
}

#[test]
fn a_buffer_is_no_pointer() {
    let bench = Bench::new();
    let buffer = bench.filled(64, 1);
    let not = InvalidRequest::NotSvm;
    assert_eq!(refusal(buffer.svm_memory()), not);
    assert_eq!(refusal(buffer.address()), not);
    assert_eq!(refusal(buffer.as_buffer(MemoryFlags::empty(), None)), not);
    assert_eq!(refusal(buffer.svm_info()), not);
}

#[test]
fn a_block_knows_what_it_was_made_with() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment;
    for alignment in [None, Align::new(64)] {
        let block = bench
            .backend
            .allocate_svm(
                4 * align.bytes(),
                alignment,
                SvmGrain::Coarse,
                Some(&bench.queue),
            )
            .unwrap();
        let info = block.svm_info().unwrap();
        assert_eq!(info.address, block.address().unwrap());
        assert!(info.alignment >= alignment.unwrap_or(align));
        assert!(info.alignment.divides(info.address.addr().get()));
        assert_eq!(
            (info.bytes, info.offset, info.block_bytes),
            (4 * align.bytes(), 0, 4 * align.bytes())
        );
        assert_eq!((info.grain, info.system), (SvmGrain::Coarse, false));
        assert_eq!(info.bound_queue.as_ref(), Some(&bench.queue));

        let region = Region::new(align.bytes(), align.bytes());
        let region = bench.backend.create_sub_region(&block, region).unwrap();
        bench.backend.unbind_from_queue(&block).unwrap();
        let part = region.svm_info().unwrap();
        assert_eq!(
            (part.bytes, part.offset, part.block_bytes),
            (align.bytes(), align.bytes(), info.block_bytes)
        );
        let distance = part.address.addr().get() - info.address.addr().get();
        assert_eq!((distance, part.bound_queue), (align.bytes(), None));
    }
}

#[test]
fn elements_are_as_many_as_were_asked_for() {
    let bench = Bench::new();
    let backend = &bench.backend;
    assert_eq!(
        backend
            .svm_empty::<f64>(12, &SvmOptions::coarse())
            .unwrap()
            .size(),
        96
    );
    for options in bench.options() {
        let bound = SvmOptions {
            alignment: Align::new(64),
            queue: Some(bench.queue.clone()),
            ..options
        };
        let elements = backend.svm_empty::<f64>(12, &bound).unwrap();
        assert_eq!(elements.len(), 12);
        let info = elements.into_memory().svm_info().unwrap();
        assert_eq!(info.bound_queue.as_ref(), Some(&bench.queue));
    }
    let fine = backend.svm_empty::<f64>(12, &SvmOptions::fine());
    if backend.limits().svm.fine {
        let memory = fine.unwrap().into_memory();
        assert_eq!(memory.kind(), MemoryKind::Svm(SvmGrain::Fine));
    } else {
        assert!(is_unsupported(&fine));
    }
}

#[test]
fn no_elements_elements_of_no_bytes_and_too_many_are_refused() {
    let bench = Bench::new();
    let backend = &bench.backend;
    assert_eq!(
        refusal(backend.svm_empty::<u32>(0, &SvmOptions::coarse())),
        InvalidRequest::ZeroSize
    );
    assert_eq!(
        refusal(backend.svm_empty::<[u32; 0]>(5, &SvmOptions::coarse())),
        InvalidRequest::NotWholeElements {
            bytes: 0,
            element: 0
        }
    );
    for length in [usize::MAX, usize::MAX / 8 + 1] {
        let largest = backend.limits().largest_block_bytes;
        assert_eq!(
            refusal(backend.svm_empty::<u64>(length, &SvmOptions::coarse())),
            InvalidRequest::TooLarge {
                requested: usize::MAX,
                largest
            }
        );
    }
}

#[test]
fn elements_are_filled_written_and_mapped() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for options in bench.options() {
        let empty = || backend.svm_empty::<u32>(5, &options).unwrap();
        let filled = empty().filled(queue, 7);
        assert_eq!(*backend.map::<u32>(queue, &filled, ..).unwrap(), [7; 5]);
        let written = empty().holding(queue, &[1, 2, 3, 4, 5]);
        {
            let mut map = backend.map_mut::<u32>(queue, &written, ..).unwrap();
            assert_eq!(*map, [1, 2, 3, 4, 5]);
            map[2] = 9;
        }
        let mut bytes = [0_u8; 20];
        let memory = written.memory_on(queue).unwrap();
        backend.read(queue, memory, 0, &mut bytes).unwrap();
        assert_eq!(*bytemuck::cast_slice::<u8, u32>(&bytes), [1, 2, 9, 4, 5]);
        let drawn = empty();
        let pending = backend.enqueue_map_mut::<u32>(queue, &drawn, .., MapMode::Overwrite);
        let mut map = pending.unwrap().wait().unwrap();
        map.copy_from_slice(&[5, 4, 3, 2, 1]);
        drop(map);
        assert_eq!(drawn.read_to_vec(queue).unwrap(), [5, 4, 3, 2, 1]);
    }
}

#[test]
fn a_map_keeps_commands_away_whatever_the_grain() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for options in bench.options() {
        let elements = backend.svm_empty::<u32>(5, &options).unwrap();
        let elements = elements.filled(queue, 7);
        let map = backend.map::<u32>(queue, &elements, ..).unwrap();
        let memory = elements.svm_memory().unwrap();
        let refused = backend.enqueue_fill(queue, memory, Region::first(4), &[1_u8]);
        assert!(matches!(refusal(refused), InvalidRequest::Mapped { .. }));
        map.unmap().unwrap().wait().unwrap();
        bench.fill(queue, memory, 1, &[]).wait().unwrap();
    }
}

#[test]
fn a_fill_goes_as_far_as_it_is_told() {
    // `PyOpenCL`'s `enqueue_svm_memfill` ignores the byte count, and its `map` the size.
    let bench = Bench::new();
    for options in bench.options() {
        let elements = bench.backend.svm_empty::<u8>(1000, &options).unwrap();
        let elements = elements.filled(&bench.queue, 1);
        let memory = elements.svm_memory().unwrap();
        let region = Region::new(100, 60);
        bench
            .backend
            .enqueue_fill(&bench.queue, memory, region, &[2_u8, 3])
            .unwrap();
        let map = bench
            .backend
            .map::<u8>(&bench.queue, &elements, ..)
            .unwrap();
        assert!(map[..100].iter().all(|&byte| byte == 1));
        assert_eq!(map[100..160], [2, 3].repeat(30));
        assert!(map[160..].iter().all(|&byte| byte == 1));
        drop(map);
        let part = bench
            .backend
            .map::<u8>(&bench.queue, &elements, region)
            .unwrap();
        assert_eq!(part.len(), 60);
    }
}

#[test]
fn both_styles_migrate() {
    let bench = Bench::new();
    let (numbers, opaque) = (bench.zeros(100), bench.svm(64));
    let buffer = bench.buffer(64);
    let all: [&dyn AsMemory<_>; 3] = [&numbers, &opaque, &buffer];
    for flags in [MigrationFlags::empty(), MigrationFlags::HOST] {
        let migrated = bench.backend.enqueue_migrate(&bench.queue, &all, flags);
        if bench.backend.version() >= (2, 1) {
            migrated.unwrap().wait().unwrap();
        } else {
            assert!(is_unsupported(&migrated));
        }
    }
    let map = bench
        .backend
        .map::<u32>(&bench.queue, &numbers, ..)
        .unwrap();
    assert_eq!(*map, [0; 100]);
}

#[test]
fn a_buffer_over_svm_has_the_same_bytes() {
    let bench = Bench::new();
    for options in bench.options() {
        let elements = bench.backend.svm_empty::<u8>(1000, &options).unwrap();
        let elements = elements.filled(&bench.queue, 5);
        let buffer = elements.as_buffer(MemoryFlags::empty(), None).unwrap();
        assert_eq!((buffer.bytes(), buffer.kind()), (1000, MemoryKind::Buffer));
        assert!(buffer.raw().is_some());
        let info = buffer.info().unwrap();
        assert!(info.has_host_pointer && info.uses_svm_pointer, "{info:?}");
        assert_eq!(bench.read(&buffer), [5; 1000]);
        bench.write(&buffer, &numbered(1000));
        let all = || {
            bench
                .backend
                .map::<u8>(&bench.queue, &elements, ..)
                .unwrap()
        };
        assert_eq!(*all(), numbered(1000));
        bench.fill(&bench.queue, &buffer, 6, &[]);
        assert_eq!(bench.read(elements.svm_memory().unwrap()), [6; 1000]);
        {
            let mut map = buffer_map(&bench, &buffer);
            map[10] = 7;
        }
        assert_eq!(all()[9..12], [6, 7, 6]);
    }
}

fn buffer_map<'m>(bench: &Bench, buffer: &'m ClMemory) -> binpool_opencl::MapMut<'m, u8> {
    let all = Region::first(buffer.bytes());
    bench.backend.map_mut(&bench.queue, buffer, all).unwrap()
}

#[test]
fn a_buffer_over_svm_is_as_long_as_is_said_and_has_regions() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let block = bench.svm(4 * align);
    bench.write(&block, &numbered(4 * align));
    let none = MemoryFlags::empty();
    let first = block.as_buffer(none, Some(align)).unwrap();
    assert_eq!(bench.read(&first), numbered(align));
    let part = Region::new(align, 2 * align);
    let region = bench.backend.create_sub_region(&block, part).unwrap();
    let second = region.as_buffer(none, None).unwrap();
    assert_eq!(bench.read(&second), numbered(4 * align)[align..3 * align]);
    let tail = Region::new(align, align);
    let tail = bench.backend.create_sub_region(&second, tail).unwrap();
    bench.fill(&bench.queue, &tail, 255, &[]);
    let bytes = bench.read(&block);
    assert_eq!(bytes[..2 * align], numbered(4 * align)[..2 * align]);
    assert_eq!(bytes[2 * align..3 * align], vec![255; align]);
    assert_eq!(bytes[3 * align..], numbered(4 * align)[3 * align..]);
}

#[test]
fn what_no_buffer_over_svm_can_be_is_refused() {
    let bench = Bench::new();
    let block = bench.svm(64);
    let none = MemoryFlags::empty();
    assert_eq!(
        refusal(block.as_buffer(none, Some(0))),
        InvalidRequest::ZeroSize
    );
    assert_eq!(
        refusal(block.as_buffer(none, Some(65))),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 65,
            size: 64
        }
    );
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    assert_eq!(
        refusal(block.as_buffer(flags, None)),
        InvalidRequest::ContradictoryFlags { flags }
    );
    // The memory is where it is.
    assert!(block.as_buffer(MemoryFlags::HOST_RESIDENT, None).is_ok());
    let buffer = block.as_buffer(MemoryFlags::HOST_NO_ACCESS, None).unwrap();
    let map = bench.backend.map::<u8>(&bench.queue, &buffer, 0..64);
    assert!(matches!(refusal(map), InvalidRequest::HostAccess { .. }));
}

#[test]
fn commands_on_svm_come_after_those_on_a_buffer_over_it() {
    let bench = Bench::new();
    let other = bench.another_queue();
    let block = bench.svm(4096);
    bench.write(&block, &[1; 4096]);
    let buffer = block.as_buffer(MemoryFlags::empty(), None).unwrap();
    let gate = bench.gate();
    bench.fill(&bench.queue, &buffer, 2, std::slice::from_ref(&gate));
    let read = bench
        .backend
        .enqueue_read(&other, &block, Region::first(4096))
        .unwrap();
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), [2; 4096]);
    // And the other way round, of a part.
    let gate = bench.gate();
    bench.fill(&other, &block, 3, std::slice::from_ref(&gate));
    let read = bench
        .backend
        .enqueue_read(&bench.queue, &buffer, Region::new(64, 64))
        .unwrap();
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), [3; 64]);
}

#[test]
fn a_map_of_svm_is_one_of_the_buffers_over_it() {
    let bench = Bench::new();
    let numbers = bench.zeros(100);
    let buffer = numbers.as_buffer(MemoryFlags::empty(), None).unwrap();
    let map = bench
        .backend
        .map_mut::<u32>(&bench.queue, &numbers, ..)
        .unwrap();
    let fill = bench
        .backend
        .enqueue_fill(&bench.queue, &buffer, Region::first(4), &[1_u8]);
    assert!(matches!(refusal(fill), InvalidRequest::Mapped { .. }));
    drop(map);
    let map = buffer_map(&bench, &buffer);
    let refused = bench.backend.map::<u32>(&bench.queue, &numbers, ..);
    assert!(matches!(refusal(refused), InvalidRequest::Mapped { .. }));
    drop(map);
}

/// Blocks that would lie where a block of [`BYTES`] bytes was, if that were free: the host's allocator keeps what it has
/// seen to be asked for again.
fn others_elsewhere(bench: &Bench, address: NonNull<u8>) -> Vec<ClMemory> {
    let others: Vec<_> = (0..64).map(|_| bench.svm(BYTES / 32)).collect();
    let taken = address.addr().get()..address.addr().get() + BYTES;
    for other in &others {
        assert!(!taken.contains(&other.address().unwrap().addr().get()));
    }
    others
}

/// A block of [`BYTES`] bytes that is not the first of its size.
fn another_block(bench: &Bench) -> ClMemory {
    drop([bench.svm(BYTES), bench.svm(BYTES)]);
    bench.svm(BYTES)
}

#[test]
fn svm_is_not_freed_under_a_command_on_a_buffer_over_it() {
    let bench = Bench::new();
    let block = another_block(&bench);
    let address = block.address().unwrap();
    let buffer = block.as_buffer(MemoryFlags::empty(), None).unwrap();
    bench.backend.release(block, &[]).unwrap();
    let gate = bench.gate();
    let filled = bench.fill(&bench.queue, &buffer, 2, std::slice::from_ref(&gate));
    bench.backend.release(buffer, &[]).unwrap();
    let _others = others_elsewhere(&bench, address);
    bench.open_gate(&gate);
    filled.wait().unwrap();
    bench.queue_is_alive();
}

#[test]
fn events_that_a_buffer_is_released_after_keep_the_svm_under_it() {
    let bench = Bench::new();
    let block = another_block(&bench);
    let address = block.address().unwrap();
    let buffer = block.as_buffer(MemoryFlags::empty(), None).unwrap();
    drop(block);
    let gate = bench.gate();
    let after = bench
        .backend
        .enqueue_marker(bench.queue.after(std::slice::from_ref(&gate)));
    let after = after.unwrap();
    bench.queue_flush();
    bench
        .backend
        .release(buffer, std::slice::from_ref(&after))
        .unwrap();
    let _others = others_elsewhere(&bench, address);
    bench.open_gate(&gate);
    after.wait().unwrap();
}

impl Bench {
    fn queue_flush(&self) {
        self.queue.flush().unwrap();
    }
}

#[test]
fn copies_between_svm_and_a_buffer_over_it_do_not_overlap() {
    let bench = Bench::new();
    let block = bench.svm(4096);
    bench.write(&block, &numbered(4096));
    let buffer = block.as_buffer(MemoryFlags::empty(), None).unwrap();
    let copy = |from: Region, to| {
        bench
            .backend
            .enqueue_copy(&bench.queue, &block, from, &buffer, to)
    };
    assert_eq!(
        refusal(copy(Region::first(100), 99)),
        InvalidRequest::OverlappingCopy {
            from: 0,
            to: 99,
            bytes: 100
        }
    );
    copy(Region::first(100), 100).unwrap().wait().unwrap();
    assert_eq!(bench.read(&block)[100..200], numbered(100));
}

#[test]
fn a_vector_is_svm_where_the_device_shares_all_memory() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let vector = backend.system_svm(vec![1_u32, 2, 3, 4]);
    if !backend.limits().svm.system {
        let refused = vector.unwrap_err();
        assert_eq!(refused.value, [1, 2, 3, 4]);
        assert!(matches!(refused.error, Error::Unsupported { .. }));
        let name = &backend.limits().device_name;
        assert!(refused.to_string().contains(name), "{refused}");
        return;
    }
    let vector = vector.unwrap();
    let info = vector.svm_memory().unwrap().svm_info().unwrap();
    assert!(info.system && info.bytes == 16);
    backend.map_mut::<u32>(queue, &vector, ..).unwrap()[1] = 20;
    let memory = vector.svm_memory().unwrap();
    backend
        .enqueue_fill(queue, memory, Region::new(8, 4), &[1_u8, 0, 0, 0])
        .unwrap();
    backend
        .enqueue_migrate(queue, &[&vector], MigrationFlags::empty())
        .unwrap();
    let buffer = bench.buffer(16);
    backend
        .enqueue_copy(queue, memory, Region::first(16), &buffer, 0)
        .unwrap();
    assert_eq!(
        *bytemuck::cast_slice::<u8, u32>(&bench.read(&buffer)),
        [1, 20, 1, 4]
    );
    assert_eq!(
        *backend.map::<u32>(queue, &vector, ..).unwrap(),
        [1, 20, 1, 4]
    );
    assert_eq!(vector.into_host().unwrap(), [1, 20, 1, 4]);
}

#[test]
fn a_vector_is_given_back_after_its_commands_and_views() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let empty = backend.system_svm(Vec::<u32>::new());
    if !backend.limits().svm.system {
        let Error::Unsupported { .. } = Error::from(empty.unwrap_err()) else {
            panic!("not unsupported");
        };
        return;
    }
    assert_eq!(
        refusal(empty.map_err(Error::from)),
        InvalidRequest::ZeroSize
    );
    let vector = backend.system_svm(vec![1_u8; 4096]).unwrap();
    let buffer = vector.as_buffer(MemoryFlags::empty(), None).unwrap();
    let refused = vector.into_host().unwrap_err();
    let (views, bytes) = (1, 4096);
    assert_eq!(
        refusal(Err::<(), _>(refused.error)),
        InvalidRequest::ViewsLeft { views, bytes }
    );
    let vector = refused.value;
    let gate = bench.gate();
    bench.fill(&bench.queue, &buffer, 2, std::slice::from_ref(&gate));
    drop(buffer);
    let opened = std::thread::spawn({
        let backend = backend.clone();
        move || {
            backend
                .resolve_user_event(&gate, binpool_allocators::Outcome::Complete)
                .unwrap();
        }
    });
    assert_eq!(vector.into_host().unwrap(), [2; 4096]);
    opened.join().unwrap();
    // Dropped under a command: the elements stay until it has ended.
    let vector = backend.system_svm(vec![1_u8; 1 << 20]).unwrap();
    let gate = bench.gate();
    let memory = vector.svm_memory().unwrap();
    let filled = bench.fill(&bench.queue, memory, 2, std::slice::from_ref(&gate));
    drop(vector);
    bench.open_gate(&gate);
    filled.wait().unwrap();
    bench.queue_is_alive();
}

#[test]
fn a_slice_that_is_lent_comes_back_when_its_commands_have_ended() {
    let kernels = Kernels::new();
    let bench = &kernels.bench;
    let (backend, queue) = (&bench.backend, &bench.queue);
    let mut numbers = [1.0_f32; 100];
    let nothing = backend.with_system_svm(&mut numbers[..0], |_| ());
    if !backend.limits().svm.system {
        assert!(is_unsupported(&nothing));
        return;
    }
    assert_eq!(refusal(nothing), InvalidRequest::ZeroSize);
    let scale = kernels.kernel("scale", &SCALE);
    let doubled = |part: &mut [f32], fail: bool| {
        let run = std::thread::scope(|scope| {
            let run = |memory: &ClMemory| {
                assert!(memory.svm_info().unwrap().system);
                let gate = bench.gate();
                let behind = queue.after(std::slice::from_ref(&gate));
                let launch = scale.launch(behind, &[50]).memory(memory);
                launch.value(&2.0_f32).enqueue().unwrap();
                scope.spawn(move || bench.open_gate(&gate));
                let lent = InvalidRequest::Lent { bytes: 200 };
                assert_eq!(refusal(memory.slice(..100)), lent);
                assert_eq!(refusal(memory.as_buffer(MemoryFlags::empty(), None)), lent);
                assert_eq!(refusal(backend.map::<u8>(queue, &memory, ..)), lent);
                assert_eq!(refusal(memory.on_destroy(|| ())), lent);
                assert!(!fail, "the call is left early");
            };
            let run = || backend.with_system_svm(part, run).unwrap();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        });
        assert_eq!(run.is_err(), fail);
    };
    doubled(&mut numbers[10..60], false);
    assert_eq!(numbers[8..12], [1.0, 1.0, 2.0, 2.0]);
    doubled(&mut numbers[..50], true);
    assert_eq!(numbers[8..12], [2.0, 2.0, 4.0, 4.0]);
    assert_eq!(numbers[58..62], [2.0, 2.0, 1.0, 1.0]);
}

#[test]
fn kernels_work_on_either_style_and_on_buffers_over_them() {
    let kernels = Kernels::new();
    let (bench, scale) = (&kernels.bench, kernels.kernel("scale", &SCALE));
    let by = |memory: &dyn AsMemory<OpenClBackend>, factor: f32| {
        let launch = scale.launch(&bench.queue, &[100]).memory(memory);
        launch.value(&factor).enqueue().unwrap();
    };
    let elements = bench
        .backend
        .svm_empty::<f32>(100, &SvmOptions::coarse())
        .unwrap();
    let elements = elements.filled(&bench.queue, 1.0);
    by(&elements, 2.0);
    by(elements.svm_memory().unwrap(), 3.0);
    by(
        &elements.as_buffer(MemoryFlags::empty(), None).unwrap(),
        5.0,
    );
    let map = bench
        .backend
        .map::<f32>(&bench.queue, &elements, ..)
        .unwrap();
    assert_eq!(*map, [30.0; 100]);
    drop(map);
    if bench.backend.limits().svm.system {
        let vector = bench.backend.system_svm(vec![1.0_f32; 100]).unwrap();
        by(&vector, 2.0);
        assert_eq!(vector.into_host().unwrap(), [2.0; 100]);
    }
}

#[test]
fn svm_is_not_freed_under_a_command_on_an_image_over_it() {
    let bench = Bench::new();
    let block = another_block(&bench);
    let address = block.address().unwrap();
    let pixels = bench.filled(BYTES, 1);
    let buffer = block.as_buffer(MemoryFlags::empty(), None).unwrap();
    let shape = ImageShape::d1_buffer(16);
    let image = bench
        .backend
        .create_image_over(&bench.queue, &buffer, RGBA8, shape, None)
        .unwrap();
    let gate = bench.gate();
    let copied = bench.backend.enqueue_copy_buffer_to_image(
        bench.queue.after(std::slice::from_ref(&gate)),
        &pixels,
        0,
        &image,
        ImageRegion::all(shape),
    );
    drop((block, buffer, image));
    let _others = others_elsewhere(&bench, address);
    bench.open_gate(&gate);
    copied.unwrap().wait().unwrap();
}

#[cfg(feature = "ndarray")]
#[test]
fn elements_have_a_shape_and_an_order_where_they_are_mapped() {
    use ndarray::ShapeBuilder;

    let bench = Bench::new();
    let elements = bench
        .backend
        .svm_empty::<u32>(12, &SvmOptions::coarse())
        .unwrap();
    let numbers: Vec<u32> = (0..12).collect();
    let elements = elements.holding(&bench.queue, &numbers);
    let map = bench
        .backend
        .map::<u32>(&bench.queue, &elements, ..)
        .unwrap();
    assert_eq!(map.shaped((3, 4)).unwrap()[[2, 1]], 9);
    assert_eq!(map.shaped((3, 4).f()).unwrap()[[2, 1]], 5);
}

#[test]
fn shared_memory_that_kernels_only_read_or_write_is_the_hosts_all_the_same() {
    let kernels = Kernels::new();
    let (backend, queue) = (&kernels.bench.backend, &kernels.bench.queue);
    let scale = kernels.kernel("scale", &SCALE);
    let add = kernels.kernel("add", &ADD);
    let empty = |options: &SvmOptions| backend.svm_empty::<f32>(4, options).unwrap();
    let input = empty(&SvmOptions {
        flags: MemoryFlags::READ_ONLY,
        ..SvmOptions::coarse()
    });
    let input = input.holding(queue, &[1.0, 2.0, 3.0, 4.0]);
    backend.map_mut::<f32>(queue, &input, ..).unwrap()[0] = 10.0;
    let output = empty(&SvmOptions {
        flags: MemoryFlags::WRITE_ONLY,
        ..SvmOptions::coarse()
    })
    .into_memory();

    let launch = scale.launch(queue, &[4]).memory(&input);
    let refused = launch.value(&2.0_f32).enqueue().unwrap_err();
    let is_about = |refused: &OpenClError, flag: MemoryFlags| {
        let says = format!("memory that was made with {flag}");
        assert!(refused.to_string().contains(&says), "{refused}");
    };
    is_about(&refused, MemoryFlags::READ_ONLY);
    let launch = scale.launch(queue, &[4]).memory(&output);
    let refused = launch.value(&2.0_f32).enqueue().unwrap_err();
    is_about(&refused, MemoryFlags::WRITE_ONLY);
    // Not by way of a buffer either.
    let flags = MemoryFlags::WRITE_ONLY;
    let over = input.as_buffer(flags, None);
    let flags = flags | MemoryFlags::READ_ONLY;
    assert_eq!(refusal(over), InvalidRequest::ContradictoryFlags { flags });
    let over = input.as_buffer(MemoryFlags::empty(), None).unwrap();
    assert_eq!(over.flags(), MemoryFlags::READ_ONLY);

    let launch = add.launch(queue, &[4]).memory(&input).memory(&input);
    launch.memory(&output).enqueue().unwrap();
    assert_eq!(
        *backend.map::<f32>(queue, &output, ..).unwrap(),
        [20.0, 4.0, 6.0, 8.0]
    );
}

#[test]
fn shared_memory_that_kernels_only_read_and_only_write_is_refused() {
    let bench = Bench::new();
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    let empty = |flags| {
        let coarse = SvmOptions::coarse();
        let options = SvmOptions { flags, ..coarse };
        bench.backend.svm_empty::<f32>(4, &options)
    };
    let contradictory = InvalidRequest::ContradictoryFlags { flags };
    assert_eq!(refusal(empty(flags)), contradictory);
}

#[test]
fn shared_memory_has_no_flags_of_the_host() {
    let bench = Bench::new();
    for flags in [MemoryFlags::HOST_RESIDENT, MemoryFlags::HOST_NO_ACCESS] {
        let options = SvmOptions {
            flags,
            ..SvmOptions::coarse()
        };
        let refused = bench.backend.svm_empty::<f32>(4, &options);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
}
