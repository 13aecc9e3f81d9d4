//! Reservations that grow in place: which pages are mapped for a block, and where they come from.
//!
//! PyTorch's expandable segments grow in place, too, one for each stream, and unmap pages where memory has run out. Here pages move
//! as soon as more would have to be taken from the device than the program needs, and only those whose commands have ended.

use std::{cmp::Reverse, fmt, sync::Arc};

use super::{
    Carved, Leaving, Segments,
    pages::{FreePages, Incomplete, Pages, Place},
};
use crate::{Allocator, Backend, Error, MemoryOf, Region, Result, contained::guarded};

/// The addresses of a reservation are so many times the capacity: more than its blocks need, however they lie.
const ADDRESSES_PER_BYTE: u64 = 4;

/// What a request does that finds no free range of the mapped pages.
///
#[doc = include_str!("mapping.md")]
#[derive(Debug)]
pub enum Mapping<M, U> {
    /// It reserves so many bytes of addresses, [adds](Segments::add_reservation) them, and asks again.
    Reserve {
        /// The bytes.
        bytes: usize,
        /// Set if the addresses are for small blocks.
        is_small: bool,
    },
    /// It [carries out](Plan::carry_out) this plan.
    Map(Plan<M, U>),
    /// The reservation has no addresses left, or there are none, since these segments are not of pages.
    NoAddresses,
}

/// The pages that are mapped for a block. It has to be [carried out](Self::carry_out), and what became of it
/// [recorded](Segments::finish).
///
#[doc = include_str!("mapping.md")]
#[derive(Debug)]
pub struct Plan<M, U> {
    incomplete: Incomplete<M, U>,
    /// The most bytes of each of the new pages.
    new_pages: usize,
    /// Pages that are mapped nowhere.
    spare: Vec<Pages<M>>,
    /// Pages that move, and where they are.
    moved: Vec<(Place<M>, M)>,
}

/// What became of a [`Plan`]: which pages are mapped where.
///
#[doc = include_str!("mapping.md")]
#[derive(Debug)]
pub struct Done<M, U> {
    incomplete: Incomplete<M, U>,
    /// The pages that are mapped to what was missing, in order: to all of it or, after a failure, those that could not be unmapped again.
    mapped: Vec<Mapped<M>>,
    /// Where pages were that are neither there nor in `mapped`.
    left: Vec<Place<M>>,
    /// Pages that are where they were.
    stayed: Vec<(Place<M>, M)>,
    /// Pages that are mapped nowhere.
    spare: Vec<Pages<M>>,
    /// The bytes of pages that were created.
    pub created_bytes: u64,
    /// How often pages were mapped.
    pub maps: u64,
    /// How often pages were unmapped.
    pub unmaps: u64,
    failure: Option<Error>,
}

/// Pages that are mapped to what was missing.
#[derive(Debug)]
struct Mapped<M> {
    offset: usize,
    pages: Pages<M>,
    /// Where they were before; `None` for spare and new ones.
    origin: Option<Place<M>>,
}

impl<M, U> Plan<M, U> {
    /// Creates the pages that are missing, unmaps those that move, and maps both and the spare ones. Where a call fails, everything is
    /// mapped as it was before, as far as the device lets it; pages that cannot be mapped again, and those that were created before a
    /// map failed, are kept for the next plan, and pages that cannot be unmapped are free where they are.
    ///
    /// No lock may be held, since this calls the device.
    pub fn carry_out<A>(self, allocator: &A) -> Done<M, U>
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        let mut done = Done {
            incomplete: self.incomplete,
            mapped: Vec::new(),
            left: Vec::new(),
            stayed: Vec::new(),
            spare: Vec::new(),
            created_bytes: 0,
            maps: 0,
            unmaps: 0,
            failure: None,
        };
        let others = self.spare.iter().map(|pages| pages.bytes);
        let others = others.chain(self.moved.iter().map(|(place, _)| place.region.bytes));
        let missing = done.missing_bytes().saturating_sub(others.sum());
        let created = match create(allocator, missing, self.new_pages) {
            Ok(created) => created,
            Err(error) => {
                done.failure = Some(error);
                done.spare = self.spare;
                done.stayed = self.moved;
                return done;
            }
        };
        done.created_bytes = created.iter().map(|pages| pages.bytes as u64).sum();
        done.map_each(allocator, self.spare);
        for (place, memory) in self.moved {
            if done.failure.is_none() && done.unmap(allocator, &place) {
                let bytes = place.region.bytes;
                done.map(allocator, Pages { bytes, memory }, Some(place));
            } else {
                done.stayed.push((place, memory));
            }
        }
        done.map_each(allocator, created);
        if done.failure.is_some() {
            done.undo(allocator);
        }
        done
    }
}

