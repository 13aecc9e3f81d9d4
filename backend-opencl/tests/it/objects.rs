//! Memory objects: what is known about them, which of them are the same, their bare handles, and their end.

use std::{
    collections::HashSet,
    ffi::c_void,
    mem,
    ops::Bound::{self, Excluded, Included, Unbounded},
    panic::panic_any,
    slice::from_ref,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use binpool::{DeferredAllocator, MemoryPool};
use binpool_allocators::{
    Backend, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, ObjectKind, Queue, Region,
    SvmBackend, SvmGrain,
};
use binpool_opencl::{ClMemory, OpenClBackend};
use cl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_HOST_READ_ONLY, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    cl_buffer_region, create_buffer, create_sub_buffer, release_mem_object,
};

use crate::common::{Bench, open, refusal, wait_until, watch};

/// A buffer that the program makes by its own call.
fn program_buffer(backend: &OpenClBackend, flags: u64, bytes: usize) -> *mut c_void {
    // SAFETY: (1) the context lives; (2) no flag asks for a host pointer.
    unsafe { create_buffer(backend.raw_context(), flags, bytes, std::ptr::null_mut()) }.unwrap()
}

fn program_sub_buffer(buffer: *mut c_void, origin: usize, size: usize) -> *mut c_void {
    let region = cl_buffer_region { origin, size };
    let region = (&raw const region).cast::<c_void>();
    // SAFETY: (1) the buffer lives; (2) the region is one.
    unsafe { create_sub_buffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, region) }.unwrap()
}

fn release(memory: *mut c_void) {
    // SAFETY: The reference is this test's own.
    unsafe { release_mem_object(memory) }.unwrap();
}

/// Another value of a buffer that lives.
fn again(backend: &OpenClBackend, raw: *mut c_void) -> Result<ClMemory, crate::common::Error> {
    // SAFETY: (1) the buffer lives, and is retained; (2) all commands on it go through values of this crate that live.
    unsafe { backend.wrap_raw_memory(raw, true) }
}

fn references(memory: &ClMemory) -> u32 {
    memory.info().unwrap().reference_count.unwrap()
}

/// The coarse-grained block, which every device with shared virtual memory has.
fn svm(bench: &Bench, bytes: usize) -> ClMemory {
    let backend = &bench.backend;
    backend
        .allocate_svm(bytes, None, SvmGrain::Coarse, None)
        .unwrap()
}

#[test]
fn a_buffer_tells_what_it_is() {
    let bench = Bench::new();
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::HOST_WRITE_ONLY;
    let memory = bench.backend.create_buffer(5000, flags).unwrap();
    let info = memory.info().unwrap();
    assert_eq!(
        (info.kind, info.bytes, info.flags),
        (MemoryKind::Buffer, 5000, flags)
    );
    assert_eq!((info.parent, info.offset), (None, 0));
    assert!(!info.has_host_pointer && !info.uses_svm_pointer);
    assert_eq!((info.map_count, info.reference_count), (Some(0), Some(1)));
    let over = bench
        .backend
        .create_host_buffer(vec![0_u32; 100], MemoryFlags::empty())
        .unwrap();
    assert!(over.memory().info().unwrap().has_host_pointer);
}

#[test]
fn views_know_their_parents_and_inherit_their_flags() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let flags = MemoryFlags::HOST_READ_ONLY;
    let root = bench.backend.create_buffer(4 * align, flags).unwrap();
    let outer = root.slice(align..).unwrap();
    let inner = outer.slice(align..=align).unwrap();
    for (view, offset, bytes) in [(&outer, align, 3 * align), (&inner, 2 * align, 1)] {
        let info = view.info().unwrap();
        assert_eq!(
            (info.parent, view.parent()),
            (Some(root.key()), Some(root.key()))
        );
        assert_eq!((info.offset, view.offset()), (offset, offset));
        assert_eq!((info.bytes, info.flags), (bytes, flags));
    }
    assert_eq!((root.parent(), root.offset()), (None, 0));
}

