//! Virtual memory: reservations, pages, and what is mapped where.

use std::sync::Arc;

use binpool_allocators::{
    Error, InvalidRequest, MemoryFlags, MemoryId, MemoryKind, Region, Result,
};
use smallvec::{SmallVec, smallvec};

use super::{
    State,
    records::{Access, Accesses, Block, BlockKey, Mappings, ObjectKey, Operand, Place, Places},
};
use crate::{
    CallKind, CommandId,
    cause::Cause,
    storage::{Claim, Span, Storage},
};

impl Places {
    /// The pages that a region touches, with their regions, the last ones first.
    fn touched(&self, region: Region) -> impl Iterator<Item = (Region, BlockKey)> {
        let before = self.0.range(..end_of(region)).rev();
        let touched = before.take_while(move |(start, (bytes, _))| *start + bytes > region.offset);
        touched.map(|(start, (bytes, pages))| (Region::new(*start, *bytes), *pages))
    }
}

impl Mappings {
    /// Returns whether pages are mapped to all of these bytes.
    pub(super) fn cover(&self, region: Region) -> bool {
        let end = region.offset + region.bytes;
        let mut at = region.offset;
        while at < end {
            match self.mapped.0.range(..=at).next_back() {
                Some((start, (bytes, _))) if start + bytes > at => at = start + bytes,
                _ => return false,
            }
        }
        true
    }

