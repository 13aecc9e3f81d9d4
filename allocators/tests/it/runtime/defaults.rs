//! What a runtime need not say.

use std::sync::Arc;

use binpool_allocators::{
    Align, Backend, DeviceLimits, Error, Event, EventStatus, InvalidRequest, Memory as _,
    MemoryFlags, Outcome, Queue, QueueOrder, Result, Work,
    runtime::{self, Core, Objects, Part},
};

use super::refusal;

/// A runtime of the fewest calls, whose commands have ended before `submit` returns.
#[derive(Clone, Debug)]
struct Least(Arc<Core<Self>>);

impl Objects for Least {
    type Block = Arc<()>;
    type Stream = ();
    type Mark = EventStatus;

    fn status(mark: &EventStatus) -> Result<EventStatus> {
        Ok(*mark)
    }

    fn wait(mark: &EventStatus) -> Result<()> {
        match mark {
            EventStatus::Complete => Ok(()),
            _ => Err(Error::unsupported("a command that fails")),
        }
    }
}

impl runtime::Runtime for Least {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.0
    }

    fn allocate(&self, _bytes: usize, _flags: MemoryFlags) -> Result<Arc<()>> {
        Ok(Arc::default())
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<()> {
        Ok(())
    }

    unsafe fn submit(
        &self,
        (): &(),
        _after: &[EventStatus],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<EventStatus> {
        match work {
            Work::Copy(..) => Err(Error::unsupported("copies")),
            Work::Barrier => Ok(EventStatus::Failed),
            Work::Read(..) => Ok(EventStatus::Pending),
            _ => Ok(EventStatus::Complete),
        }
    }
}

#[test]
fn a_runtime_of_the_fewest_calls_is_a_backend() {
    let limits = DeviceLimits::new("least", 1 << 20, 1 << 20, Align::ONE);
    let backend = Least(Arc::new(Core::new(limits)));
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    queue.flush().unwrap();
    queue.finish().unwrap();
    backend.commit(&queue, &memory).unwrap();
    assert_eq!(Backend::free_bytes(&backend), None);
    assert!(matches!(
        memory.device_address(),
        Err(Error::Unsupported { .. })
    ));
    let gate = backend.create_user_event();
    assert!(matches!(gate, Err(Error::Unsupported { .. })));
    // It transfers nothing without a copy.
    backend.write(&queue, &memory, 0, &[1_u8]).unwrap();
    backend.read(&queue, &memory, 0, &mut [0_u8]).unwrap_err();
    let filled = backend.enqueue_fill(&queue, &memory, .., &[1_u8]).unwrap();
    assert_eq!(filled.status().unwrap(), EventStatus::Complete);
    // A failed call has enqueued nothing.
    backend
        .enqueue_copy(&queue, &memory, 0..8, &memory, 8)
        .unwrap_err();
    // SAFETY: no mark is that of a user event, which the default says.
    let resolved = unsafe { Least::resolve(filled.mark(), Outcome::Complete) };
    assert_eq!(refusal(resolved), InvalidRequest::NotAUserEvent);
}

#[test]
fn a_command_counts_as_a_use_and_no_block_is_freed_before_it() {
    let limits = DeviceLimits::new("least", 1 << 20, 1 << 20, Align::ONE);
    let backend = Least(Arc::new(Core::new(limits)));
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = [(); 2].map(|()| backend.create_buffer(64, MemoryFlags::empty()).unwrap());
    let blocks = memory
        .each_ref()
        .map(|memory| Arc::clone(memory.block().unwrap()));
    backend
        .enqueue_fill(&queue, &memory[0], .., &[1_u8])
        .unwrap();
    drop(backend.enqueue_read(&queue, &memory[1], ..).unwrap());
    drop(memory);
    assert_eq!(blocks.each_ref().map(Arc::strong_count), [1, 2]);
}

#[test]
fn a_wait_as_the_backend_ends_succeeds_if_the_command_has_ended_however() {
    assert!(Least::wait_at_end(&EventStatus::Complete));
    assert!(Least::wait_at_end(&EventStatus::Failed));
    assert!(!Least::wait_at_end(&EventStatus::Pending));
    assert!(!Least::has_ended(&EventStatus::Pending));
}
