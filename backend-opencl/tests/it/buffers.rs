//! Buffers that start with bytes of the host or lie over them, and what the flags allow the host.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use binpool::{DeferredAllocator, ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Event, HostUse, InvalidRequest, Memory, MemoryFlags, Queue, Region,
};
use binpool_opencl::{ClMemory, HostMemory, MapMode, PendingMap, Rect, RectPart, Refused};
use bytemuck::{Pod, Zeroable};

use crate::common::{Bench, Error, numbered, refusal};

const HOST: [MemoryFlags; 3] = [
    MemoryFlags::HOST_READ_ONLY,
    MemoryFlags::HOST_WRITE_ONLY,
    MemoryFlags::HOST_NO_ACCESS,
];

const CONTRADICTORY: [MemoryFlags; 3] = [
    MemoryFlags::READ_ONLY.union(MemoryFlags::WRITE_ONLY),
    MemoryFlags::HOST_READ_ONLY.union(MemoryFlags::HOST_WRITE_ONLY),
    MemoryFlags::HOST_NO_ACCESS.union(MemoryFlags::HOST_READ_ONLY),
];

/// What was wrong with a call that gives its elements back.
fn returned<T: Clone + PartialEq + std::fmt::Debug>(
    result: Result<HostMemory<T>, Refused<Vec<T>>>,
    elements: &[T],
) -> InvalidRequest {
    let refused = result.unwrap_err();
    assert_eq!(refused.value, elements);
    refusal::<()>(Err(refused.error))
}

/// Elements whose vectors start where views may start: Intel's runtime counts from the start of the address space, and
/// fills no others.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(128))]
struct Line([u32; 32]);

// SAFETY: Numbers may be zero.
unsafe impl Zeroable for Line {}

// SAFETY: These are 128 bytes, aligned to 128: there is no padding, and all of them may be anything.
unsafe impl Pod for Line {}

impl Line {
    const ONES: Self = Self([1; 32]);
}

impl Bench {
    fn host_buffer<T: Pod + Send>(&self, elements: Vec<T>) -> HostMemory<T> {
        let flags = MemoryFlags::empty();
        self.backend.create_host_buffer(elements, flags).unwrap()
    }

    /// The bytes of memory that the host may not read, by way of some that it may.
    fn copied(&self, memory: &ClMemory) -> Vec<u8> {
        let target = self.buffer(memory.bytes());
        let all = Region::first(memory.bytes());
        let copy = self
            .backend
            .enqueue_copy(&self.queue, memory, all, &target, 0);
        copy.unwrap().wait().unwrap();
        self.read(&target)
    }
}

#[test]
fn a_buffer_starts_with_a_copy_of_the_hosts_data() {
    let bench = Bench::new();
    for kernels in [
        MemoryFlags::empty(),
        MemoryFlags::READ_ONLY,
        MemoryFlags::WRITE_ONLY,
    ] {
        for place in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
            for host in HOST.into_iter().chain([MemoryFlags::empty()]) {
                let flags = kernels | place | host;
                let mut data = numbered(1001);
                let memory = bench.backend.create_buffer_from(&data, flags).unwrap();
                data.fill(0);
                assert_eq!((memory.bytes(), memory.flags()), (1001, flags));
                assert_eq!(bench.copied(&memory), numbered(1001), "{flags:?}");
            }
        }
    }
    let typed = bench
        .backend
        .create_buffer_from(&[[1_u16, 2], [3, 4]], MemoryFlags::empty())
        .unwrap();
    let expected: Vec<u8> = [1_u16, 2, 3, 4].map(u16::to_ne_bytes).concat();
    assert_eq!(bench.read(&typed), expected);
}

