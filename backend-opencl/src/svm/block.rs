//! Blocks of shared virtual memory, and the commands that still use them.

use std::sync::Arc;

use binpool_allocators::{Queue, QueueOrder, Region, Result, SvmGrain};
use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    cl_error::{ClError, ClResult, Purpose},
    context::Context,
    event::ClEvent,
    order::access::{Access, Use},
    order::access_log::AccessLog,
    queue::ClQueue,
    sys::{self, SvmAllocation, SvmRange, Threads, Uses, WaitList},
};

/// A block of shared virtual memory.
///
/// The runtime frees such memory while commands still run. A block therefore remembers the events of the
/// commands that were enqueued with it, and is freed after them:
///
/// ```text
/// nothing pending, no bound queue      -> freed at once
/// everything on one in-order queue     -> freed on that queue
/// several queues                       -> freed on a queue of its own, so that none of them stalls
/// ```
///
/// Where the runtime cannot free blocks by itself safely ([`Threads::One`]), and where the memory is the host's own, a
/// thread does what the queues would.
#[derive(Debug)]
pub(crate) struct SvmBlock {
    /// `Some` until the block is freed.
    allocation: Option<SvmAllocation>,
    grain: SvmGrain,
    context: Arc<Context>,
    /// An in-order queue; the free comes after everything that was enqueued there.
    bound: Mutex<Option<ClQueue>>,
    /// Commands that may still use the block: of an in-order queue the last one, of an out-of-order queue all
    /// that were pending when it was last looked.
    uses: Mutex<Recorded>,
    log: AccessLog,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The last command of each in-order queue.
    last: SmallVec<[ClEvent; 2]>,
    /// Everything else that may still be pending.
    others: SmallVec<[ClEvent; 2]>,
    /// How long `others` may get before the commands in it that have ended are looked for.
    limit: usize,
}

const FIRST_LIMIT: usize = 16;

impl SvmBlock {
    pub(crate) fn new(
        allocation: SvmAllocation,
        grain: SvmGrain,
        context: &Arc<Context>,
        bound: Option<&ClQueue>,
    ) -> Self {
        Self {
            allocation: Some(allocation),
            grain,
            context: Arc::clone(context),
            bound: Mutex::new(bound.cloned()),
            uses: Mutex::default(),
            log: AccessLog::default(),
        }
    }

    pub(crate) const fn log(&self) -> &AccessLog {
        &self.log
    }

