//! Virtual memory of a broken backend.

use binpool_allocators::{
    Error, InvalidRequest, Memory, MemoryKind, Region, Result, VirtualMemory,
};

use binpool_mock::MockMemory;

use crate::{backend::Broken, defect::Defect, objects::BrokenMemory};

impl VirtualMemory for Broken {
    fn page_bytes(&self) -> usize {
        self.mock.page_bytes()
    }

    fn reserve(&self, mut bytes: usize) -> Result<BrokenMemory> {
        if self.has(Defect::NoBytesAreOneByte) {
            bytes = bytes.max(1);
        }
        let memory = self.mock.reserve(bytes)?;
        Ok(BrokenMemory::new(memory, self, false))
    }

    fn create_pages(&self, bytes: usize) -> Result<BrokenMemory> {
        let memory = self.mock.create_pages(bytes)?;
        Ok(BrokenMemory::new(memory, self, false))
    }

    fn map(
        &self,
        reservation: &BrokenMemory,
        mut offset: usize,
        pages: &BrokenMemory,
    ) -> Result<()> {
        let (reservation, pages) = (self.memory(reservation), self.memory(pages));
        if self.has(Defect::PlacesOfPagesAreRounded) {
            offset -= offset % self.page_bytes();
        }
        if self.has(Defect::BuffersAreMapped) && pages.kind() != MemoryKind::Pages {
            return Ok(());
        }
        if self.has(Defect::PagesLoseTheirContents) {
            return self.map_others(reservation, offset, pages);
        }
        match self.mock.map(reservation, offset, pages) {
            Err(Error::InvalidRequest(InvalidRequest::AlreadyMapped { .. }))
                if self.has(Defect::MapsMayOverlap) =>
            {
                Ok(())
            }
            Err(refusal @ Error::Unsupported { .. }) => match self.defect {
                Defect::SecondMapsAreLost => Ok(()),
                Defect::SecondMapsAreCopies => self.map_others(reservation, offset, pages),
                Defect::RefusedMapsAreMade => {
                    self.map_others(reservation, offset, pages)?;
                    Err(refusal)
                }
                _ => Err(refusal),
            },
            result => result,
        }
    }

    fn unmap(&self, reservation: &BrokenMemory, region: Region) -> Result<()> {
        match self.mock.unmap(self.memory(reservation), region) {
            Err(Error::InvalidRequest(InvalidRequest::NotMapped { .. }))
                if self.has(Defect::UnmapsAreClipped) =>
            {
                Ok(())
            }
            Err(Error::InvalidRequest(InvalidRequest::InUse { .. }))
                if self.has(Defect::UnmapsIgnoreCommands) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

impl Broken {
    /// Maps fresh pages in place of others.
    fn map_others(
        &self,
        reservation: &MockMemory,
        offset: usize,
        pages: &MockMemory,
    ) -> Result<()> {
        let others = self.mock.create_pages(pages.bytes())?;
        self.mock.map(reservation, offset, &others)
    }
}
