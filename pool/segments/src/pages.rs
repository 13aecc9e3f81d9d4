//! The pages that are mapped to the reservations of an arena.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{
    arena::{Arena, Pages, Reservation},
    handed_out::{Place, RangeKey},
    space::{Pinned, RangeNumber},
};
use binpool_allocators::Region;

/// Pages of a free range.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreePages {
    /// When the free range last became free or grew, by the count of its arena.
    since: u64,
    pub(super) arena: usize,
    pub(super) is_small: bool,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    range: RangeNumber,
}

/// The arena, whether the reservation is for small blocks, and the offset there.
pub(super) type PagesKey = (usize, bool, usize);

impl FreePages {
    pub(super) fn key(&self) -> PagesKey {
        (self.arena, self.is_small, self.offset)
    }

    /// Returns whether these are pages of an arena for other than small blocks.
    pub(super) fn is_planned(&self, arena: usize) -> bool {
        self.arena == arena && !self.is_small
    }

    /// Sorts those first that have been free longest; of equal ones the largest, since fewer calls move them. Compiled once for all kinds of
    /// memory.
    pub(super) fn sort(all: &mut [Self]) {
        all.sort_unstable_by_key(|free| (free.since, Reverse(free.bytes), free.key()));
    }
}

/// A range that was taken for a block, a part of which has to be mapped first.
#[derive(Debug)]
pub(super) struct Incomplete<M, U> {
    pub(super) range: RangeKey,
    /// The bytes of the block, at most those of the range.
    pub(super) bytes: usize,
    pub(super) is_small: bool,
    pub(super) reservation: Arc<M>,
    pub(super) region: Region,
    pub(super) missing: Region,
    pub(super) uses: U,
}

/// Addresses at which pages are still mapped, for the commands that used them there, although the pages count elsewhere.
#[derive(Debug)]
pub(super) struct Stale<M, U> {
    pub(super) place: Place<M>,
    pub(super) uses: U,
}

impl<M, U: Clone + Default> Arena<M, U> {
    /// Adds a reservation of `bytes` bytes.
    pub(super) fn add_reservation(&mut self, memory: M, bytes: usize, is_small: bool) {
        let segment = self.space.add_reservation(bytes, is_small);
        self.set_root(segment, memory);
        self.reservations[usize::from(is_small)] = Some(Reservation {
            segment,
            pages: BTreeMap::new(),
        });
    }

    pub(super) fn has_reservation(&self, is_small: bool) -> bool {
        self.reservations[usize::from(is_small)].is_some()
    }

