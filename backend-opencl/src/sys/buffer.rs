//! Buffers that start with bytes of the host, or lie over them.

use std::{ffi::c_void, ptr, sync::Arc};

use cl3::memory::{CL_MAP_READ, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR};
use parking_lot::{Condvar, Mutex};

use super::{
    ClError, ClResult, ContextHandle, MemHandle, QueueHandle, destructor::when_destroyed,
    enqueue::own_event, event::wait_until_ended,
};

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
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(raw, CALL) }
}

/// A buffer over the `bytes` bytes at `start`.
///
/// # Safety
///
/// The bytes are readable and writable, and nothing else touches them, until the runtime has destroyed the buffer.
unsafe fn create_over(
    context: &ContextHandle,
    flags: u64,
    start: *mut u8,
    bytes: usize,
) -> ClResult<MemHandle> {
    // SAFETY: (1) `context` lives; (2) nothing else touches the bytes until the runtime has destroyed the buffer, as the
    // caller promises.
    let raw = unsafe {
        cl3::memory::create_buffer(
            context.raw(),
            flags | CL_MEM_USE_HOST_PTR,
            bytes,
            start.cast::<c_void>(),
        )
    }
    .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { MemHandle::own(raw, CALL) }
}

/// Tells a thread that waits when a memory object is gone and its memory is the host's again.
#[derive(Debug, Default)]
pub(super) struct Gone {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Gone {
    pub(super) fn tell(&self) {
        *self.gone.lock() = true;
        self.changed.notify_all();
    }

    pub(super) fn wait(&self) {
        let mut gone = self.gone.lock();
        while !*gone {
            self.changed.wait(&mut gone);
        }
    }
}

/// Elements that belong to a memory object until the runtime has destroyed it. Dropping this value leaves them to the
/// object.
#[derive(Debug)]
pub(crate) struct LentElements<T> {
    elements: Arc<OwnElements<T>>,
    gone: Arc<Gone>,
}

/// Elements that only commands touch.
#[derive(Debug)]
struct OwnElements<T>(Vec<T>);

// SAFETY: A shared reference gives no access to the vector. The last owner drops it or takes it out, which is the same as
// if the vector had been sent to that owner's thread; `T: Send` allows that.
unsafe impl<T: Send> Sync for OwnElements<T> {}

/// A buffer over `elements`, which it keeps until the runtime has destroyed it.
///
/// # Errors
///
/// A failure of the runtime, and the elements.
pub(crate) fn create_over_own<T: bytemuck::Pod + Send>(
    context: &ContextHandle,
    flags: u64,
    elements: Vec<T>,
) -> Result<(MemHandle, LentElements<T>), (ClError, Vec<T>)> {
    lend(elements, |start, bytes| {
        // SAFETY: `lend` keeps the bytes readable, writable and untouched until the runtime has destroyed the buffer.
        unsafe { create_over(context, flags, start, bytes) }
    })
}

/// Lends the bytes of `elements` to the memory object that `create` makes over them. They are readable and writable, and
/// nothing else touches them, until the runtime has destroyed that object.
///
/// # Errors
///
/// The failure of `create` or of the runtime, and the elements.
pub(super) fn lend<T: bytemuck::Pod + Send>(
    mut elements: Vec<T>,
    create: impl FnOnce(*mut u8, usize) -> ClResult<MemHandle>,
) -> Result<(MemHandle, LentElements<T>), (ClError, Vec<T>)> {
    let bytes = size_of_val(elements.as_slice());
    // Moving the vector does not move its elements, and any bytes are valid elements.
    let start = elements.as_mut_ptr().cast::<u8>();
    let lent = LentElements {
        elements: Arc::new(OwnElements(elements)),
        gone: Arc::default(),
    };
    let watched = create(start, bytes).and_then(|object| {
        let (elements, gone) = (Arc::clone(&lent.elements), Arc::clone(&lent.gone));
        // If this fails, no command has used the object, which is released here.
        when_destroyed(&object, move || {
            drop(elements);
            gone.tell();
        })?;
        Ok(object)
    });
    match watched {
        Ok(object) => Ok((object, lent)),
        Err(error) => Err((error, lent.taken())),
    }
}

impl<T> LentElements<T> {
    /// Waits until the runtime has destroyed the object, and takes the elements back.
    pub(crate) fn wait(self) -> Vec<T> {
        self.gone.wait();
        self.taken()
    }

    /// Takes the elements; the object, the only other owner, is gone.
    fn taken(self) -> Vec<T> {
        Arc::into_inner(self.elements)
            .map(|elements| elements.0)
            .unwrap_or_default()
    }
}

/// Makes a buffer over `bytes` and passes it to `run`. Returns, even by a panic, only when the runtime has destroyed the
/// buffer, however long anything keeps a reference to it.
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
    // SAFETY: `bytes` is borrowed exclusively until this function returns. It returns after the buffer was destroyed
    // (`Wait`), or by the `?` below, before any command can have used the buffer.
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
    // SAFETY: (1) queue and buffer are kept alive by their handles; (2) the wait list is empty, as its count of 0 says.
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
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
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
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    let unmapped = unsafe { own_event("clEnqueueUnmapMemObject", event) }?;
    wait_until_ended(&unmapped)
}
