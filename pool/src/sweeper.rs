//! A thread that sweeps a pool.

use std::{io, sync::Arc, time::Duration};

use binpool_allocators::Allocator;

use crate::{
    shared::Shared,
    sync::{Builder, JoinHandle, Sender, channel, is_open_after},
};

/// A thread that [sweeps](crate::MemoryPool::sweep) a pool every so often. It ends when this is dropped, which waits for
/// it, and when the pool has gone.
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
