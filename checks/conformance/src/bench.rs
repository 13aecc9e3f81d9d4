//! Helpers of the checks.

use std::slice::from_ref;

use binpool_allocators::{
    AsMemory, Backend, Error, Event, EventStatus, InvalidRequest, Memory, MemoryFlags, ObjectKind,
    On, Outcome, PendingRead, Queue, QueueOrder, Region,
};

use crate::Fixture;

/// A backend with an in-order queue.
pub(crate) struct Bench<B: Backend> {
    pub(crate) backend: B,
    pub(crate) queue: B::Queue,
}

impl<B: Backend> Bench<B> {
    pub(crate) fn new(fixture: &impl Fixture<Backend = B>) -> Self {
        Self::on(fixture.backend())
    }

    pub(crate) fn on(backend: B) -> Self {
        let queue = backend.create_queue(QueueOrder::InOrder);
        let queue = queue.expect("every device has in-order queues");
        Self { backend, queue }
    }

    pub(crate) fn another_queue(&self) -> B::Queue {
        self.backend
            .create_queue(QueueOrder::InOrder)
            .expect("every device has in-order queues")
    }

    /// Makes an out-of-order queue, or checks for the error of a device without such queues.
    pub(crate) fn out_of_order_queue(&self) -> Option<B::Queue> {
        let queue = self.backend.create_queue(QueueOrder::OutOfOrder);
        if self.backend.limits().out_of_order_queues {
            return Some(queue.expect("the limits promise out-of-order queues"));
        }
        assert!(
            matches!(queue, Err(Error::Unsupported { .. })),
            "a device without out-of-order queues must say `Unsupported`, not {queue:?}"
        );
        None
    }

    /// A queue of each order that the device has.
    pub(crate) fn queues_of_both_orders(&self) -> impl Iterator<Item = B::Queue> {
        let queues = [Some(self.another_queue()), self.out_of_order_queue()];
        queues.into_iter().flatten()
    }

    pub(crate) fn buffer(&self, bytes: usize) -> B::Memory {
        self.backend
            .create_buffer(bytes, MemoryFlags::empty())
            .expect("a small buffer")
    }

    /// A buffer full of `byte`.
    pub(crate) fn filled(&self, bytes: usize, byte: u8) -> B::Memory {
        let memory = self.buffer(bytes);
        self.write(&memory, &vec![byte; bytes]);
        memory
    }

    pub(crate) fn write(&self, memory: &B::Memory, data: &[u8]) {
        self.backend
            .write(&self.queue, memory, 0, data)
            .expect("a write within bounds");
    }

    /// Reads all bytes of `memory`, once everything that was enqueued on the bench's queue has ended.
    pub(crate) fn read(&self, memory: &B::Memory) -> Vec<u8> {
        let mut data = vec![0_u8; memory.bytes()];
        self.backend
            .read(&self.queue, memory, 0, &mut data)
            .expect("a read within bounds");
        data
    }

    /// Enqueues a fill of all of `memory`.
    pub(crate) fn fill(
        &self,
        queue: &B::Queue,
        memory: &B::Memory,
        byte: u8,
        wait_for: &[B::Event],
    ) -> B::Event {
        let all = Region::first(memory.bytes());
        self.backend
            .enqueue_fill(queue.after(wait_for), memory, all, &[byte])
            .expect("a fill within bounds")
    }

    /// Enqueues a fill of all of `memory` that waits for a gate, and returns the gate and the fill's event.
    pub(crate) fn gated_fill(
        &self,
        queue: &B::Queue,
        memory: &B::Memory,
        byte: u8,
    ) -> (B::Event, B::Event) {
        let gate = self.gate();
        let filled = self.fill(queue, memory, byte, from_ref(&gate));
        (gate, filled)
    }

    /// Enqueues a copy of all of `from` to this offset of `to`.
    pub(crate) fn copy(
        &self,
        queue: &B::Queue,
        from: &B::Memory,
        (to, offset): (&B::Memory, usize),
        wait_for: &[B::Event],
    ) -> B::Event {
        let on = queue.after(wait_for);
        let copied = self.backend.enqueue_copy(on, from, .., to, offset);
        copied.expect("a copy within bounds")
    }

    /// Enqueues a read of all of `memory`.
    pub(crate) fn read_later(
        &self,
        queue: &B::Queue,
        memory: &B::Memory,
        wait_for: &[B::Event],
    ) -> PendingRead<B::Event> {
        let read = self.backend.enqueue_read(queue.after(wait_for), memory, ..);
        read.expect("a read within bounds")
    }

    pub(crate) fn marker(&self) -> B::Event {
        self.marker_on(&self.queue, &[])
    }

    pub(crate) fn marker_on(&self, queue: &B::Queue, wait_for: &[B::Event]) -> B::Event {
        let marker = self.backend.enqueue_marker(queue.after(wait_for));
        marker.expect("a marker")
    }

    pub(crate) fn barrier_on(&self, queue: &B::Queue, wait_for: &[B::Event]) -> B::Event {
        let barrier = self.backend.enqueue_barrier(queue.after(wait_for));
        barrier.expect("a barrier")
    }

    /// Makes a user event, if the backend has user events.
    pub(crate) fn gate_if_any(&self) -> Option<B::Event> {
        match self.backend.create_user_event() {
            Err(Error::Unsupported { .. }) => None,
            event => Some(event.expect("a user event")),
        }
    }

