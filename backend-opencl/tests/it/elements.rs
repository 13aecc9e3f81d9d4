//! Memory as elements of one type, over buffers, views, shared virtual memory, and pooled blocks.

use std::{mem, slice::from_ref};

use binpool::{DeferredAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Event, EventStatus, HostUse, InvalidRequest, MemoryFlags, Queue, Region,
    Slice, SvmBackend, SvmGrain,
};
use binpool_opencl::{ClMemory, OpenClBackend, SvmOptions};

use crate::common::{Bench, Filled, refusal};

/// Elements that tell their places apart.
fn counted(count: u32) -> Vec<u32> {
    (0..count)
        .map(|place| place.wrapping_mul(0x0101_0001))
        .collect()
}

impl Bench {
    fn uninit<T: bytemuck::Pod, M: AsMemory<OpenClBackend>>(
        &self,
        memory: M,
    ) -> Slice<T, (&OpenClBackend, M)> {
        Slice::new((&self.backend, memory)).unwrap()
    }

    /// Elements in a buffer of their own.
    fn elements(&self, data: &[u32]) -> Slice<u32, ClMemory> {
        let memory = self.buffer(size_of_val(data));
        Slice::new(memory).unwrap().holding(&self.queue, data)
    }

    fn pool(&self) -> MemoryPool<OpenClBackend> {
        let allocator = DeferredAllocator::new(&self.backend);
        MemoryPool::new(allocator, &self.queue).unwrap()
    }
}

/// Everything that is promised of 100 elements, over any memory.
fn hundred_elements_keep_their_promises(bench: &Bench, memory: &impl AsMemory<OpenClBackend>) {
    let queue = &bench.queue;
    assert_eq!(memory.size(), 400);
    let fresh = bench.uninit::<u32, _>(memory);
    assert_eq!((fresh.len(), fresh.is_empty()), (100, false));
    let elements = fresh.holding(queue, &counted(100));
    assert_eq!(elements.read_to_vec(queue).unwrap(), counted(100));

    let mut some = [0; 3];
    elements.read(queue, 97, &mut some).unwrap();
    assert_eq!(some, counted(100)[97..]);
    elements.write(queue, 1, &[7, 8]).unwrap();
    let written = elements.enqueue_write(queue, 3, &[9]).unwrap();
    let mut expected = counted(100);
    expected[1..4].copy_from_slice(&[7, 8, 9]);
    let all = elements.read_to_vec(queue.after(from_ref(&written)));
    assert_eq!(all.unwrap(), expected);

    elements
        .enqueue_fill(queue, 10..20, &[0xdead_beef])
        .unwrap();
    expected[10..20].fill(0xdead_beef);
    // Places that no device lets a sub-buffer start at.
    let middle = elements.slice(5..=20).unwrap();
    assert_eq!(middle.len(), 16);
    assert_eq!(middle.region(), Region::new(20, 64));
    assert_eq!(middle.read_to_vec(queue).unwrap(), expected[5..=20]);
    let inner = middle.slice(1..).unwrap();
    let inner = inner.slice(..2).unwrap();
    inner.write(queue, 1, &[1]).unwrap();
    inner.enqueue_fill(queue, ..1, &[2]).unwrap();
    expected[6..8].copy_from_slice(&[2, 1]);
    assert_eq!(elements.read_to_vec(queue).unwrap(), expected);

    let front = elements.slice(..50).unwrap();
    let back = elements.slice(50..).unwrap();
    let (from, to) = (front.slice(10..30).unwrap(), back.slice(10..).unwrap());
    from.enqueue_copy_to(queue, &to).unwrap();
    expected.copy_within(10..30, 60);
    assert_eq!(elements.read_to_vec(queue).unwrap(), expected);

    let other = bench.uninit::<u32, _>(bench.buffer(400));
    elements.enqueue_copy_to(queue, &other).unwrap();
    assert_eq!(other.read_to_vec(queue).unwrap(), expected);
    let (from, to) = (other.slice(1..3).unwrap(), elements.slice(98..).unwrap());
    from.enqueue_copy_to(queue, &to).unwrap();
    expected.copy_within(1..3, 98);
    assert_eq!(elements.read_to_vec(queue).unwrap(), expected);

    let filled = bench.uninit::<u64, _>(memory).filled(queue, 5);
    assert_eq!(filled.read_to_vec(queue).unwrap(), [5; 50]);
}

#[test]
fn elements_lie_over_any_memory() {
    let bench = Bench::new();
    let align = bench.backend.limits().alignment.bytes();
    hundred_elements_keep_their_promises(&bench, &bench.buffer(400));
    let large = bench.buffer(align + 400);
    hundred_elements_keep_their_promises(&bench, &large.slice(align..).unwrap());
    let svm = bench
        .backend
        .allocate_svm(400, None, SvmGrain::Coarse, None)
        .unwrap();
    hundred_elements_keep_their_promises(&bench, &svm);
    let own = bench
        .backend
        .create_host_buffer(vec![0_u8; 400], MemoryFlags::empty())
        .unwrap();
    hundred_elements_keep_their_promises(&bench, &own);
    let pool = bench.pool();
    let block = pool.allocate(400).unwrap();
    hundred_elements_keep_their_promises(&bench, &block);
    let block = pool.allocate(align + 600).unwrap();
    let region = block.view(align..align + 400).unwrap();
    hundred_elements_keep_their_promises(&bench, &region);
    let mut lent = [0_u64; 50];
    bench
        .backend
        .with_host_buffer(&mut lent, MemoryFlags::empty(), |buffer| {
            hundred_elements_keep_their_promises(&bench, buffer);
        })
        .unwrap();
    assert_eq!(lent, [5; 50]);
}

