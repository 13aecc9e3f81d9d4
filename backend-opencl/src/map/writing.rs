//! Maps of buffers and of shared virtual memory that the host only writes.

use binpool_allocators::{AsMemory, IntoRegion, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{
    guard::{MapMut, PendingMap},
    mapping::MapMode,
};
use crate::{ClOn, backend::OpenClBackend};

/// Maps for writing. The errors are those of [`map`](Self::map).
impl OpenClBackend {
    /// Maps `region` to be written in parts, and waits until that may be done. Bytes that the host does not write keep
    /// their values.
    ///
    /// Unlike [`map_mut`](Self::map_mut) it takes memory that the host only writes
    /// ([`HOST_WRITE_ONLY`](binpool_allocators::MemoryFlags::HOST_WRITE_ONLY)). The slice has the contents of the memory,
    /// like all maps except those that overwrite (OpenCL 3.0, section 5.2.4), but reading it may be slow.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let table = backend.create_buffer_from(&[1_u32, 2, 3, 4], MemoryFlags::HOST_WRITE_ONLY)?;
    /// backend.map_write::<u32>(&queue, &table, 0..16)?[2] = 30; // Unmapped at the end of the statement.
    ///
    /// let copy = backend.create_buffer(16, MemoryFlags::empty())?;
    /// backend.enqueue_copy(&queue, &table, Region::first(16), &copy, 0)?;
    /// assert_eq!(backend.map::<u32>(&queue, &copy, 0..16)?[..], [1, 2, 30, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`map`](Self::map).
    pub fn map_write<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<MapMut<'m, T>> {
        self.enqueue_map_write(on, memory, region)?.wait()
    }

    /// Enqueues a map of `region` to be written in parts, without waiting for it; see [`map_write`](Self::map_write).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let table = backend.create_buffer_from(&[1_u32, 2, 3, 4], MemoryFlags::empty())?;
    /// let pending = backend.enqueue_map_write::<u32>(&queue, &table, 8..12)?;
    /// let third = 30; // What the program does while the memory is on its way.
    /// pending.wait()?[0] = third;
    /// assert_eq!(backend.map::<u32>(&queue, &table, ..)?[..], [1, 2, 30, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`map`](Self::map).
    pub fn enqueue_map_write<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<PendingMap<'m, MapMut<'m, T>>> {
        self.map_as::<T, _>(on.into(), memory, region, MapMode::Write)
    }

    /// Enqueues a map of `region` to be written as a whole, without waiting for it; see
    /// [`map_overwrite`](Self::map_overwrite).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let frame = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let pending = backend.enqueue_map_overwrite::<u8>(&queue, &frame, 0..4096)?;
    /// let picture = vec![9; 4096]; // While commands that use the frame come to their end.
    /// pending.wait()?.copy_from_slice(&picture);
    /// assert_eq!(backend.map::<u8>(&queue, &frame, 0..4096)?[..], picture);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`map`](Self::map).
    pub fn enqueue_map_overwrite<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<PendingMap<'m, MapMut<'m, T>>> {
        self.map_as::<T, _>(on.into(), memory, region, MapMode::Overwrite)
    }
}
