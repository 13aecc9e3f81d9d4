//! Objects that the program made with `opencl3`, or has by their bare handles.

use std::slice::from_ref;

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    Backend, Event, EventStatus, InvalidRequest, MemoryFlags, ObjectKind, Outcome, Queue,
    QueueOrder, Region,
};
use binpool_opencl::{ClEvent, ClQueue, OpenClBackend, OpenClError};
use opencl3::{
    command_queue::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CommandQueue},
    context::Context,
    device::Device,
    event::Event as ProgramEvent,
};

use crate::common::{Error, open, refusal};

/// A context of the program's own on the device under test.
fn program() -> (Context, Device) {
    let device = Device::new(open().raw_device());
    (Context::from_device(&device).unwrap(), device)
}

fn queue_of(context: &Context, properties: u64) -> CommandQueue {
    // SAFETY: The device is the context's own.
    unsafe { CommandQueue::create(context, context.default_device(), properties) }.unwrap()
}

fn backend_of(context: &Context) -> OpenClBackend {
    // SAFETY: `opencl3` has made the context by a call of OpenCL.
    unsafe { OpenClBackend::from_raw(context.get(), context.default_device()) }.unwrap()
}

fn wrap_queue(backend: &OpenClBackend, queue: &CommandQueue) -> Result<ClQueue, Error> {
    // SAFETY: `opencl3` has made the queue by a call of OpenCL.
    unsafe { backend.wrap_raw_queue(queue.get()) }
}

fn wrap_event(backend: &OpenClBackend, event: &ProgramEvent) -> Result<ClEvent, Error> {
    // SAFETY: the event came from a call of OpenCL.
    unsafe { backend.wrap_raw_event(event.get()) }
}

#[test]
fn memory_goes_through_a_context_and_queue_of_the_program() {
    let (context, _) = program();
    let queue = queue_of(&context, 0);
    let backend = backend_of(&context);
    let wrapped = wrap_queue(&backend, &queue).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.write(&wrapped, &memory, 0, &[7_u8; 64]).unwrap();
    let mut data = [0_u8; 64];
    backend.read(&wrapped, &memory, 0, &mut data).unwrap();
    assert_eq!(data, [7; 64]);
    assert_eq!(backend.raw_context(), context.get());
    assert_eq!(wrapped.raw(), queue.get());
}

#[test]
fn the_program_may_drop_its_own_objects_first() {
    let (context, _) = program();
    let queue = queue_of(&context, 0);
    let backend = backend_of(&context);
    let wrapped = wrap_queue(&backend, &queue).unwrap();
    drop((queue, context));
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.write(&wrapped, &memory, 0, &[1_u8; 64]).unwrap();
    wrapped.finish().unwrap();
}

#[test]
fn wrapping_leaves_the_programs_references_alone() {
    let (context, _) = program();
    let queue = queue_of(&context, 0);
    let contexts = context.reference_count().unwrap();
    let queues = queue.reference_count().unwrap();
    let backend = backend_of(&context);
    assert_eq!(context.reference_count().unwrap(), contexts + 1);
    let wrapped = wrap_queue(&backend, &queue).unwrap();
    assert_eq!(queue.reference_count().unwrap(), queues + 1);
    let again = wrap_queue(&backend, &queue).unwrap();
    assert_eq!(queue.reference_count().unwrap(), queues + 1);
    drop((wrapped, again));
    assert_eq!(queue.reference_count().unwrap(), queues);
    drop(backend);
    assert_eq!(context.reference_count().unwrap(), contexts);
    queue.finish().unwrap();
}

#[test]
fn memory_lets_go_of_queues_that_have_used_it() {
    let (context, _) = program();
    let queue = queue_of(&context, 0);
    let backend = backend_of(&context);
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let before = queue.reference_count().unwrap();
    let wrapped = wrap_queue(&backend, &queue).unwrap();
    backend.write(&wrapped, &memory, 0, &[1_u8; 64]).unwrap();
    drop(wrapped);
    for _ in 0..64 {
        let another = backend.create_queue(QueueOrder::InOrder).unwrap();
        backend.write(&another, &memory, 0, &[1_u8; 64]).unwrap();
        another.finish().unwrap();
    }
    assert_eq!(queue.reference_count().unwrap(), before);
}

