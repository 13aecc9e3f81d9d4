//! Memory for other libraries, by the `DLPack` protocol.

use std::{ffi::c_void, ptr, slice::from_ref, sync::Arc, thread, time::Duration};

use binpool::{
    Allocator, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, PooledSlice,
    SvmAllocator, SvmGrain,
};
use binpool_allocators::{
    AsMemory, Backend, Error, Event, EventStatus, InvalidRequest, MemoryFlags, ObjectKind, Queue,
    QueueOrder,
};
use binpool_opencl::{
    ClEvent, ClQueue, OpenClBackend, Refused,
    dlpk::{
        DLDataTypeCode, DLDeviceType, DLPackTensor, GetDLPackDataType,
        sys::DLManagedTensorVersioned,
    },
};
use cl3::{command_queue, event};

use crate::common::{Bench, contents, numbered, open};

const BYTES: usize = 4096;

fn pool(bench: &Bench, segments: bool) -> MemoryPool<OpenClBackend> {
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    PoolOptions::new()
        .segments(segments)
        .build(allocator, &bench.queue)
        .unwrap()
}

/// Exports as these tests use it: every command on the tensor has ended, or is on `queue`, when it is dropped.
fn export<T: GetDLPackDataType, M: AsMemory<OpenClBackend> + Send + 'static>(
    backend: &OpenClBackend,
    queue: &ClQueue,
    memory: M,
    shape: &[usize],
) -> Result<DLPackTensor, Refused<M>> {
    // SAFETY: as said above, and nothing else uses the memory.
    unsafe { backend.export_dlpack::<T, M>(queue, memory, shape, 3) }
}

fn data(tensor: &DLPackTensor) -> *mut c_void {
    tensor.as_ref().as_dltensor().data
}

/// The first `bytes` bytes of a tensor, as a consumer reads them that knows nothing of this crate: on a queue of its own.
fn consumed(bench: &Bench, tensor: &DLPackTensor, bytes: usize) -> Vec<u8> {
    let own = bench.another_queue();
    let mut read = vec![0_u8; bytes];
    // SAFETY: (1) the memory is the tensor's, and large enough; (2) the read is waited for.
    let done = unsafe {
        command_queue::enqueue_read_buffer(
            own.raw(),
            data(tensor),
            1,
            tensor.byte_offset(),
            bytes,
            read.as_mut_ptr().cast(),
            0,
            ptr::null(),
        )
    };
    // SAFETY: the event is this function's.
    unsafe { event::release_event(done.unwrap()) }.unwrap();
    read
}

/// A marker after `gate`, by the bare handles.
fn bare_marker(bench: &Bench, queue: &ClQueue, gate: &ClEvent) -> ClEvent {
    // SAFETY: queue and gate live.
    let marker = unsafe {
        command_queue::enqueue_marker_with_wait_list(queue.raw(), 1, from_ref(&gate.raw()).as_ptr())
    };
    let marker = marker.unwrap();
    // SAFETY: the event lives.
    let wrapped = unsafe { bench.backend.wrap_raw_event(marker) };
    // SAFETY: this reference is the call's.
    unsafe { event::release_event(marker) }.unwrap();
    wrapped.unwrap()
}

#[test]
fn a_tensor_says_where_its_elements_are() {
    let bench = Bench::new();
    let memory = bench.buffer(BYTES);
    let handle = memory.raw().unwrap();
    let tensor = export::<f32, _>(&bench.backend, &bench.queue, memory, &[4, 2, 3]).unwrap();
    assert_eq!(tensor.device().device_type, DLDeviceType::kDLOpenCL);
    assert_eq!(tensor.device().device_id, 3);
    let dtype = tensor.dtype();
    assert_eq!(
        (dtype.code, dtype.bits, dtype.lanes),
        (DLDataTypeCode::kDLFloat, 32, 1)
    );
    assert_eq!(tensor.shape(), [4, 2, 3]);
    assert_eq!(tensor.strides().unwrap(), [6, 3, 1]);
    assert_eq!(tensor.byte_offset(), 0);
    assert_eq!(data(&tensor), handle);
    assert_eq!((tensor.version().major, tensor.flags()), (1, 0));
}

#[test]
fn a_part_is_exported_from_its_first_byte() {
    for segments in [false, true] {
        let bench = Bench::new();
        let block = pool(&bench, segments).allocate(BYTES).unwrap();
        let written = block.enqueue_write(&bench.queue, 0, numbered(BYTES).into());
        written.unwrap();
        let part = PooledSlice::<u8, _>::new(Arc::new(block)).unwrap();
        let part = part.slice(100..1100).unwrap();
        let tensor = export::<u8, _>(&bench.backend, &bench.queue, part, &[1000]).unwrap();
        assert_eq!(consumed(&bench, &tensor, 1000), numbered(1100)[100..]);
    }
}

