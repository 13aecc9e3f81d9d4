//! Blocks of memory.

use std::{ffi::c_void, ptr::NonNull, sync::Arc};

use binpool_allocators::{AsMemory, InvalidRequest, Memory, MemoryId, MemoryKind, Region, Result};

use crate::{
    access::{Access, Use},
    access_log::AccessLog,
    backend::OpenClBackend,
    cl_error::Purpose,
    context::Context,
    event::ClEvent,
    queue::ClQueue,
    svm_block::SvmBlock,
    sys::{self, MemHandle, Place, SvmRange},
};

/// A block of OpenCL memory: a buffer, a sub-buffer, a block of shared virtual memory (SVM), or a region of
/// one.
///
/// Dropping it gives the memory back. The runtime keeps buffers until the commands that use them have ended;
/// for SVM, which the runtime frees under running commands, this crate does.
#[derive(Debug)]
pub struct ClMemory {
    id: MemoryId,
    bytes: usize,
    context: Arc<Context>,
    body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Buffer(Arc<Root>),
    SubBuffer {
        handle: MemHandle,
        root: Arc<Root>,
        /// Where in the root it starts, in bytes.
        offset: usize,
    },
    /// All of a block, or a region of it.
    Svm {
        block: Arc<SvmBlock>,
        /// Where in the block it starts, in bytes.
        offset: usize,
    },
}

/// A buffer that is no part of another one.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) handle: MemHandle,
    /// Not looked at where it lies over a block, which has a log of its own.
    log: AccessLog,
    /// The block of shared virtual memory that it lies over, from its first byte on. After the handle: the buffer goes
    /// before its memory.
    block: Option<Arc<SvmBlock>>,
}

impl Root {
    pub(crate) fn new(handle: MemHandle) -> Self {
        Self {
            handle,
            log: AccessLog::default(),
            block: None,
        }
    }

    /// A buffer over the first bytes of `block`.
    pub(crate) fn over(handle: MemHandle, block: &Arc<SvmBlock>) -> Self {
        Self {
            handle,
            log: AccessLog::default(),
            block: Some(Arc::clone(block)),
        }
    }

    /// The block of shared virtual memory that it lies over.
    pub(crate) fn block(&self) -> Option<&SvmBlock> {
        self.block.as_deref()
    }

    /// A use of `region`, which lies in it.
    pub(crate) fn used(&self, region: Region, access: Access) -> Use<'_> {
        Use {
            log: self.block().map_or(&self.log, SvmBlock::log),
            region,
            access,
            block: self.block(),
        }
    }
}

