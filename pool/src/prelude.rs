//! The traits whose methods a program calls every day.
//!
//! ```
//! use binpool::prelude::*;
//! use binpool::{ImmediateAllocator, MemoryPool, QueueOrder};
//! use binpool_mock::MockDevice;
//!
//! let backend = MockDevice::new().backend();
//! let queue = backend.create_queue(QueueOrder::InOrder)?; // `Backend`
//! let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
//! let block = pool.allocate(4096)?;
//! let clear = block.enqueue_fill(&queue, .., &[0_u8])?;
//! let other = backend.create_queue(QueueOrder::InOrder)?;
//! let set = block.enqueue_fill(other.after(&[clear]), ..64, &[1.5_f32])?; // `Queue`
//! set.wait()?; // `Event`
//! # Ok::<(), binpool::Error>(())
//! ```

pub use binpool_allocators::{AsMemory, Backend, Event, Queue, SvmBackend};