    /// A use of `region`, which lies in the block.
    pub(crate) const fn used(&self, region: Region, access: Access) -> Use<'_> {
        Use {
            log: &self.log,
            region,
            access,
            block: Some(self),
        }
    }

    /// The block as the runtime allocated it; `None` once it is freed.
    pub(crate) const fn allocation(&self) -> Option<&SvmAllocation> {
        self.allocation.as_ref()
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.allocation.as_ref().map_or(0, SvmAllocation::bytes)
    }

    /// Calls `call` once, when the block has been freed.
    pub(crate) fn when_freed(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(allocation) = &self.allocation {
            allocation.when_freed(call);
        }
    }

    pub(crate) const fn grain(&self) -> SvmGrain {
        self.grain
    }

    pub(crate) fn bound(&self) -> Option<ClQueue> {
        self.bound.lock().clone()
    }

    pub(crate) fn bind(&self, queue: Option<&ClQueue>) {
        // Dropped after the lock: the old queue may go with it.
        let _old = std::mem::replace(&mut *self.bound.lock(), queue.cloned());
    }

    pub(crate) fn range(&self, region: Region) -> Option<SvmRange<'_>> {
        self.allocation
            .as_ref()
            .map(|allocation| allocation.range(region))
    }

    /// Remembers a command that uses the block, and that was enqueued and numbered under
    /// [`ClQueue::numbering`].
    pub(crate) fn record_command(&self, event: &ClEvent) {
        self.uses.lock().add_command(event);
    }

    /// Remembers another event that the block must not be freed before.
    pub(crate) fn record_other(&self, event: &ClEvent) {
        self.uses.lock().add_other(event);
    }

    /// Waits, on the host, until nothing uses the block any more that anybody has told of. How it ended does not matter.
    pub(crate) fn wait_until_unused(&self) -> Result<()> {
        let control = |error: ClError| error.into_error(Purpose::Control);
        self.log.wait_until_unused().map_err(control)?;
        let events: Vec<ClEvent> = {
            let recorded = self.uses.lock();
            recorded
                .last
                .iter()
                .chain(&recorded.others)
                .cloned()
                .collect()
        };
        for event in events {
            event.flush_producer().map_err(control)?;
            if let Err(error) = sys::wait_until_ended(event.handle()) {
                tracing::debug!(%error, "a command that failed holds nothing back");
            }
        }
        match self.bound() {
            Some(queue) => queue.finish(),
            None => Ok(()),
        }
    }

    /// Frees the block after the commands that are remembered. Does not wait.
    pub(crate) fn free(mut self) -> Result<()> {
        self.free_after_uses()
            .map_err(|error| error.into_error(Purpose::Control))
    }

    fn free_after_uses(&mut self) -> ClResult<()> {
        let Some(allocation) = self.allocation.take() else {
            return Ok(());
        };
        let recorded = std::mem::take(self.uses.get_mut());
        let mut events = recorded.last;
        events.extend(recorded.others);
        let hidden = if events.iter().any(ClEvent::has_failed) {
            self.log.pending()
        } else {
            Ok(SmallVec::new())
        };
        let hidden = match hidden {
            Ok(hidden) => hidden,
            Err(error) => {
                // Memory that is lost is better than memory that is freed under a command.
                allocation.forget();
                return Err(error);
            }
        };
        events.retain(|event| !event.has_ended());
        let bound = self.bound.get_mut().take();
        if events.is_empty() && hidden.is_empty() && bound.is_none() {
            drop(allocation);
            return Ok(());
        }
        let bound = bound.as_ref();
        let mut uses = match uses_of(&events, bound) {
            Ok(uses) => uses,
            Err(error) => {
                // Memory that is lost is better than memory that is freed under a command.
                allocation.forget();
                return Err(error);
            }
        };
        let by_the_host = allocation.is_of_the_host() || self.context.svm_threads == Threads::One;
        // A command that has failed may have done so before earlier ones of its queue had ended.
        let in_order = only_queue(&events, bound).filter(|_| hidden.is_empty());
        uses.events.extend(hidden);
        let queue = match in_order {
            Some(queue) if !by_the_host => Ok(Some(queue.handle())),
            _ => self.gather(&events, bound, &mut uses, by_the_host),
        };
        match queue {
            Ok(Some(queue)) => {
                let enqueued = sys::free_after(queue, allocation, uses);
                let enqueued = enqueued.map(|event| self.context.failures.keep(&event));
                handled(enqueued).and(sys::flush(queue))
            }
            Ok(None) => {
                sys::free_on_the_host(allocation, uses);
                Ok(())
            }
            Err(error) => {
                sys::free_on_the_host(allocation, uses);
                Err(error)
            }
        }
    }

    /// Sees to it that the events of `uses` cover everything and come to an end by themselves. Returns the queue
    /// that nothing but frees goes through, unless the host is to free the block.
    fn gather(
        &self,
        events: &[ClEvent],
        bound: Option<&ClQueue>,
        uses: &mut Uses,
        by_the_host: bool,
    ) -> ClResult<Option<&sys::QueueHandle>> {
        for event in events {
            event.flush_producer()?;
        }
        if let Some(bound) = bound {
            let everything = sys::enqueue_marker(bound.handle(), &WaitList::none())?;
            uses.events.push(everything);
            uses.queue = None;
            sys::flush(bound.handle())?;
        }
        if by_the_host {
            return Ok(None);
        }
        self.context.free_queue().map(Some)
    }
}

fn uses_of(events: &[ClEvent], bound: Option<&ClQueue>) -> ClResult<Uses> {
    Ok(Uses {
        events: events
            .iter()
            .map(|event| event.handle().another())
            .collect::<ClResult<_>>()?,
        queue: bound.map(|queue| queue.handle().another()).transpose()?,
    })
}

/// The in-order queue whose own order puts the free after everything, if there is one.
fn only_queue<'a>(events: &'a [ClEvent], bound: Option<&'a ClQueue>) -> Option<&'a ClQueue> {
    let queue = match bound {
        Some(bound) => bound,
        None => events.first()?.queue()?,
    };
    let only = events.iter().all(|event| event.queue() == Some(queue));
    (only && queue.order() == QueueOrder::InOrder).then_some(queue)
}

/// A free that was refused because a command before it failed is made up for, and no error.
fn handled(result: ClResult<()>) -> ClResult<()> {
    match result {
        Err(error) if error.code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Ok(()),
        result => result,
    }
}

impl Drop for SvmBlock {
    fn drop(&mut self) {
        if let Err(error) = self.free_after_uses() {
            tracing::error!(%error, "a block of shared virtual memory was not freed in order");
        }
    }
}

impl Recorded {
    fn add_command(&mut self, event: &ClEvent) {
        let in_order = event
            .queue()
            .filter(|queue| queue.order() == QueueOrder::InOrder);
        let Some(queue) = in_order else {
            return self.add_other(event);
        };
        match self
            .last
            .iter_mut()
            .find(|last| last.queue() == Some(queue))
        {
            // Two threads may come here in another order than their commands were enqueued in.
            Some(last) if last.number() > event.number() => {}
            Some(last) => *last = event.clone(),
            None => self.last.push(event.clone()),
        }
    }

    fn add_other(&mut self, event: &ClEvent) {
        if self.others.len() >= self.limit.max(FIRST_LIMIT) {
            self.others.retain(|event| !event.has_ended());
            self.limit = self.others.len().saturating_mul(2);
        }
        self.others.push(event.clone());
    }
}