    /// The pages of a region, which have to lie inside it as a whole, with their regions.
    fn inside(&self, region: Region) -> Option<Vec<(Region, BlockKey)>> {
        let end = region.offset + region.bytes;
        let inside = self.mapped.0.range(region.offset..end);
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
    /// Makes a reservation, which takes nothing of the device.
    pub(crate) fn reserve_addresses(&mut self, bytes: usize) -> (ObjectKey, MemoryId) {
        let block = self.new_block(bytes, MemoryKind::Buffer, MemoryFlags::empty());
        self.insert_block(Block {
            mappings: Some(Mappings::default()),
            ..block
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
                "mapping pages to memory that is no reservation",
            ));
        };
        if mappings.mapped.touched(region).next().is_some() {
            return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
        }
        if is_mapped && !self.config.page_aliases {
            return Err(Error::unsupported(
                "mapping pages at two places: unmap them first",
            ));
        }
        if let Some(block) = self.blocks.get_mut(pages) {
            block.references += 1;
            block.addresses += 1;
        }
        if let Some(mappings) = self.mappings(reservation) {
            mappings.mapped.0.insert(offset, (bytes, pages));
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
                mappings.mapped.0.remove(&region.offset);
            }
            self.charge(|costs| costs.unmap.micros_at(region.bytes as u64));
            self.let_go(pages);
        }
        Ok(())
    }

    /// Unmaps what is mapped to a reservation that is about to be freed. Pages that stay keep their contents.
    pub(super) fn unmap_all(&mut self, reservation: BlockKey) {
        let Some(mappings) = self.mappings(reservation) else {
            return;
        };
        for (_, pages) in std::mem::take(&mut mappings.mapped).0.into_values() {
            self.let_go(pages);
        }
        let contents = self
            .mappings(reservation)
            .map(|mappings| std::mem::take(&mut mappings.contents));
        for (_, pages) in contents.unwrap_or_default().0.into_values() {
            // Without room on the host for them, the contents are lost: nobody is there to be told.
            let _moved = self.bring_contents(pages, None);
            self.set_contents(pages, None);
        }
    }

    /// Brings the contents of pages to where a command is about to use them. Returns false if a kernel still runs there, or where they are.
    pub(super) fn fetch_contents(&mut self, accesses: &Accesses) -> Result<bool, Cause> {
        for access in accesses {
            let Some(mappings) = self.mappings(access.block) else {
                continue;
            };
            let touched: SmallVec<[_; 4]> = mappings.mapped.touched(access.region).collect();
            for (region, pages) in touched {
                if !self.bring_contents(pages, Some((access.block, region.offset)))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Brings the contents of pages to a place where they are mapped, or, with `None`, to memory of their own. Returns false if a kernel still
    /// runs there, or where they are.
    fn bring_contents(&mut self, pages: BlockKey, to: Option<Place>) -> Result<bool, Cause> {
        let Some(block) = self.blocks.get(pages) else {
            return Ok(true);
        };
        if block.contents == to {
            return Ok(true);
        }
        let bytes = block.bytes;
        if let Some((reservation, offset)) = to
            && let Some(mappings) = self.mappings(reservation)
        {
            // Pages that were mapped there before, perhaps these ones, have left theirs.
            let left = mappings.contents.touched(Region::new(offset, bytes));
            let left: SmallVec<[_; 4]> = left.collect();
            for (_, others) in left {
                if !self.bring_contents(others, None)? {
                    return Ok(false);
                }
            }
        }
        let from = self.blocks.get(pages).and_then(|block| block.contents);
        let [from, to_span] = [from, to].map(|place| {
            let (block, offset) = place.unwrap_or((pages, 0));
            (block, Region::new(offset, bytes))
        });
        let is_moved = self.move_contents(from, to_span)?;
        if is_moved {
            self.set_contents(pages, to);
        }
        Ok(is_moved)
    }

    /// Records where the contents of pages lie.
    pub(super) fn set_contents(&mut self, pages: BlockKey, place: Option<Place>) {
        let Some(block) = self.blocks.get_mut(pages) else {
            return;
        };
        let bytes = block.bytes;
        let before = std::mem::replace(&mut block.contents, place);
        if place.is_some() {
            block.storage = None;
        }
        if let Some((reservation, offset)) = before
            && let Some(mappings) = self.mappings(reservation)
        {
            mappings.contents.0.remove(&offset);
        }
        if let Some((reservation, offset)) = place
            && let Some(mappings) = self.mappings(reservation)
        {
            mappings.contents.0.insert(offset, (bytes, pages));
        }
    }

    fn mappings(&mut self, reservation: BlockKey) -> Option<&mut Mappings> {
        self.blocks.get_mut(reservation)?.mappings.as_mut()
    }

    /// The parts of memory that an access touches: of the pages that are mapped there, or of the block itself.
    pub(super) fn parts_of(&self, access: Access) -> SmallVec<[Access; 2]> {
        let block = self.blocks.get(access.block);
        let Some(mappings) = block.and_then(|block| block.mappings.as_ref()) else {
            return smallvec![access];
        };
        let touched = mappings.mapped.touched(access.region);
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

    /// Copies the bytes of pages from one place to another. What was never touched needs no copy. Returns false if a kernel still uses the
    /// memory of one of the two.
    fn move_contents(
        &mut self,
        (from, source): (BlockKey, Region),
        (to, target): (BlockKey, Region),
    ) -> Result<bool, Cause> {
        let storage =
            |state: &Self, key| Some(Arc::clone(state.blocks.get(key)?.storage.as_ref()?));
        let alignment = self.config.limits.alignment;
        let (from, to_storage) = match (storage(self, from), storage(self, to)) {
            // Neither was touched, so both are zeros.
            (None, None) => return Ok(true),
            (from, Some(to)) => (from, to),
            (Some(from), None) => {
                let Some(block) = self.blocks.get_mut(to) else {
                    return Ok(true);
                };
                let (memory, bytes) = (block.id, block.bytes);
                let fresh = Storage::zeroed(bytes, alignment).map(Arc::new);
                let fresh = fresh.ok_or(Cause::OutOfHostMemory { memory, bytes })?;
                block.storage = Some(Arc::clone(&fresh));
                (Some(from), fresh)
            }
        };
        let writes = smallvec![Span {
            storage: to_storage,
            region: target
        }];
        let reads = from.map(|storage| Span {
            storage,
            region: source,
        });
        let Ok(claim) = Claim::new(reads.into_iter().collect(), writes) else {
            return Ok(false);
        };
        claim.touch(|reads, writes| match (reads.first(), writes.first_mut()) {
            (Some(read), Some(write)) => write.copy_from_slice(read),
            (None, Some(write)) => write.fill(0),
            _ => {}
        });
        Ok(true)
    }
}

fn end_of(region: Region) -> usize {
    region.offset.saturating_add(region.bytes)
}
