//! Buffers that start with bytes of the host, or lie over them.

use std::{ffi::c_void, ptr, sync::Arc};

use cl3::memory::{CL_MAP_READ, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR};
use parking_lot::{Condvar, Mutex};

use super::{
    ContextHandle, MemHandle, QueueHandle, destructor::when_destroyed, enqueue::own_event,
    event::wait_until_ended,
};
use crate::cl_error::{ClError, ClResult};

const CALL: &str = "clCreateBuffer";

/// A buffer with a copy of `data`.
pub(crate) fn create_copying(
    context: &ContextHandle,
    flags: u64,
    data: &[u8],
) -> ClResult<MemHandle> {
    let start = data.as_ptr().cast_mut().cast::<c_void>();
    // SAFETY: (1) `context` lives; (2) the runtime reads `data`, which is readable for its length, and only before
    // it returns.
    let raw = unsafe {
        cl3::memory::create_buffer(
            context.raw(),
            flags | CL_MEM_COPY_HOST_PTR,
            data.len(),
            start,
        )
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A buffer over the `bytes` bytes at `start`.
///
/// # Safety
///
/// They are readable and writable, and nobody else touches them, until the runtime has destroyed the buffer.
unsafe fn create_over(
    context: &ContextHandle,
    flags: u64,
    start: *mut u8,
    bytes: usize,
) -> ClResult<MemHandle> {
    // SAFETY: (1) `context` lives; (2) the bytes are the runtime's until the end, as the caller promises.
    let raw = unsafe {
        cl3::memory::create_buffer(
            context.raw(),
            flags | CL_MEM_USE_HOST_PTR,
            bytes,
            start.cast::<c_void>(),
        )
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { MemHandle::own(raw, CALL) }
}

/// Whether the runtime has destroyed a buffer.
#[derive(Debug, Default)]
struct Gone {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Gone {
    fn tell(&self) {
        *self.gone.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut gone = self.gone.lock();
        while !*gone {
            self.changed.wait(&mut gone);
        }
    }
}

/// Elements that are a buffer's until the runtime has destroyed it. Dropping this leaves them to the buffer.
#[derive(Debug)]
pub(crate) struct LentElements<T> {
    elements: Arc<Elements<T>>,
    gone: Arc<Gone>,
}

/// Elements that nobody touches but commands.
#[derive(Debug)]
struct Elements<T>(Vec<T>);

// SAFETY: The vector is only dropped or taken out, by whoever has it last. Both are as good on any thread as for a value
// of `T` that is sent there.
unsafe impl<T: Send> Sync for Elements<T> {}

/// A buffer over `elements`, which it keeps until the runtime has destroyed it.
///
/// # Errors
///
/// A failure of the runtime, and the elements.
pub(crate) fn create_over_own<T: bytemuck::Pod + Send>(
    context: &ContextHandle,
    flags: u64,
    mut elements: Vec<T>,
) -> Result<(MemHandle, LentElements<T>), (ClError, Vec<T>)> {
    let bytes = size_of_val(elements.as_slice());
    let start = elements.as_mut_ptr().cast::<u8>();
    let lent = LentElements {
        elements: Arc::new(Elements(elements)),
        gone: Arc::default(),
    };
    // SAFETY: (1) these are the vector's bytes, any values of which are elements; (2) nobody touches them, and moving the
    // vector does not move them; (3) the callback below keeps them until the buffer is destroyed, and no command can
    // have used the buffer where there is none.
    let created = unsafe { create_over(context, flags, start, bytes) };
    let watched = created.and_then(|buffer| {
        let (elements, gone) = (Arc::clone(&lent.elements), Arc::clone(&lent.gone));
        when_destroyed(&buffer, move || {
            drop(elements);
            gone.tell();
        })?;
        Ok(buffer)
    });
    match watched {
        Ok(buffer) => Ok((buffer, lent)),
        Err(error) => Err((error, lent.taken())),
    }
}

impl<T> LentElements<T> {
    /// Waits until the runtime has destroyed the buffer, and takes the elements back.
    pub(crate) fn wait(self) -> Vec<T> {
        self.gone.wait();
        self.taken()
    }

    /// The elements, which nobody else has any more.
    fn taken(self) -> Vec<T> {
        Arc::into_inner(self.elements)
            .map(|elements| elements.0)
            .unwrap_or_default()
    }
}

/// Makes a buffer over `bytes` and passes it to `run`. Returns, also by a panic, when the runtime has destroyed the
/// buffer, however long somebody keeps it.
///
/// # Errors
///
/// A failure of the runtime: `run` was not called.
pub(crate) fn with_buffer_over<R>(
    context: &ContextHandle,
    flags: u64,
    bytes: &mut [u8],
    run: impl FnOnce(MemHandle) -> R,
) -> ClResult<R> {
    struct Wait<'a>(&'a Gone);
    impl Drop for Wait<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }

    let gone = Arc::<Gone>::default();
    // SAFETY: `bytes` is borrowed exclusively until this returns, which is after the buffer was destroyed (`Wait`), or
    // where no command can have used it.
    let buffer = unsafe { create_over(context, flags, bytes.as_mut_ptr(), bytes.len()) }?;
    let tell = Arc::clone(&gone);
    when_destroyed(&buffer, move || tell.tell())?;
    let _wait = Wait(&gone);
    Ok(run(buffer))
}

/// Brings what the device has written to a buffer over memory of the host into that memory, by way of a map (OpenCL 3.0,
/// section 5.2.1). No command uses the buffer, and `queue` has no other commands.
pub(crate) fn bring_back(queue: &QueueHandle, buffer: &MemHandle, bytes: usize) -> ClResult<()> {
    let mut mapped = ptr::null_mut();
    // SAFETY: (1) queue and buffer are live references; (2) the wait list is empty, as is said.
    let event = unsafe {
        cl3::command_queue::enqueue_map_buffer(
            queue.raw(),
            buffer.raw(),
            cl3::types::CL_TRUE,
            CL_MAP_READ,
            0,
            bytes,
            &mut mapped,
            0,
            ptr::null(),
        )
    };
    // SAFETY: This is that call's event.
    drop(unsafe { own_event("clEnqueueMapBuffer", event) }?);
    // SAFETY: (1) as above; (2) the pointer is that of the map just made, and is not used again.
    let event = unsafe {
        cl3::command_queue::enqueue_unmap_mem_object(
            queue.raw(),
            buffer.raw(),
            mapped,
            0,
            ptr::null(),
        )
    };
    // SAFETY: This is that call's event.
    let unmapped = unsafe { own_event("clEnqueueUnmapMemObject", event) }?;
    wait_until_ended(&unmapped)
}
