//! A context of the program as a device runtime: what a pool calls.

use std::{
    collections::HashSet,
    ptr,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool::{Error, EventStatus, MemoryFlags, PoolError, QueueOrder, Result};
use binpool_allocators::{
    Align, DeviceLimits, OutOfMemory, Scope, Work,
    runtime::{Core, Objects, Part, Runtime},
};
use opencl_sys::{
    CL_EVENT_COMMAND_EXECUTION_STATUS, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY,
    CL_OUT_OF_RESOURCES, CL_SUCCESS, cl_context, cl_event, cl_int, cl_mem, cl_mem_flags,
    cl_svm_mem_flags, cl_uint,
};
use parking_lot::Mutex;

use super::limit;
use crate::{
    opencl::{driver::call, objects::Handle},
    pool_figures::Counted,
    recording::{Lock, hold_over_fork, lock},
};

/// The kind of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Buffer {
        flags: cl_mem_flags,
    },
    Svm {
        flags: cl_svm_mem_flags,
        alignment: cl_uint,
    },
}

/// Memory of one kind in one context of the program. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct ContextRuntime(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    core: Arc<Core<ContextRuntime>>,
    context: Handle,
    kind: Kind,
    /// Set when the driver was asked for memory.
    has_grown: AtomicBool,
}

/// Memory that the driver made.
#[derive(Debug)]
pub(super) struct DriverBlock {
    context: Handle,
    kind: Kind,
    /// A buffer, or an address.
    handle: Handle,
    bytes: usize,
    /// Set once it is the program's alone.
    is_given_away: AtomicBool,
    _reserved: Counted,
}

/// The memory that pools have of drivers.
static BLOCKS: LazyLock<std::sync::Mutex<HashSet<Handle>>> = LazyLock::new(Default::default);

/// Lets the child of a fork know that it has no pools.
pub(crate) fn forget_blocks_in_children() {
    hold_over_fork(Lock::PooledMemory, &BLOCKS, HashSet::clear);
}

/// Returns whether a pool has this memory, which the program may have, too.
pub(crate) fn is_pools(handle: Handle) -> bool {
    lock(&BLOCKS).contains(&handle)
}

/// A queue of the program, or none. Work without a queue is in order only once it has ended.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `None` for no queue.
    queue: Option<Handle>,
    /// For a queue that the program has released: a marker after everything on it.
    last: Mutex<Option<Mark>>,
    /// The period of the blocks that are allocated for the queue now.
    period: Mutex<Arc<Period>>,
}

/// A time in which blocks were allocated for a queue whose earlier commands may still use them.
#[derive(Debug, Default)]
pub(super) struct Period {
    /// A marker after all these commands, once the period has ended.
    end: OnceLock<Mark>,
}

/// A command's event; `None` for one that has ended.
type Mark = Option<Arc<Event>>;

/// An event of the driver, which it releases when dropped.
#[derive(Debug)]
pub(super) struct Event(Handle);

impl Drop for Event {
    fn drop(&mut self) {
        call!(clReleaseEvent(self.0 as cl_event));
    }
}

impl Stream {
    /// The stream of a queue, or of none.
    pub(crate) fn of(queue: Option<Handle>) -> Arc<Self> {
        Arc::new(Self {
            queue,
            last: Mutex::new(None),
            period: Mutex::default(),
        })
    }

    pub(super) fn period(&self) -> Arc<Period> {
        Arc::clone(&self.period.lock())
    }

    /// Ends the period. Blocks of it that are used on another queue come after what is on this one by now, and not after commands that the program
    /// enqueues later: those may wait for the other queue.
    pub(crate) fn end_period(&self) {
        let mut period = self.period.lock();
        let has_blocks = Arc::strong_count(&period) > 1;
        let ended = has_blocks.then(|| std::mem::take(&mut *period));
        drop(period);
        if let Some(ended) = ended {
            self.end_of(&ended);
        }
    }

