//! A thread that sweeps a pool.

use std::{io, process, sync::Arc, time::Duration};

use binpool_allocators::{Backend, contained::contained};

use crate::shared::Shared;
use binpool_lock::sync::{Builder, JoinHandle, Sender, channel, is_open_after, join};

/// A thread that [sweeps](crate::MemoryPool::sweep) a pool at regular intervals. It ends when the pool is gone or when
/// this is dropped. The drop waits for a running sweep, unless it happens on that thread, for example in a
/// callback of the backend: then the thread ends after its sweep.
///
/// ```
/// use std::time::Duration;
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
///
/// // Memory that was not used for 10 to 20 seconds is released, also while the program is idle.
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
    /// With the number of its process.
    thread: Option<(JoinHandle<()>, u32)>,
}

impl Sweeper {
    pub(crate) fn start<B: Backend + 'static>(
        shared: &Arc<Shared<B>>,
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
                    contained("a sweep", move || {
                        shared.return_unviewed();
                        shared.sweep();
                    });
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some((thread, process::id())),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Panics of the thread are contained.
        let thread = self.thread.take();
        let _ended = thread.and_then(|(thread, process)| join(thread, process));
    }
}
