//! Slices of cudarc in pooled memory.

#![expect(
    unsafe_code,
    reason = "cudarc's trait of arguments is unsafe, as is a slice at an address"
)]

use std::{fmt, mem::ManuallyDrop, sync::Arc};

use binpool::PooledBuffer;
use binpool_allocators::{Error, Memory, Result, contained::contained};
use cudarc::driver::{
    CudaSlice, CudaStream, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, DriverError,
    LaunchArgs, PushKernelArg, SyncOnDrop,
    sys::{CUdeviceptr, CUresult},
};

use crate::{
    backend::{CudaBackend, CudaQueue},
    sys::{Context, CudaError},
};

/// The error of a call of cudarc.
pub(crate) fn failed(call: &'static str, error: DriverError) -> Error {
    CudaError::new(call, error.0 as i32).into()
}

/// A typed slice of pooled memory for the calls of cudarc: copies, fills, launches, cuBLAS and whatever else takes a `DevicePtr`. It
/// is `CudaSlice` for pooled memory, made by [`PooledStream`](crate::PooledStream).
///
/// # Streams
///
/// The slice belongs to a stream. It may be used on all others of the same `CudaContext` value, in the same order as a `CudaSlice`: a
/// command that reads it comes after the last write, and one that writes it after all reads and writes before. A first use on another stream
/// comes after everything enqueued on the slice's own stream before the slice was allocated, and so after the former users of its memory.
///
/// cudarc keeps one event for all reads, that of the last. A copy from the slice comes after the reads before, so its event covers them. A launch that
/// reads it, and a read through [`as_slice`](Self::as_slice), do not, nor do reads by two threads at once: if these are on several streams,
/// let one wait for the others (`CudaStream::join`), and read last there.
///
/// When it is dropped, its stream waits for the last uses on other streams, and the memory returns to the pool for what is
/// enqueued on its stream from then on: dropping it right after a launch is fine, and the host does not wait, unless the context keeps an
/// error (`CudaContext::check_err`). For this cudarc records events. A program that turns these off (`CudaContext::disable_event_tracking`) orders its streams itself.
///
/// ```no_run
/// # use binpool::{ImmediateAllocator, MemoryPool};
/// # use binpool_cuda::{CudaBackend, PooledStream};
/// # use cudarc::{driver::{CudaContext, LaunchConfig, PushKernelArg}, nvrtc::Ptx};
/// # let backend = CudaBackend::open(0)?;
/// # let context = CudaContext::new(0)?;
/// # let stream = context.new_stream()?;
/// # let queue = backend.wrap_cudarc_stream(&stream)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// # let pooled = PooledStream::new(&pool, &stream)?;
/// let kernel = context.load_module(Ptx::from_file("scale.ptx"))?.load_function("scale")?;
/// let other = context.new_stream()?;
/// let length = 1000_u32;
/// let mut slice = pooled.alloc_zeros::<f32>(1000)?;
/// assert!(!slice.is_empty() && slice.len() == 1000);
/// let mut launch = other.launch_builder(&kernel); // After the zeros.
/// // SAFETY: the kernel has these parameters, and writes this many elements.
/// unsafe { launch.arg(&mut slice).arg(&length).launch(LaunchConfig::for_num_elems(length)) }?;
/// stream.memset_zeros(&mut slice.as_view_mut().slice_mut(..10))?; // After the launch.
/// let first = stream.clone_dtoh(&slice.as_slice().slice(..10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Other contexts
///
/// If a stream of another context value is passed, copies and fills get a null address, which the driver refuses, and the next call of
/// that context returns `CUDA_ERROR_INVALID_CONTEXT`. For launches, which are unsafe, and for views, the caller must prevent this.
pub struct PooledCudaSlice<T> {
    /// Leaked in the end, so that cudarc never frees the memory.
    slice: ManuallyDrop<CudaSlice<T>>,
    /// After `slice`, which uses its memory.
    block: PooledBuffer<CudaBackend>,
    /// Lets cudarc record the uses of `slice` as long as that lives.
    _recorded: Arc<CudaStream>,
    /// The context of `slice`.
    device: Arc<Context>,
}