    /// Makes a user event: commands that wait for it run when the check opens it.
    pub(crate) fn gate(&self) -> B::Event {
        self.backend.create_user_event().expect("a user event")
    }

    pub(crate) fn open(&self, gate: &B::Event) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .expect("a gate opens once");
    }

    /// Checks that a command has not ended, and that it completes once `gate` is open.
    #[track_caller]
    pub(crate) fn completes_once_open(&self, gate: &B::Event, event: &B::Event) {
        assert_stays_pending(event);
        self.open(gate);
        event.wait().unwrap();
    }

    /// Makes everything that waits for `gate` fail.
    pub(crate) fn fail(&self, gate: &B::Event) {
        self.backend
            .resolve_user_event(gate, Outcome::Failed)
            .expect("a gate fails once");
    }

    /// A view of a region of `parent`.
    pub(crate) fn region(&self, parent: &B::Memory, region: Region) -> B::Memory {
        self.backend
            .create_sub_region(parent, region)
            .expect("an aligned region within bounds")
    }
}

/// Checks that a command has not ended, however often its status is read: on some backends, reading it makes progress.
pub(crate) fn assert_stays_pending<E: Event>(event: &E) {
    for _ in 0..64 {
        assert_eq!(event.status().unwrap(), EventStatus::Pending, "{event:?}");
    }
}

/// Returns whether `attempt` succeeds in the end. It may be called many times, since a backend may do its part some time
/// after a command has ended.
pub(crate) fn eventually(mut attempt: impl FnMut() -> bool) -> bool {
    (0..200_000).any(|_| {
        let succeeded = attempt();
        if !succeeded {
            std::thread::yield_now();
        }
        succeeded
    })
}

/// `count` bytes whose values tell their offsets apart.
pub(crate) fn numbered(count: usize) -> Vec<u8> {
    (0..=250).cycle().take(count).collect()
}

/// Checks that the call failed with out-of-memory.
#[track_caller]
pub(crate) fn out_of_memory<T: std::fmt::Debug>(result: &Result<T, Error>) {
    assert!(
        matches!(result, Err(Error::OutOfMemory(_))),
        "expected out-of-memory, got {result:?}"
    );
}

/// Returns the `InvalidRequest` of the call that gave `result`.
#[track_caller]
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(request)) => request,
        other => panic!("expected an invalid request, got {other:?}"),
    }
}

/// Checks that every transfer of `region` of `memory` is refused, for the reason for which `is_expected` returns true. Copies go
/// from and to the start of `other`.
#[track_caller]
pub(crate) fn transfers_refused<'q, B: Backend>(
    backend: &B,
    on: impl Into<On<'q, B::Queue, B::Event>>,
    (memory, region): (&dyn AsMemory<B>, Region),
    other: &dyn AsMemory<B>,
    is_expected: impl Fn(&InvalidRequest) -> bool,
) {
    let (on, Region { offset, bytes }) = (on.into(), region);
    let mut data = vec![9_u8; bytes];
    let written = backend.write(on, memory, offset, &data);
    let read = backend.read(on, memory, offset, &mut data);
    let write = backend.enqueue_write(on, memory, offset, data.into());
    let fill = backend.enqueue_fill(on, memory, region, &[9_u8]);
    let from_it = backend.enqueue_copy(on, memory, region, other, 0);
    let to_it = backend.enqueue_copy(on, other, Region::first(bytes), memory, offset);
    let results = [
        ("write", written),
        ("read", read),
        ("enqueue_write", write.map(drop)),
        (
            "enqueue_read",
            backend.enqueue_read(on, memory, region).map(drop),
        ),
        ("enqueue_fill", fill.map(drop)),
        ("enqueue_copy from it", from_it.map(drop)),
        ("enqueue_copy to it", to_it.map(drop)),
    ];
    for (call, result) in results {
        match result {
            Err(Error::InvalidRequest(refusal)) if is_expected(&refusal) => {}
            other => panic!("{call} was not refused as expected: {other:?}"),
        }
    }
}

/// Checks that the call was refused because an object of this kind belongs to another backend.
#[track_caller]
pub(crate) fn refused_as_foreign<T: std::fmt::Debug>(kind: ObjectKind, result: Result<T, Error>) {
    assert_eq!(refusal(result), InvalidRequest::ForeignObject { kind });
}

/// Checks that the call was refused because a region leaves its block.
#[track_caller]
pub(crate) fn refused_as_out_of_bounds<T: std::fmt::Debug>(result: Result<T, Error>) {
    let refusal = refusal(result);
    assert!(
        is_out_of_bounds(&refusal),
        "expected `OutOfBounds`, got {refusal:?}"
    );
}

/// Whether the reason is that an object of this kind belongs to another backend.
pub(crate) fn is_foreign(kind: ObjectKind) -> impl Fn(&InvalidRequest) -> bool {
    move |refusal| *refusal == InvalidRequest::ForeignObject { kind }
}

/// Whether the reason is that a region leaves its block.
pub(crate) const fn is_out_of_bounds(refusal: &InvalidRequest) -> bool {
    matches!(refusal, InvalidRequest::OutOfBounds { .. })
}