#[test]
fn one_queue_has_one_identity_however_often_it_is_wrapped() {
    let (context, device) = program();
    let queue = queue_of(&context, 0);
    let backend = backend_of(&context);
    // SAFETY: `opencl3` has made the context by a call of OpenCL.
    let same_context = unsafe { OpenClBackend::from_raw(context.get(), device.id()) };
    let same_context = same_context.unwrap();
    let first = wrap_queue(&backend, &queue).unwrap();
    let second = wrap_queue(&same_context, &queue).unwrap();
    // SAFETY: The queue lives.
    let third = unsafe { backend.wrap_raw_queue(queue.get()) }.unwrap();
    assert_eq!((first.id(), &first), (second.id(), &second));
    assert_eq!((first.id(), &first), (third.id(), &third));

    let made_here = backend.create_queue(QueueOrder::InOrder).unwrap();
    // SAFETY: The queue lives.
    let wrapped = unsafe { backend.wrap_raw_queue(made_here.raw()) }.unwrap();
    assert_eq!(made_here, wrapped);
    assert_ne!(made_here, first);
}

#[test]
fn identities_of_queues_are_not_used_again() {
    let (context, _) = program();
    let backend = backend_of(&context);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        // The runtime may well give every one of these the same address.
        let queue = queue_of(&context, 0);
        assert!(seen.insert(wrap_queue(&backend, &queue).unwrap().id()));
    }
}

#[test]
fn wrapping_from_many_threads_at_once_gives_one_identity() {
    let (context, _) = program();
    let queue = queue_of(&context, 0);
    let backend = backend_of(&context);
    for _ in 0..100 {
        let keep = wrap_queue(&backend, &queue).unwrap();
        let ids: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| wrap_queue(&backend, &queue).unwrap().id()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(ids.iter().all(|&id| id == keep.id()));
    }
}

