//! Buffers over memory of the host that is lent to them for the duration of a call.
//!
//! A guard with a lifetime would not be sound: a program may forget it, and have its memory back while the device still
//! writes there. So the buffer lives inside a call, which returns when the buffer is gone.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use binpool_allocators::{MemoryFlags, Result};
use bytemuck::Pod;

use crate::{
    backend::OpenClBackend,
    memory::cl_memory::{ClMemory, MemoryBody},
    memory::flags::host_flags,
    memory::host_buffer::bring_back,
    memory::root::Root,
    sys::{self, Purpose},
};

/// Buffers over memory that is lent to them.
impl OpenClBackend {
    /// Calls `run` with a buffer over `elements`, waits until every command on it has ended, even if `run` panics, and
    /// destroys it. The elements then have the results of the commands.
    ///
    /// The elements may start at any address. Everything that would keep the buffer beyond the call is refused: views of
    /// it, images over it, maps, arguments of kernels, callbacks at its destruction.
    ///
    /// It returns the result of `run`. It waits for ever if a command waits for an event that is never resolved, or if the
    /// program has taken a reference to the `cl_mem` and does not release it. On Intel's runtime the event of a command
    /// that the program has enqueued by a call of its own is such a reference.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let mut elements = [1_u32; 100];
    /// backend.with_host_buffer(&mut elements, MemoryFlags::empty(), |buffer| {
    ///     backend.enqueue_fill(&queue, buffer, Region::first(8), &[0_u8])
    /// })??;
    /// assert_eq!(elements[..3], [0, 0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_host_buffer`](Self::create_host_buffer), and a failure of the runtime to bring back what was
    /// written: the contents of `elements` are unspecified then.
    pub fn with_host_buffer<T: Pod, R>(
        &self,
        elements: &mut [T],
        flags: MemoryFlags,
        run: impl FnOnce(&ClMemory) -> R,
    ) -> Result<R> {
        let lent = bytemuck::cast_slice_mut::<T, u8>(elements);
        let bytes = lent.len();
        self.check_host_buffer(bytes, flags)?;
        let context = self.context();
        sys::buffer::with_buffer_over(&context.handle, host_flags(flags), lent, |handle| {
            let root = Arc::new(Root::over_lent_memory(handle));
            let body = MemoryBody::Buffer(Arc::clone(&root));
            let memory = ClMemory::new(context, bytes, flags, body);
            let result = catch_unwind(AssertUnwindSafe(|| run(&memory)));
            let brought = bring_back(context, &root, bytes);
            match result {
                Ok(result) => brought.map(|()| result),
                Err(panic) => resume_unwind(panic),
            }
        })
        .map_err(|error| error.into_error(Purpose::Memory(bytes)))?
    }
}
