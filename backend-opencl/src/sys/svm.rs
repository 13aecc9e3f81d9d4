//! Shared virtual memory: allocation, commands, and frees that come after commands.

use std::{
    ffi::c_void,
    fmt,
    mem::{self, ManuallyDrop},
    ptr::{self, NonNull},
    sync::Arc,
    thread,
};

use binpool_allocators::{Align, Region};
use parking_lot::{Mutex, MutexGuard};

use super::{
    ContextHandle, EventHandle, MemHandle, QueueHandle, WaitList,
    callback::{Ended, when_ended},
    destructor::contained,
    enqueue::{finish, own_event},
    event::{execution_status, wait_until_ended},
    host_vec::HostVec,
    svm_reaper,
};
use crate::cl_error::{ClError, ClResult};

/// A block of shared virtual memory. Dropping it frees it at once: no command may use it any more.
#[derive(Debug)]
pub(crate) struct SvmAllocation {
    context: ContextHandle,
    base: NonNull<u8>,
    /// Where the block starts, between `base` and what was allocated in all less `bytes`.
    start: NonNull<u8>,
    bytes: usize,
    /// What `start` is a multiple of by request.
    alignment: Align,
    threads: Threads,
    owner: Owner,
    /// Dropped, and so called, after the block was freed.
    freed: CallWhenFreed,
}

/// Whose memory a block is.
enum Owner {
    /// The runtime's, which frees it.
    Runtime,
    /// The host's: it is freed with this value.
    Host(#[expect(dead_code, reason = "kept until it is dropped")] Box<dyn Send + Sync>),
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runtime => "Runtime",
            Self::Host(_) => "Host",
        })
    }
}

/// What is called when a block has been freed, the last one first. Dropping it calls.
#[derive(Default)]
struct CallWhenFreed {
    calls: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Drop for CallWhenFreed {
    fn drop(&mut self) {
        for call in self.calls.get_mut().drain(..).rev() {
            contained(call);
        }
    }
}

impl fmt::Debug for CallWhenFreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallWhenFreed({})", self.calls.lock().len())
    }
}

/// Whether the runtime can allocate and free SVM on several threads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// As the specification says.
    Many,
    /// One at a time, the runtime's own threads included, so that blocks are freed by the host only. NVIDIA's
    /// driver answers with null, or crashes, where one thread allocates while its own frees a block.
    One,
}

impl Threads {
    fn guard(self) -> Option<MutexGuard<'static, ()>> {
        static ONE: Mutex<()> = Mutex::new(());
        (self == Self::One).then(|| ONE.lock())
    }
}

// SAFETY: The pointers are addresses that only commands of the runtime dereference.
unsafe impl Send for SvmAllocation {}
// SAFETY: As above.
unsafe impl Sync for SvmAllocation {}

impl SvmAllocation {
    /// Allocates `bytes` bytes, on a multiple of `alignment`, or `None` where the runtime answers with null.
    ///
    /// The runtime is asked for `native` alignment, the most that it takes. Where `alignment` is more, and the
    /// address that it gives is not on a multiple of it, the block is made larger and its start moved.
    pub(crate) fn new(
        context: &ContextHandle,
        flags: u64,
        bytes: usize,
        alignment: Align,
        native: Align,
        threads: Threads,
    ) -> ClResult<Option<Self>> {
        let allocate = |bytes| match Self::raw(context, flags, bytes, native, threads) {
            // Memory whose commands have ended may only not have been freed yet.
            Ok(None) if svm_reaper::free_what_has_ended() => {
                Self::raw(context, flags, bytes, native, threads)
            }
            result => result,
        };
        let Some(mut plain) = allocate(bytes)? else {
            return Ok(None);
        };
        if plain.start.addr().get() % alignment.bytes() == 0 {
            plain.alignment = alignment;
            return Ok(Some(plain));
        }
        drop(plain);
        let Some(total) = bytes.checked_add(alignment.bytes()) else {
            return Ok(None);
        };
        let Some(mut padded) = allocate(total)? else {
            return Ok(None);
        };
        let beyond = padded.base.addr().get() % alignment.bytes();
        let shift = (alignment.bytes() - beyond) % alignment.bytes();
        // SAFETY: `shift` is less than the alignment, by which the allocation is larger than `bytes`.
        padded.start = unsafe { padded.base.add(shift) };
        padded.bytes = bytes;
        padded.alignment = alignment;
        Ok(Some(padded))
    }

