//! Virtual memory: reservations, pages, and what is mapped where.

use std::{collections::BTreeMap, sync::Arc};

use binpool_allocators::{
    Error, InvalidRequest, MemoryFlags, MemoryId, MemoryKind, Region, Result,
};
use smallvec::{SmallVec, smallvec};

use super::{Access, Accesses, Block, BlockKey, ObjectKey, Operand, State, refuse};
use crate::{
    CallKind, CommandId, MockError,
    storage::{Claim, Span, Storage},
};

/// What is mapped to a reservation: sizes and pages, by offset.
#[derive(Debug, Default)]
pub(crate) struct Mappings(BTreeMap<usize, (usize, BlockKey)>);

/// Where pages are mapped: the reservation, and the offset there.
pub(crate) type Place = (BlockKey, usize);

impl Mappings {
    /// Returns whether nothing is mapped to these bytes.
    fn is_empty_at(&self, region: Region) -> bool {
        let end = region.offset + region.bytes;
        let before = self.0.range(..end).next_back();
        before.is_none_or(|(start, (bytes, _))| start + bytes <= region.offset)
    }

    /// Returns whether pages are mapped to all of these bytes.
    pub(super) fn cover(&self, region: Region) -> bool {
        let end = region.offset + region.bytes;
        let mut at = region.offset;
        while at < end {
            match self.0.range(..=at).next_back() {
                Some((start, (bytes, _))) if start + bytes > at => at = start + bytes,
                _ => return false,
            }
        }
        true
    }

    /// The pages that a region touches, with their regions.
    fn touched(&self, region: Region) -> impl Iterator<Item = (Region, BlockKey)> {
        let before = self.0.range(..end_of(region)).rev();
        let touched = before.take_while(move |(start, (bytes, _))| *start + bytes > region.offset);
        touched.map(|(start, (bytes, pages))| (Region::new(*start, *bytes), *pages))
    }

    /// The pages of a region, which have to lie inside it as a whole, with their regions.
    fn inside(&self, region: Region) -> Option<Vec<(Region, BlockKey)>> {
        let end = region.offset + region.bytes;
        let inside = self.0.range(region.offset..end);
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
            .map_or((0, false), |block| (block.bytes, !block.places.is_empty()));
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
        if !mappings.is_empty_at(region) {
            return Err(InvalidRequest::AlreadyMapped { offset, bytes }.into());
        }
        if !is_mapped {
            let moved = self.move_contents((pages, Region::first(bytes)), (reservation, region));
            // A kernel that still runs has the memory, and what it writes is lost.
            if let Err(error) = moved {
                return refuse(kind, error);
            }
        } else if !self.config.page_aliases {
            return Err(Error::unsupported(
                "mapping pages at two places: unmap them first",
            ));
        }
        if let Some(block) = self.blocks.get_mut(pages) {
            block.references += 1;
            block.places.push((reservation, offset));
        }
        let block = self.blocks.get_mut(reservation);
        if let Some(mappings) = block.and_then(|block| block.mappings.as_mut()) {
            mappings.0.insert(offset, (bytes, pages));
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
        // All contents are kept before the first pages are unmapped, so that a failure changes nothing.
        let is_left =
            |place: Place| place.0 != reservation || !part.region.overlaps(Region::new(place.1, 1));
        for (region, pages) in &inside {
            if let Err(error) = self.keep_contents(*pages, (reservation, region.offset), is_left) {
                return refuse(kind, error);
            }
        }
        for (region, pages) in inside {
            let block = self.blocks.get_mut(reservation);
            if let Some(mappings) = block.and_then(|block| block.mappings.as_mut()) {
                mappings.0.remove(&region.offset);
            }
            self.charge(|costs| costs.unmap.micros_at(region.bytes as u64));
            self.let_go(pages, (reservation, region.offset));
        }
        Ok(())
    }

    /// Unmaps what is mapped to a reservation that is about to be freed. Pages that the program still has keep their contents.
    pub(super) fn unmap_all(&mut self, reservation: BlockKey) {
        let block = self.blocks.get_mut(reservation);
        let mappings = block.and_then(|block| block.mappings.as_mut());
        let Some(mappings) = mappings.map(std::mem::take) else {
            return;
        };
        for (offset, (_, pages)) in mappings.0 {
            let place = (reservation, offset);
            let is_held = self
                .blocks
                .get(pages)
                .is_some_and(|block| block.references > 1);
            if is_held {
                // Without room on the host for them, the contents are lost: nobody is there to be told.
                let _kept = self.keep_contents(pages, place, |other| other != place);
            }
            self.let_go(pages, place);
        }
    }

    /// Copies the contents of pages from a place that they leave, if they lie there, to another one that `is_left`, or to the pages.
    fn keep_contents(
        &mut self,
        pages: BlockKey,
        place: Place,
        is_left: impl Fn(Place) -> bool,
    ) -> Result<(), MockError> {
        let Some(block) = self.blocks.get_mut(pages) else {
            return Ok(());
        };
        if block.places.first() != Some(&place) {
            return Ok(());
        }
        let bytes = block.bytes;
        let other = block.places.iter().position(|place| is_left(*place));
        let target = if let Some(other) = other {
            block.places.swap(0, other);
            block.places[0]
        } else {
            (pages, 0)
        };
        let [from, to] = [place, target].map(|(block, at)| (block, Region::new(at, bytes)));
        self.move_contents(from, to).map(drop)
    }

    /// Copies the contents of pages to where a command is about to use them, if they were used at another address last. Returns false if a
    /// kernel still runs there.
    pub(super) fn fetch_contents(&mut self, accesses: &Accesses) -> Result<bool, MockError> {
        for access in accesses {
            let block = self.blocks.get(access.block);
            let Some(mappings) = block.and_then(|block| block.mappings.as_ref()) else {
                continue;
            };
            let touched: SmallVec<[_; 4]> = mappings.touched(access.region).collect();
            for (region, pages) in touched {
                let place = (access.block, region.offset);
                let block = self.blocks.get(pages);
                let Some(last) = block.and_then(|block| block.places.first().copied()) else {
                    continue;
                };
                if last == place {
                    continue;
                }
                let from = (last.0, Region::new(last.1, region.bytes));
                if !self.move_contents(from, (access.block, region))? {
                    return Ok(false);
                }
                if let Some(block) = self.blocks.get_mut(pages)
                    && let Some(index) = block.places.iter().position(|other| *other == place)
                {
                    block.places.swap(0, index);
                }
            }
        }
        Ok(true)
    }

    /// The parts of memory that an access touches: of the pages that are mapped there, or of the block itself.
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
    fn let_go(&mut self, pages: BlockKey, place: Place) {
        if let Some(block) = self.blocks.get_mut(pages) {
            block.places.retain(|other| *other != place);
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
    ) -> Result<(), MockError> {
        let mappings = self
            .blocks
            .get(block)
            .and_then(|block| block.mappings.as_ref());
        if mappings.is_none_or(|mappings| mappings.cover(region)) {
            return Ok(());
        }
        Err(self.used_after_free(command, memory, region.bytes))
    }

    /// Copies the bytes of pages from where they were to where they are. What was never touched needs no copy. Returns false if a kernel
    /// still uses one of the two.
    fn move_contents(
        &mut self,
        (from, source): (BlockKey, Region),
        (to, target): (BlockKey, Region),
    ) -> Result<bool, MockError> {
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
                let fresh = fresh.ok_or(MockError::OutOfHostMemory { memory, bytes })?;
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