#[test]
fn shared_virtual_memory_tells_what_this_crate_knows() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let block = svm(&bench, 4 * align);
    let info = block.info().unwrap();
    assert_eq!(info.kind, MemoryKind::Svm(SvmGrain::Coarse));
    assert_eq!((info.parent, info.offset, info.bytes), (None, 0, 4 * align));
    assert_eq!((info.map_count, info.reference_count), (None, None));
    let view = block.slice(2 * align..3 * align).unwrap();
    let inner = view.slice(..1).unwrap();
    for (view, bytes) in [(&view, align), (&inner, 1)] {
        assert_eq!(view.parent(), Some(block.key()));
        assert_eq!((view.offset(), view.bytes()), (2 * align, bytes));
    }
}

#[test]
fn values_are_equal_where_their_memory_is_the_same() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let (one, other) = (bench.buffer(2 * align), bench.buffer(2 * align));
    let same = again(&bench.backend, one.raw().unwrap()).unwrap();
    assert_eq!(one, same);
    assert_eq!(one.key(), same.key());
    assert_ne!(one.id(), same.id());
    assert_ne!(one, other);
    let (first, second) = (one.slice(align..).unwrap(), one.slice(align..).unwrap());
    assert_eq!(first, second);
    assert_ne!(first, one.slice(..align).unwrap());
    assert_ne!(one, one.slice(..).unwrap());

    let block = svm(&bench, 2 * align);
    assert_eq!(block, block.slice(..).unwrap());
    assert_eq!(block.slice(align..).unwrap(), block.slice(align..).unwrap());
    assert_ne!(block, block.slice(..align).unwrap());
    assert_ne!(block, one);

    let keys: HashSet<_> = [&one, &same, &other, &first, &second, &block]
        .map(ClMemory::key)
        .into();
    assert_eq!(keys.len(), 4);
}

#[test]
fn pooled_blocks_have_the_keys_of_their_memory() {
    let bench = Bench::new();
    let allocator = DeferredAllocator::new(&bench.backend);
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(10_000).unwrap();
    let whole = block.memory_on(&bench.queue).unwrap();
    let key = whole.key();
    let view = block.view(..100).unwrap();
    let memory = view.memory_on(&bench.queue).unwrap();
    // The block may itself be a part of a segment.
    assert_eq!(memory.parent(), whole.parent().or(Some(key)));
    assert_eq!(memory.offset(), whole.offset());
    assert_eq!(memory.info().unwrap().bytes, 100);
    drop(view);
    drop(block);
    let later = pool.allocate(10_000).unwrap();
    assert_eq!(later.memory_on(&bench.queue).unwrap().key(), key);
}

#[test]
fn pooled_blocks_have_views_like_any_other() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let pool = MemoryPool::new(DeferredAllocator::new(&bench.backend), &bench.queue).unwrap();
    let block = pool.allocate(2 * align + 10).unwrap();
    assert_eq!(block.view(align..).unwrap().size(), align + 10);
    assert_eq!(block.view(..=9).unwrap().size(), 10);
    assert_eq!(block.view(..).unwrap().size(), 2 * align + 10);
    let beyond = InvalidRequest::OutOfBounds {
        offset: 0,
        bytes: 2 * align + 11,
        size: 2 * align + 10,
    };
    assert_eq!(refusal(block.view(..2 * align + 11)), beyond);
    assert_eq!(refusal(block.view(align..align)), InvalidRequest::ZeroSize);
    let empty = pool.allocate(0).unwrap();
    assert_eq!(refusal(empty.view(..)), InvalidRequest::ZeroSize);
}