#[test]
fn buffers_that_cannot_be_are_refused_before_the_runtime_is_asked() {
    let bench = Bench::new();
    let backend = &bench.backend;
    let none = MemoryFlags::empty();
    let run = |_: &ClMemory| panic!("there is no buffer");
    let empty: [u32; 0] = [];
    let zero = InvalidRequest::ZeroSize;
    assert_eq!(refusal(backend.create_buffer_from(&empty, none)), zero);
    assert_eq!(refusal(backend.create_buffer_from(&[(), ()], none)), zero);
    assert_eq!(
        returned(backend.create_host_buffer(empty, none), &empty),
        zero
    );
    assert_eq!(
        refusal(backend.with_host_buffer(&mut empty.clone(), none, run)),
        zero
    );

    for flags in CONTRADICTORY {
        let contradictory = InvalidRequest::ContradictoryFlags { flags };
        let data = [1_u32, 2];
        assert_eq!(
            refusal(backend.create_buffer_from(&data, flags)),
            contradictory
        );
        let over = backend.create_host_buffer(data, flags);
        assert_eq!(returned(over, &data), contradictory);
        let lent = backend.with_host_buffer(&mut data.clone(), flags, run);
        assert_eq!(refusal(lent), contradictory);
    }

    // Zeroed memory takes no room until it is touched.
    let largest = backend.limits().largest_block_bytes;
    let mut data = vec![0_u8; largest + 1];
    let large = InvalidRequest::TooLarge {
        requested: largest + 1,
        largest,
    };
    assert_eq!(refusal(backend.create_buffer_from(&data, none)), large);
    assert_eq!(
        refusal(backend.with_host_buffer(&mut data, none, run)),
        large
    );
    let refused = backend.create_host_buffer(data, none).unwrap_err();
    assert_eq!(refused.value.len(), largest + 1);
    assert_eq!(refusal::<()>(Err(refused.into())), large);
}

#[test]
fn flags_keep_the_host_from_what_they_forbid() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let allowed = [(true, false), (false, true), (false, false)];
    for (flags, (reads, writes)) in HOST.into_iter().zip(allowed) {
        let whole = backend.create_buffer_from(&[5_u8; 64], flags).unwrap();
        let view = whole.slice(..32).unwrap();
        let refused = |way| InvalidRequest::HostAccess { way, flags };
        for memory in [&whole, &view] {
            let size = memory.bytes();
            let all = Region::first(size);
            let mut data = vec![0_u8; size];
            let read = backend.read(queue, memory, 0, &mut data);
            let pending = backend.enqueue_read(queue, memory, all);
            if reads {
                read.unwrap();
                assert_eq!(pending.unwrap().wait().unwrap(), data);
                assert_eq!(data, vec![5; size]);
            } else {
                assert_eq!(refusal(read), refused(HostUse::Read));
                assert_eq!(refusal(pending), refused(HostUse::Read));
            }
            let write = backend.write(queue, memory, 0, &[5_u8]);
            let pending = backend.enqueue_write(queue, memory, 1, [5].into());
            if writes {
                write.unwrap();
                pending.unwrap().wait().unwrap();
            } else {
                assert_eq!(refusal(write), refused(HostUse::Write));
                assert_eq!(refusal(pending), refused(HostUse::Write));
            }
            let (square, whole) = ([4, 4, 1], Rect::default());
            let read = backend.enqueue_read_owned(queue, (memory, 0), vec![0_u8]);
            let read = read.map(drop).map_err(Error::from);
            let row = backend.read_part(
                queue,
                RectPart::new((memory, whole), whole, square),
                &mut [0_u8; 16],
            );
            let rows = backend.enqueue_read_part(
                queue,
                RectPart::new((memory, whole), Rect::default(), square),
            );
            let mut one = [0_u8];
            let scoped = backend.transfer_scope(|scope| {
                let read = scope.enqueue_read(queue, (memory, 0), &mut one);
                read.map(drop)
            });
            for read in [read, row, rows.map(drop), scoped] {
                match read {
                    Ok(()) => assert!(reads),
                    read => assert_eq!(refusal(read), refused(HostUse::Read)),
                }
            }
            let write = backend.enqueue_write_owned(queue, (memory, 0), vec![5_u8]);
            let write = write.map(drop).map_err(Error::from);
            let row = backend.write_part(
                queue,
                RectPart::new((memory, whole), whole, square),
                &[5_u8; 16],
            );
            let data = Arc::from([5; 16]);
            let rows = backend.enqueue_write_part(
                queue,
                RectPart::new((memory, whole), whole, square),
                data,
            );
            let scoped = backend.transfer_scope(|scope| {
                let write = scope.enqueue_write(queue, (memory, 0), &[5_u8]);
                write.map(drop)
            });
            for write in [write, row, rows.map(drop), scoped] {
                match write {
                    Ok(()) => assert!(writes),
                    write => assert_eq!(refusal(write), refused(HostUse::Write)),
                }
            }
            let read = backend.map::<u8>(queue, memory, 0..size);
            match read.map(drop) {
                Ok(()) => assert!(reads),
                result => assert_eq!(refusal(result), refused(HostUse::Read)),
            }
            let written = backend.enqueue_map_mut::<u8>(queue, memory, 0..size, MapMode::Overwrite);
            let written = written.and_then(PendingMap::wait);
            match written.map(|mut map| map.fill(5)) {
                Ok(()) => assert!(writes),
                result => assert_eq!(refusal(result), refused(HostUse::Write)),
            }
            let both = refusal(backend.map_mut::<u8>(queue, memory, 0..size).map(drop));
            let first = if reads { HostUse::Write } else { HostUse::Read };
            assert_eq!(both, refused(first));
            // Fills and copies are the device's own.
            bench.fill(queue, memory, 5, &[]).wait().unwrap();
            assert_eq!(bench.copied(memory), vec![5; size]);
        }
    }
}

