//! Blocks of shared virtual memory, and what has to end before they are freed.

use std::{mem, sync::Arc};

use binpool_allocators::{Backend, Error, Region, Result, SvmGrain, runtime::Access};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    after_use::{PendingUses, drop_after_use},
    backend::OpenClBackend,
    event::ClEvent,
    order::{access_log::AccessLog, memory_use::MemoryUse},
    queue::ClQueue,
    sys::{ClResult, EventHandle, QueueHandle, SvmAllocation, SvmRange},
};

/// A block of shared virtual memory.
///
/// The runtime frees such memory at once, even while commands use it. So this crate frees it only after the end of
///
/// * every command in the log of the block, and of those that a command which failed early was to come after;
/// * the events that it was released with;
/// * everything that was enqueued on the queue that it is bound to.
///
/// If none of these is pending, the block is freed at once, otherwise by a thread that waits.
#[derive(Debug)]
pub(crate) struct SvmBlock {
    /// Shared with what waits to free it.
    allocation: Arc<SvmAllocation>,
    /// Set once its release is enqueued.
    is_freed: bool,
    grain: SvmGrain,
    /// An in-order queue that the free comes after.
    bound: Mutex<Option<ClQueue>>,
    /// The events that it was released with.
    released_after: Mutex<SmallVec<[ReleasedAfter; 2]>>,
    log: AccessLog,
}

impl SvmBlock {
    pub(crate) fn new(allocation: SvmAllocation, grain: SvmGrain, bound: Option<&ClQueue>) -> Self {
        Self {
            allocation: Arc::new(allocation),
            is_freed: false,
            grain,
            bound: Mutex::new(bound.cloned()),
            released_after: Mutex::default(),
            log: AccessLog::default(),
        }
    }

    pub(crate) const fn log(&self) -> &AccessLog {
        &self.log
    }

    /// Describes a use of `region`, which lies in the block.
    pub(crate) const fn used(&self, region: Region, access: Access) -> MemoryUse<'_> {
        MemoryUse {
            log: &self.log,
            region,
            access,
            is_svm: true,
        }
    }

    /// The block as the runtime allocated it.
    pub(crate) fn allocation(&self) -> &SvmAllocation {
        &self.allocation
    }

    pub(crate) const fn grain(&self) -> SvmGrain {
        self.grain
    }

    pub(crate) fn bound(&self) -> Option<ClQueue> {
        self.bound.lock().clone()
    }

    pub(crate) fn bind(&self, queue: Option<&ClQueue>) {
        // Dropped after the lock, since the old queue may be dropped with it.
        let _old = mem::replace(&mut *self.bound.lock(), queue.cloned());
    }

    /// Returns the bytes of `region`, which lies in the block.
    pub(crate) fn range(&self, region: Region) -> SvmRange<'_> {
        self.allocation.range(region)
    }

    /// The address of its first byte.
    pub(crate) fn address(&self) -> usize {
        self.range(Region::first(0)).start().addr().get()
    }

    /// Has the free come after this event.
    pub(crate) fn free_after(&self, event: &ClEvent) -> Result<()> {
        let after = released_after(event)?;
        self.released_after.lock().push(after);
        Ok(())
    }

    /// Waits, on the host, until nothing is pending that the free has to come after. It does not matter whether it
    /// succeeded.
    pub(crate) fn wait_until_unused(&self) -> Result<()> {
        self.log.wait_until_unused()?;
        self.uses().map(PendingUses::wait)
    }

    /// Frees the block after everything that uses it. Does not wait.
    pub(crate) fn free(mut self) -> Result<()> {
        self.free_after_uses()
    }

    fn free_after_uses(&mut self) -> Result<()> {
        if mem::replace(&mut self.is_freed, true) {
            return Ok(());
        }
        let allocation = Arc::clone(&self.allocation);
        match self.uses() {
            Ok(uses) => {
                drop_after_use(allocation, uses);
                Ok(())
            }
            Err(error) => {
                // A leak is better than freeing memory that a command uses.
                mem::forget(allocation);
                Err(error)
            }
        }
    }

    /// Returns what has to end before the block may be freed.
    fn uses(&self) -> Result<PendingUses> {
        let all = Region::first(usize::MAX);
        let mut uses = PendingUses::of(&self.log, all)?;
        if let Some(queue) = self.bound() {
            let backend = OpenClBackend::of_context(queue.context());
            match backend.enqueue_marker(&queue) {
                Ok(marker) => uses.after(released_after(&marker)?),
                // The order of the queue is lost, or it takes no marker: the whole queue is waited for.
                Err(Error::Unsupported { .. }) => {
                    uses.after_queue(queue.handle().another()?);
                }
                Err(error) => return Err(error),
            }
        }
        // Last: a failure above leaves them for the next call.
        for after in mem::take(&mut *self.released_after.lock()) {
            uses.after(after);
        }
        Ok(uses)
    }
}

/// The event, and its queue if it has one: after everything on that queue up to its command.
type ReleasedAfter = (EventHandle, Option<QueueHandle>);

fn released_after(event: &ClEvent) -> ClResult<ReleasedAfter> {
    event.flush_producer()?;
    let queue = event.queue().map(|queue| queue.handle().another());
    Ok((event.handle().another()?, queue.transpose()?))
}

impl Drop for SvmBlock {
    fn drop(&mut self) {
        if let Err(error) = self.free_after_uses() {
            tracing::error!(%error, "a block of shared virtual memory was leaked: could not wait for its commands");
        }
    }
}