#[test]
fn slices_have_the_bounds_and_the_alignment_of_sub_regions() {
    let bench = Bench::new();
    let alignment = bench.backend.limits().alignment;
    let align = alignment.bytes();
    for memory in [bench.buffer(3 * align), svm(&bench, 3 * align)] {
        let size = |range: (Bound<usize>, Bound<usize>)| memory.slice(range).unwrap().bytes();
        assert_eq!(size((Unbounded, Unbounded)), 3 * align);
        assert_eq!(size((Included(align), Unbounded)), 2 * align);
        assert_eq!(size((Excluded(align - 1), Included(2 * align))), align + 1);
        assert_eq!(size((Unbounded, Excluded(7))), 7);
        let offset = align + 1;
        let misaligned = InvalidRequest::Misaligned { offset, alignment };
        let refused = refusal(memory.slice(offset..));
        assert!(refused.to_string().contains(&alignment.to_string()));
        assert_eq!(refused, misaligned);
        assert_eq!(
            refusal(memory.slice(align..align)),
            InvalidRequest::ZeroSize
        );
        assert_eq!(refusal(memory.slice(..0)), InvalidRequest::ZeroSize);
        for (offset, bytes) in [(0, 3 * align + 1), (4 * align, 0), (2 * align, align + 1)] {
            let beyond = InvalidRequest::OutOfBounds {
                offset,
                bytes,
                size: 3 * align,
            };
            assert_eq!(refusal(memory.slice(offset..offset + bytes)), beyond);
        }
    }
}

#[test]
fn a_bare_handle_becomes_memory_and_the_programs_reference_stays() {
    let bench = Bench::new();
    let flags = CL_MEM_READ_ONLY | CL_MEM_HOST_READ_ONLY;
    let raw = program_buffer(&bench.backend, flags, 4096);
    let memory = again(&bench.backend, raw).unwrap();
    assert_eq!(memory.raw(), Some(raw));
    assert_eq!(memory.bytes(), 4096);
    let ours = MemoryFlags::READ_ONLY | MemoryFlags::HOST_READ_ONLY;
    assert_eq!(memory.flags(), ours);
    assert_eq!(references(&memory), 2);
    let other = again(&bench.backend, raw).unwrap();
    assert_eq!(references(&memory), 2);
    drop(memory);
    assert_eq!(references(&other), 2);
    release(raw);
    assert_eq!(references(&other), 1);
    bench.fill(&bench.queue, &other, 3, &[]);
    assert_eq!(bench.read(&other), [3; 4096]);
}

#[test]
fn a_reference_that_is_given_away_is_the_memorys() {
    let bench = Bench::new();
    let raw = program_buffer(&bench.backend, CL_MEM_READ_WRITE, 64);
    // SAFETY: (1) the buffer lives, and its only reference is given away; (2) nothing else uses it.
    let memory = unsafe { bench.backend.wrap_raw_memory(raw, false) }.unwrap();
    assert_eq!(references(&memory), 1);
    bench.write(&memory, &[7; 64]);
    assert_eq!(bench.read(&memory), [7; 64]);

    // The handle of a value of ours, retained by the program and then given away.
    // SAFETY: The buffer lives.
    unsafe { cl3::memory::retain_mem_object(raw) }.unwrap();
    // SAFETY: As above.
    let same = unsafe { bench.backend.wrap_raw_memory(raw, false) }.unwrap();
    assert_eq!(references(&same), 1);
    drop(memory);
    assert_eq!(bench.read(&same), [7; 64]);
}

#[test]
fn memory_is_destroyed_though_commands_have_used_former_values_of_its_handle() {
    let bench = Bench::new();
    let raw = program_buffer(&bench.backend, CL_MEM_READ_WRITE, 4096);
    for byte in [1, 2] {
        let memory = again(&bench.backend, raw).unwrap();
        bench.fill(&bench.queue, &memory, byte, &[]);
        assert_eq!(bench.read(&memory), [byte; 4096]);
        bench.queue.finish().unwrap();
    }
    // SAFETY: (1) the buffer lives, and its only reference is given away; (2) nothing else uses it.
    let memory = unsafe { bench.backend.wrap_raw_memory(raw, false) }.unwrap();
    let destroyed = watch(&memory);
    drop(memory);
    wait_until(&destroyed);
}

#[test]
fn a_bare_sub_buffer_is_a_view_of_its_buffer() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let raw = program_buffer(&bench.backend, CL_MEM_READ_WRITE, 3 * align);
    let part = program_sub_buffer(raw, align, align);
    let view = again(&bench.backend, part).unwrap();
    let root = again(&bench.backend, raw).unwrap();
    assert_eq!(view.parent(), Some(root.key()));
    assert_eq!((view.offset(), view.bytes()), (align, align));
    release(part);
    release(raw);
    bench.write(&root, &vec![1; 3 * align]);
    bench.write(&view, &vec![2; align]);
    drop(view);
    let mut expected = vec![1; 3 * align];
    expected[align..2 * align].fill(2);
    assert_eq!(bench.read(&root), expected);
}

