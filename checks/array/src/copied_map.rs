//! Maps for backends without maps: a copy on the host, which is written back.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use binpool::{AsMemory, Backend, Error, InvalidRequest, Queue, Region};

use crate::HostMaps;

/// A backend whose memory the host cannot access in place: its [`HostMaps`] are copies.
pub trait CopiesMaps: Backend {}

/// A region of memory as a copy on the host that is written back when it ends: the
/// [`MapMut`](HostMaps::MapMut) of a backend that [copies](CopiesMaps).
pub struct CopiedMapMut<'m, B: Backend> {
    backend: B,
    queue: B::Queue,
    memory: &'m B::Memory,
    offset: usize,
    elements: Vec<f32>,
    ended: bool,
}

impl<B: Backend> CopiedMapMut<'_, B> {
    /// Writes the elements back, and waits until they are there.
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

impl<B: CopiesMaps> HostMaps for B {
    type Map<'m> = Vec<f32>;
    type MapMut<'m> = CopiedMapMut<'m, Self>;

    fn map_elements(
        &self,
        queue: &Self::Queue,
        memory: &impl AsMemory<Self>,
        region: Region,
    ) -> Result<Vec<f32>, Error> {
        let memory = memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?;
        let mut elements = vec![0.0_f32; region.bytes / size_of::<f32>()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        self.read(queue, memory, region.offset, bytes)?;
        Ok(elements)
    }

    fn map_elements_mut<'m>(
        &self,
        queue: &Self::Queue,
        memory: &'m impl AsMemory<Self>,
        region: Region,
    ) -> Result<CopiedMapMut<'m, Self>, Error> {
        Ok(CopiedMapMut {
            elements: self.map_elements(queue, memory, region)?,
            backend: self.clone(),
            queue: queue.clone(),
            memory: memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?,
            offset: region.offset,
            ended: false,
        })
    }

    fn unmap(mut map: CopiedMapMut<'_, Self>) -> Result<(), Error> {
        map.end()
    }
}