#[test]
fn elements_may_own_their_memory_and_give_it_back() {
    let bench = Bench::new();
    let elements = bench.elements(&counted(10));
    let memory = elements.into_memory();
    assert_eq!(
        bench.read(&memory),
        bytemuck::cast_slice::<u32, u8>(&counted(10))
    );
    let uninit = bench.uninit::<[u16; 2], _>(memory);
    assert_eq!(uninit.memory().size(), 40);
    let elements = uninit.cast::<u32>().unwrap();
    assert_eq!(elements.read_to_vec(&bench.queue).unwrap(), counted(10));
}

#[test]
fn memory_that_is_no_whole_number_of_elements_is_refused() {
    let bench = Bench::new();
    let pool = bench.pool();
    let block = pool.allocate(10).unwrap();
    for memory in [&bench.buffer(10) as &dyn AsMemory<OpenClBackend>, &block] {
        let refused = |element| InvalidRequest::NotWholeElements { bytes: 10, element };
        let backend = &bench.backend;
        assert_eq!(
            refusal(Slice::<u32, _>::new((backend, memory)).map(drop)),
            refused(4)
        );
        assert_eq!(
            refusal(Slice::<[u8; 11], _>::new((backend, memory)).map(drop)),
            refused(11)
        );
        assert_eq!(
            refusal(Slice::<(), _>::new((backend, memory)).map(drop)),
            refused(0)
        );
        assert_eq!(bench.uninit::<u16, _>(memory).len(), 5);
    }
}

#[test]
fn no_elements_are_ordered_like_any_other() {
    let bench = Bench::new();
    let pool = bench.pool();
    let (empty, none): (_, [u32; 0]) = (pool.allocate(0).unwrap(), []);
    let elements = bench.uninit::<u32, _>(&empty);
    let elements = elements.holding(&bench.queue, &none);
    assert_eq!((elements.len(), elements.is_empty()), (0, true));
    let gate = bench.gate();
    let queue = &bench.queue;
    let write = elements.enqueue_write(queue.after(from_ref(&gate)), 0, &none);
    let events = [
        write.unwrap(),
        elements.enqueue_fill(queue, .., &[1]).unwrap(),
        elements.enqueue_copy_to(queue, &elements).unwrap(),
    ];
    queue.flush().unwrap();
    for event in &events {
        assert_eq!(event.status().unwrap(), EventStatus::Pending);
    }
    bench.open_gate(&gate);
    for event in &events {
        event.wait().unwrap();
    }
    assert_eq!(elements.read_to_vec(queue).unwrap(), none);
    elements.write(queue, 0, &none).unwrap();
    elements.read(queue, 0, &mut []).unwrap();
    let some = bench.elements(&[1, 2]);
    let slice = some.slice(2..).unwrap();
    assert_eq!(slice.read_to_vec(queue).unwrap(), none);
}

#[test]
fn places_outside_the_elements_are_refused_in_bytes() {
    let bench = Bench::new();
    let queue = &bench.queue;
    let elements = bench.elements(&counted(10));
    let small = elements.slice(2..6).unwrap();
    let beyond = |offset, bytes| InvalidRequest::OutOfBounds {
        offset,
        bytes,
        size: 16,
    };
    for (first, count, refused) in [
        (0, 5, beyond(0, 20)),
        (4, 1, beyond(16, 4)),
        (5, 0, beyond(20, 0)),
        (3, 2, beyond(12, 8)),
        // Numbers that no `usize` holds in bytes, and that would be small ones if they wrapped.
        (1 << (usize::BITS - 2), 1, beyond(usize::MAX, 4)),
        (usize::MAX, 1, beyond(usize::MAX, 4)),
    ] {
        let mut data = vec![0; count];
        let range = first..first.saturating_add(count);
        assert_eq!(refusal(small.write(queue, first, &data)), refused);
        assert_eq!(refusal(small.enqueue_write(queue, first, &data)), refused);
        assert_eq!(refusal(small.read(queue, first, &mut data)), refused);
        if first < usize::MAX {
            assert_eq!(refusal(small.slice(range.clone())), refused);
            assert_eq!(refusal(small.enqueue_fill(queue, range, &[1])), refused);
        }
    }
    let copy = elements.slice(..5).unwrap().enqueue_copy_to(queue, &small);
    assert_eq!(refusal(copy), beyond(0, 20));
    let everything = refusal(small.slice(..usize::MAX));
    assert_eq!(everything, beyond(0, usize::MAX));
    refusal(small.slice(usize::MAX..));
    refusal(small.slice(..=usize::MAX));
    assert_eq!(elements.read_to_vec(queue).unwrap(), counted(10));
}