/// What counts the values of a root is what takes host memory back: it finds them all.
#[test]
fn all_values_of_one_buffer_know_of_each_other() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let buffer = bench
        .backend
        .create_host_buffer(vec![1_u8; 2 * align], MemoryFlags::empty())
        .unwrap();
    let left = |buffer: binpool_opencl::HostMemory<u8>, expected| {
        let refused = buffer.into_host().unwrap_err();
        let views = match refused.error {
            crate::common::Error::InvalidRequest(InvalidRequest::ViewsLeft { views, .. }) => views,
            error => panic!("{error}"),
        };
        assert_eq!(views, expected);
        refused.value
    };
    let raw = buffer.memory().raw().unwrap();
    let whole = again(&bench.backend, raw).unwrap();
    let buffer = left(buffer, 1);
    let part = program_sub_buffer(raw, align, align);
    let view = again(&bench.backend, part).unwrap();
    let buffer = left(buffer, 2);
    drop(whole);
    release(part);
    let buffer = left(buffer, 1);
    drop(view);
    assert_eq!(buffer.into_host().unwrap(), vec![1; 2 * align]);

    // The handle of a part leads to the whole, too, even though the handle of the whole was never given out.
    let buffer = bench
        .backend
        .create_host_buffer(vec![1_u8; 2 * align], MemoryFlags::empty())
        .unwrap();
    let part = buffer.memory().slice(align..).unwrap();
    let lent = bench.backend.lend(&bench.queue, &[&part]).unwrap();
    let same = again(&bench.backend, lent[0].kernel_argument().unwrap()).unwrap();
    lent.end().unwrap();
    assert_eq!((same.parent(), same.offset()), (part.parent(), align));
    drop(part);
    let buffer = left(buffer, 1);
    drop(same);
    assert_eq!(buffer.into_host().unwrap(), vec![1; 2 * align]);
}

#[test]
fn a_map_of_one_value_keeps_commands_on_the_others_out() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let raw = program_buffer(&bench.backend, CL_MEM_READ_WRITE, 2 * align);
    let part = program_sub_buffer(raw, align, align);
    let view = again(&bench.backend, part).unwrap();
    let root = again(&bench.backend, raw).unwrap();
    let other = again(&bench.backend, part).unwrap();
    release(part);
    release(raw);
    bench.write(&root, &vec![1; 2 * align]);
    let map = bench.backend.map::<u8>(&bench.queue, &view, 8..16).unwrap();
    let mapped = InvalidRequest::Mapped {
        offset: align + 8,
        bytes: 8,
    };
    for (memory, inside) in [(&root, align + 15), (&other, 8)] {
        let write = bench.backend.write(&bench.queue, memory, inside, &[2_u8]);
        assert_eq!(refusal(write), mapped);
    }
    bench
        .backend
        .write(&bench.queue, &root, align + 16, &[2_u8])
        .unwrap();
    assert_eq!(map[..], [1; 8]);
    drop(map);
    bench.write(&other, &vec![3; align]);
}

#[test]
fn commands_on_one_value_come_after_those_on_the_others() {
    let bench = Bench::new();
    let (other, idle) = (bench.another_queue(), bench.another_queue());
    let (memory, elsewhere) = (bench.filled(4096, 1), bench.buffer(1 << 20));
    let same = again(&bench.backend, memory.raw().unwrap()).unwrap();
    let gate = bench.gate();
    bench.fill(&bench.queue, &memory, 2, from_ref(&gate));
    let all = Region::first(4096);
    let read = bench.backend.enqueue_read(&other, &same, all).unwrap();
    other.flush().unwrap();
    // Time enough for a read that does not wait.
    bench.fill(&idle, &elsewhere, 9, &[]).wait().unwrap();
    bench.open_gate(&gate);
    assert_eq!(read.wait().unwrap(), [2; 4096]);
}