#[test]
fn flags_of_pooled_memory_hold_too() {
    let bench = Bench::new();
    let flags = MemoryFlags::HOST_NO_ACCESS;
    let allocator = ImmediateAllocator::with_flags(&bench.backend, flags).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(1000).unwrap();
    let refused = |way| InvalidRequest::HostAccess { way, flags };
    let write = block.write(&bench.queue, 0, &[1_u8]);
    assert_eq!(refusal(write), refused(HostUse::Write));
    let view = block.view(..10).unwrap();
    let read = bench.backend.read(&bench.queue, &view, 0, &mut [0_u8]);
    assert_eq!(refusal(read), refused(HostUse::Read));
    block
        .enqueue_fill(&bench.queue, 0..1000, &[1_u8])
        .unwrap()
        .wait()
        .unwrap();
}

#[test]
fn the_vector_under_a_buffer_comes_back_as_the_commands_left_it() {
    let bench = Bench::new();
    let buffer = bench.host_buffer((0..100_u32).collect());
    let memory = buffer.memory();
    assert_eq!((buffer.size(), memory.bytes()), (400, 400));
    let mut middle = [0_u8; 8];
    bench
        .backend
        .read(&bench.queue, memory, 40, &mut middle)
        .unwrap();
    assert_eq!(bytemuck::cast::<_, [u32; 2]>(middle), [10, 11]);
    let head = Region::first(8);
    let fill = bench
        .backend
        .enqueue_fill(&bench.queue, memory, head, &[0xff_u8]);
    fill.unwrap();
    let elements = buffer.into_host().unwrap();
    assert_eq!(elements[..3], [u32::MAX, u32::MAX, 2]);
    assert_eq!(elements[3..], (3..100).collect::<Vec<_>>());

    let boxed: Box<[u32]> = Box::new([1, 2, 3]);
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::HOST_READ_ONLY | MemoryFlags::HOST_RESIDENT;
    let buffer = bench.backend.create_host_buffer(boxed, flags).unwrap();
    assert_eq!(buffer.into_host().unwrap(), [1, 2, 3]);
}

#[test]
fn a_vector_is_waited_for() {
    let bench = Bench::new();
    let buffer = bench.host_buffer(vec![1_u32; 1000]);
    let gate = bench.gate();
    let fill = bench.fill(&bench.queue, buffer.memory(), 2, from_ref(&gate));
    bench.queue.flush().unwrap();
    let opener = {
        let (backend, gate) = (bench.backend.clone(), gate.clone());
        thread::spawn(move || {
            backend
                .resolve_user_event(&gate, binpool_allocators::Outcome::Complete)
                .unwrap();
        })
    };
    assert_eq!(buffer.into_host().unwrap(), [0x0202_0202; 1000]);
    opener.join().unwrap();
    fill.wait().unwrap();
}

