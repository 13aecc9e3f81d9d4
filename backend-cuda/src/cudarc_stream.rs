//! Streams of cudarc, and their slices from a pool.

#![expect(
    unsafe_code,
    reason = "the program promises what it does with memory that is not written yet"
)]

use std::sync::Arc;

use binpool::{MemoryPool, PoolError};
use binpool_allocators::{Error, InvalidRequest, ObjectKind, Result, debug_by};
use cudarc::driver::{CudaStream, DeviceRepr, HostSlice, ValidAsZeroBits};

use crate::{
    backend::{CudaBackend, CudaQueue},
    cudarc_slice::{PooledCudaSlice, failed},
    device::ALIGNMENT,
    sys::PER_THREAD,
};

impl CudaBackend {
    /// Wraps a stream of cudarc as a queue, which keeps the stream alive.
    ///
    /// ```no_run
    /// use binpool_allocators::Queue;
    /// use binpool_cuda::CudaBackend;
    /// use cudarc::driver::CudaContext;
    ///
    /// let backend = CudaBackend::open(0)?; // An error if there is no driver: cudarc panics then.
    /// let stream = CudaContext::new(0)?.new_stream()?;
    /// let queue = backend.wrap_cudarc_stream(&stream)?;
    /// queue.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a stream of another context: cudarc's must be the primary context of the same
    /// device, as that of `CudaContext::new` is.
    pub fn wrap_cudarc_stream(&self, stream: &Arc<CudaStream>) -> Result<CudaQueue> {
        if stream.context().cu_ctx().addr() != self.raw_context().addr() {
            let kind = ObjectKind::Queue;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        // SAFETY: It is a stream of this context, and the queue keeps it alive.
        let queue = unsafe { self.wrap_raw_queue(stream.cu_stream().cast()) }?;
        queue.keep(stream);
        Ok(queue)
    }
}

/// A stream of cudarc that takes the memory of its slices from a pool: [`alloc`](Self::alloc), [`alloc_zeros`](Self::alloc_zeros) and
/// [`clone_htod`](Self::clone_htod) do what those of `CudaStream` do, and return a [`PooledCudaSlice`]. Clones are the same; any thread may
/// use them.
///
/// Call [`CudaBackend::open`](crate::CudaBackend::open) first: without a driver it returns an error, where cudarc panics.
///
/// ```no_run
/// use binpool::{ImmediateAllocator, MemoryPool};
/// use binpool_cuda::{CudaBackend, PooledStream};
/// use cudarc::driver::CudaContext;
///
/// let backend = CudaBackend::open(0)?;
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let queue = backend.wrap_cudarc_stream(&stream)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let pooled = PooledStream::new(&pool, &stream)?;
///
/// let numbers = pooled.clone_htod(&[1.0_f32, 2.0, 3.0])?;
/// let mut copy = pooled.alloc_zeros::<f32>(numbers.len())?;
/// stream.memcpy_dtod(&numbers, &mut copy)?; // Any call of cudarc.
/// drop(numbers); // Back in the pool, for what is enqueued on `stream` from now on.
/// assert_eq!(pooled.stream().clone_dtoh(&copy)?, [1.0, 2.0, 3.0]);
/// println!("{}", pooled.pool().statistics());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PooledStream {
    pool: MemoryPool<CudaBackend>,
    queue: CudaQueue,
    stream: Arc<CudaStream>,
    /// As long as a stream that cudarc has made lives, cudarc records uses on all of its streams. Without one it records none, although
    /// commands of streams that are gone may still run.
    recorded: Arc<CudaStream>,
}

impl PooledStream {
    /// Returns the stream with a pool.
    ///
    /// # Errors
    ///
    /// Those of [`wrap_cudarc_stream`](CudaBackend::wrap_cudarc_stream); [`Unsupported`](Error::Unsupported) for a per-thread default stream,
    /// which is another stream on each thread; a failure of the driver.
    pub fn new(pool: &MemoryPool<CudaBackend>, stream: &Arc<CudaStream>) -> Result<Self> {
        if stream.cu_stream().addr() == PER_THREAD {
            return Err(Error::unsupported(
                "slices of a per-thread default stream, whose handle means another stream on each thread: use one of \
                 `CudaContext::new_stream`",
            ));
        }
        let recorded = stream.context().new_stream();
        Ok(Self {
            pool: pool.clone(),
            queue: pool.backend().wrap_cudarc_stream(stream)?,
            stream: Arc::clone(stream),
            recorded: recorded.map_err(|error| failed("cuStreamCreate", error))?,
        })
    }

    /// Allocates a slice of `length` elements, which are not written yet.
    ///
    /// ```no_run
    /// # use binpool::{ImmediateAllocator, MemoryPool};
    /// # use binpool_cuda::{CudaBackend, PooledStream};
    /// # let backend = CudaBackend::open(0)?;
    /// # let stream = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// # let queue = backend.wrap_cudarc_stream(&stream)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// # let pooled = PooledStream::new(&pool, &stream)?;
    /// // SAFETY: it is written before it is read.
    /// let mut slice = unsafe { pooled.alloc::<u32>(100) }?;
    /// stream.memcpy_htod(&[7; 100], &mut slice)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// An element is written before it is read as a `T`: the memory has the bytes of its last user.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryPool::allocate_on`], [`Unsupported`](Error::Unsupported) for elements that are aligned to more than 256 bytes, and a
    /// failure of the driver.
    pub unsafe fn alloc<T: DeviceRepr>(
        &self,
        length: usize,
    ) -> Result<PooledCudaSlice<T>, PoolError> {
        if align_of::<T>() > ALIGNMENT {
            return Err(Error::unsupported(format!(
                "elements aligned to {} bytes: blocks are aligned to {ALIGNMENT}",
                align_of::<T>()
            ))
            .into());
        }
        // A length that overflows asks for more than any device has, and is refused by the pool.
        let bytes = length.saturating_mul(size_of::<T>());
        let block = self.pool.allocate_on(&self.queue, bytes)?;
        let recorded = Arc::clone(&self.recorded);
        let slice = PooledCudaSlice::new(block, &self.queue, &self.stream, recorded, length)?;
        Ok(slice)
    }

    /// Allocates a slice, and enqueues a fill with zeros.
    ///
    /// # Errors
    ///
    /// Those of [`alloc`](Self::alloc).
    pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        length: usize,
    ) -> Result<PooledCudaSlice<T>, PoolError> {
        // SAFETY: The next line writes all elements.
        let mut slice = unsafe { self.alloc(length) }?;
        let zeros = self.stream.memset_zeros(&mut slice);
        zeros.map_err(|error| failed("cuMemsetD8Async", error))?;
        Ok(slice)
    }

    /// Allocates a slice, and enqueues a copy of `source` to it.
    ///
    /// # Errors
    ///
    /// Those of [`alloc`](Self::alloc).
    pub fn clone_htod<T: DeviceRepr>(
        &self,
        source: &(impl HostSlice<T> + ?Sized),
    ) -> Result<PooledCudaSlice<T>, PoolError> {
        // SAFETY: The next line writes all elements.
        let mut slice = unsafe { self.alloc(source.len()) }?;
        let copy = self.stream.memcpy_htod(source, &mut slice);
        copy.map_err(|error| failed("cuMemcpyHtoDAsync", error))?;
        Ok(slice)
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &MemoryPool<CudaBackend> {
        &self.pool
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

debug_by!(PooledStream, |this| queue: this.queue);