    /// Takes a range of at least `bytes` bytes, a part of which has to be mapped. See [`Space::take_incomplete`](super::space::Space).
    pub(super) fn take_incomplete(
        &mut self,
        bytes: usize,
        is_small: bool,
        page: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Incomplete<M, U>> {
        let segment = self.reservations[usize::from(is_small)].as_ref()?.segment;
        let reservation = self.root(segment)?;
        let taken = self.space.take_incomplete(segment, bytes, page, usable)?;
        Some(Incomplete {
            range: self.key_of(taken.range),
            bytes,
            is_small,
            reservation,
            region: taken.region,
            missing: taken.missing,
            uses: taken.uses,
        })
    }

    /// Gives back a range. Nothing is mapped to these regions of it, which are in order.
    pub(super) fn give_incomplete(&mut self, range: RangeKey, holes: &[Region], uses: &U) {
        self.space.give_incomplete(range.number(), holes, uses);
    }

    /// Records that pages are mapped to a taken range.
    pub(super) fn add_pages(&mut self, is_small: bool, offset: usize, pages: Pages<M>) {
        if let Some(reservation) = &mut self.reservations[usize::from(is_small)] {
            self.space.count_pages(pages.bytes);
            reservation.pages.insert(offset, pages);
        }
    }

    /// The pages that are mapped: their reservation, and where in it.
    pub(super) fn pages(&self) -> impl Iterator<Item = (Arc<M>, Region)> {
        self.reservations.iter().flatten().flat_map(|reservation| {
            let memory = self.root(reservation.segment);
            let pages = reservation.pages.iter();
            pages.filter_map(move |(offset, pages)| {
                Some((memory.clone()?, Region::new(*offset, pages.bytes)))
            })
        })
    }

    /// The pages that lie in free ranges whose uses are `over`. Each has at least `page_bytes` bytes.
    pub(super) fn free_pages(
        &self,
        page_bytes: usize,
        over: &impl Fn(&U) -> bool,
    ) -> Vec<FreePages> {
        let mut found = Vec::new();
        for (is_small, reservation) in [false, true].into_iter().zip(&self.reservations) {
            let Some(reservation) = reservation else {
                continue;
            };
            let free = self
                .space
                .free_ranges_of(reservation.segment, page_bytes, over);
            for (range, region, since) in free {
                let end = region.offset + region.bytes;
                let inside = reservation.pages.range(region.offset..end);
                let inside = inside.filter(|(offset, pages)| *offset + pages.bytes <= end);
                found.extend(inside.map(|(offset, pages)| FreePages {
                    since,
                    arena: self.number as usize,
                    is_small,
                    offset: *offset,
                    bytes: pages.bytes,
                    range,
                }));
            }
        }
        found
    }

    /// The pages for other than small blocks with anything taken, each row of neighbours as one, and the bytes of those that are free as a whole.
    pub(super) fn pinned_pages(&self) -> (Vec<Pinned>, u64) {
        let (mut pinned, mut free): (Vec<Pinned>, _) = (Vec::new(), 0);
        let Some(Reservation { segment, pages }) = &self.reservations[0] else {
            return (pinned, free);
        };
        let mut taken = self.space.taken_of(*segment).peekable();
        for (offset, Pages { bytes, .. }) in pages {
            let end = offset + bytes;
            let mut inside = Vec::new();
            // One that reaches into the next pages was seen with the first.
            let last = pinned
                .last()
                .filter(|last| last.region.offset + last.region.bytes == *offset);
            let reaches_in = last
                .and_then(|last| last.taken.last())
                .is_some_and(|(_, region)| region.offset + region.bytes > *offset);
            while let Some(next) = taken.next_if(|(_, region)| region.offset < end) {
                inside.push(next);
            }
            if inside.is_empty() && !reaches_in {
                free += *bytes as u64;
                continue;
            }
            match pinned
                .last_mut()
                .filter(|last| last.region.offset + last.region.bytes == *offset)
            {
                Some(last) => {
                    last.region.bytes += bytes;
                    last.taken.extend(inside);
                }
                None => pinned.push(Pinned {
                    segment: *segment,
                    region: Region::new(*offset, *bytes),
                    taken: inside,
                }),
            }
        }
        (pinned, free)
    }

    /// Takes the range of pages, and the pages, unless a thread has taken some of their bytes in the meantime.
    pub(super) fn take_pages(
        &mut self,
        free: FreePages,
        over: &impl Fn(&U) -> bool,
    ) -> Option<(Place<M>, M, U)> {
        let index = usize::from(free.is_small);
        let segment = self.reservations[index].as_ref()?.segment;
        let reservation = self.root(segment)?;
        let region = Region::new(free.offset, free.bytes);
        let (range, uses) = self.space.take_region(segment, free.range, region, over)?;
        let pages = self.reservations[index]
            .as_mut()?
            .pages
            .remove(&free.offset)?;
        self.space.count_pages_taken(pages.bytes);
        let place = Place {
            range: self.key_of(range),
            is_small: free.is_small,
            reservation,
            region,
        };
        Some((place, pages.memory, uses))
    }

    /// Records that the pages of a taken range count elsewhere.
    pub(super) fn set_stale(&mut self, range: RangeKey) {
        self.space.set_stale(range.number());
    }

    /// Records that nothing is mapped at a taken range any more.
    pub(super) fn make_hole(&mut self, range: RangeKey) {
        self.space.make_hole(range.number());
    }
}
