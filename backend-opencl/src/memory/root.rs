//! Buffers that are no part of another one, and which of them the program can reach by their handles.
//!
//! All values of one buffer share one [`Root`], whose log knows what every one of them has enqueued. Where a handle was
//! given out and comes back in, the root is found here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_allocators::Region;
use parking_lot::Mutex;

use crate::{
    order::access::{Access, Use},
    order::access_log::AccessLog,
    svm::block::SvmBlock,
    sys::MemHandle,
};

/// # Invariants
///
/// I1: An entry that can be upgraded stands under the handle that its root holds a reference to, so that the
/// runtime cannot have given that handle to another buffer.
static EXPOSED: Mutex<BTreeMap<usize, Weak<Root>>> = Mutex::new(BTreeMap::new());

/// A buffer that is no part of another one.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) handle: MemHandle,
    /// Not looked at where it lies over a block, which has a log of its own.
    log: AccessLog,
    /// The block of shared virtual memory that it lies over, from its first byte on. After the handle: the buffer goes
    /// before its memory.
    block: Option<Arc<SvmBlock>>,
    /// Whether its memory is lent to it by somebody who waits for its end.
    pub(crate) lent: bool,
    exposed: Exposed,
}

/// Whether a root was entered; takes the entry out when it goes.
#[derive(Debug)]
struct Exposed {
    handle: usize,
    entered: AtomicBool,
}

impl Root {
    pub(crate) fn new(handle: MemHandle) -> Self {
        Self {
            log: AccessLog::default(),
            block: None,
            lent: false,
            exposed: Exposed {
                handle: handle.raw().addr(),
                entered: AtomicBool::new(false),
            },
            handle,
        }
    }

    /// The same, over memory of the host that somebody wants back.
    pub(crate) fn over_host_memory(handle: MemHandle) -> Self {
        let root = Self::new(handle);
        root.log.await_end();
        root
    }

    /// The same, over memory that is lent to it.
    pub(crate) fn over_lent_memory(handle: MemHandle) -> Self {
        let mut root = Self::over_host_memory(handle);
        root.lent = true;
        root
    }

    /// A buffer over the first bytes of `block`.
    pub(crate) fn over(handle: MemHandle, block: &Arc<SvmBlock>) -> Self {
        let mut root = Self::new(handle);
        root.block = Some(Arc::clone(block));
        root
    }

    /// The block of shared virtual memory that it lies over.
    pub(crate) fn block(&self) -> Option<&SvmBlock> {
        self.block.as_deref()
    }

    /// What commands and maps do with it.
    pub(crate) fn log(&self) -> &AccessLog {
        self.block().map_or(&self.log, SvmBlock::log)
    }

    /// A use of `region`, which lies in it.
    pub(crate) fn used(&self, region: Region, access: Access) -> Use<'_> {
        Use {
            log: self.log(),
            region,
            access,
            block: self.block(),
        }
    }

    /// The root that stands for the buffer of `handle`: the one that there is, or a new one.
    pub(crate) fn of(handle: MemHandle) -> Arc<Self> {
        Self::enter(Arc::new(Self::new(handle)))
    }

    /// Makes the root one that is found by its handle, which the program is about to see.
    pub(crate) fn expose(self: &Arc<Self>) {
        if !self.exposed.entered.load(Ordering::Acquire) {
            let _known = Self::enter(Arc::clone(self));
        }
    }

    /// Enters `root`, unless another value stands for the same buffer already; that one is returned then.
    fn enter(root: Arc<Self>) -> Arc<Self> {
        let mut exposed = EXPOSED.lock();
        let entry = exposed.entry(root.exposed.handle).or_default();
        if let Some(known) = entry.upgrade() {
            drop(exposed);
            // `root` is dropped here, outside the lock, and is not the one entered, or not the last.
            return known;
        }
        *entry = Arc::downgrade(&root);
        root.exposed.entered.store(true, Ordering::Release);
        root
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if !*self.entered.get_mut() {
            return;
        }
        let mut exposed = EXPOSED.lock();
        // A newer root may have taken the place.
        let gone = |entry: &Weak<Root>| entry.strong_count() == 0;
        if exposed.get(&self.handle).is_some_and(gone) {
            exposed.remove(&self.handle);
        }
    }
}
