//! The guards over maps: slices of the host.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use binpool_allocators::{Align, InvalidRequest, On, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::mapping::Mapping;
use crate::event::{ClEvent, ClOn};

/// Memory that the host reads: a slice of `T`, until it is dropped. Commands that write the memory are refused
/// meanwhile; see [`OpenClBackend::map`](crate::OpenClBackend::map).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
///
/// ```
/// use binpool_allocators::{Error, InvalidRequest, Queue};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer_from(&[1_u32, 2, 3, 4], MemoryFlags::empty())?;
/// let map = backend.map::<u32>(&queue, &memory, 0..8)?;
/// assert_eq!(map[..], [1, 2]);
///
/// // What is not mapped can be written. What is mapped cannot, nor can a part of it.
/// backend.write(&queue, &memory, 8, &[0_u8; 4])?;
/// let refused = backend.write(&queue, &memory, 4, &[0_u8; 8]);
/// let mapped = InvalidRequest::Mapped { offset: 0, bytes: 8 };
/// assert!(matches!(refused, Err(Error::InvalidRequest(request)) if request == mapped));
///
/// let ended = map.unmap()?; // The event is for others: commands of this crate wait by themselves.
/// let map = backend.map::<u32>(&queue, &memory, 8..16)?;
/// map.unmap_on(other_queue.after(&[ended]))?; // Ends in the order of that queue.
/// backend.write(&queue, &memory, 4, &[0_u8; 8])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Map<'m, T> = HostMap<'m, T, Reads>;

/// Memory that the host reads and writes: a mutable slice of `T`, until it is dropped. All commands on the memory are
/// refused meanwhile; see [`OpenClBackend::map_mut`](crate::OpenClBackend::map_mut).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer_from(&[3_u32, 1, 4, 1], MemoryFlags::empty())?;
/// let mut map = backend.map_mut::<u32>(&queue, &memory, 0..16)?;
/// map.sort_unstable(); // It is a slice.
/// // Meanwhile not even reads are taken.
/// assert!(backend.map::<u32>(&other_queue, &memory, 12..16).is_err());
/// map.unmap()?;
///
/// let mut map = backend.map_mut::<u32>(&queue, &memory, 0..4)?;
/// map[0] = 9;
/// map.unmap_on(&other_queue)?;
/// let map = backend.map::<u32>(&queue, &memory, 0..16)?;
/// assert_eq!(map[..], [9, 1, 3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type MapMut<'m, T> = HostMap<'m, T, Writes>;

/// A map of memory or of an image, until it is dropped: [`Map`], [`MapMut`], [`ImageMap`](crate::ImageMap) or
/// [`ImageMapMut`](crate::ImageMapMut).
///
/// ```
/// use binpool_allocators::Result;
/// use binpool_opencl::{ClQueue, HostMap, Map};
///
/// /// Ends maps of any kind on one queue.
/// fn unmap_all<T, A, L>(queue: &ClQueue, maps: Vec<HostMap<'_, T, A, L>>) -> Result<()> {
///     maps.into_iter().try_for_each(|map| map.unmap_on(queue).map(drop))
/// }
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer_from(&[1_u8, 2, 3, 4], MemoryFlags::empty())?;
/// let halves = [0..2, 2..4].map(|half| backend.map(&queue, &memory, half));
/// let halves: Vec<Map<u8>> = halves.into_iter().collect::<Result<_>>()?;
/// assert_eq!((&halves[0][..], &halves[1][..]), (&[1, 2][..], &[3, 4][..]));
/// unmap_all(&queue, halves)?;
/// backend.map::<u8>(&queue, &memory, 0..4)?.unmap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the memory is unmapped when it is dropped"]
pub struct HostMap<'m, T, A, L = ()> {
    pub(super) mapping: Mapping<'m>,
    /// Where the rows of an image are.
    #[cfg_attr(
        not(feature = "images"),
        expect(dead_code, reason = "only images have rows")
    )]
    pub(super) layout: L,
    elements: PhantomData<(&'m [T], A)>,
}

/// The host reads what a [`HostMap`] maps.
///
/// ```
/// use binpool_opencl::{HostMap, Map, Reads};
///
/// fn same<'m, T>(map: Map<'m, T>) -> HostMap<'m, T, Reads> {
///     map
/// }
/// ```
#[derive(Debug)]
pub enum Reads {}

/// The host reads and writes what a [`HostMap`] maps.
///
/// ```
/// use binpool_opencl::{HostMap, MapMut, Writes};
///
/// fn same<'m, T>(map: MapMut<'m, T>) -> HostMap<'m, T, Writes> {
///     map
/// }
/// ```
#[derive(Debug)]
pub enum Writes {}

/// A map that was enqueued; [`wait`](Self::wait) returns it as an `M`: [`Map`], [`MapMut`], [`ImageMap`](crate::ImageMap) or
/// [`ImageMapMut`](crate::ImageMapMut). Conflicting commands are refused from the call on.
///
/// Dropping it enqueues the end of the map.
///
/// ```
/// use std::slice::from_ref;
///
/// use binpool_allocators::{Event, Outcome, Queue};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer_from(&[7_u8; 64], MemoryFlags::empty())?;
/// let gate = backend.create_user_event()?;
/// let pending = backend.enqueue_map::<u8>(queue.after(from_ref(&gate)), &memory, 0..64)?;
/// assert!(backend.write(&queue, &memory, 0, &[1_u8]).is_err()); // The bytes are the host's from now on.
/// let after = backend.enqueue_marker(queue.after(from_ref(pending.event())))?;
///
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// let map = pending.wait()?;
/// assert_eq!(map[..], [7; 64]);
/// after.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the memory is unmapped when it is dropped"]
pub struct PendingMap<'m, M> {
    mapping: Mapping<'m>,
    /// Makes the map of what is there.
    map: fn(Mapping<'m>) -> Result<M>,
}

