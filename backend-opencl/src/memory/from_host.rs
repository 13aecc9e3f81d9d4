//! Buffers that start with bytes of the host.

use std::sync::Arc;

use binpool_allocators::{Backend, MemoryFlags, Result};
use bytemuck::NoUninit;

use crate::{
    backend::OpenClBackend,
    kept_memory,
    memory::cl_memory::{ClMemory, MemoryBody},
    memory::flags,
    memory::root::Root,
    sys::{self, Purpose},
};

impl OpenClBackend {
    /// Makes a buffer with a copy of `data`, which is copied before this returns.
    ///
    /// It is as large as `data`. The flags hold from then on: a buffer that the host must not touch still gets the
    /// contents. With [`HOST_RESIDENT`](MemoryFlags::HOST_RESIDENT) the copy lies in host memory that the device reaches.
    /// `PyOpenCL` calls it `Buffer(context, COPY_HOST_PTR, hostbuf=data)` (OpenCL 3.0, section 5.2.1).
    ///
    /// ```
    /// # use binpool_allocators::{Memory, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let table = backend.create_buffer_from(&[1.0_f32, 2.0, 4.0], MemoryFlags::READ_ONLY)?;
    /// assert_eq!(table.bytes(), 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_buffer`](Backend::create_buffer).
    pub fn create_buffer_from<T: NoUninit>(
        &self,
        data: &[T],
        flags: MemoryFlags,
    ) -> Result<ClMemory> {
        let data = bytemuck::cast_slice::<T, u8>(data);
        let bytes = data.len();
        self.limits().check_block(bytes)?;
        flags.check()?;
        let context = self.context();
        let cl_flags = flags::to_cl(flags);
        let handle =
            kept_memory::allocate(|| sys::buffer::create_copying(&context.handle, cl_flags, data))
                .map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
        let body = MemoryBody::Buffer(Arc::new(Root::new(handle)));
        Ok(ClMemory::new(context, bytes, flags, body))
    }
}