/// Creates pages of `bytes` bytes together, each of at most `most` bytes. Where that fails, those that were made are released.
fn create<A>(allocator: &A, mut bytes: usize, most: usize) -> Result<Vec<Pages<MemoryOf<A>>>>
where
    A: Allocator,
{
    let mut created = Vec::new();
    while bytes > 0 {
        let size = bytes.min(most);
        match guarded("Allocator::allocate", || allocator.allocate(size)) {
            Ok(memory) => created.push(Pages {
                bytes: size,
                memory,
            }),
            Err(error) => {
                for Pages { memory, .. } in created {
                    let released = guarded("Allocator::release", || allocator.release(memory, &[]));
                    if let Err(error) = released {
                        tracing::warn!(%error, "pages that were not needed could not be released");
                    }
                }
                return Err(error);
            }
        }
        bytes -= size;
    }
    Ok(created)
}

impl<M, U> Done<M, U> {
    /// The pages that are mapped where they were not before: the reservation of each, and where in it.
    pub fn mapped(&self) -> impl Iterator<Item = (&M, Region)> {
        let reservation = &*self.incomplete.reservation;
        let mapped = self.mapped.iter();
        mapped.map(move |it| (reservation, Region::new(it.offset, it.pages.bytes)))
    }

    /// Where pages were that are not there any more: the reservation of each, and where in it.
    pub fn unmapped(&self) -> impl Iterator<Item = (&M, Region)> {
        let moved = self.mapped.iter().filter_map(|it| it.origin.as_ref());
        let places = moved.chain(&self.left);
        places.map(|place| (&*place.reservation, place.region))
    }

    /// Where the next pages are mapped.
    fn next(&self) -> usize {
        let last = self.mapped.last();
        last.map_or(self.incomplete.missing.offset, |last| {
            last.offset + last.pages.bytes
        })
    }

    /// The bytes to which nothing is mapped yet.
    fn missing_bytes(&self) -> usize {
        let Region { offset, bytes } = self.incomplete.missing;
        offset + bytes - self.next()
    }

