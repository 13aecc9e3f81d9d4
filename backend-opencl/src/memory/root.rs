//! Whole buffers, and the registry of those whose handles the program has.
//!
//! All values of one buffer share one [`Root`], whose log has the commands of all of them. If the program passes in a
//! handle that this crate gave out, its root is found here.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use binpool_allocators::{Region, runtime::Access};
use cl3::memory::CL_MEM_HOST_PTR;

use crate::{
    kept_memory::LetGo,
    memory::{svm_block::SvmBlock, view_starts::ViewStarts},
    order::{access_log::AccessLog, memory_use::MemoryUse},
    registry::Registry,
    sys::{ClResult, DeviceBytes, MemHandle},
};

/// The roots whose handles the program has.
static EXPOSED: Registry<usize, Root> = Registry::new();

/// A whole buffer, and not a part of another one.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) handle: MemHandle,
    /// The address of the host's memory that it lies over; 0 for memory of the runtime, which aligns it for every type.
    pub(crate) address: usize,
    /// Unused if it lies over a block, which has a log of its own.
    log: AccessLog,
    /// The block of shared virtual memory that it lies over, from its first byte on. After the handle: the buffer goes
    /// before its memory.
    block: Option<Arc<SvmBlock>>,
    /// Set if its memory is lent to it for a call, which waits for its end.
    pub(crate) lent: bool,
    exposed: Exposed,
    /// What kernels are given in the place of its views.
    pub(crate) starts: ViewStarts,
    /// Dropped with it, so that no log keeps its memory.
    _let_go: LetGo,
}

/// The entry of a root in the registry, if there is one. Dropping this value removes it.
#[derive(Debug)]
struct Exposed {
    handle: usize,
    entered: AtomicBool,
}

impl Root {
    pub(crate) fn new(handle: MemHandle, address: usize) -> Self {
        Self {
            address,
            log: AccessLog::default(),
            block: None,
            lent: false,
            exposed: Exposed {
                handle: handle.raw().addr(),
                entered: AtomicBool::new(false),
            },
            handle,
            starts: ViewStarts::default(),
            _let_go: LetGo,
        }
    }

    /// Returns a buffer over the first bytes of `block`.
    pub(crate) fn over(handle: MemHandle, block: &Arc<SvmBlock>) -> Self {
        let mut root = Self::new(handle, block.address());
        root.block = Some(Arc::clone(block));
        root
    }

    /// The block of shared virtual memory that it lies over.
    pub(crate) fn block(&self) -> Option<&SvmBlock> {
        self.block.as_deref()
    }

    /// Returns its log, or that of the block that it lies over.
    pub(crate) fn log(&self) -> &AccessLog {
        self.block().map_or(&self.log, SvmBlock::log)
    }

    /// Returns the device's side of a map of `region`, which lies in it. A buffer over shared virtual memory is mapped as
    /// shared virtual memory: the runtime might take the address under the buffer for memory of the host to copy to.
    pub(crate) fn bytes_to_map(&self, region: Region) -> DeviceBytes<'_> {
        match self.block() {
            Some(block) => DeviceBytes::Svm(block.range(region)),
            None => DeviceBytes::Buffer(&self.handle, region.offset),
        }
    }

    /// Describes a use of `region`, which lies in it.
    pub(crate) fn used(&self, region: Region, access: Access) -> MemoryUse<'_> {
        MemoryUse {
            log: self.log(),
            region,
            access,
            is_svm: self.block.is_some(),
        }
    }

    /// Returns the root that stands for the buffer of `handle`, which is made if there is none.
    pub(crate) fn of(handle: MemHandle) -> ClResult<Arc<Self>> {
        let address = handle.info(CL_MEM_HOST_PTR)?.value()?;
        Ok(Self::enter(Arc::new(Self::new(handle, address))))
    }

    /// Enters the root into the registry, since the program is about to see its handle.
    pub(crate) fn expose(self: &Arc<Self>) {
        if !self.exposed.entered.load(Ordering::Acquire) {
            let _known = Self::enter(Arc::clone(self));
        }
    }

    /// Enters `root`, unless another value stands for the same buffer already; that one is returned then.
    fn enter(root: Arc<Self>) -> Arc<Self> {
        let known = EXPOSED.find_or_insert(root.exposed.handle, root);
        known.exposed.entered.store(true, Ordering::Release);
        known
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if *self.entered.get_mut() {
            EXPOSED.forget(&self.handle);
        }
    }
}