#[test]
fn a_vector_under_commands_that_failed_comes_back_too() {
    let bench = Bench::new();
    let buffer = bench.host_buffer(vec![1_u32; 1000]);
    let gate = bench.gate();
    let fill = bench.fill(&bench.queue, buffer.memory(), 2, from_ref(&gate));
    bench.queue.flush().unwrap();
    bench.fail_gate(&gate);
    fill.wait().unwrap_err();
    assert_eq!(buffer.into_host().unwrap(), [1; 1000]);
}

#[test]
fn a_vector_with_views_left_stays_in_its_buffer() {
    let bench = Bench::new();
    let buffer = bench.host_buffer(vec![Line::ONES; 4]);
    let view = buffer.memory().slice(..4).unwrap();
    let refused = buffer.into_host().unwrap_err();
    assert!(refused.to_string().contains("1 views"));
    bench.fill(&bench.queue, &view, 9, &[]).wait().unwrap();
    drop(view);
    let elements = refused.value.into_host().unwrap();
    assert_eq!(elements[0].0[..2], [0x0909_0909, 1]);
    assert_eq!(elements[1..], [Line::ONES; 3]);
}

#[test]
fn a_vector_whose_map_was_forgotten_stays_in_its_buffer() {
    let bench = Bench::new();
    let buffer = bench.host_buffer(vec![1_u32; 100]);
    let map = bench
        .backend
        .map_mut::<u32>(&bench.queue, buffer.memory(), 8..16);
    mem::forget(map.unwrap());
    let refused = buffer.into_host().unwrap_err();
    let mapped = InvalidRequest::Mapped {
        offset: 8,
        bytes: 8,
    };
    assert_eq!(refusal::<()>(Err(refused.error)), mapped);
    drop(refused.value);

    let buffer = bench.host_buffer(vec![1_u32; 100]);
    let map = bench
        .backend
        .map_mut::<u32>(&bench.queue, buffer.memory(), 8..16);
    map.unwrap().fill(2);
    assert_eq!(buffer.into_host().unwrap()[..5], [1, 1, 2, 2, 1]);
}

#[test]
fn a_vector_that_is_not_taken_back_outlives_its_commands() {
    let bench = Bench::new();
    for round in 0..20 {
        let gate = bench.gate();
        let buffer = bench.host_buffer(vec![Line::ONES; 300]);
        let view = (round % 2 == 0).then(|| buffer.memory().slice(..).unwrap());
        let memory = view.as_ref().unwrap_or(buffer.memory());
        let fill = bench.fill(&bench.queue, memory, 2, from_ref(&gate));
        match round % 3 {
            0 => drop((view, buffer)),
            1 => mem::forget((view, buffer)),
            _ => {
                drop(buffer);
                mem::forget(view);
            }
        }
        // Memory that was freed too early would be handed out here, and written over by the fill.
        let strangers: Vec<_> = (0..8).map(|_| vec![Line::ONES; 300]).collect();
        bench.open_gate(&gate);
        fill.wait().unwrap();
        assert!(strangers.iter().flatten().all(|&line| line == Line::ONES));
    }
}

#[test]
fn flags_that_keep_the_host_from_its_own_memory_are_refused() {
    let bench = Bench::new();
    for flags in [MemoryFlags::HOST_WRITE_ONLY, MemoryFlags::HOST_NO_ACCESS] {
        let way = HostUse::Read;
        let refused = InvalidRequest::HostAccess { way, flags };
        let over = bench.backend.create_host_buffer([1, 2], flags);
        assert_eq!(returned(over, &[1, 2]), refused);
        let run = |_: &ClMemory| panic!("there is no buffer");
        let lent = bench.backend.with_host_buffer(&mut [1, 2], flags, run);
        assert_eq!(refusal(lent), refused);
    }
}

