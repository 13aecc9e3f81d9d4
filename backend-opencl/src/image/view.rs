//! Objects of the runtime that an image over a buffer needs: the image, and what it was made over.

use std::{ops::Deref, sync::Arc};

use binpool_allocators::Region;
use smallvec::smallvec;

use crate::{
    context::Context,
    memory::{part::release_after_use, root::Root},
    sys::{MemHandle, ViewHandle},
};

/// An image over a part of a buffer, or the object that one was made over.
#[derive(Debug)]
pub(crate) struct View {
    handle: Arc<ViewHandle>,
    root: Arc<Root>,
    region: Region,
    /// Set if it is released only after the commands that use its bytes.
    is_fragile: bool,
}

impl View {
    /// Returns `handle`, an object over the bytes `region` of `root`, as a view.
    pub(crate) fn new(
        context: &Context,
        handle: MemHandle,
        root: &Arc<Root>,
        region: Region,
    ) -> Self {
        Self {
            handle: Arc::new(ViewHandle::new(handle, context.quirks.view_lock)),
            root: Arc::clone(root),
            region,
            is_fragile: context.quirks.used_views_are_fragile,
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
}

impl Deref for View {
    type Target = MemHandle;

    fn deref(&self) -> &MemHandle {
        &self.handle
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.is_fragile {
            let handle = Arc::clone(&self.handle);
            release_after_use(smallvec![handle], &self.root, self.region);
        }
    }
}
