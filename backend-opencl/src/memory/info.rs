//! Information about memory, of this crate and of the runtime.

use binpool_allocators::{Memory, MemoryFlags, MemoryKind, Result};
use cl3::memory::{
    CL_MEM_HOST_PTR, CL_MEM_MAP_COUNT, CL_MEM_REFERENCE_COUNT, CL_MEM_USES_SVM_POINTER,
};

use crate::{
    memory::{cl_memory::ClMemory, key::MemoryKey},
    sys::{ClResult, MemHandle},
};

/// Information about memory; `PyOpenCL`'s `MemoryObject.get_info` and its attributes (OpenCL 3.0, section 5.5.6).
///
/// Returned by [`ClMemory::info`] and [`ClImage::info`](crate::ClImage::info).
///
/// ```
/// use binpool_allocators::MemoryKind;
/// # use binpool_allocators::{Backend, MemoryFlags};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
///
/// let block = backend.create_host_buffer(vec![0_u8; 4096], MemoryFlags::empty())?;
/// let info = block.memory().info()?;
/// assert!(info.has_host_pointer && !info.uses_svm_pointer);
/// assert_eq!((info.kind, info.parent), (MemoryKind::Buffer, None));
///
/// let tail = block.memory().slice(1024..)?.info()?;
/// assert_eq!((tail.parent, tail.offset), (Some(block.memory().key()), 1024));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// A memory object of the runtime (a buffer or an image), or shared virtual memory.
    pub kind: MemoryKind,
    /// The flags that it was made with; a view also has those of its parent.
    pub flags: MemoryFlags,
    /// The size in bytes.
    pub bytes: usize,
    /// The whole block that it is a region of, or that the image is made over.
    pub parent: Option<MemoryKey>,
    /// Its offset in that block, in bytes.
    pub offset: usize,
    /// Set if it lies over memory of the host.
    pub has_host_pointer: bool,
    /// Whether that memory is shared virtual memory. Shared virtual memory itself has no such buffer.
    pub uses_svm_pointer: bool,
    /// The number of maps at this moment, as the runtime counts them, to look for leaks. `None` for shared virtual memory,
    /// which runtimes do not count.
    pub map_count: Option<u32>,
    /// The number of references at this moment, as the runtime counts them; `None` as above.
    pub reference_count: Option<u32>,
}

impl MemoryInfo {
    /// Returns what this crate knows, and what the runtime tells about `object`.
    pub(crate) fn new(
        (kind, flags): (MemoryKind, MemoryFlags),
        bytes: usize,
        (parent, offset): (Option<MemoryKey>, usize),
        object: Option<&MemHandle>,
    ) -> ClResult<Self> {
        let mut info = Self {
            kind,
            flags,
            bytes,
            parent,
            offset,
            has_host_pointer: false,
            uses_svm_pointer: false,
            map_count: None,
            reference_count: None,
        };
        if let Some(object) = object {
            info.map_count = Some(object.info(CL_MEM_MAP_COUNT)?.value()?);
            info.reference_count = Some(object.info(CL_MEM_REFERENCE_COUNT)?.value()?);
            info.has_host_pointer = object.info(CL_MEM_HOST_PTR)?.value::<usize>()? != 0;
            // Runtimes before OpenCL 2.0 do not know the question.
            let uses_svm_pointer = object.info(CL_MEM_USES_SVM_POINTER);
            info.uses_svm_pointer = uses_svm_pointer.is_ok_and(|answer| answer.number() != Ok(0));
        }
        Ok(info)
    }
}

impl ClMemory {
    /// Returns information about this memory.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let memory = backend.create_buffer(4096, MemoryFlags::READ_ONLY)?;
    /// let info = memory.info()?;
    /// assert_eq!((info.bytes, info.flags), (4096, MemoryFlags::READ_ONLY));
    /// assert_eq!(info.map_count, Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn info(&self) -> Result<MemoryInfo> {
        let (made, place) = ((self.kind(), self.flags()), (self.parent(), self.offset()));
        Ok(MemoryInfo::new(made, self.bytes(), place, self.object()?)?)
    }
}