    /// Maps pages that are mapped nowhere; once a call has failed, they become spare ones.
    fn map_each<A>(&mut self, allocator: &A, pages: Vec<Pages<M>>)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        for pages in pages {
            if self.failure.is_none() {
                self.map(allocator, pages, None);
            } else {
                self.spare.push(pages);
            }
        }
    }

    /// Maps pages behind those that are mapped already. Where that fails, they are put back.
    fn map<A>(&mut self, allocator: &A, pages: Pages<M>, origin: Option<Place<M>>)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        let offset = self.next();
        let map = || allocator.map(&self.incomplete.reservation, offset, &pages.memory);
        let result = guarded("Allocator::map", map);
        if self.keep_failure(result) {
            self.maps += 1;
            self.mapped.push(Mapped {
                offset,
                pages,
                origin,
            });
        } else {
            self.put_back(allocator, origin, pages);
        }
    }

    fn unmap<A>(&mut self, allocator: &A, place: &Place<M>) -> bool
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        let result = place.unmap(allocator);
        self.unmaps += u64::from(result.is_ok());
        self.keep_failure(result)
    }

    /// Keeps the first failure. Returns whether this is none.
    fn keep_failure(&mut self, result: Result<()>) -> bool {
        result
            .map_err(|error| {
                tracing::debug!(%error, "pages are mapped as they were");
                self.failure.get_or_insert(error);
            })
            .is_ok()
    }

    /// Unmaps what was mapped, and maps each where it was. What cannot be unmapped stays.
    fn undo<A>(&mut self, allocator: &A)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        for mapped in std::mem::take(&mut self.mapped) {
            let Mapped {
                offset,
                pages,
                origin,
            } = mapped;
            let place = Place {
                range: self.incomplete.range,
                is_small: self.incomplete.is_small,
                reservation: Arc::clone(&self.incomplete.reservation),
                region: Region::new(offset, pages.bytes),
            };
            if self.unmap(allocator, &place) {
                self.put_back(allocator, origin, pages);
            } else {
                self.left.extend(origin);
                self.mapped.push(Mapped {
                    offset,
                    pages,
                    origin: None,
                });
            }
        }
    }

    /// Maps pages to where they were, or makes them spare ones.
    fn put_back<A>(&mut self, allocator: &A, origin: Option<Place<M>>, pages: Pages<M>)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        if let Some(place) = origin {
            let map = || allocator.map(&place.reservation, place.region.offset, &pages.memory);
            let result = guarded("Allocator::map", map);
            if let Err(error) = result {
                tracing::warn!(%error, bytes = pages.bytes, "pages could not be mapped again; they are kept");
                self.left.push(place);
            } else {
                self.maps += 1;
                self.stayed.push((place, pages.memory));
                return;
            }
        }
        self.spare.push(pages);
    }
}

impl<M: fmt::Debug, U: Clone + Default + fmt::Debug> Segments<M, U> {
    /// Returns what a request of the arena `home` for `bytes` bytes does that finds no free range: the user has `in_use` bytes, the
    /// request may have the ranges whose uses are `usable`, and pages of ranges whose uses are `over` may move. The allocator gives
    /// at most `capacity` bytes in all.
    ///
    #[doc = include_str!("mapping.md")]
    pub fn plan(
        &mut self,
        home: usize,
        bytes: usize,
        in_use: u64,
        capacity: u64,
        usable: impl Fn(&U) -> bool,
        over: impl Fn(&U) -> bool,
    ) -> Mapping<M, U> {
        let Some(page_bytes) = self.page_bytes else {
            return Mapping::NoAddresses;
        };
        self.growth
            .reach(in_use.saturating_add(bytes as u64), capacity);
        self.tell_arenas();
        let is_small = self.growth_of(home).is_small(bytes);
        let chunk = if is_small {
            page_bytes
        } else {
            self.growth.chunk(page_bytes)
        };
        let mut own = self.arenas.to_add(home);
        if !own.has_reservation(is_small) {
            let addresses = capacity.saturating_mul(ADDRESSES_PER_BYTE);
            let most = usize::MAX / 2;
            let bytes = usize::try_from(addresses).map_or(most, |addresses| addresses.min(most));
            let bytes = bytes.max(1).next_multiple_of(page_bytes);
            return Mapping::Reserve { bytes, is_small };
        }
        let taken = own.take_incomplete(bytes, is_small, page_bytes, chunk, usable);
        drop(own);
        let Some(incomplete) = taken else {
            return Mapping::NoAddresses;
        };
        let mut rest = incomplete.missing.bytes;
        self.growth.asked(rest as u64);
        let new_pages = if is_small {
            page_bytes
        } else {
            self.growth.new_pages(rest, chunk)
        };
        let spare: Vec<_> = self
            .spare
            .extract_if(.., |pages| {
                let fits = pages.bytes <= rest;
                rest -= if fits { pages.bytes } else { 0 };
                fits
            })
            .collect();
        let room = self.growth.most_mapped().min(capacity);
        let used: u64 = spare.iter().map(|pages| pages.bytes as u64).sum();
        // The spare ones are no longer among the pages of this value.
        let may_create = room.saturating_sub(self.bytes() + used);
        let moved = self.take_pages_to_move(&mut rest, may_create, over);
        let gone = moved
            .iter()
            .map(|(place, _)| place.region.bytes as u64)
            .sum();
        self.growth.went_back(gone);
        Mapping::Map(Plan {
            incomplete,
            new_pages,
            spare,
            moved,
        })
    }