    fn raw(
        context: &ContextHandle,
        flags: u64,
        bytes: usize,
        alignment: Align,
        threads: Threads,
    ) -> ClResult<Option<Self>> {
        let native = u32::try_from(alignment.bytes()).unwrap_or(0);
        let guard = threads.guard();
        // SAFETY: `context` lives.
        let base = unsafe { cl3::memory::svm_alloc(context.raw(), flags, bytes, native) };
        drop(guard);
        let base = match base {
            Ok(base) => base,
            // `cl3` answers so for a null pointer, which is all that the runtime says.
            Err(cl3::error_codes::CL_INVALID_VALUE) => return Ok(None),
            Err(code) => return Err(ClError::new("clSVMAlloc", code)),
        };
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Ok(None);
        };
        let context = match context.another() {
            Ok(context) => context,
            Err(error) => {
                free_now(context.raw(), base, threads);
                return Err(error);
            }
        };
        Ok(Some(Self {
            context,
            base,
            start: base,
            bytes,
            alignment,
            threads,
            owner: Owner::Runtime,
            freed: CallWhenFreed::default(),
        }))
    }

    /// The vector of the host as a block, for devices that share all of the host's memory. Nobody gets at its elements
    /// until they are taken, and it is freed with the last of its owners.
    pub(crate) fn of_host<T: Send + 'static>(
        context: &ContextHandle,
        elements: &Arc<HostVec<T>>,
    ) -> ClResult<Self> {
        // A vector's pointer is never null.
        let start = NonNull::new(elements.start()).unwrap_or(NonNull::dangling());
        Ok(Self {
            context: context.another()?,
            base: start,
            start,
            bytes: elements.bytes(),
            alignment: Align::new(align_of::<T>()).unwrap_or(Align::ONE),
            threads: Threads::Many,
            owner: Owner::Host(Box::new(Arc::clone(elements))),
            freed: CallWhenFreed::default(),
        })
    }

    /// Whether it is memory of the host's own, which the runtime neither frees nor moves.
    pub(crate) const fn is_of_the_host(&self) -> bool {
        matches!(self.owner, Owner::Host(_))
    }

    pub(crate) const fn alignment(&self) -> Align {
        self.alignment
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `call` once, when the block has been freed. Of several, the last one set comes first.
    pub(crate) fn when_freed(&self, call: impl FnOnce() + Send + 'static) {
        self.freed.calls.lock().push(Box::new(call));
    }

    /// The bytes of `region`, which is cut off at the end of the block.
    pub(crate) fn range(&self, region: Region) -> SvmRange<'_> {
        let offset = region.offset.min(self.bytes);
        SvmRange {
            allocation: self,
            offset,
            bytes: region.bytes.min(self.bytes - offset),
        }
    }
}

impl SvmAllocation {
    #[cfg(test)]
    pub(super) fn base(&self) -> usize {
        self.base.addr().get()
    }

    /// Gives up the block without freeing it: the runtime will, or nobody may.
    pub(crate) fn forget(self) {
        mem::forget(self.give_up());
    }

    /// The runtime has freed the block.
    fn was_freed(self) {
        drop(self.give_up());
    }

    fn give_up(self) -> CallWhenFreed {
        let this = ManuallyDrop::new(self);
        // SAFETY: The reference is moved out of a value that is never dropped or used again.
        drop(unsafe { ptr::read(&raw const this.context) });
        // SAFETY: As above.
        unsafe { ptr::read(&raw const this.freed) }
    }
}

impl Drop for SvmAllocation {
    fn drop(&mut self) {
        if !self.is_of_the_host() {
            free_now(self.context.raw(), self.base, self.threads);
        }
    }
}

fn free_now(context: *mut c_void, base: NonNull<u8>, threads: Threads) {
    let _guard = threads.guard();
    // SAFETY: (1) `base` came from `clSVMAlloc` with this context and is freed once; (2) no command uses it
    // any more, as whoever drops an `SvmAllocation` sees to.
    if let Err(code) = unsafe { cl3::memory::svm_free(context, base.as_ptr().cast()) } {
        let error = ClError::new("clSVMFree", code);
        tracing::error!(%error, "shared virtual memory was lost");
    }
}

/// Bytes inside a block of shared virtual memory.
///
/// # Invariants
///
/// I1: `offset + bytes` is at most the size of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SvmRange<'a> {
    allocation: &'a SvmAllocation,
    offset: usize,
    bytes: usize,
}

