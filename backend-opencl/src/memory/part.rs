//! A sub-buffer, which stands for a part of a buffer.

use std::sync::{Arc, OnceLock};

use binpool_allocators::{Region, Result};
use parking_lot::ReentrantMutex;
use smallvec::SmallVec;

use crate::{
    after_use::{PendingUses, drop_after_use},
    context::Context,
    memory::root::Root,
    sys::{self, MemHandle, Purpose, ViewHandle},
};

/// A part of a buffer.
///
/// Transfers, fills and maps name the buffer and the place of the part in it. An object of the runtime is made when something first needs
/// one, most often a kernel, so a part costs no call of the runtime until then.
#[derive(Debug)]
pub(crate) struct Part {
    root: Arc<Root>,
    region: Region,
    /// The flags of `object`, as the runtime counts them.
    flags: u64,
    /// A sub-buffer of exactly these bytes.
    object: OnceLock<Arc<ViewHandle>>,
    /// What kernels are given, where that is not `object` ([`ViewStarts`](crate::memory::view_starts::ViewStarts)).
    start: OnceLock<Arc<ViewHandle>>,
    /// Set if kernels are given `start`, and both are released only after the commands that use these bytes.
    is_fragile: bool,
}

impl Part {
    /// Returns the bytes `region` of `root`. A sub-buffer of them gets these flags of the runtime.
    pub(crate) fn new(context: &Context, root: &Arc<Root>, region: Region, flags: u64) -> Self {
        Self {
            root: Arc::clone(root),
            region,
            flags,
            object: OnceLock::new(),
            start: OnceLock::new(),
            is_fragile: context.quirks.used_views_are_fragile,
        }
    }

    /// Returns the bytes `region` of `root`, with a sub-buffer of them that the program has made.
    pub(crate) fn of_sub_buffer(
        context: &Context,
        object: MemHandle,
        root: &Arc<Root>,
        region: Region,
    ) -> Self {
        let mut part = Self::new(context, root, region, 0);
        let object = Arc::new(ViewHandle::new(object, context.quirks.view_lock));
        part.object = OnceLock::from(object);
        part
    }

    /// The buffer that it is a part of.
    pub(crate) const fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Its bytes in the buffer.
    pub(crate) const fn region(&self) -> Region {
        self.region
    }

    /// Returns the runtime's object over exactly these bytes.
    pub(crate) fn object(&self, context: &Context) -> Result<&MemHandle> {
        if let Some(object) = self.object.get() {
            return Ok(object);
        }
        let Region { offset, bytes } = self.region;
        let lock = context.quirks.view_lock;
        let held = lock.map(ReentrantMutex::lock);
        let made = sys::create_sub_buffer(&self.root.handle, self.flags, offset, bytes)
            .map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
        drop(held);
        let made = Arc::new(ViewHandle::new(made, lock));
        // If another thread has made one meanwhile, that one is used, and this one is released.
        Ok(self.object.get_or_init(|| made))
    }

    /// Returns the object that a kernel is given.
    pub(crate) fn for_kernels(&self, context: &Context) -> Result<&MemHandle> {
        if !self.is_fragile {
            return self.object(context);
        }
        if let Some(start) = self.start.get() {
            return Ok(start);
        }
        let (root, offset) = (&self.root, self.region.offset);
        let start = root.starts.get(context, &root.handle, offset)?;
        Ok(self.start.get_or_init(|| start))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let objects = [self.object.take(), self.start.take()];
        let objects: SmallVec<[_; 2]> = objects.into_iter().flatten().collect();
        if self.is_fragile && !objects.is_empty() {
            release_after_use(objects, &self.root, self.region);
        }
    }
}

/// Releases objects over the bytes `region` of `root` after the commands that use these bytes: NVIDIA's driver hangs or crashes
/// where it is a command that has the last reference to one.
pub(crate) fn release_after_use(
    objects: SmallVec<[Arc<ViewHandle>; 2]>,
    root: &Root,
    region: Region,
) {
    match PendingUses::of(root.log(), region) {
        Ok(uses) => drop_after_use(objects, uses),
        Err(error) => {
            tracing::error!(%error, "a view was leaked: could not wait for its commands");
            std::mem::forget(objects);
        }
    }
}
