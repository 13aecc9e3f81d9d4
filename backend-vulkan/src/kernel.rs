//! Kernels, and their launches.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what the kernel touches"
)]

use std::{ffi::CString, sync::Arc};

use binpool_allocators::{
    Error, Result, debug_by,
    runtime::{Argument, enqueue},
};

use crate::{
    backend::{VulkanBackend, VulkanEvent, VulkanQueue},
    mark::VulkanMark,
    queue::{On, QueueStream},
    sys::Pipeline,
};

/// A compute shader. Clones are the same kernel; any thread may use them.
///
/// Its arguments are push constants, with memory by its address (`bufferDeviceAddress`), so it needs no descriptors.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_vulkan::{Argument, VulkanBackend, VulkanKernel};
///
/// # let words_of_spir_v: Vec<u32> = Vec::new();
/// let backend = VulkanBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4 * 1000, MemoryFlags::empty())?;
/// // SAFETY: it is a valid module for Vulkan 1.2, which needs no features but 64-bit integers.
/// let scale = unsafe { VulkanKernel::load(&backend, &words_of_spir_v, "main", &[]) }?;
/// let arguments = [Argument::Memory(&block), Argument::U32(1000), Argument::F32(0.5)];
/// // SAFETY: these are its parameters; it multiplies 1000 numbers of the block, in groups of 128.
/// let launch = unsafe { scale.launch(&queue, [8, 1, 1], &arguments, &[]) }?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct VulkanKernel {
    backend: VulkanBackend,
    pipeline: Arc<Pipeline>,
}

impl VulkanKernel {
    /// Makes a kernel of the function `entry` of a module, with the values of its specialization constants 0, 1, and so on.
    ///
    /// # Safety
    ///
    /// `words` are a valid module of SPIR-V for Vulkan 1.2, and need no features of the device but 64-bit integers and, where the device has
    /// them, 64-bit floating-point numbers; for a device of [`from_raw`](VulkanBackend::from_raw), those that it was made with.
    ///
    /// # Errors
    ///
    /// A failure of Vulkan.
    pub unsafe fn load(
        backend: &VulkanBackend,
        words: &[u32],
        entry: &str,
        constants: &[u32],
    ) -> Result<Self> {
        let name = CString::new(entry)
            .map_err(|_| Error::unsupported("a kernel whose name has a zero byte"))?;
        let pipeline = Pipeline::new(&backend.shared.device, words, &name, constants)?;
        Ok(Self {
            backend: backend.clone(),
            pipeline: Arc::new(pipeline),
        })
    }

    /// Enqueues the kernel, after `wait_for`, in `groups` work groups. Its memory is not freed before it has ended; the program orders it with other
    /// queues.
    ///
    /// # Safety
    ///
    /// The arguments are the push constants of the kernel, in number and size, and the device has as many groups. It touches no bytes but those of its memory arguments,
    /// and those not at the same time as a command of another queue, unless both read.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for objects of another backend; [`Unsupported`](Error::Unsupported) for more bytes of
    /// arguments than the device takes; a failure of Vulkan. The kernel does not run then.
    pub unsafe fn launch(
        &self,
        queue: &VulkanQueue,
        groups: [u32; 3],
        arguments: &[Argument<'_, VulkanBackend>],
        wait_for: &[VulkanEvent],
    ) -> Result<VulkanEvent> {
        let Self { backend, pipeline } = self;
        // A block of push constants, in GLSL's layout `std430`.
        let mut block = Vec::new();
        for argument in arguments {
            let (bytes, length) = argument.bytes()?;
            block.resize(block.len().next_multiple_of(length), 0);
            block.extend(&bytes[..length]);
        }
        if block.len() > pipeline.most_bytes() {
            return Err(Error::unsupported(format!(
                "{} bytes of arguments: this device takes {}; pass a block that holds them",
                block.len(),
                pipeline.most_bytes()
            )));
        }
        let parts = Argument::parts(arguments)?;
        let parts: Vec<_> = parts.iter().collect();
        let submit = |stream: &QueueStream, after: &[VulkanMark]| {
            backend.enqueue_with(On { stream, after }, Arc::clone(pipeline), |commands| {
                pipeline.record(commands, groups, &block);
            })
        };
        // SAFETY: a kernel touches the bytes of its memory arguments only, as the caller promises; `enqueue_with` returns its mark.
        unsafe { enqueue(backend, queue, &parts, wait_for, submit) }
    }
}

debug_by!(VulkanKernel);
