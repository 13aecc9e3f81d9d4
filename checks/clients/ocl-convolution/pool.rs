//! Device memory: a pool for all convolutions of a builder, in the order of their queue.

use std::{marker::PhantomData, sync::Arc};

use binpool::{ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, Retain};
use binpool_opencl::OpenClBackend;
use ocl::{
    core::{self, Event, Mem},
    Kernel, OclPrm, Queue,
};

/// The pool and the queue of a builder.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    memory: MemoryPool<OpenClBackend>,
    queue: Queue,
}

impl Pool {
    /// Makes a pool of whole buffers, which kernels take as they are. It has at most a quarter more
    /// memory than was in use at once.
    pub fn new(queue: &Queue) -> ocl::Result<Self> {
        // SAFETY: the handles are alive: `queue` has them.
        let (backend, home) = unsafe {
            let backend =
                OpenClBackend::from_raw(queue.context().as_ptr(), queue.device().as_raw())
                    .map_err(failed)?;
            let home = backend.wrap_raw_queue(queue.as_ptr()).map_err(failed)?;
            (backend, home)
        };
        let allocator = ImmediateAllocator::new(&backend).map_err(failed)?;
        Ok(Self {
            memory: PoolOptions::new()
                .segments(false)
                .retain(Retain::new().at_least(0))
                .build(allocator, &home)
                .map_err(failed)?,
            queue: queue.clone(),
        })
    }

    pub fn memory(&self) -> &MemoryPool<OpenClBackend> {
        &self.memory
    }

    /// Allocates a buffer of elements, whose values are any.
    pub fn buffer<T: OclPrm>(&self, length: usize) -> ocl::Result<Buffer<T>> {
        let block = self
            .memory
            .allocate(length * size_of::<T>())
            .map_err(failed)?;
        let handle = block
            .memory_on(self.memory.home_queue())
            .and_then(|memory| memory.raw())
            .ok_or_else(|| failed("a buffer needs an element at least"))?;
        Ok(Buffer {
            // SAFETY: the buffer is alive: the block has it. This has a reference of its own.
            memory: unsafe { Mem::from_raw_copied_ptr(handle) },
            queue: self.queue.clone(),
            length,
            _block: Arc::new(block),
            _elements: PhantomData,
        })
    }

    /// Allocates a buffer of these elements.
    pub fn buffer_of<T: OclPrm>(&self, elements: &[T]) -> ocl::Result<Buffer<T>> {
        let buffer = self.buffer(elements.len())?;
        buffer.write(elements)?;
        Ok(buffer)
    }
}

/// A buffer of the pool, which goes back to it once the last clone is dropped. All commands on it are
/// enqueued on the queue of the pool.
#[derive(Debug, Clone)]
pub(crate) struct Buffer<T: OclPrm> {
    memory: Mem,
    queue: Queue,
    length: usize,
    _block: Arc<PooledBuffer<OpenClBackend>>,
    _elements: PhantomData<T>,
}

impl<T: OclPrm> Buffer<T> {
    pub fn len(&self) -> usize {
        self.length
    }

    /// Writes the elements, and waits for that.
    pub fn write(&self, elements: &[T]) -> ocl::Result<()> {
        assert!(elements.len() <= self.length, "the buffer is too short");
        // SAFETY: the elements lie within the buffer, and stay until they are written.
        unsafe {
            core::enqueue_write_buffer(
                &self.queue,
                &self.memory,
                true,
                0,
                elements,
                None::<Event>,
                None::<&mut Event>,
            )
        }
        .map_err(Into::into)
    }

    /// Reads the elements, and waits for that.
    pub fn read(&self, elements: &mut [T]) -> ocl::Result<()> {
        assert!(elements.len() <= self.length, "the buffer is too short");
        // SAFETY: the elements lie within the buffer, and stay until they are read.
        unsafe {
            core::enqueue_read_buffer(
                &self.queue,
                &self.memory,
                true,
                0,
                elements,
                None::<Event>,
                None::<&mut Event>,
            )
        }
        .map_err(Into::into)
    }
}

/// Passes buffers of the pool to kernels.
pub(crate) trait SetBuffer {
    fn set_buffer<T: OclPrm>(
        &self,
        name: &'static str,
        buffer: Option<&Buffer<T>>,
    ) -> ocl::Result<()>;
}

impl SetBuffer for Kernel {
    // Its successor takes buffers that `ocl` has made, and nothing else.
    #[allow(deprecated)]
    fn set_buffer<T: OclPrm>(
        &self,
        name: &'static str,
        buffer: Option<&Buffer<T>>,
    ) -> ocl::Result<()> {
        self.set_arg_buf_named::<T, _>(name, buffer.map(|buffer| &buffer.memory))
    }
}

fn failed(error: impl std::fmt::Display) -> ocl::Error {
    error.to_string().into()
}