/// Checks that the host's address is aligned for `T`. The length was checked before.
pub(super) fn check_elements<T: AnyBitPattern>(bytes: &[u8]) -> Result<()> {
    let address = bytes.as_ptr().addr();
    if address.is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    let alignment = Align::new(align_of::<T>()).unwrap_or(Align::ONE);
    Err(InvalidRequest::ElementsMisaligned { address, alignment }.into())
}

impl<'m, M> PendingMap<'m, M> {
    pub(crate) const fn new(mapping: Mapping<'m>, map: fn(Mapping<'m>) -> Result<M>) -> Self {
        Self { mapping, map }
    }

    /// The event of the map, for other commands to wait for.
    pub fn event(&self) -> &ClEvent {
        self.mapping.event()
    }

    /// Waits until the memory is there.
    ///
    /// # Errors
    ///
    /// The failure of the command, or of a command that it waits for;
    /// [`ElementsMisaligned`](InvalidRequest::ElementsMisaligned) if the host's address is not aligned for the elements. Of images
    /// also [`NotWholeElements`](InvalidRequest::NotWholeElements). The memory is not mapped then.
    pub fn wait(self) -> Result<M> {
        self.mapping.wait()?;
        (self.map)(self.mapping)
    }
}

impl<'m, T: AnyBitPattern, A> HostMap<'m, T, A> {
    /// Returns the map of bytes that are there.
    pub(crate) fn of_bytes(mapping: Mapping<'m>) -> Result<Self> {
        check_elements::<T>(mapping.view().as_slice())?;
        Ok(Self::new(mapping, ()))
    }
}

impl<'m, T, A, L> HostMap<'m, T, A, L> {
    pub(super) const fn new(mapping: Mapping<'m>, layout: L) -> Self {
        Self {
            mapping,
            layout,
            elements: PhantomData,
        }
    }
}

impl<T, A, L> HostMap<'_, T, A, L> {
    /// Enqueues the end of the map on the queue that it was made on, and returns its event.
    ///
    /// The end is a command like any other: `finish`, markers and barriers of the queue come after it. One case is different:
    /// while another map of the same address is being made, the end waits for that, and its queue does not wait for the end.
    ///
    /// # Errors
    ///
    /// A failure of the runtime, after which the memory may stay mapped.
    pub fn unmap(self) -> Result<ClEvent> {
        self.mapping.end_here()
    }

    /// Enqueues the end of the map on `queue`, after `wait_for`, and returns its event. `PyOpenCL`'s
    /// `MemoryMap.release`.
    ///
    /// The order is that of [`unmap`](Self::unmap). On `PoCL` and Intel's runtime the map ends even if something that its end
    /// waits for fails.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject), after which the map has ended on its own queue; a failure
    /// of the runtime, after which the memory may stay mapped.
    pub fn unmap_on<'q>(self, on: impl Into<ClOn<'q>>) -> Result<ClEvent> {
        let On { queue, wait_for } = on.into();
        self.mapping.end(queue, wait_for)
    }
}

impl<T: AnyBitPattern, A> Deref for HostMap<'_, T, A> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.mapping.view().as_slice())
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for MapMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.mapping.view_mut().as_mut_slice())
    }
}

#[cfg(feature = "ndarray")]
impl<T: AnyBitPattern, A> HostMap<'_, T, A> {
    /// Returns the elements as an array of this shape: row by row, column by column (`.f()`), or with strides of its own
    /// (`.strides(..)`, in elements); `shape`, `order` and `strides` of `PyOpenCL`'s `enqueue_map_buffer`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// use ndarray::ShapeBuilder;
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let map = backend.map::<f32>(&queue, &memory, 0..4096)?;
    /// let columns = map.shaped((32, 32).f())?;
    /// assert_eq!(columns.strides(), [1, 32]);
    /// assert!(map.shaped((33, 32)).is_err()); // The map ends before.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the shape reaches beyond the map.
    pub fn shaped<D: ndarray::Dimension>(
        &self,
        shape: impl Into<ndarray::StrideShape<D>>,
    ) -> Result<ndarray::ArrayView<'_, T, D>, ndarray::ShapeError> {
        ndarray::ArrayView::from_shape(shape, self)
    }
}

#[cfg(feature = "ndarray")]
impl<T: AnyBitPattern + NoUninit> MapMut<'_, T> {
    /// Returns the elements as an array of this shape, to be written; see [`shaped`](Self::shaped).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1, 2, 3, 4, 5, 6], MemoryFlags::empty())?;
    /// let mut map = backend.map_mut::<i32>(&queue, &memory, 0..24)?;
    /// let mut rows = map.shaped_mut((2, 3))?;
    /// rows.row_mut(1).fill(0);
    /// assert_eq!(map.shaped((2, 3))?, ndarray::arr2(&[[1, 2, 3], [0, 0, 0]]));
    /// assert_eq!(map[..], [1, 2, 3, 0, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the shape reaches beyond the map, or has one element at two indices.
    pub fn shaped_mut<D: ndarray::Dimension>(
        &mut self,
        shape: impl Into<ndarray::StrideShape<D>>,
    ) -> Result<ndarray::ArrayViewMut<'_, T, D>, ndarray::ShapeError> {
        ndarray::ArrayViewMut::from_shape(shape, self)
    }
}

impl<T: AnyBitPattern + fmt::Debug, A> fmt::Debug for HostMap<'_, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&&**self).finish()
    }
}

impl<M> fmt::Debug for PendingMap<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingMap")
            .field("event", self.mapping.event())
            .finish_non_exhaustive()
    }
}
