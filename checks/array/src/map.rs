//! Elements as slices of the host.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use binpool::{AsMemory, Backend, Error, Region};

use crate::{Array, ArrayError, AsSlice, Kernels, Slice, SliceMut};

/// A backend whose memory the host can access as slices of `f32`. A new backend implements this, and its arrays have
/// [`map`](Array::map) and [`map_mut`](Array::map_mut).
///
/// A backend that can map memory gives its own guards, as OpenCL does. For one that cannot, [`CopiesMaps`](crate::CopiesMaps) is enough:
/// what is read is a `Vec<f32>`, and what is written is copied back when the map ends ([`CopiedMapMut`](crate::CopiedMapMut)).
///
/// Regions are in bytes: whole elements, at least one, within the memory. Commands that use them come before the map on
/// its queue, or ended before it; the map waits for those. Commands that are enqueued on its queue after the guard is
/// gone come after what it wrote.
pub trait HostMaps: Backend {
    /// Elements to be read.
    type Map<'m>: Deref<Target = [f32]>;
    /// Elements to be read and written. The device sees what was written once the guard is dropped; errors of that are
    /// logged.
    type MapMut<'m>: DerefMut<Target = [f32]>;

    /// Maps a region to be read, and waits until it is there.
    ///
    /// # Errors
    ///
    /// A failure of the device, or its refusal.
    fn map_elements<'m>(
        &self,
        queue: &Self::Queue,
        memory: &'m impl AsMemory<Self>,
        region: Region,
    ) -> Result<Self::Map<'m>, Error>;

    /// Maps a region to be read and written, and waits until it is there.
    ///
    /// # Errors
    ///
    /// A failure of the device, or its refusal.
    fn map_elements_mut<'m>(
        &self,
        queue: &Self::Queue,
        memory: &'m impl AsMemory<Self>,
        region: Region,
    ) -> Result<Self::MapMut<'m>, Error>;

    /// Ends a map, and returns the error that dropping it would only log.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn unmap(map: Self::MapMut<'_>) -> Result<(), Error>;
}

/// Elements of an array as a slice of the host, until it is dropped: made by [`Array::map`] and [`Slice::map`].
#[must_use = "the elements are unmapped when it is dropped"]
pub struct HostMap<'a, B: HostMaps> {
    /// `None` for no elements, which no device maps.
    map: Option<B::Map<'a>>,
}

/// Elements of an array as a slice of the host to be written, until it is dropped: made by [`Array::map_mut`] and
/// [`SliceMut::map_mut`].
#[must_use = "the elements are unmapped when it is dropped"]
pub struct HostMapMut<'a, B: HostMaps> {
    map: Option<B::MapMut<'a>>,
}

impl<B: HostMaps> HostMapMut<'_, B> {
    /// Ends the map. Dropping it does the same, and logs the error.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn unmap(self) -> Result<(), ArrayError> {
        self.map.map_or(Ok(()), |map| Ok(B::unmap(map)?))
    }
}

impl<B: HostMaps> Deref for HostMap<'_, B> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl<B: HostMaps> Deref for HostMapMut<'_, B> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl<B: HostMaps> DerefMut for HostMapMut<'_, B> {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

impl<B: HostMaps> fmt::Debug for HostMap<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostMap").field(&&**self).finish()
    }
}

impl<B: HostMaps> fmt::Debug for HostMapMut<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostMapMut").field(&&**self).finish()
    }
}

impl<B: HostMaps, K: Kernels<B>> Array<B, K> {
    /// The elements as a slice of the host, once everything enqueued before is computed.
    ///
    /// Other commands may read the array meanwhile. The borrow keeps safe code from writing it; if the guard is
    /// forgotten (`mem::forget`), OpenCL refuses to write it, with the error
    /// [`Mapped`](binpool::InvalidRequest::Mapped).
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn map(&self) -> Result<HostMap<'_, B>, ArrayError> {
        self.as_slice().map()
    }

    /// The elements as a slice of the host that can be written, once every command that uses the array has ended.
    ///
    /// Nothing else uses the array until the guard is dropped, and everything that uses it later sees what was written. If the guard is
    /// forgotten (`mem::forget`), OpenCL refuses all commands on those elements from then on, with
    /// [`Mapped`](binpool::InvalidRequest::Mapped), even if their block has returned to the pool and has another user; a copied map is
    /// never written back.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_array::{Context, MockKernels};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// # let context = Context::new(pool, queue, MockKernels);
    /// let mut array = context.array(&[3.0, 1.0, 2.0])?;
    /// array.map_mut()?.sort_by(f32::total_cmp);
    /// assert_eq!(*(&array + &array).map()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), binpool_array::ArrayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn map_mut(&mut self) -> Result<HostMapMut<'_, B>, ArrayError> {
        let length = self.len();
        SliceMut::all(self, length).into_map()
    }
}

impl<'a, B: HostMaps, K: Kernels<B>> Slice<'a, B, K> {
    /// The elements as a slice of the host; see [`Array::map`].
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn map(&self) -> Result<HostMap<'a, B>, ArrayError> {
        let (array, region) = (self.array(), self.place().region());
        let (backend, queue) = (array.buffer().backend(), array.context().queue());
        array.compute_before(queue)?;
        let map = (region.bytes > 0).then(|| backend.map_elements(queue, array.buffer(), region));
        let map = map.transpose()?;
        Ok(HostMap { map })
    }
}

impl<'a, B: HostMaps, K: Kernels<B>> SliceMut<'a, B, K> {
    /// The elements as a slice of the host that can be written; see [`Array::map_mut`].
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn map_mut(&mut self) -> Result<HostMapMut<'_, B>, ArrayError> {
        self.reborrow().into_map()
    }

    pub(crate) fn into_map(self) -> Result<HostMapMut<'a, B>, ArrayError> {
        let Self { array, place } = self;
        array.write_after_all()?;
        let array: &'a Array<B, K> = array;
        let (backend, queue) = (array.buffer().backend(), array.context().queue());
        let region = place.region();
        let map =
            (region.bytes > 0).then(|| backend.map_elements_mut(queue, array.buffer(), region));
        let map = map.transpose()?;
        Ok(HostMapMut { map })
    }
}
