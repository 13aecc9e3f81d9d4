//! Kernels, and their launches.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what the kernel touches"
)]

use std::sync::Arc;

use binpool_allocators::{
    Result, debug_by,
    runtime::{Argument, enqueue},
};

use crate::{
    backend::{CudaBackend, CudaEvent, CudaQueue},
    mark::{CudaMark, Kind},
    queue::QueueStream,
    sys::{Handle, Module},
};

/// The number of threads of a launch.
///
/// ```
/// use binpool_cuda::Grid;
///
/// let grid = Grid::of_threads(1000, 256);
/// assert_eq!((grid.blocks, grid.threads), ([4, 1, 1], [256, 1, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The blocks in each dimension.
    pub blocks: [u32; 3],
    /// The threads of a block in each dimension.
    pub threads: [u32; 3],
    /// The bytes of dynamic shared memory of each block.
    pub shared_bytes: u32,
}

impl Grid {
    /// Enough blocks of `block` threads in one dimension for at least `threads` threads. A kernel checks the number of a thread, since
    /// the last block may have more.
    #[must_use]
    pub const fn of_threads(threads: u32, block: u32) -> Self {
        let block = if block == 0 { 1 } else { block };
        Self {
            blocks: [threads.div_ceil(block), 1, 1],
            threads: [block, 1, 1],
            shared_bytes: 0,
        }
    }
}

pub(crate) struct Loaded {
    pub(crate) backend: CudaBackend,
    /// Taken when this value is dropped.
    pub(crate) module: Option<Module>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let shared = &self.backend.shared;
        let everything = CudaMark(Kind::Everything(vec![Arc::clone(&shared.context)]));
        shared.core.keep_until(self.module.take(), vec![everything]);
    }
}

/// A kernel of a [`CudaModule`](crate::CudaModule). Clones are the same kernel; any thread may use them.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_cuda::{Argument, CudaBackend, CudaModule, Grid};
///
/// let backend = CudaBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4 * 1000, MemoryFlags::empty())?;
/// let module = CudaModule::load_ptx(&backend, &std::fs::read_to_string("kernels.ptx")?)?;
/// let scale = module.kernel("scale")?;
/// let arguments = [Argument::Memory(&block), Argument::U32(1000), Argument::F32(0.5)];
/// // SAFETY: these are its parameters; it multiplies this many numbers of the block.
/// let launch = unsafe { scale.launch(&queue, Grid::of_threads(1000, 256), &arguments, &[]) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CudaKernel {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) function: Handle,
}

impl CudaKernel {
    /// Enqueues the kernel after `wait_for`, on a queue of its module's device. Its memory is not freed before it has ended; the program puts
    /// it in order with other streams.
    ///
    /// Memory may be of another device, after [`enable_peer_access`](crate::CudaBackend::enable_peer_access), which says what must be mapped or made
    /// after it.
    ///
    /// # Safety
    ///
    /// The arguments are the parameters of the kernel, in number and size. It touches no bytes but those of its memory arguments, and
    /// those not at the same time as a command of another stream, unless both read. If the stream is captured, memory and kernel live as long as the graph.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for a queue of another device, or objects of another library;
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for memory of another device without peer access; a grid that the device does
    /// not have; a failure of the driver. The kernel does not run then.
    pub unsafe fn launch(
        &self,
        queue: &CudaQueue,
        grid: Grid,
        arguments: &[Argument<'_, CudaBackend>],
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        let backend = &self.loaded.backend;
        backend.check_own_queue(queue)?;
        let bytes = arguments.iter().map(|argument| Ok(argument.bytes()?.0));
        let bytes = bytes.collect::<Result<Vec<_>>>()?;
        let parts = Argument::parts(arguments)?;
        let parts: Vec<_> = parts.iter().collect();
        let shape = [grid.blocks, grid.threads];
        let submit = |stream: &QueueStream, after: &[CudaMark]| {
            backend.submit_kernel(stream, after, &parts, |stream| {
                // SAFETY: The module is unloaded after the launches of its kernels; the caller promises the rest.
                unsafe { stream.launch(self.function, shape, grid.shared_bytes, &bytes) }
            })
        };
        // SAFETY: a kernel touches the bytes of its memory arguments only, as the caller promises; `submit_kernel` returns its mark.
        unsafe { enqueue(backend, queue, &parts, wait_for, submit) }
    }
}

debug_by!(CudaKernel);