#[test]
fn the_order_of_a_wrapped_queue_is_seen() {
    let (context, _) = program();
    let backend = backend_of(&context);
    let in_order = wrap_queue(&backend, &queue_of(&context, 0)).unwrap();
    assert_eq!(in_order.order(), QueueOrder::InOrder);
    let queue = queue_of(&context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let out_of_order = wrap_queue(&backend, &queue).unwrap();
    assert_eq!(out_of_order.order(), QueueOrder::OutOfOrder);
}

#[test]
fn queues_and_events_of_another_context_are_foreign() {
    let (context, _) = program();
    let (other, _) = program();
    let queue = queue_of(&other, 0);
    let backend = backend_of(&context);
    let foreign = |kind| InvalidRequest::ForeignObject { kind };
    assert_eq!(
        refusal(wrap_queue(&backend, &queue)),
        foreign(ObjectKind::Queue)
    );
    // SAFETY: No wait list.
    let raw = unsafe { queue.enqueue_marker_with_wait_list(&[]) }.unwrap();
    assert_eq!(
        refusal(wrap_event(&backend, &raw)),
        foreign(ObjectKind::Event)
    );
}

#[test]
fn null_handles_are_errors() {
    let null = std::ptr::null_mut();
    let backend = open();
    // SAFETY: Null is allowed.
    assert!(unsafe { backend.wrap_raw_queue(null) }.is_err());
    // SAFETY: Null is allowed.
    assert!(unsafe { backend.wrap_raw_event(null) }.is_err());
    // SAFETY: Null is allowed.
    let opened = unsafe { OpenClBackend::from_raw(null, null) };
    let Err(OpenClError::Device(Error::Backend(failure))) = opened else {
        panic!("not refused: {opened:?}");
    };
    assert_eq!(failure.code, Some(cl3::error_codes::CL_INVALID_CONTEXT));
}

#[test]
fn a_bare_context_is_opened_with_one_of_its_own_devices() {
    let backend = open();
    let (context, device) = (backend.raw_context(), backend.raw_device());
    // SAFETY: The context lives.
    let again = unsafe { OpenClBackend::from_raw(context, device) }.unwrap();
    assert_eq!(again.limits(), backend.limits());
    // SAFETY: The context lives.
    let stray = unsafe { OpenClBackend::from_raw(context, context) };
    assert!(matches!(stray, Err(OpenClError::NotInContext)));
}

#[test]
fn objects_of_two_backends_of_one_context_work_together() {
    let (context, _) = program();
    let one = backend_of(&context);
    let two = backend_of(&context);
    let queue = one.create_queue(QueueOrder::InOrder).unwrap();
    let memory = two.create_buffer(16, MemoryFlags::empty()).unwrap();
    two.check_queue(&queue).unwrap();
    two.write(&queue, &memory, 0, &[1_u8; 16]).unwrap();
}

#[test]
fn an_event_of_the_program_can_be_waited_for() {
    let (context, _) = program();
    let backend = backend_of(&context);
    let queue = queue_of(&context, 0);
    let gate = backend.create_user_event().unwrap();
    // SAFETY: The event in the wait list lives.
    let raw = unsafe { queue.enqueue_marker_with_wait_list(&[gate.raw()]) }.unwrap();
    let event = wrap_event(&backend, &raw).unwrap();
    drop(raw);
    assert_eq!(event.status().unwrap(), EventStatus::Pending);

    // The queue was never flushed by the program: waiting for it on another queue sees to that.
    let ours = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(16, MemoryFlags::empty()).unwrap();
    let fill = backend
        .enqueue_fill(
            ours.after(from_ref(&event)),
            &memory,
            Region::first(16),
            &[3_u8],
        )
        .unwrap();
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    fill.wait().unwrap();
    assert_eq!(event.status().unwrap(), EventStatus::Complete);
}

#[test]
fn a_user_event_of_the_program_is_resolved_once_by_this_crate_or_by_the_program() {
    let (context, _) = program();
    let backend = backend_of(&context);
    let raw = ProgramEvent::new(opencl3::event::create_user_event(context.get()).unwrap());
    let event = wrap_event(&backend, &raw).unwrap();
    opencl3::event::set_user_event_status(raw.get(), 0).unwrap();
    assert_eq!(event.status().unwrap(), EventStatus::Complete);
    assert_eq!(
        refusal(backend.resolve_user_event(&event, Outcome::Failed)),
        InvalidRequest::AlreadyResolved
    );
}

/// What a program has that uses another binding, such as the crate `ocl`: pointers.
#[test]
fn bare_handles_are_enough_for_a_pool() {
    let (context, device) = program();
    let queue = queue_of(&context, 0);
    let (context, device, queue) = (context.get(), device.id(), queue.get());
    // SAFETY: The context lives.
    let backend = unsafe { OpenClBackend::from_raw(context, device) }.unwrap();
    // SAFETY: The queue lives.
    let wrapped = unsafe { backend.wrap_raw_queue(queue) }.unwrap();
    // SAFETY: As above.
    let (same, same_queue) = unsafe { OpenClBackend::from_raw_queue(queue) }.unwrap();
    let raw = |it: &OpenClBackend| (it.raw_context(), it.raw_device());
    assert!(raw(&same) == raw(&backend) && same_queue == wrapped);
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &wrapped).unwrap();
    let block = pool.allocate(64).unwrap();
    block.write(&wrapped, 0, &[7_u8; 64]).unwrap();

    let mut bytes = [0_u8; 64];
    let lent = backend.lend(&wrapped, &[&block]).unwrap();
    let (handle, offset) = lent[0].whole_and_offset().unwrap();
    // SAFETY: (1) queue and memory live; (2) the read is waited for.
    let read = unsafe {
        cl3::command_queue::enqueue_read_buffer(
            queue,
            handle,
            0,
            offset,
            64,
            bytes.as_mut_ptr().cast(),
            0,
            std::ptr::null(),
        )
    };
    let read = read.unwrap();
    lent.end().unwrap();
    // SAFETY: The event lives.
    let event = unsafe { backend.wrap_raw_event(read) }.unwrap();
    // SAFETY: The reference is this test's own.
    unsafe { cl3::event::release_event(read) }.unwrap();
    event.wait().unwrap();
    assert_eq!(bytes, [7; 64]);
}

#[test]
fn a_user_event_may_be_resolved_by_a_second_value_of_its_handle() {
    for outcome in [Outcome::Complete, Outcome::Failed] {
        let backend = open();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let first = backend.create_user_event().unwrap();
        // SAFETY: the event lives.
        let second = unsafe { backend.wrap_raw_event(first.raw()) }.unwrap();
        let fill = |gate: &ClEvent| {
            let after = queue.after(from_ref(gate));
            backend.enqueue_fill(after, &memory, Region::first(64), &[7_u8])
        };
        let filled = [fill(&first).unwrap(), fill(&second).unwrap()];
        backend.resolve_user_event(&second, outcome).unwrap();
        for filled in filled {
            assert_eq!(filled.wait().is_ok(), outcome == Outcome::Complete);
        }
        queue.finish().unwrap();
    }
}
