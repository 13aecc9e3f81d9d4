//! Virtual memory: reservations, pages, and what is mapped where.

use std::collections::BTreeMap;

use binpool_allocators::{
    Error, InvalidRequest, MemoryFlags, MemoryId, MemoryKind, Region, Result,
};
use smallvec::{SmallVec, smallvec};

use super::{
    State,
    records::{Access, Block, BlockKey, Mappings, ObjectKey, Operand},
};
use crate::{CallKind, CommandId, cause::Cause};

/// Reservations start on multiples of this.
const ADDRESS_STEP: u64 = 2 << 20;

impl Mappings {
    /// The pages that a region touches, with their regions, the last ones first.
    fn touched(&self, region: Region) -> impl Iterator<Item = (Region, BlockKey)> {
        let before = self.pages.range(..end_of(region)).rev();
        let touched = before.take_while(move |(start, (bytes, _))| *start + bytes > region.offset);
        touched.map(|(start, (bytes, pages))| (Region::new(*start, *bytes), *pages))
    }

    /// Returns whether pages are mapped to all of these bytes.
    pub(super) fn cover(&self, region: Region) -> bool {
        let end = region.offset + region.bytes;
        let mut at = region.offset;
        while at < end {
            match self.pages.range(..=at).next_back() {
                Some((start, (bytes, _))) if start + bytes > at => at = start + bytes,
                _ => return false,
            }
        }
        true
    }

    /// The pages of a region, which have to lie inside it as a whole, with their regions.
    fn inside(&self, region: Region) -> Option<Vec<(Region, BlockKey)>> {
        let end = region.offset + region.bytes;
        let inside = self.pages.range(region.offset..end);
        let inside: Vec<_> = inside
            .map(|(start, (bytes, pages))| (Region::new(*start, *bytes), *pages))
            .collect();
        let starts = inside.first()?.0.offset;
        let last = inside.last()?.0;
        let is_whole = starts == region.offset && last.offset + last.bytes == end;
        (is_whole && self.cover(region)).then_some(inside)
    }
}

impl State {
    /// Makes a reservation, which takes nothing of the device but addresses. No address is used again.
    pub(crate) fn reserve_addresses(&mut self, bytes: usize) -> Result<(ObjectKey, MemoryId)> {
        let address = self.next_address;
        // None of them touches the next one.
        let steps = bytes as u64 / ADDRESS_STEP + 2;
        let next = address.checked_add(steps.saturating_mul(ADDRESS_STEP));
        self.next_address = next.ok_or(InvalidRequest::TooLarge {
            requested: bytes,
            largest: usize::try_from(u64::MAX - address).unwrap_or(usize::MAX),
        })?;
        let block = self.new_block(bytes, MemoryKind::Buffer, MemoryFlags::empty());
        let pages = BTreeMap::new();
        Ok(self.insert_block(Block {
            mappings: Some(Mappings { address, pages }),
            ..block
        }))
    }

    /// Finds a reservation by an address in it, and the offset of that.
    pub(crate) fn reservation_at(&self, address: u64) -> Option<(Operand, usize)> {
        let mut objects = self.objects.iter().filter(|(_, object)| !object.is_view);
        objects.find_map(|(key, object)| {
            let start = self.blocks.get(object.block)?.mappings.as_ref()?.address;
            let offset = usize::try_from(address.checked_sub(start)?).ok()?;
            let (id, region) = (object.id, object.region);
            (offset < region.bytes).then_some((Operand { key, id, region }, offset))
        })
    }

    pub(crate) fn create_pages(&mut self, bytes: usize) -> Result<(ObjectKey, MemoryId)> {
        self.reserve(bytes as u64, CallKind::CreatePages)?;
        self.charge(|costs| costs.create_pages.micros_at(bytes as u64));
        let block = self.new_block(bytes, MemoryKind::Pages, MemoryFlags::empty());
        Ok(self.insert_block(Block {
            committed: true,
            ..block
        }))
    }