#[test]
fn handles_that_the_runtime_uses_again_are_other_buffers() {
    let bench = Bench::new();
    for round in 1..50 {
        let memory = bench.buffer(64);
        let raw = memory.raw().unwrap();
        let same = again(&bench.backend, raw).unwrap();
        drop(memory);
        bench.fill(&bench.queue, &same, round, &[]);
        assert_eq!(bench.read(&same), [round; 64]);
        // A runtime may keep its own reference for a moment after a command has ended.
        let is_alone = (0..5000).any(|_| {
            let is_alone = references(&same) == 1;
            if !is_alone {
                thread::sleep(Duration::from_millis(1));
            }
            is_alone
        });
        assert!(is_alone, "{} references", references(&same));
    }
}

#[test]
fn many_threads_may_take_one_handle_in() {
    let bench = Bench::new();
    let buffer = bench
        .backend
        .create_host_buffer(vec![1_u8; 64], MemoryFlags::empty())
        .unwrap();
    for _ in 0..100 {
        let start = Barrier::new(4);
        let values: Vec<_> = thread::scope(|scope| {
            let threads = (0..4).map(|_| {
                scope.spawn(|| {
                    start.wait();
                    again(&bench.backend, buffer.memory().raw().unwrap()).unwrap()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(values.iter().all(|value| value == buffer.memory()));
        assert_eq!(references(buffer.memory()), 1);
    }
    // No value has been left behind.
    assert_eq!(buffer.into_host().unwrap(), [1; 64]);
}

#[test]
fn handles_that_are_no_buffer_of_this_context_are_refused_and_left_alone() {
    let bench = Bench::new();
    let stranger = open();
    let kind = ObjectKind::Memory;
    let raw = program_buffer(&stranger, CL_MEM_READ_WRITE, 64);
    for retain in [true, false] {
        // SAFETY: The buffer lives, and its reference is this test's.
        let refused = unsafe { bench.backend.wrap_raw_memory(raw, retain) };
        assert_eq!(refusal(refused), InvalidRequest::ForeignObject { kind });
    }
    let own = again(&stranger, raw).unwrap();
    assert_eq!(references(&own), 2);
    release(raw);

    let format = cl3::types::cl_image_format {
        image_channel_order: opencl3::memory::CL_RGBA,
        image_channel_data_type: opencl3::memory::CL_UNSIGNED_INT8,
    };
    let description = cl3::types::cl_image_desc {
        image_type: opencl3::memory::CL_MEM_OBJECT_IMAGE2D,
        image_width: 8,
        image_height: 8,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        buffer: std::ptr::null_mut(),
    };
    // SAFETY: (1) the context lives; (2) format and description are whole; (3) no flag asks for a host pointer.
    let image = unsafe {
        cl3::memory::create_image(
            bench.backend.raw_context(),
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const description,
            std::ptr::null_mut(),
        )
    }
    .unwrap();
    let object_type = opencl3::memory::CL_MEM_OBJECT_IMAGE2D;
    let refused = again(&bench.backend, image).unwrap_err().to_string();
    let says = format!("a memory object of type {object_type:#x} as memory");
    assert!(refused.contains(&says), "{refused}");
    release(image);

    let nothing = again(&bench.backend, std::ptr::null_mut()).unwrap_err();
    let crate::common::Error::Backend(failure) = nothing else {
        panic!("{nothing}");
    };
    let invalid = cl3::error_codes::CL_INVALID_MEM_OBJECT;
    assert_eq!(failure.code, Some(invalid));
}

/// Notes that are sent at the end of something.
struct Notes(mpsc::Sender<&'static str>);

impl Notes {
    fn new() -> (Self, mpsc::Receiver<&'static str>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    /// Sends `text`.
    fn note(&self, text: &'static str) -> impl FnOnce() + Send + 'static {
        let sender = self.0.clone();
        move || {
            let _listening = sender.send(text);
        }
    }
}

#[test]
fn destruction_is_told_the_last_call_first() {
    let bench = Bench::new();
    for memory in [bench.buffer(64), svm(&bench, 64)] {
        let (notes, noted) = Notes::new();
        memory.on_destroy(notes.note("first")).unwrap();
        memory.on_destroy(notes.note("second")).unwrap();
        assert!(noted.try_recv().is_err());
        drop((memory, notes));
        assert_eq!(noted.iter().collect::<Vec<_>>(), ["second", "first"]);
    }
}

#[test]
fn destruction_waits_for_the_commands() {
    let bench = Bench::new();
    for memory in [bench.buffer(64), svm(&bench, 64)] {
        let (gate, (notes, noted)) = (bench.gate(), Notes::new());
        memory.on_destroy(notes.note("gone")).unwrap();
        let fill = bench.fill(&bench.queue, &memory, 1, from_ref(&gate));
        drop((memory, notes));
        bench.queue.flush().unwrap();
        assert!(noted.try_recv().is_err());
        bench.open_gate(&gate);
        fill.wait().unwrap();
        assert_eq!(noted.recv(), Ok("gone"));
    }
}

#[test]
fn a_view_is_destroyed_by_itself_and_a_region_of_svm_with_its_block() {
    let bench = Bench::new();
    for (memory, own) in [(bench.buffer(64), true), (svm(&bench, 64), false)] {
        let (notes, noted) = Notes::new();
        let view = memory.slice(..8).unwrap();
        memory.on_destroy(notes.note("whole")).unwrap();
        view.on_destroy(notes.note("view")).unwrap();
        drop(notes);
        if own {
            drop(view);
            assert_eq!(noted.recv(), Ok("view"));
            drop(memory);
            assert_eq!(noted.recv(), Ok("whole"));
        } else {
            drop(memory);
            assert!(noted.try_recv().is_err());
            drop(view);
            assert_eq!(noted.iter().collect::<Vec<_>>(), ["view", "whole"]);
        }
    }
}

/// Panics when it is dropped.
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_at_destruction_goes_no_further() {
    let bench = Bench::new();
    for memory in [bench.buffer(64), svm(&bench, 64)] {
        let (notes, noted) = Notes::new();
        memory.on_destroy(notes.note("after the panic")).unwrap();
        memory.on_destroy(|| panic!("on purpose")).unwrap();
        memory.on_destroy(|| panic_any(Fuse)).unwrap();
        drop(memory);
        assert_eq!(noted.recv(), Ok("after the panic"));
    }
}

#[test]
fn memory_that_is_released_or_outlives_its_backend_is_destroyed_too() {
    let bench = Bench::new();
    let (notes, noted) = Notes::new();
    let memory = bench.buffer(64);
    memory.on_destroy(notes.note("released")).unwrap();
    bench.backend.release(memory, &[]).unwrap();
    assert_eq!(noted.recv(), Ok("released"));
    let (memory, block) = (bench.buffer(64), svm(&bench, 64));
    memory.on_destroy(notes.note("buffer")).unwrap();
    block.on_destroy(notes.note("block")).unwrap();
    drop(bench);
    drop(memory);
    assert_eq!(noted.recv(), Ok("buffer"));
    drop(block);
    assert_eq!(noted.recv(), Ok("block"));
}

#[test]
fn what_is_forgotten_is_never_destroyed() {
    let bench = Bench::new();
    let called = Arc::new(AtomicBool::new(false));
    for memory in [bench.buffer(64), svm(&bench, 64)] {
        let called = Arc::clone(&called);
        memory
            .on_destroy(move || called.store(true, Ordering::Relaxed))
            .unwrap();
        let view = memory.slice(..8).unwrap();
        mem::forget(bench.fill(&bench.queue, &view, 1, &[]));
        mem::forget(memory);
        mem::forget(view);
    }
    bench.queue.finish().unwrap();
    assert!(!called.load(Ordering::Relaxed));
}

#[test]
fn regions_and_slices_are_the_same_views() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    let memory = bench.filled(2 * align, 1);
    let region = bench
        .backend
        .create_sub_region(&memory, Region::new(align, align))
        .unwrap();
    bench.write(&region, &vec![2; align]);
    assert_eq!(bench.read(&memory.slice(align..).unwrap()), vec![2; align]);
}