impl ClMemory {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize, body: Body) -> Self {
        Self {
            id: MemoryId::fresh(),
            bytes,
            context: Arc::clone(context),
            body,
        }
    }

    /// The runtime's handle, for the arguments of kernels; `None` for SVM, whose address
    /// [`svm_address`](binpool_allocators::SvmBackend::svm_address) gives.
    ///
    /// It is borrowed: valid while this value lives, and not to be released. A kernel that was enqueued with
    /// it keeps the memory, as every command does.
    #[must_use]
    pub fn raw(&self) -> Option<*mut c_void> {
        self.buffer().map(MemHandle::raw)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) const fn shared_context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn buffer(&self) -> Option<&MemHandle> {
        match &self.body {
            Body::Buffer(root) => Some(&root.handle),
            Body::SubBuffer { handle, .. } => Some(handle),
            Body::Svm { .. } => None,
        }
    }

    pub(crate) fn svm(&self) -> Option<&Arc<SvmBlock>> {
        match &self.body {
            Body::Svm { block, .. } => Some(block),
            Body::Buffer(_) | Body::SubBuffer { .. } => None,
        }
    }

    /// Where in its whole block or buffer it starts, in bytes.
    pub(crate) const fn start(&self) -> usize {
        match &self.body {
            Body::Buffer(_) => 0,
            Body::SubBuffer { offset, .. } | Body::Svm { offset, .. } => *offset,
        }
    }

    /// The whole block of shared virtual memory, unless there are regions of it, or buffers over it, elsewhere.
    pub(crate) fn into_svm_block(self) -> Result<SvmBlock, Self> {
        let Self {
            id,
            bytes,
            context,
            body,
        } = self;
        let body = match body {
            Body::Svm { block, offset } => match Arc::try_unwrap(block) {
                Ok(block) => return Ok(block),
                Err(block) => Body::Svm { block, offset },
            },
            body => body,
        };
        Err(Self {
            id,
            bytes,
            context,
            body,
        })
    }

    /// A use of `region`, which lies in this block.
    pub(crate) fn used(&self, region: Region, access: Access) -> Use<'_> {
        let region = Region::new(self.start().saturating_add(region.offset), region.bytes);
        match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => root.used(region, access),
            Body::Svm { block, .. } => block.used(region, access),
        }
    }

    pub(crate) fn svm_address(&self) -> Option<NonNull<u8>> {
        self.svm_range(Region::first(self.bytes))
            .map(SvmRange::start)
    }

    /// The bytes of `region`, which lies in this block.
    fn svm_range(&self, region: Region) -> Option<SvmRange<'_>> {
        let Body::Svm { block, offset } = &self.body else {
            return None;
        };
        block.range(Region::new(
            offset.checked_add(region.offset)?,
            region.bytes,
        ))
    }

    /// Where `region`, which lies in this block, is on the device.
    pub(crate) fn place(&self, region: Region) -> Option<Place<'_>> {
        match self.buffer() {
            Some(buffer) => Some(Place::Buffer(buffer, region.offset)),
            None => self.svm_range(region).map(Place::Svm),
        }
    }

    /// Where `region`, which lies in this block, is mapped. A buffer over shared virtual memory is mapped as that: the
    /// runtime might take the address under it for memory of the host that it can copy to.
    pub(crate) fn mapped_place(&self, region: Region) -> Option<Place<'_>> {
        match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => match root.block() {
                Some(block) => {
                    let offset = self.start().checked_add(region.offset)?;
                    block
                        .range(Region::new(offset, region.bytes))
                        .map(Place::Svm)
                }
                None => self.place(region),
            },
            Body::Svm { .. } => self.place(region),
        }
    }

    /// A view of `region`, with the checks of `create_sub_region`.
    pub(crate) fn view(&self, region: Region) -> Result<Self> {
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        region.check_within(self.bytes)?;
        // Both lie in one block, so the sum is less than the block's size.
        let offset = self.start().saturating_add(region.offset);
        let alignment = self.context.limits.alignment;
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        let body = match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => Body::SubBuffer {
                handle: sys::create_sub_buffer(&root.handle, offset, region.bytes)
                    .map_err(|error| error.into_error(Purpose::Memory(region.bytes)))?,
                root: Arc::clone(root),
                offset,
            },
            Body::Svm { block, .. } => Body::Svm {
                block: Arc::clone(block),
                offset,
            },
        };
        Ok(Self::new(&self.context, region.bytes, body))
    }

    /// Gives the memory back, after `after` where the runtime does not see to that itself.
    pub(crate) fn release(self, after: &[ClEvent]) -> Result<()> {
        let purpose = Purpose::Control;
        if let Body::Buffer(root) | Body::SubBuffer { root, .. } = &self.body {
            // The runtime keeps the buffer, and not the block under it.
            for event in after {
                if let Some(block) = root.block() {
                    block.record_other(event);
                }
            }
        }
        match self.body {
            Body::Buffer(root) => match Arc::into_inner(root) {
                Some(root) => root
                    .handle
                    .release()
                    .map_err(|error| error.into_error(purpose)),
                // Its sub-buffers keep it.
                None => Ok(()),
            },
            Body::SubBuffer { handle, .. } => {
                handle.release().map_err(|error| error.into_error(purpose))
            }
            Body::Svm { block, .. } => {
                // Before the block is let go: another region's owner may be the last one.
                for event in after {
                    block.record_other(event);
                }
                match Arc::into_inner(block) {
                    Some(block) => block.free(),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Memory for ClMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn kind(&self) -> MemoryKind {
        match self.svm() {
            Some(block) => MemoryKind::Svm(block.grain()),
            None => MemoryKind::Buffer,
        }
    }
}

impl AsMemory<OpenClBackend> for ClMemory {
    fn size(&self) -> usize {
        self.bytes
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&Self> {
        Some(self)
    }
}