impl SvmRange<'_> {
    pub(crate) fn start(self) -> NonNull<u8> {
        // SAFETY: The offset lies in the block (I1).
        unsafe { self.allocation.start.add(self.offset) }
    }

    pub(super) const fn bytes(self) -> usize {
        self.bytes
    }

    pub(crate) const fn is_of_the_host(self) -> bool {
        self.allocation.is_of_the_host()
    }

    /// A buffer over the block, and where in it these bytes start. It is memory of the block: whatever uses it
    /// uses the block.
    pub(crate) fn as_buffer(self) -> ClResult<(MemHandle, usize)> {
        let Self {
            allocation, offset, ..
        } = self;
        let shift = allocation.shift();
        let buffer = allocation.buffer(0, shift + allocation.bytes)?;
        Ok((buffer, shift + offset))
    }

    /// A buffer from the block's first byte to the last of these, or `None` where the runtime's memory does not begin with
    /// the block. Whoever keeps it keeps the block.
    pub(crate) fn as_kept_buffer(self, flags: u64) -> ClResult<Option<MemHandle>> {
        let Self {
            allocation,
            offset,
            bytes,
        } = self;
        if allocation.shift() > 0 {
            return Ok(None);
        }
        // I1: at most the size of the block.
        allocation.buffer(flags, offset + bytes).map(Some)
    }
}

impl SvmAllocation {
    /// How far in the runtime's memory the block starts.
    fn shift(&self) -> usize {
        self.start.addr().get() - self.base.addr().get()
    }

    /// A buffer over `bytes` bytes from `base` on, which are all there.
    fn buffer(&self, flags: u64, bytes: usize) -> ClResult<MemHandle> {
        const CALL: &str = "clCreateBuffer";
        // SAFETY: (1) the context lives; (2) the address came from `clSVMAlloc`, or is the host's own, with at least this
        // size; (3) it is not freed under a command (see `sys`).
        let raw = unsafe {
            cl3::memory::create_buffer(
                self.context.raw(),
                flags | cl3::memory::CL_MEM_USE_HOST_PTR,
                bytes,
                self.base.as_ptr().cast::<c_void>(),
            )
        }
        .map_err(|code| ClError::new(CALL, code))?;
        // SAFETY: The call has just returned this reference to us.
        unsafe { MemHandle::own(raw, CALL) }
    }
}

