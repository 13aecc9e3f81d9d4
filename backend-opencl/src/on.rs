//! The queue that a command runs on.

use binpool_allocators::On;

use crate::{event::ClEvent, queue::ClQueue};

/// The queue that an OpenCL command runs on, and the events that it waits for: made of a reference to a queue, or by
/// [`queue.after(&events)`](binpool_allocators::Queue::after).
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, Queue, QueueOrder, Result};
/// use binpool_opencl::{ClEvent, ClMemory, ClOn, OpenClBackend};
///
/// /// A command of the program's own, which is enqueued as those of this crate are.
/// fn clear<'a>(backend: &OpenClBackend, on: impl Into<ClOn<'a>>, memory: &ClMemory) -> Result<ClEvent> {
///     backend.enqueue_fill(on, memory, .., &[0_u8])
/// }
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let [one, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let cleared = clear(&backend, &one, &memory)?;
/// clear(&backend, other.after(&[cleared]), &memory)?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ClOn<'a> = On<'a, ClQueue, ClEvent>;