#[test]
fn the_consumer_may_read_at_once_on_a_queue_of_its_own() {
    for segments in [false, true] {
        let bench = Bench::new();
        let pool = pool(&bench, segments);
        // Others that are carved from the same segment.
        let _neighbour = pool.allocate(BYTES).unwrap();
        let block = pool.allocate(BYTES).unwrap();
        let elsewhere = bench.another_queue();
        block
            .enqueue_write(&bench.queue, 0, numbered(BYTES).into())
            .unwrap();
        block.enqueue_fill(&elsewhere, 0..16, &[9_u8]).unwrap();
        let tensor = export::<u8, _>(&bench.backend, &bench.queue, block, &[BYTES]).unwrap();
        let mut expected = numbered(BYTES);
        expected[..16].fill(9);
        assert_eq!(consumed(&bench, &tensor, BYTES), expected);
    }
}

/// Commands of this crate on other queues, and bare ones on the named queue, whether it is in order or not.
#[test]
fn the_tensor_is_there_when_what_was_enqueued_before_has_ended() {
    let bench = Bench::new();
    for named in [bench.another_queue(), bench.out_of_order_queue()] {
        let memory = bench.filled(BYTES, 1);
        let gates = [bench.gate(), bench.gate()];
        let before = [
            bench.fill(&bench.queue, &memory, 2, from_ref(&gates[0])),
            // No log knows of it.
            bare_marker(&bench, &named, &gates[1]),
        ];
        thread::scope(|threads| {
            threads.spawn(|| {
                for gate in &gates {
                    // A tensor that is there too early is, meanwhile.
                    thread::sleep(Duration::from_millis(50));
                    bench.open_gate(gate);
                }
            });
            let tensor = export::<u8, _>(&bench.backend, &named, memory, &[BYTES]).unwrap();
            let ended = before.map(|event| event.status().unwrap());
            assert_eq!(ended, [EventStatus::Complete; 2]);
            drop(tensor);
        });
    }
}

#[test]
fn memory_whose_commands_fail_comes_back() {
    let bench = Bench::new();
    let memory = bench.buffer(BYTES);
    let key = memory.key();
    let gate = bench.gate();
    let elsewhere = bench.another_queue();
    let _fails = bench.fill(&elsewhere, &memory, 2, from_ref(&gate));
    let exported = thread::scope(|threads| {
        threads.spawn(|| {
            // What waits for the fill fails with it; what comes later need not.
            thread::sleep(Duration::from_millis(50));
            bench.fail_gate(&gate);
        });
        export::<u8, _>(&bench.backend, &bench.queue, memory, &[BYTES])
    });
    let refused = exported.unwrap_err();
    assert!(matches!(refused.error, Error::Backend(_)), "{refused}");
    assert_eq!(refused.value.key(), key);
    bench.queue_is_alive();
}

#[test]
fn deleting_the_tensor_gives_the_block_back() {
    let bench = Bench::new();
    let pool = pool(&bench, false);
    let block = pool.allocate(BYTES).unwrap();
    let id = block.memory_id();
    let tensor = export::<u8, _>(&bench.backend, &bench.queue, block, &[BYTES]).unwrap();
    assert_eq!(pool.active_blocks(), 1);
    assert_ne!(pool.allocate(BYTES).unwrap().memory_id(), id);
    drop(tensor);
    assert_eq!(pool.active_blocks(), 0);
    assert_eq!(pool.allocate(BYTES).unwrap().memory_id(), id);
}

#[test]
fn a_tensor_outlives_the_pool_and_may_be_deleted_on_another_thread() {
    struct Sent(*mut DLManagedTensorVersioned);
    // SAFETY: the protocol lets any thread delete a tensor.
    unsafe impl Send for Sent {}

    let bench = Bench::new();
    let pool = pool(&bench, true);
    let block = pool.allocate(BYTES).unwrap();
    block.write(&bench.queue, 0, &[5_u8; BYTES]).unwrap();
    let tensor = export::<u8, _>(&bench.backend, &bench.queue, block, &[BYTES]).unwrap();
    drop(pool);
    assert_eq!(consumed(&bench, &tensor, BYTES), [5; BYTES]);
    let sent = Sent(tensor.into_raw().as_ptr());
    let deleted = thread::spawn(move || {
        let Sent(tensor) = { sent };
        // SAFETY: it lives.
        let delete = unsafe { (*tensor).deleter }.unwrap();
        // SAFETY: nothing uses it from here on.
        unsafe { delete(tensor) };
    });
    deleted.join().unwrap();
}

