//! The runtime's objects over parts of buffers: sub-buffers, and images over buffers.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use binpool_allocators::{Region, Result};

use crate::{
    context::Context,
    memory::root::Root,
    sys::{MemHandle, ViewHandle, drop_after_use},
};

/// An object of the runtime over a region of a buffer.
///
/// Dropping it releases the object: at once where the runtime keeps it for the commands that use it, and on NVIDIA's driver,
/// which hangs or crashes otherwise, after those.
#[derive(Debug)]
pub(crate) struct View {
    handle: Arc<ViewHandle>,
    /// What kernels are given, where that is not `handle` ([`ViewStarts`](crate::memory::view_starts::ViewStarts)).
    start: OnceLock<Arc<ViewHandle>>,
    /// Set if kernels are not given `handle`, and it is released only after the commands that use its bytes.
    is_fragile: bool,
    root: Arc<Root>,
    region: Region,
}

impl View {
    /// Returns `handle`, an object over the bytes `region` of `root`, as a view.
    pub(crate) fn new(
        context: &Context,
        handle: MemHandle,
        root: Arc<Root>,
        region: Region,
    ) -> Self {
        let quirks = &context.quirks;
        Self {
            handle: Arc::new(ViewHandle::new(handle, quirks.view_lock)),
            start: OnceLock::new(),
            is_fragile: quirks.used_views_are_fragile,
            root,
            region,
        }
    }

    /// The buffer that it is a part of.
    pub(crate) const fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Its bytes in the buffer.
    pub(crate) const fn region(&self) -> Region {
        self.region
    }

    /// Returns the object that a kernel is given.
    pub(crate) fn for_kernels(&self, context: &Context) -> Result<&MemHandle> {
        if !self.is_fragile {
            return Ok(&self.handle);
        }
        if let Some(start) = self.start.get() {
            return Ok(start);
        }
        let (root, offset) = (&self.root, self.region.offset);
        let start = root.starts.get(context, &root.handle, offset)?;
        Ok(self.start.get_or_init(|| start))
    }
}

impl Deref for View {
    type Target = MemHandle;

    fn deref(&self) -> &MemHandle {
        &self.handle
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if !self.is_fragile {
            return;
        }
        let handles = (Arc::clone(&self.handle), self.start.get().cloned());
        match self.root.log().pending_uses(self.region) {
            Ok(uses) => drop_after_use(handles, uses),
            Err(error) => {
                tracing::error!(%error, "a view was leaked: its commands could not be waited for");
                std::mem::forget(handles);
            }
        }
    }
}
