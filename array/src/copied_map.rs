//! Maps by copies.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use binpool::{AsMemory, Backend, Error, InvalidRequest, Queue, Region};

/// A region of memory as a copy on the host that is written back when it ends: the
/// [`MapMut`](crate::HostMaps::MapMut) of a backend whose memory the host cannot have as it is.
pub struct CopiedMapMut<'m, B: Backend> {
    backend: B,
    queue: B::Queue,
    memory: &'m B::Memory,
    offset: usize,
    elements: Vec<f32>,
    ended: bool,
}

/// Reads a region, which holds whole elements.
pub(crate) fn read_elements<B: Backend>(
    backend: &B,
    queue: &B::Queue,
    memory: &B::Memory,
    region: Region,
) -> Result<Vec<f32>, Error> {
    let mut elements = vec![0.0_f32; region.bytes / size_of::<f32>()];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
    backend.read(queue, memory, region.offset, bytes)?;
    Ok(elements)
}

impl<'m, B: Backend> CopiedMapMut<'m, B> {
    /// Reads the region, which holds whole elements.
    ///
    /// # Errors
    ///
    /// A failure of the device; [`ZeroSize`](InvalidRequest::ZeroSize) for memory of 0 bytes.
    pub fn new(
        backend: &B,
        queue: &B::Queue,
        memory: &'m impl AsMemory<B>,
        region: Region,
    ) -> Result<Self, Error> {
        let memory = memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?;
        Ok(Self {
            elements: read_elements(backend, queue, memory, region)?,
            backend: backend.clone(),
            queue: queue.clone(),
            memory,
            offset: region.offset,
            ended: false,
        })
    }

    /// Writes the elements back, and waits until they are there. Dropping it does the same, and logs the error.
    ///
    /// # Errors
    ///
    /// A failure of the device. The memory may be as it was.
    pub fn write_back(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.ended = true;
        let bytes: &[u8] = bytemuck::cast_slice(&self.elements);
        self.backend
            .write(&self.queue, self.memory, self.offset, bytes)
    }
}

impl<B: Backend> Drop for CopiedMapMut<'_, B> {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.end()
        {
            let bytes = self.elements.len() * size_of::<f32>();
            tracing::error!(%error, bytes, queue = ?self.queue.id(), "a map could not be written back");
        }
    }
}

impl<B: Backend> Deref for CopiedMapMut<'_, B> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.elements
    }
}

impl<B: Backend> DerefMut for CopiedMapMut<'_, B> {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.elements
    }
}

impl<B: Backend> fmt::Debug for CopiedMapMut<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiedMapMut")
            .field("memory", &self.memory)
            .field("offset", &self.offset)
            .field("elements", &self.elements.len())
            .finish_non_exhaustive()
    }
}

/// Gives a backend maps that are copies.
macro_rules! copied_maps {
    ($backend:ty) => {
        impl crate::HostMaps for $backend {
            type Map<'m> = Vec<f32>;
            type MapMut<'m> = crate::CopiedMapMut<'m, Self>;

            fn map_elements(
                &self,
                queue: &Self::Queue,
                memory: &impl binpool::AsMemory<Self>,
                region: binpool::Region,
            ) -> Result<Vec<f32>, binpool::Error> {
                let memory = memory.memory_on(queue);
                let memory = memory.ok_or(binpool::InvalidRequest::ZeroSize)?;
                crate::copied_map::read_elements(self, queue, memory, region)
            }

            fn map_elements_mut<'m>(
                &self,
                queue: &Self::Queue,
                memory: &'m impl binpool::AsMemory<Self>,
                region: binpool::Region,
            ) -> Result<crate::CopiedMapMut<'m, Self>, binpool::Error> {
                crate::CopiedMapMut::new(self, queue, memory, region)
            }

            fn unmap(map: crate::CopiedMapMut<'_, Self>) -> Result<(), binpool::Error> {
                map.write_back()
            }
        }
    };
}

pub(crate) use copied_maps;