    /// Takes free pages until at most `may_create` of the `rest` bytes are left, which it lowers.
    fn take_pages_to_move(
        &mut self,
        rest: &mut usize,
        may_create: u64,
        over: impl Fn(&U) -> bool,
    ) -> Vec<(Place<M>, M)> {
        let mut moved = Vec::new();
        if *rest as u64 <= may_create || self.is_kept {
            return moved;
        }
        for free in self.free_pages(&over) {
            if *rest as u64 <= may_create {
                break;
            }
            if free.bytes <= *rest
                && let Some(taken) = self.take_pages(free, &over)
            {
                *rest -= free.bytes;
                moved.push(taken);
            }
        }
        moved
    }

    /// The pages that lie in free ranges whose uses are `over`: the largest first, since fewer calls move them, and of these the ones
    /// in small ranges, since large ranges serve more requests where they are.
    pub(super) fn free_pages(&self, over: &impl Fn(&U) -> bool) -> Vec<FreePages> {
        let page_bytes = self.page_bytes.unwrap_or(1);
        let mut free: Vec<_> = self
            .arenas
            .each()
            .flat_map(|arena| arena.free_pages(page_bytes, over))
            .collect();
        free.sort_unstable_by_key(|free| (Reverse(free.bytes), free.range_bytes, free.key()));
        free
    }

    fn take_pages(&mut self, free: FreePages, over: &impl Fn(&U) -> bool) -> Option<(Place<M>, M)> {
        let taken = self.arenas.numbered(free.arena).take_pages(free, over)?;
        self.bytes[free.arena] -= free.bytes as u64;
        Some(taken)
    }

    /// Adds a reservation of `bytes` bytes to the arena `home`. Returns it if the arena has one meanwhile.
    pub fn add_reservation(
        &mut self,
        home: usize,
        memory: M,
        bytes: usize,
        is_small: bool,
    ) -> Option<M> {
        let mut arena = self.arenas.to_add(home);
        if arena.has_reservation(is_small) {
            return Some(memory);
        }
        arena.add_reservation(memory, bytes, is_small);
        None
    }

    /// Records what became of a plan. Returns the range of the block, unless a call failed.
    ///
    /// # Errors
    ///
    /// That of the first call that failed.
    pub fn finish(&mut self, done: Done<M, U>) -> Result<Carved<M, U>> {
        let Incomplete {
            range,
            bytes,
            is_small,
            reservation,
            region,
            missing,
            uses,
        } = done.incomplete;
        for place in done.left {
            self.forget(&place);
        }
        for (place, memory) in done.stayed {
            self.keep(&place, memory);
        }
        self.spare.extend(done.spare);
        let mut arena = self.arenas.of(range);
        let (mut left, mut holes) = (Vec::new(), Vec::new());
        let mut end = missing.offset;
        for Mapped {
            offset,
            pages,
            origin,
        } in done.mapped
        {
            self.bytes[range.arena as usize] += pages.bytes as u64;
            holes.push(Region::new(end, offset - end));
            end = offset + pages.bytes;
            arena.add_pages(is_small, offset, pages);
            left.extend(origin);
        }
        if let Some(error) = done.failure {
            holes.push(Region::new(end, missing.offset + missing.bytes - end));
            holes.retain(|hole| hole.bytes > 0);
            arena.give_incomplete(range, &holes, &uses);
            return Err(error);
        }
        arena.shrink(range, bytes, uses.clone());
        drop(arena);
        // After the arena is unlocked, since a place may lie in it.
        for place in &left {
            self.forget(place);
        }
        self.tell_arenas();
        Ok(Carved {
            range,
            region: Region::new(region.offset, bytes),
            segment: reservation,
            view: None,
            overlapping: Vec::new(),
            uses,
            has_excess: false,
        })
    }

