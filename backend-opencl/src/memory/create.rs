//! The creation of buffers from bytes of the host, and from handles of the program.

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{Backend, Error, MemoryFlags, ObjectKind, Region, Result};
use bytemuck::NoUninit;
use cl3::memory::{
    CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_OBJECT_BUFFER, CL_MEM_OFFSET, CL_MEM_SIZE, CL_MEM_TYPE,
};

use crate::{
    backend::OpenClBackend,
    kept_memory,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        flags,
        part::Part,
        root::Root,
    },
    sys::{self, ClResult, ContextHandle, MemHandle, Purpose},
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
        self.buffer_by(data.len(), flags, |context, flags| {
            sys::buffer::create_copying(context, flags, data)
        })
    }

    /// Returns a buffer that `create` makes, given the runtime's flags.
    pub(crate) fn buffer_by(
        &self,
        bytes: usize,
        flags: MemoryFlags,
        create: impl Fn(&ContextHandle, u64) -> ClResult<MemHandle>,
    ) -> Result<ClMemory> {
        self.limits().check_block(bytes)?;
        flags.check()?;
        let context = self.context();
        let handle = kept_memory::allocate(|| create(&context.handle, flags::to_cl(flags)))
            .map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
        let body = MemoryBody::Buffer(Arc::new(Root::new(handle, 0)));
        Ok(ClMemory::new(context, bytes, flags, body))
    }
}

impl OpenClBackend {
    /// Returns the buffer or sub-buffer of a bare handle as memory of this backend. `PyOpenCL` calls it `from_int_ptr`.
    ///
    /// With `retain`, the program keeps its own reference. Without, the value takes that over if the call succeeds; if it
    /// fails, the program keeps it.
    ///
    /// All values of one buffer and of its sub-buffers share one log of commands and maps, even if the handle came from
    /// [`ClMemory::raw`].
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Memory, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
    /// # use opencl3::{context::Context, device::Device};
    ///
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the context is one that `opencl3` has made.
    /// # let backend = unsafe { OpenClBackend::from_raw(context.get(), context.default_device()) }?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // SAFETY: no pointer of the host is passed.
    /// let own = unsafe { Buffer::<f32>::create(&context, CL_MEM_READ_WRITE, 100, std::ptr::null_mut()) }?;
    /// // SAFETY: (1) the buffer lives, and is retained; (2, 3) `opencl3` enqueues nothing with it.
    /// let memory = unsafe { backend.wrap_raw_memory(own.get(), true) }?;
    /// assert_eq!(memory.bytes(), 400);
    /// drop(own); // The program's reference; the memory has its own.
    /// backend.write(&queue, &memory, 396, &1.5_f32.to_ne_bytes())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for memory of another context,
    /// [`Unsupported`](Error::Unsupported) for images and pipes, [`Lent`](binpool_allocators::InvalidRequest::Lent) for a buffer over
    /// memory that was lent to it, and a failure of the runtime.
    ///
    /// # Safety
    ///
    /// 1. `memory` is null or a live `cl_mem`, and without `retain` the caller gives away one reference to it.
    /// 2. Every use of the same bytes that does not go through values of this crate (the program's own commands and maps, a
    ///    block of shared virtual memory that the buffer was made over, the memory of the host that it was made with) has
    ///    ended or is waited for, from now on until the last value of the buffer is dropped.
    /// 3. The same holds for commands that were enqueued through values of this crate, if all of those values are dropped.
    /// 4. If the handle is that of a pooled block, the value is dropped before the block: the pool does not see it, as it
    ///    sees [views](binpool_allocators::Memory::has_views).
    #[allow(unsafe_code)]
    pub unsafe fn wrap_raw_memory(&self, memory: *mut c_void, retain: bool) -> Result<ClMemory> {
        // SAFETY: The object is null or alive, as the caller promises.
        let handle = unsafe { MemHandle::retain(memory) }?;
        let adopted = self.adopt_memory(handle)?;
        if !retain {
            // SAFETY: The object is alive, and the caller gives this reference away, as it promises.
            let given = unsafe { MemHandle::adopt(memory, false) };
            drop(given?);
        }
        Ok(adopted)
    }

    fn adopt_memory(&self, handle: MemHandle) -> Result<ClMemory> {
        self.check_context(handle.info(CL_MEM_CONTEXT)?.value()?, ObjectKind::Memory)?;
        let object_type: u32 = handle.info(CL_MEM_TYPE)?.value()?;
        if object_type != CL_MEM_OBJECT_BUFFER {
            return Err(Error::unsupported(format!(
                "a memory object of type {object_type:#x} as memory: a buffer, 0x10f0, is needed"
            )));
        }
        let given = self
            .context()
            .quirks
            .flags_of_handle(handle.info(CL_MEM_FLAGS)?.value()?);
        let bytes = handle.info(CL_MEM_SIZE)?.value()?;
        let body = match sys::parent_buffer(&handle)? {
            None => MemoryBody::Buffer(Root::of(handle)?),
            Some(parent) => {
                let region = Region::new(handle.info(CL_MEM_OFFSET)?.value()?, bytes);
                let root = Root::of(parent)?;
                let part = Part::of_sub_buffer(self.context(), handle, &root, region);
                MemoryBody::Part(Box::new(part))
            }
        };
        let memory = ClMemory::new(self.context(), bytes, flags::from_cl(given), body);
        memory.check_may_be_retained()?;
        Ok(memory)
    }
}
