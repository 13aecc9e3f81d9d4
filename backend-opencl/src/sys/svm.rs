//! Shared virtual memory: allocation and commands.

use std::{
    ffi::c_void,
    fmt,
    ptr::{self, NonNull},
};

use binpool_allocators::{Align, Region};
use parking_lot::Mutex;

use super::{
    ClError, ClResult, ContextHandle, EventHandle, MemHandle, QueueHandle, WaitList, buffer,
    destructor::contained, enqueue::enqueue, host::Loan,
};

/// A block of shared virtual memory. Dropping it frees it at once, so commands must no longer use it (rule 1 of `sys`).
#[derive(Debug)]
pub(crate) struct SvmAllocation {
    context: ContextHandle,
    base: NonNull<u8>,
    /// The start of the block: `bytes` bytes from here on lie in the allocation at `base`.
    start: NonNull<u8>,
    bytes: usize,
    /// The alignment of `start` that was asked for.
    alignment: Align,
    lock: SvmLock,
    /// The host's memory that this is; none if it is the runtime's, which frees it.
    loan: Option<Loan>,
    /// The last field: it is dropped, and so calls, after the block was freed.
    freed: CallWhenFreed,
}

/// The closures that are called when a block has been freed, the last one first. Dropping this value calls them.
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

/// What a thread locks while it allocates or frees SVM: nothing where threads do so at once, as the specification demands. NVIDIA's
/// driver answers with null, or crashes, where one thread allocates while another frees a block.
pub(crate) type SvmLock = Option<&'static Mutex<()>>;

/// The lock where only one thread at a time may allocate and free SVM.
pub(crate) static ONE_SVM_THREAD: Mutex<()> = Mutex::new(());

// SAFETY: The pointers are only passed to the runtime, whose calls are thread safe; nothing here dereferences them.
unsafe impl Send for SvmAllocation {}
// SAFETY: As for `Send`.
unsafe impl Sync for SvmAllocation {}

impl SvmAllocation {
    /// Allocates `bytes` bytes on a multiple of `alignment`; `None` if the runtime has no memory.
    ///
    /// The runtime is asked for `native` alignment, the most that it takes. Where `alignment` is more, and the
    /// address that it gives is not on a multiple of it, the block is made larger and its start moved.
    ///
    /// If the runtime has no memory, `free_ended` is called to free blocks whose commands have ended. If it freed any, the
    /// runtime is asked again.
    pub(crate) fn new(
        context: &ContextHandle,
        flags: u64,
        bytes: usize,
        alignment: Align,
        native: Align,
        lock: SvmLock,
        free_ended: impl Fn() -> bool,
    ) -> ClResult<Option<Self>> {
        let allocate = |bytes| match Self::raw(context, flags, bytes, native, lock) {
            // Memory whose commands have ended may only not have been freed yet.
            Ok(None) if free_ended() => Self::raw(context, flags, bytes, native, lock),
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
        // SAFETY: The allocation has `alignment` bytes more than `bytes`, and `shift` is less than `alignment`, so this
        // stays inside it.
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
        lock: SvmLock,
    ) -> ClResult<Option<Self>> {
        let native = u32::try_from(alignment.bytes()).unwrap_or(0);
        let guard = lock.map(Mutex::lock);
        // SAFETY: The context is kept alive by its handle.
        let base = unsafe { cl3::memory::svm_alloc(context.raw(), flags, bytes, native) };
        drop(guard);
        let base = match base {
            Ok(base) => base,
            // `cl3` returns this code where the runtime returns null.
            Err(cl3::error_codes::CL_INVALID_VALUE) => return Ok(None),
            Err(code) => return Err(ClError::new("clSVMAlloc", code)),
        };
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Ok(None);
        };
        let context = match context.another() {
            Ok(context) => context,
            Err(error) => {
                free_now(context.raw(), base, lock);
                return Err(error);
            }
        };
        Ok(Some(Self {
            context,
            base,
            start: base,
            bytes,
            alignment,
            lock,
            loan: None,
            freed: CallWhenFreed::default(),
        }))
    }