/// Commands of the consumer that are pending on the named queue keep the block from other queues.
#[test]
fn the_block_counts_as_used_on_the_queue_that_was_named() {
    let bench = Bench::new();
    let pool = pool(&bench, false);
    let named = bench.another_queue();
    let block = pool.allocate(BYTES).unwrap();
    let id = block.memory_id();
    let tensor = export::<u8, _>(&bench.backend, &named, block, &[BYTES]).unwrap();
    let gate = bench.gate();
    let pattern = 7_u8;
    // SAFETY: (1) the memory is the tensor's; (2) the pattern is copied by the call; (3) the gate lives.
    let filled = unsafe {
        command_queue::enqueue_fill_buffer(
            named.raw(),
            data(&tensor),
            (&raw const pattern).cast(),
            1,
            0,
            BYTES,
            1,
            from_ref(&gate.raw()).as_ptr(),
        )
    }
    .unwrap();
    drop(tensor);
    let early = pool.allocate(BYTES).unwrap();
    assert_ne!(early.memory_id(), id);
    bench.open_gate(&gate);
    // SAFETY: the event lives, and is this test's.
    unsafe { event::release_event(filled) }.unwrap();
    named.finish().unwrap();
    let late = pool.allocate(BYTES).unwrap();
    assert_eq!(late.memory_id(), id);
    assert_eq!(contents(&late, &bench.queue), [7; BYTES]);
}

#[test]
fn what_cannot_be_exported_comes_back() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let pool = pool(&bench, false);
    let block = pool.allocate(BYTES).unwrap();
    let id = block.memory_id();
    let refused = |refused: Refused<PooledBuffer<_>>| match refused.error {
        Error::InvalidRequest(request) => (request, refused.value),
        error => panic!("not a refusal: {error}"),
    };

    // One element too many; all elements; more than can be counted.
    let (request, block) = refused(export::<f32, _>(backend, queue, block, &[1025]).unwrap_err());
    let bytes = 1025 * 4;
    let (offset, size) = (0, BYTES);
    assert_eq!(
        request,
        InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size
        }
    );
    let shape = [usize::MAX, 2];
    let (request, block) = refused(export::<f32, _>(backend, queue, block, &shape).unwrap_err());
    assert!(matches!(request, InvalidRequest::OutOfBounds { .. }));

    let foreign = open().create_queue(QueueOrder::InOrder).unwrap();
    let (request, block) = refused(export::<u8, _>(backend, &foreign, block, &[1]).unwrap_err());
    let kind = ObjectKind::Queue;
    assert_eq!(request, InvalidRequest::ForeignObject { kind });
    assert_eq!(block.memory_id(), id);
    assert!(export::<f32, _>(backend, queue, block, &[1024]).is_ok());
}

#[test]
fn shared_virtual_memory_has_no_handle() {
    let bench = Bench::new();
    let allocator = SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap();
    let block = allocator.allocate(BYTES).unwrap();
    let refused = export::<u8, _>(&bench.backend, &bench.queue, block, &[1]).unwrap_err();
    assert!(
        matches!(refused.error, Error::Unsupported { .. }),
        "{refused}"
    );
}

#[test]
fn a_tensor_without_elements_has_no_data() {
    let bench = Bench::new();
    let pool = pool(&bench, false);
    for bytes in [0, BYTES] {
        let block = pool.allocate(bytes).unwrap();
        let tensor = export::<f64, _>(&bench.backend, &bench.queue, block, &[3, 0, 2]).unwrap();
        assert!(data(&tensor).is_null());
        assert_eq!(tensor.shape(), [3, 0, 2]);
    }
    let scalar = bench
        .backend
        .create_buffer(8, MemoryFlags::empty())
        .unwrap();
    let tensor = export::<f64, _>(&bench.backend, &bench.queue, scalar, &[]).unwrap();
    assert!(tensor.shape().is_empty() && !data(&tensor).is_null());
}

#[test]
fn a_tensor_of_a_view_keeps_the_bytes_of_a_pooled_block() {
    let bench = Bench::new();
    for segments in [false, true] {
        let pool = pool(&bench, segments);
        let block = pool.allocate(BYTES).unwrap();
        block.write(&bench.queue, 0, &[7_u8; BYTES]).unwrap();
        let view = block.memory_on(&bench.queue).unwrap().slice(..256);
        let tensor = export::<u8, _>(&bench.backend, &bench.queue, view.unwrap(), &[256]).unwrap();
        drop(block);
        for _ in 0..4 {
            let next = pool.allocate(BYTES).unwrap();
            next.write(&bench.queue, 0, &[9_u8; BYTES]).unwrap();
        }
        assert_eq!(consumed(&bench, &tensor, 256), [7; 256]);
        assert_eq!(pool.statistics().viewed_blocks, 1);
        drop(tensor);
        assert_eq!(pool.statistics().viewed_blocks, 0);
    }
}