/// Enqueues a fill. The runtime copies `pattern` before it returns.
pub(crate) fn enqueue_svm_fill(
    queue: &QueueHandle,
    range: SvmRange<'_>,
    pattern: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue and events are live references; (2) the range lies in its block (I1), which is not
    // freed under a command (see `sys`); (3) `pattern` is readable for its length.
    let event = unsafe {
        cl3::command_queue::enqueue_svm_mem_fill(
            queue.raw(),
            range.start().as_ptr().cast::<c_void>(),
            pattern.as_ptr().cast::<c_void>(),
            pattern.len(),
            range.bytes,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueSVMMemFill", event) }
}

/// Enqueues a copy of `source` to as many bytes from the start of `destination`.
pub(crate) fn enqueue_svm_copy(
    queue: &QueueHandle,
    source: SvmRange<'_>,
    destination: SvmRange<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue and events are live references; (2) both ranges lie in their blocks (I1), which are
    // not freed under a command (see `sys`); (3) no more is copied than either has.
    let event = unsafe {
        cl3::command_queue::enqueue_svm_mem_cpy(
            queue.raw(),
            cl3::types::CL_FALSE,
            destination.start().as_ptr().cast::<c_void>(),
            source.start().as_ptr().cast::<c_void>(),
            source.bytes.min(destination.bytes),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    unsafe { own_event("clEnqueueSVMMemcpy", event) }
}

/// What has to end before a block may be freed.
#[derive(Debug)]
pub(crate) struct Uses {
    /// Commands that use the block, as far as they are known.
    pub(crate) events: Vec<EventHandle>,
    /// A queue whose every command so far may use the block.
    pub(crate) queue: Option<QueueHandle>,
}

impl Uses {
    /// Waits until all of it has ended. How it ended does not matter here.
    pub(super) fn wait(&self) {
        if let Some(queue) = &self.queue
            && let Err(error) = finish(queue)
        {
            tracing::debug!(%error, "a queue that failed holds no free back");
        }
        for event in &self.events {
            if let Err(error) = wait_until_ended(event) {
                tracing::debug!(%error, "a command that failed holds no free back");
            }
        }
    }
}

/// Frees `allocation` on `queue`, after `uses`. Does not wait.
///
/// The order of `queue` and the events of `uses` cover every command that uses the block. A free that itself
/// fails, because something that it waits for has, is made up for by a thread that waits for `uses` on the
/// host.
///
/// Returns the event of the free.
///
/// # Errors
///
/// Where the free cannot be enqueued. A thread frees the block all the same.
pub(crate) fn free_after(
    queue: &QueueHandle,
    allocation: SvmAllocation,
    uses: Uses,
) -> ClResult<EventHandle> {
    let free = PendingFree {
        allocation: ManuallyDrop::new(allocation),
        uses,
    };
    let wait: WaitList<'_> = free.uses.events.iter().collect();
    let pointers = [free.allocation.base.as_ptr().cast::<c_void>().cast_const()];
    // SAFETY: (1) queue and events are live references; (2) the list has one pointer, which came from
    // `clSVMAlloc`, and which `free` frees only where this command did not; (3) no command uses the block
    // after this one, as the caller promises.
    let event = unsafe {
        cl3::command_queue::enqueue_svm_free(
            queue.raw(),
            1,
            pointers.as_ptr(),
            None,
            ptr::null_mut(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: This is that call's event.
    match unsafe { own_event("clEnqueueSVMFree", event) } {
        Ok(event) => {
            if let Err((error, free)) = when_ended(&event, free) {
                tracing::warn!(%error, "a free of shared virtual memory cannot be watched");
                ManuallyDrop::into_inner(free.allocation).forget();
            }
            Ok(event)
        }
        Err(error) => {
            free.on_the_host();
            Err(error)
        }
    }
}

/// Frees `allocation` from a thread that waits for `uses` first. Does not wait.
pub(crate) fn free_on_the_host(allocation: SvmAllocation, uses: Uses) {
    PendingFree {
        allocation: ManuallyDrop::new(allocation),
        uses,
    }
    .on_the_host();
}

/// A block whose free is enqueued, and what the free waits for. Dropping it does not free the block.
#[derive(Debug)]
pub(super) struct PendingFree {
    allocation: ManuallyDrop<SvmAllocation>,
    uses: Uses,
}

impl PendingFree {
    fn was_freed_by_the_runtime(self) {
        ManuallyDrop::into_inner(self.allocation).was_freed();
    }

    /// Frees the block from a thread that waits for its uses first.
    fn on_the_host(self) {
        if self.uses.queue.is_none() {
            svm_reaper::free_later(self);
            return;
        }
        // Only a wait for the whole queue tells, which is not to hold up other frees.
        let bytes = self.allocation.bytes;
        let started = thread::Builder::new()
            .name("binpool-svm-free".into())
            .spawn(move || {
                self.uses.wait();
                self.free_now();
            });
        if let Err(error) = started {
            tracing::error!(%error, bytes, "shared virtual memory was lost");
        }
    }

    /// Whether no command uses the block any more, as far as events tell.
    pub(super) fn has_ended(&self) -> bool {
        let is_pending = |event| matches!(execution_status(event), Ok(1..));
        self.uses.queue.is_none() && !self.uses.events.iter().any(is_pending)
    }

    /// What has to end first, to be waited for by somebody who does not hold this.
    pub(super) fn uses_again(&self) -> ClResult<Uses> {
        let events = self.uses.events.iter().map(EventHandle::another);
        Ok(Uses {
            events: events.collect::<ClResult<_>>()?,
            queue: None,
        })
    }

    #[cfg(test)]
    pub(super) fn base(&self) -> usize {
        self.allocation.base()
    }

    /// Frees the block. Its commands have ended.
    pub(super) fn free_now(self) {
        drop(ManuallyDrop::into_inner(self.allocation));
    }
}

impl Ended for PendingFree {
    fn ended(self, event: *mut c_void, status: i32) {
        // Some runtimes pass on the status that was registered for, not the one that was reached.
        let failed = status < 0 || {
            // SAFETY: The event is live while its callback runs.
            match unsafe { EventHandle::retain(event) } {
                Ok(event) => matches!(execution_status(&event), Ok(status) if status < 0),
                Err(_) => false,
            }
        };
        if failed {
            self.on_the_host();
        } else {
            self.was_freed_by_the_runtime();
        }
    }
}
