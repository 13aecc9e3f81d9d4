//! A thread that sweeps a pool.

use std::{io, sync::Arc, time::Duration};

use binpool_allocators::Allocator;

use crate::{
    shared::Shared,
    sync::{Builder, JoinHandle, Sender, channel, is_open_after},
};

/// A thread that [sweeps](crate::MemoryPool::sweep) a pool every so often. It ends when this is dropped, which waits for
/// it, and when the pool has gone.
///
/// ```
/// use std::time::Duration;
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
///
/// // What nobody has asked for in 10 to 20 seconds goes back, also while the program does nothing.
/// let sweeper = pool.sweep_in_background(Duration::from_secs(10))?;
/// // ...
/// drop(sweeper);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the thread ends when this is dropped"]
pub struct Sweeper {
    /// Closed to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    pub(crate) fn start<A: Allocator + 'static>(
        shared: &Arc<Shared<A>>,
        every: Duration,
    ) -> io::Result<Self> {
        let shared = Arc::downgrade(shared);
        let (stop, stopped) = channel();
        let thread = Builder::new()
            .name("binpool-sweeper".into())
            .spawn(move || {
                while is_open_after(&stopped, every)
                    && let Some(shared) = shared.upgrade()
                {
                    shared.sweep();
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that swept a pool has panicked");
        }
    }
}