    /// Removes spare pages, and free pages that are `eligible` and whose uses are `wanted`, until they have `enough` bytes together.
    pub(super) fn release_pages(
        &mut self,
        enough: u64,
        eligible: impl Fn(&FreePages) -> bool,
        wanted: impl Fn(&U) -> bool,
    ) -> Vec<Leaving<M, U>> {
        if self.is_kept {
            return Vec::new();
        }
        let spare = std::mem::take(&mut self.spare).into_iter();
        let mut leaving: Vec<_> = spare
            .map(|pages| leaving(pages.memory, pages.bytes, None))
            .collect();
        let mut released: u64 = leaving.iter().map(|pages| pages.bytes as u64).sum();
        for free in self.free_pages(&wanted) {
            if released >= enough {
                break;
            }
            if eligible(&free)
                && let Some((place, memory)) = self.take_pages(free, &wanted)
            {
                released += free.bytes as u64;
                leaving.push(self::leaving(memory, free.bytes, Some(place)));
            }
        }
        leaving
    }

    /// Removes the pages that were free at the last call of this, and are now.
    pub(super) fn sweep_pages(&mut self, wanted: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        let before = std::mem::take(&mut self.free_at_sweep);
        let leaving = self.release_pages(u64::MAX, |free| before.contains(&free.key()), wanted);
        let free = self.free_pages(&|_| true);
        self.free_at_sweep = free.iter().map(FreePages::key).collect();
        leaving
    }

    /// Takes back pages that were to leave or to move, and that could not be unmapped: they are free where they are.
    ///
    /// ```
    /// # use binpool_allocators::{Allocator, VirtualMemory, VirtualMemoryAllocator, segments::{Mapping, Segments}};
    /// # use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
    /// # let device = MockDevice::builder().virtual_memory(true).build();
    /// # let allocator = VirtualMemoryAllocator::new(&device.backend());
    /// # let page_bytes = device.backend().page_bytes();
    /// let mut segments = Segments::new(|(), ()| Some(())).with_pages(page_bytes);
    /// # segments.plan(0, page_bytes, 0, 1 << 30, |()| true, |()| true);
    /// # let addresses = allocator.reserve(16 * page_bytes)?;
    /// # segments.add_reservation(0, addresses, 16 * page_bytes, false);
    /// # let Mapping::Map(plan) = segments.plan(0, page_bytes, 0, 1 << 30, |()| true, |()| true) else { unreachable!() };
    /// # let done = plan.carry_out(&allocator);
    /// # let carved = segments.finish(done)?;
    /// # segments.give(carved.range, (), None);
    /// # device.fail_nth(CallKind::Unmap, 1, Fault::Backend(-5), Persistence::Once);
    /// for pages in segments.release(u64::MAX, |()| true) {
    ///     let Some(place) = pages.place else { continue };
    ///     if place.unmap(&allocator).is_err() {
    ///         segments.keep(&place, pages.memory);
    ///     }
    /// }
    /// assert_eq!(segments.free_bytes(), page_bytes as u64); // The next release tries again.
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn keep(&mut self, place: &Place<M>, memory: M) {
        let bytes = place.region.bytes;
        self.bytes[place.range.arena as usize] += bytes as u64;
        let mut arena = self.arenas.of(place.range);
        arena.add_pages(place.is_small, place.region.offset, Pages { bytes, memory });
        arena.give(place.range, U::default(), None);
    }

    /// Records that nothing is mapped at a place any more.
    pub fn forget(&mut self, place: &Place<M>) {
        self.arenas.of(place.range).make_hole(place.range);
    }
}

fn leaving<M, U>(memory: M, bytes: usize, place: Option<Place<M>>) -> Leaving<M, U> {
    Leaving {
        views: Vec::new(),
        memory,
        bytes,
        uses: Vec::new(),
        place,
    }
}