#[test]
fn lent_memory_is_as_the_commands_left_it() {
    let bench = Bench::new();
    let mut elements: Vec<u8> = numbered(1 << 16);
    // Any address that elements may have.
    for start in [0, 1, 3, 64, 100] {
        let lent = &mut elements[start..start + 1000];
        let before = lent.to_vec();
        let sum = bench
            .backend
            .with_host_buffer(lent, MemoryFlags::empty(), |buffer| {
                assert_eq!(bench.read(buffer), before);
                let head = Region::first(500);
                bench
                    .backend
                    .enqueue_fill(&bench.queue, buffer, head, &[7_u8])
                    .unwrap()
                    .wait()
                    .unwrap();
                bench.read(buffer).len()
            })
            .unwrap();
        assert_eq!(sum, 1000);
        assert_eq!(lent[..500], [7; 500]);
        assert_eq!(lent[500..], before[500..]);
    }
    let mut wide = [1.5_f64; 16];
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::HOST_READ_ONLY | MemoryFlags::HOST_RESIDENT;
    let first = bench
        .backend
        .with_host_buffer(&mut wide, flags, |buffer| bench.read(buffer)[..8].to_vec());
    assert_eq!(first.unwrap(), 1.5_f64.to_ne_bytes());
}

/// Runs `during` on a buffer over lent memory that a gated fill is enqueued on, and opens the gate from another thread.
fn with_gated_fill<R>(bench: &Bench, during: impl FnOnce(&ClMemory) -> R) -> thread::Result<R> {
    let gate = bench.gate();
    let mut elements = vec![1_u8; 10_000];
    let result = thread::scope(|scope| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let flags = MemoryFlags::empty();
            let run = |buffer: &ClMemory| {
                mem::forget(bench.fill(&bench.queue, buffer, 2, from_ref(&gate)));
                bench.queue.flush().unwrap();
                scope.spawn(|| bench.open_gate(&gate));
                during(buffer)
            };
            bench.backend.with_host_buffer(&mut elements, flags, run)
        }));
        // The borrow is over, and so is the fill.
        assert_eq!(elements, vec![2; 10_000]);
        elements.fill(3);
        result
    });
    bench.queue.finish().unwrap();
    assert_eq!(elements, vec![3; 10_000]);
    result.map(Result::unwrap)
}

#[test]
fn the_loan_ends_after_the_commands() {
    let bench = Bench::new();
    for _ in 0..20 {
        assert_eq!(with_gated_fill(&bench, ClMemory::bytes).unwrap(), 10_000);
    }
}

#[test]
fn the_loan_ends_after_the_commands_where_the_program_panics() {
    let bench = Bench::new();
    for _ in 0..20 {
        let panic = with_gated_fill(&bench, |_| -> () { panic!("on purpose") }).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }
}

#[test]
fn the_loan_ends_where_commands_failed() {
    let bench = Bench::new();
    let mut elements = [1_u8; 100];
    bench
        .backend
        .with_host_buffer(&mut elements, MemoryFlags::empty(), |buffer| {
            let gate = bench.gate();
            let fill = bench.fill(&bench.queue, buffer, 2, from_ref(&gate));
            bench.queue.flush().unwrap();
            bench.fail_gate(&gate);
            fill.wait().unwrap_err();
        })
        .unwrap();
    assert_eq!(elements, [1; 100]);
}

/// A reference of the program's own is all that the buffer's commands are not.
#[test]
fn the_loan_ends_with_the_last_reference() {
    let bench = Bench::new();
    let released = AtomicBool::new(false);
    thread::scope(|scope| {
        let lend = |buffer: &ClMemory| {
            let raw = buffer.raw().unwrap();
            // SAFETY: The buffer lives.
            unsafe { cl3::memory::retain_mem_object(raw) }.unwrap();
            let (raw, released) = (raw.expose_provenance(), &released);
            scope.spawn(move || {
                // Time enough for a loan that does not wait to end.
                bench_of_its_own();
                released.store(true, Ordering::Relaxed);
                let raw = ptr::with_exposed_provenance_mut(raw);
                // SAFETY: The reference is the one taken above.
                unsafe { cl3::memory::release_mem_object(raw) }.unwrap();
            });
        };
        let (mut elements, flags) = ([1_u8; 100], MemoryFlags::empty());
        bench
            .backend
            .with_host_buffer(&mut elements, flags, lend)
            .unwrap();
        assert!(released.load(Ordering::Relaxed));
    });
}