#[test]
fn elements_of_any_size_are_filled() {
    let bench = Bench::new();
    let memory = bench.buffer(96);
    let odd = bench.uninit::<[f32; 3], _>(&memory);
    let odd = odd.filled(&bench.queue, [1.0, 2.0, 3.0]);
    odd.enqueue_fill(&bench.queue, 2..5, &[[0.0; 3]]).unwrap();
    let mut expected = [[1.0, 2.0, 3.0]; 8];
    expected[2..5].fill([0.0; 3]);
    assert_eq!(odd.read_to_vec(&bench.queue).unwrap(), expected);
    let wide = bench.uninit::<[f64; 4], _>(&memory);
    let wide = wide.filled(&bench.queue, [0.5; 4]);
    assert_eq!(wide.read_to_vec(&bench.queue).unwrap(), [[0.5; 4]; 3]);
}

#[test]
fn a_fill_with_elements_of_any_size_is_one_command_to_others() {
    let bench = Bench::new();
    // More than the runtime is given in one piece, in a view and in shared virtual memory.
    let count = 100_000;
    let bytes = count * size_of::<[f32; 3]>();
    let step = bench.backend.limits().alignment.bytes();
    let view = bench.buffer(step + bytes).slice(step..).unwrap();
    let shared = bench.backend.limits().svm.coarse.then(|| {
        let shared = bench
            .backend
            .svm_empty::<u8>(bytes, &SvmOptions::coarse())
            .unwrap();
        shared.into_memory()
    });
    for memory in [Some(view), shared].into_iter().flatten() {
        let odd = bench.uninit::<[f32; 3], _>(&memory);
        let gate = bench.gate();
        let on = bench.queue.after(from_ref(&gate));
        let fill = odd.enqueue_fill(on, .., &[[1.0, 2.0, 3.0]]);
        let data = vec![[0.0_f32; 3]; count];
        let other = bench.another_queue();
        let read = bench.backend.enqueue_read_owned(&other, (&odd, 0), data);
        let read = read.unwrap();
        assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
        bench.open_gate(&gate);
        fill.unwrap().wait().unwrap();
        assert_eq!(read.wait().unwrap(), vec![[1.0, 2.0, 3.0]; count]);
    }
}

#[test]
fn copies_onto_themselves_are_refused() {
    let bench = Bench::new();
    let elements = bench.elements(&counted(10));
    let source = elements.slice(2..6).unwrap();
    let copy = source.enqueue_copy_to(&bench.queue, &elements.slice(4..).unwrap());
    let overlap = InvalidRequest::OverlappingCopy {
        from: 8,
        to: 16,
        bytes: 16,
    };
    assert_eq!(refusal(copy), overlap);
}

#[test]
fn the_flags_of_the_memory_hold_for_its_elements() {
    let bench = Bench::new();
    let flags = MemoryFlags::HOST_WRITE_ONLY;
    let memory = bench.backend.create_buffer(40, flags).unwrap();
    let elements = bench.uninit::<u32, _>(&memory);
    let elements = elements.holding(&bench.queue, &counted(10));
    let way = HostUse::Read;
    let refused = InvalidRequest::HostAccess { way, flags };
    let read = elements.read_to_vec(&bench.queue);
    assert_eq!(refusal(read), refused);
    let bytes = elements.cast::<u8>().unwrap();
    assert_eq!(refusal(bytes.enqueue_read(&bench.queue, ..)), refused);
}

#[test]
fn elements_of_another_context_are_refused() {
    let (bench, stranger) = (Bench::new(), Bench::new());
    let elements = bench.elements(&counted(10));
    let kind = binpool_allocators::ObjectKind::Queue;
    let refused = InvalidRequest::ForeignObject { kind };
    let read = elements.read_to_vec(&stranger.queue);
    assert_eq!(refusal(read), refused);
    let fill = elements.enqueue_fill(&stranger.queue, .., &[1]);
    assert_eq!(refusal(fill), refused);
    let foreign = Slice::<u32, _>::new((&stranger.backend, elements)).unwrap();
    let kind = binpool_allocators::ObjectKind::Memory;
    let refused = InvalidRequest::ForeignObject { kind };
    let write = foreign.write(&stranger.queue, 0, &[1]);
    assert_eq!(refusal(write), refused);
}

#[test]
fn elements_and_reads_may_be_forgotten() {
    let bench = Bench::new();
    for _ in 0..10 {
        let gate = bench.gate();
        let elements = bench.elements(&counted(10_000));
        let on = bench.queue.after(from_ref(&gate));
        let data = vec![0_u32; 10_000];
        let read = bench.backend.enqueue_read_owned(on, (&elements, 0), data);
        let read = read.unwrap();
        let event = read.event().clone();
        mem::forget((elements, read));
        let strangers: Vec<_> = (0..8).map(|_| vec![1_u32; 10_000]).collect();
        bench.open_gate(&gate);
        event.wait().unwrap();
        assert!(strangers.iter().flatten().all(|&element| element == 1));
    }
}