    /// A marker at the end of a period of this queue.
    fn end_of<'a>(&self, period: &'a Period) -> &'a Mark {
        period.end.get_or_init(|| {
            // Held until the marker is there: afterwards the queue may end.
            let last = self.last.lock();
            let (None, Some(queue)) = (&*last, self.queue) else {
                return last.clone().flatten();
            };
            end_marker(queue)
        })
    }

    /// Puts what is enqueued on this queue from now on after the end of a period of `other`.
    pub(super) fn follow(&self, other: &Self, period: &Period) -> Result<()> {
        if period.end.get().is_none() {
            other.end_period();
        }
        let end = other.end_of(period);
        match self.queue {
            Some(queue) if ContextRuntime::status(end)? == EventStatus::Pending => {
                let waits: Vec<cl_event> = end.iter().map(|end| end.0 as cl_event).collect();
                barrier(queue, &waits)
            }
            _ => Ok(()),
        }
    }

    /// Notes what is still running there, before the program's last reference to the queue ends.
    pub(crate) fn close(&self) {
        let mut last = self.last.lock();
        if let (None, Some(queue)) = (&*last, self.queue) {
            *last = Some(end_marker(queue));
        }
    }
}

/// Enqueues a marker after `waits`, or after everything on the queue where these are none.
fn marker(queue: Handle, waits: &[cl_event]) -> Result<Mark> {
    let mut event = ptr::null_mut();
    let count = cl_uint::try_from(waits.len()).unwrap_or(cl_uint::MAX);
    let list = if waits.is_empty() {
        ptr::null()
    } else {
        waits.as_ptr()
    };
    check(
        "clEnqueueMarkerWithWaitList",
        call!(clEnqueueMarkerWithWaitList(
            queue as _,
            count,
            list,
            &raw mut event
        )),
    )?;
    // What waits for it on another queue may wait forever for what was not sent to the device.
    call!(clFlush(queue as _));
    Ok(Some(Arc::new(Event(event as Handle))))
}

/// Returns a marker after everything on the queue. Where the driver refuses one, it waits for the queue instead.
fn end_marker(queue: Handle) -> Mark {
    marker(queue, &[]).unwrap_or_else(|_| {
        call!(clFinish(queue as _));
        None
    })
}

/// Puts what is enqueued on the queue from now on after these events.
fn barrier(queue: Handle, waits: &[cl_event]) -> Result<()> {
    let count = cl_uint::try_from(waits.len()).unwrap_or(cl_uint::MAX);
    check(
        "clEnqueueBarrierWithWaitList",
        call!(clEnqueueBarrierWithWaitList(
            queue as _,
            count,
            waits.as_ptr(),
            ptr::null_mut()
        )),
    )
}

fn check(operation: &'static str, status: cl_int) -> Result<()> {
    if status == CL_SUCCESS {
        return Ok(());
    }
    Err(Error::backend(
        operation,
        Some(status),
        "a call of the driver failed",
    ))
}

/// Returns whether a driver means by this that memory has run out.
pub(crate) fn is_out_of_memory(status: cl_int) -> bool {
    [
        CL_MEM_OBJECT_ALLOCATION_FAILURE,
        CL_OUT_OF_RESOURCES,
        CL_OUT_OF_HOST_MEMORY,
    ]
    .contains(&status)
}

impl ContextRuntime {
    pub(super) fn new(context: Handle, kind: Kind) -> Self {
        // The driver checks sizes.
        let mut limits =
            DeviceLimits::new("a context of the program", u64::MAX, usize::MAX, Align::ONE);
        limits.out_of_order_queues = true;
        Self(Arc::new(Shared {
            core: Arc::new(Core::new(limits)),
            context,
            kind,
            has_grown: AtomicBool::new(false),
        }))
    }

    pub(super) fn is_svm(&self) -> bool {
        matches!(self.0.kind, Kind::Svm { .. })
    }