fn bench_of_its_own() {
    let bench = Bench::new();
    let memory = bench.filled(1 << 20, 0);
    bench.fill(&bench.queue, &memory, 1, &[]).wait().unwrap();
}

#[test]
fn nothing_keeps_a_buffer_over_lent_memory() {
    let bench = Bench::new();
    let mut elements = [1_u8; 100];
    let lent = InvalidRequest::Lent { bytes: 100 };
    bench
        .backend
        .with_host_buffer(&mut elements, MemoryFlags::empty(), |buffer| {
            let all = Region::first(100);
            assert_eq!(refusal(buffer.slice(..)), lent);
            assert_eq!(refusal(bench.backend.create_sub_region(buffer, all)), lent);
            assert_eq!(refusal(buffer.on_destroy(|| ())), lent);
            let map = bench.backend.map::<u8>(&bench.queue, buffer, all);
            assert_eq!(refusal(map), lent);
            let raw = buffer.raw().unwrap();
            // SAFETY: The buffer lives, and all commands on it are over.
            let again = unsafe { bench.backend.wrap_raw_memory(raw, true) };
            assert_eq!(refusal(again), lent);
            assert_eq!(buffer.info().unwrap().reference_count, Some(1));
        })
        .unwrap();
}

#[test]
fn memory_is_lent_to_pooled_blocks_copies_and_other_loans() {
    let bench = Bench::new();
    let pool = MemoryPool::new(DeferredAllocator::new(&bench.backend), &bench.queue).unwrap();
    let block = pool.allocate(64).unwrap();
    let (mut source, mut target) = ([4_u8; 64], [0_u8; 64]);
    let flags = MemoryFlags::empty();
    let all = Region::first(64);
    bench
        .backend
        .with_host_buffer(&mut source, flags, |source| {
            let inner = bench
                .backend
                .with_host_buffer(&mut target, flags, |target| {
                    let block = block.memory_on(&bench.queue).unwrap();
                    for (from, to) in [(source, block), (block, target)] {
                        let copy = bench.backend.enqueue_copy(&bench.queue, from, all, to, 0);
                        copy.unwrap().wait().unwrap();
                    }
                });
            inner.unwrap();
        })
        .unwrap();
    assert_eq!((source, target), ([4; 64], [4; 64]));
}

#[test]
fn a_refusal_says_why_and_becomes_the_plain_error() {
    let bench = Bench::new();
    let refused = bench
        .backend
        .create_host_buffer([0_u8; 0], MemoryFlags::empty())
        .unwrap_err();
    assert_eq!(refused.to_string(), refused.error.to_string());
    let error: Error = refused.into();
    assert_eq!(refusal::<()>(Err(error)), InvalidRequest::ZeroSize);
}

#[test]
fn views_of_the_hosts_memory_are_filled_wherever_that_starts() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    // Vectors of this size start where the host's allocator likes, most of them on no multiple of the alignment.
    let vectors: Vec<_> = (0..8).map(|_| vec![1_u8; 3 * align]).collect();
    for vector in vectors {
        let buffer = bench
            .backend
            .create_host_buffer(vector, MemoryFlags::empty());
        let buffer = buffer.unwrap();
        let view = buffer.memory().slice(align..2 * align).unwrap();
        bench.fill(&bench.queue, &view, 2, &[]).wait().unwrap();
        drop(view);
        let mut expected = vec![1; 3 * align];
        expected[align..2 * align].fill(2);
        assert_eq!(buffer.into_host().unwrap(), expected);
    }
}