impl<T> PooledCudaSlice<T> {
    /// Makes a slice of `length` elements of a block that was allocated for the queue of `stream`, and is large enough.
    pub(crate) fn new(
        block: PooledBuffer<CudaBackend>,
        queue: &CudaQueue,
        stream: &Arc<CudaStream>,
        recorded: Arc<CudaStream>,
        length: usize,
    ) -> Result<Self> {
        let memory = block.memory_on(queue);
        let address = memory.map_or(Ok(0), Memory::device_address)?;
        let context = stream.context();
        // An earlier error, which would make the next call panic.
        context
            .check_err()
            .map_err(|error| failed("an earlier call of cudarc", error))?;
        // SAFETY: The block has the memory at this address, and lives as long as the slice.
        let slice = contained("a slice", || unsafe {
            stream.upgrade_device_ptr(address, length)
        });
        let slice = slice.ok_or_else(|| {
            let reason = "cudarc could not make the events of a slice";
            Error::backend("cuEventCreate", None, reason)
        })?;
        let mut slice = Self {
            slice: ManuallyDrop::new(slice),
            block,
            _recorded: recorded,
            device: Arc::clone(queue.context()),
        };
        // Other streams come after the former users of the memory, whose commands are before this on the slice's stream.
        drop(slice.slice.device_ptr_mut(stream));
        let written = context.check_err();
        written.map_err(|error| failed("cuEventRecord", error))?;
        Ok(slice)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// The slice as cudarc's own, for functions that take a `&CudaSlice`, and for views of parts.
    #[must_use]
    pub fn as_slice(&self) -> &CudaSlice<T> {
        &self.slice
    }

    /// The slice as a mutable view of cudarc.
    #[must_use]
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// Returns whether uses on `stream` are recorded; if not, its context holds the error.
    fn may_be_used_on(&self, stream: &CudaStream) -> bool {
        let is_known = Arc::ptr_eq(stream.context(), self.slice.context());
        if !is_known {
            let error = DriverError(CUresult::CUDA_ERROR_INVALID_CONTEXT);
            stream.context().record_err(Err::<(), _>(error));
        }
        is_known
    }
}

impl<T> Drop for PooledCudaSlice<T> {
    fn drop(&mut self) {
        let context = Arc::clone(self.slice.context());
        // SAFETY: This runs once, and nothing uses the field afterwards.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Makes its stream wait for the uses on others, unless the context keeps an error: of a use, which is not recorded then, of these
        // waits, or of something else, for which they are left out.
        slice.leak();
        if let Err(error) = context.check_err() {
            let bytes = self.block.size();
            tracing::error!(%error, bytes, "a stream could not wait for the uses of a slice: the host waits");
            // Not by cudarc, whose call would not wait where another thread has left an error meanwhile. Where this fails, too, the context is
            // lost, and runs no commands.
            if let Err(error) = self.device.synchronize() {
                tracing::error!(%error, "could not wait for a device");
            }
            context.record_err(Err::<(), _>(error));
        }
    }
}

impl<T> DeviceSlice<T> for PooledCudaSlice<T> {
    fn len(&self) -> usize {
        self.slice.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.slice.stream()
    }
}

impl<T> DevicePtr<T> for PooledCudaSlice<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        if !self.may_be_used_on(stream) {
            return (0, SyncOnDrop::Record(None));
        }
        let (address, recorded) = self.slice.device_ptr(stream);
        if let SyncOnDrop::Record(Some((read, _))) = &recorded
            && stream.context().is_managing_stream_synchronization()
        {
            // cudarc keeps the last read only, so that one comes after the reads on other streams.
            stream.context().record_err(stream.wait(read));
        }
        (address, recorded)
    }
}

impl<T> DevicePtrMut<T> for PooledCudaSlice<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        if self.may_be_used_on(stream) {
            self.slice.device_ptr_mut(stream)
        } else {
            (0, SyncOnDrop::Record(None))
        }
    }
}

// SAFETY: The argument is that of cudarc's own slice, which is borrowed as long as this.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b PooledCudaSlice<T>> for LaunchArgs<'a> {
    #[inline]
    fn arg(&mut self, argument: &'b PooledCudaSlice<T>) -> &mut Self {
        self.arg(&*argument.slice)
    }
}

// SAFETY: As above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut PooledCudaSlice<T>> for LaunchArgs<'a> {
    #[inline]
    fn arg(&mut self, argument: &'b mut PooledCudaSlice<T>) -> &mut Self {
        self.arg(&mut *argument.slice)
    }
}

impl<T> fmt::Debug for PooledCudaSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledCudaSlice")
            .field("elements", &self.slice.len())
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}