    /// Returns whether the driver was asked for memory since the last call.
    pub(super) fn has_grown(&self) -> bool {
        self.0.has_grown.load(Ordering::Relaxed) && self.0.has_grown.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_of(&self, context: Handle) -> bool {
        self.0.context == context
    }

    /// Asks the driver for memory. The error is its status.
    fn create(&self, bytes: usize) -> std::result::Result<Handle, cl_int> {
        let context = self.0.context as cl_context;
        let mut status = CL_SUCCESS;
        let handle = match self.0.kind {
            Kind::Buffer { flags } => {
                call!(clCreateBuffer(context, flags, bytes, ptr::null_mut(), &raw mut status) or ptr::null_mut())
                    as Handle
            }
            Kind::Svm { flags, alignment } => {
                call!(clSVMAlloc(context, flags, bytes, alignment) or ptr::null_mut()) as Handle
            }
        };
        match (handle, status) {
            // The driver gives no reason.
            (0, CL_SUCCESS) => Err(CL_OUT_OF_HOST_MEMORY),
            (_, CL_SUCCESS) => Ok(handle),
            _ => Err(status),
        }
    }
}

/// The status of the driver's call that failed for another reason than lack of memory.
pub(crate) fn status_of(error: &PoolError) -> Option<cl_int> {
    match error {
        PoolError::Allocator(Error::Backend(failure)) => failure.code,
        _ => None,
    }
}

impl DriverBlock {
    /// The buffer, or the address.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves the driver's object to the program, which has a reference to it.
    pub(super) fn give_away(&self) {
        lock(&BLOCKS).remove(&self.handle);
        self.is_given_away.store(true, Ordering::Relaxed);
    }
}

impl Drop for DriverBlock {
    fn drop(&mut self) {
        if self.is_given_away.load(Ordering::Relaxed) {
            return;
        }
        lock(&BLOCKS).remove(&self.handle);
        match self.kind {
            Kind::Buffer { .. } => {
                call!(clReleaseMemObject(self.handle as cl_mem));
            }
            Kind::Svm { .. } => {
                call!(clSVMFree(self.context as cl_context, self.handle as _) or ());
            }
        }
        limit::release(self.bytes);
    }
}

impl Objects for ContextRuntime {
    type Block = DriverBlock;
    type Stream = Arc<Stream>;
    type Mark = Mark;

    fn status(mark: &Mark) -> Result<EventStatus> {
        let Some(event) = mark else {
            return Ok(EventStatus::Complete);
        };
        let mut status: cl_int = 0;
        check(
            "clGetEventInfo",
            call!(clGetEventInfo(
                event.0 as cl_event,
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<cl_int>(),
                (&raw mut status).cast(),
                ptr::null_mut(),
            )),
        )?;
        Ok(match status {
            0 => EventStatus::Complete,
            1.. => EventStatus::Pending,
            _ => EventStatus::Failed,
        })
    }

    fn wait(mark: &Mark) -> Result<()> {
        let Some(event) = mark else {
            return Ok(());
        };
        let event = event.0 as cl_event;
        check(
            "clWaitForEvents",
            call!(clWaitForEvents(1, &raw const event)),
        )
    }
}

impl Runtime for ContextRuntime {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.0.core
    }

    fn allocate(&self, bytes: usize, _flags: MemoryFlags) -> Result<DriverBlock> {
        self.0.has_grown.store(true, Ordering::Relaxed);
        if !limit::take(bytes) {
            let refusal = OutOfMemory::new(bytes, Scope::Limit);
            return Err(refusal.with_available(limit::left()).into());
        }
        let handle = self.create(bytes).map_err(|status| {
            limit::release(bytes);
            if is_out_of_memory(status) {
                return Error::device_out_of_memory(bytes, "the driver is out of memory");
            }
            Error::backend("clCreateBuffer", Some(status), "the driver refuses it")
        })?;
        lock(&BLOCKS).insert(handle);
        Ok(DriverBlock {
            context: self.0.context,
            kind: self.0.kind,
            handle,
            bytes,
            is_given_away: AtomicBool::new(false),
            _reserved: Counted::reserved(bytes),
        })
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<Arc<Stream>> {
        Ok(Stream::of(None))
    }

    // SAFETY: a contract of the trait. Markers and barriers use no memory.
    unsafe fn submit(
        &self,
        stream: &Arc<Stream>,
        after: &[Mark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<Mark> {
        let is_marker = match work {
            Work::Marker => true,
            Work::Barrier => false,
            _ => {
                return Err(Error::unsupported(
                    "commands of its own in a pool under a program",
                ));
            }
        };
        let mut pending = Vec::new();
        for event in after.iter().flatten() {
            if Self::status(&Some(Arc::clone(event)))? == EventStatus::Pending {
                pending.push(event.0 as cl_event);
            }
        }
        let last = stream.last.lock();
        let Some(queue) = stream.queue else {
            for event in after {
                Self::wait(event)?;
            }
            return Ok(None);
        };
        if let Some(last) = &*last {
            return Ok(last.clone());
        }
        if is_marker {
            return marker(queue, &pending);
        }
        // With nothing to wait for, no barrier is needed: no caller looks at its event.
        if !pending.is_empty() {
            barrier(queue, &pending)?;
        }
        Ok(None)
    }
}