    /// Maps pages from `at` on, an operand without bytes in a reservation.
    pub(crate) fn map_pages(&mut self, at: Operand, pages: Operand) -> Result<()> {
        let kind = CallKind::Map;
        let reservation = self.find(at, kind, kind.name())?;
        let pages = self.find(pages, kind, kind.name())?;
        let (bytes, is_mapped) = self
            .blocks
            .get(pages)
            .map_or((0, false), |block| (block.bytes, block.addresses > 0));
        let offset = at.region.offset;
        let region = Region::new(offset, bytes);
        let Some(block) = self.blocks.get(reservation) else {
            return Ok(());
        };
        region.check_within(block.bytes)?;
        let Some(mappings) = &block.mappings else {
            return Err(Error::unsupported(
                "mapping pages to memory that is not a reservation",
            ));
        };
        if mappings.touched(region).next().is_some() {
            return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
        }
        if is_mapped && !self.config.page_aliases {
            return Err(Error::unsupported(
                "mapping pages that are mapped elsewhere: unmap them first",
            ));
        }
        if let Some(block) = self.blocks.get_mut(pages) {
            block.references += 1;
            block.addresses += 1;
        }
        if let Some(mappings) = self.mappings(reservation) {
            mappings.pages.insert(offset, (bytes, pages));
        }
        self.charge(|costs| costs.map.micros_at(bytes as u64));
        Ok(())
    }

    /// Unmaps the pages of a region. Reports commands that use it and have not ended, and changes nothing then.
    pub(crate) fn unmap_pages(&mut self, part: Operand) -> Result<()> {
        let kind = CallKind::Unmap;
        let reservation = self.find(part, kind, kind.name())?;
        let Region { offset, bytes } = part.region;
        let mappings = self
            .blocks
            .get(reservation)
            .and_then(|block| block.mappings.as_ref());
        let Some(inside) = mappings.and_then(|mappings| mappings.inside(part.region)) else {
            return Err(InvalidRequest::NotMapped { offset, bytes }.into());
        };
        let is_used = self.report_users(part.id, bytes, |access| {
            access.block == reservation && access.region.overlaps(part.region)
        });
        if is_used {
            return Err(InvalidRequest::InUse { offset, bytes }.into());
        }
        for (region, pages) in inside {
            if let Some(mappings) = self.mappings(reservation) {
                mappings.pages.remove(&region.offset);
            }
            self.charge(|costs| costs.unmap.micros_at(region.bytes as u64));
            self.let_go(pages);
        }
        Ok(())
    }

    /// Unmaps what is mapped to a reservation that is about to be freed.
    pub(super) fn unmap_all(&mut self, reservation: BlockKey) {
        let Some(mappings) = self.mappings(reservation) else {
            return;
        };
        for (_, pages) in std::mem::take(&mut mappings.pages).into_values() {
            self.let_go(pages);
        }
    }

    fn mappings(&mut self, reservation: BlockKey) -> Option<&mut Mappings> {
        self.blocks.get_mut(reservation)?.mappings.as_mut()
    }

    /// The parts of memory that an access touches, the last ones first: of the pages that are mapped there, or of the block itself.
    pub(super) fn parts_of(&self, access: Access) -> SmallVec<[Access; 2]> {
        let block = self.blocks.get(access.block);
        let Some(mappings) = block.and_then(|block| block.mappings.as_ref()) else {
            return smallvec![access];
        };
        let touched = mappings.touched(access.region);
        touched
            .map(|(region, pages)| {
                let start = access.region.offset.max(region.offset);
                let end = end_of(access.region).min(end_of(region));
                Access {
                    block: pages,
                    region: Region::new(start - region.offset, end - start),
                    ..access
                }
            })
            .collect()
    }

    /// Drops the reference that the mapping of pages had.
    fn let_go(&mut self, pages: BlockKey) {
        if let Some(block) = self.blocks.get_mut(pages) {
            block.addresses -= 1;
        }
        self.drop_block_reference(pages);
    }

    /// Returns an error, and reports it, if a command is about to use bytes of a reservation that nothing is mapped to.
    pub(super) fn check_mapped(
        &mut self,
        command: CommandId,
        block: BlockKey,
        memory: MemoryId,
        region: Region,
    ) -> Result<(), Cause> {
        let mappings = self
            .blocks
            .get(block)
            .and_then(|block| block.mappings.as_ref());
        if mappings.is_none_or(|mappings| mappings.cover(region)) {
            return Ok(());
        }
        Err(self.used_after_free(command, memory, region.bytes))
    }
}

fn end_of(region: Region) -> usize {
    region.offset.saturating_add(region.bytes)
}