    /// Returns lent memory of the host as a block, for devices that share all of the host's memory.
    pub(crate) fn of_host(context: &ContextHandle, loan: Loan, alignment: Align) -> ClResult<Self> {
        Ok(Self {
            context: context.another()?,
            base: loan.start(),
            start: loan.start(),
            bytes: loan.bytes(),
            alignment,
            lock: None,
            loan: Some(loan),
            freed: CallWhenFreed::default(),
        })
    }

    /// Returns whether it is memory of the host's own, which the runtime neither frees nor moves.
    pub(crate) const fn is_of_the_host(&self) -> bool {
        self.loan.is_some()
    }

    /// Returns whether it is lent for the duration of a call.
    pub(crate) fn is_lent(&self) -> bool {
        self.loan.as_ref().is_some_and(Loan::is_of_a_call)
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

impl Drop for SvmAllocation {
    fn drop(&mut self) {
        if !self.is_of_the_host() {
            free_now(self.context.raw(), self.base, self.lock);
        }
    }
}

fn free_now(context: *mut c_void, base: NonNull<u8>, lock: SvmLock) {
    let _guard = lock.map(Mutex::lock);
    // SAFETY: (1) `base` came from `clSVMAlloc` with this context, and only `drop` or the failed constructor frees it,
    // once; (2) commands no longer use it (rule 1 of `sys`).
    if let Err(code) = unsafe { cl3::memory::svm_free(context, base.as_ptr().cast()) } {
        let error = ClError::new("clSVMFree", code);
        tracing::error!(%error, "shared virtual memory was leaked");
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
        // SAFETY: The offset lies in the block (I1), which is one allocation.
        unsafe { self.allocation.start.add(self.offset) }
    }

    pub(super) const fn bytes(self) -> usize {
        self.bytes
    }

    pub(crate) const fn is_of_the_host(self) -> bool {
        self.allocation.is_of_the_host()
    }

    /// Returns a buffer over the block, and the offset of these bytes in it. A command on the buffer uses the block.
    pub(crate) fn as_buffer(self) -> ClResult<(MemHandle, usize)> {
        let Self {
            allocation, offset, ..
        } = self;
        let shift = allocation.shift();
        let buffer = allocation.buffer(0, shift + allocation.bytes)?;
        Ok((buffer, shift + offset))
    }

    /// Returns a buffer from the block's first byte to the last of these; `None` if the runtime's allocation starts before
    /// the block. The caller keeps the block as long as the buffer.
    pub(crate) fn as_retained_buffer(self, flags: u64) -> ClResult<Option<MemHandle>> {
        let Self {
            allocation,
            offset,
            bytes,
        } = self;
        if allocation.shift() > 0 {
            return Ok(None);
        }
        // By I1 at most the size of the block.
        allocation.buffer(flags, offset + bytes).map(Some)
    }
}

impl SvmAllocation {
    /// Returns the offset of the block in the runtime's allocation.
    fn shift(&self) -> usize {
        self.start.addr().get() - self.base.addr().get()
    }

    /// Returns a buffer over `bytes` bytes from `base` on, which lie in the allocation.
    fn buffer(&self, flags: u64, bytes: usize) -> ClResult<MemHandle> {
        let flags = flags | cl3::memory::CL_MEM_USE_HOST_PTR;
        // SAFETY: The allocation at `base`, of `clSVMAlloc` or of the host, has at least `bytes` bytes, and is not freed
        // while a command uses it (rule 1 of `sys`).
        unsafe { buffer::create(&self.context, flags, bytes, self.base.as_ptr()) }
    }
}

/// Enqueues a migration of whole blocks of shared virtual memory.
pub(crate) fn enqueue_svm_migrate(
    queue: &QueueHandle,
    blocks: &[SvmRange<'_>],
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let pointers: Vec<*const c_void> = blocks
        .iter()
        .map(|block| block.start().as_ptr().cast::<c_void>().cast_const())
        .collect();
    // SAFETY: (1) queue and events are kept alive by their handles; (2) the count that is passed is that of the list; (3)
    // each pointer lies in its block, which is not freed while a command uses it (rule 1 of `sys`); (4) a null list of
    // sizes means whole blocks.
    enqueue!(wait; "clEnqueueSVMMigrateMem", unsafe enqueue_svm_migrate_mem(
        queue.raw(), u32::try_from(pointers.len()).unwrap_or(0), pointers.as_ptr(), ptr::null(),
        flags
    ))
}
