//! Reservations that grow in place: which pages are mapped for a block, and where they come from.
//!
//! PyTorch's expandable segments grow in place, too, one for each stream, and unmap pages where memory has run out. Here pages move
//! as soon as more would have to be taken from the device than the program needs. Those whose commands have ended are unmapped first. Those
//! whose commands come before the block's are mapped a second time instead, and unmapped at the old address once these have ended.

use std::{fmt, sync::Arc};

use super::{
    NewPlan, Segments,
    arena::Pages,
    handed_out::{Carved, Leaving, Place},
    pages::{FreePages, Incomplete, Stale},
};
use binpool_allocators::{Allocator, Backend, Error, MemoryOf, Region, Result, contained::guarded};

/// A reservation has this many times the capacity in addresses: more than its blocks need, wherever they are.
const ADDRESSES_PER_BYTE: u64 = 4;

/// What to do for a request that finds no free range in the mapped pages.
///
#[derive(Debug)]
pub enum Mapping<M, U> {
    /// Reserve this many bytes of addresses, [add](Segments::add_reservation) them, and ask again.
    Reserve {
        /// The bytes.
        bytes: usize,
        /// Set if the addresses are for small blocks.
        is_small: bool,
    },
    /// [Carry out](Plan::carry_out) this plan.
    Map(Plan<M, U>),
    /// Fail: the reservation has no addresses left, or these segments do not consist of pages.
    NoAddresses,
}

/// A request that finds no free range in the mapped pages.
///
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// The number of the arena.
    pub home: usize,
    /// The bytes of the block.
    pub bytes: usize,
    /// The bytes that the user has in use.
    pub in_use: u64,
    /// The most bytes that the allocator can have allocated.
    pub capacity: u64,
    /// How many more pages there may be than were in use at once, in thousandths of those.
    pub slack: u64,
    /// Set if the block stands for all blocks of a plan: free pages move, and none are created beside them.
    pub is_for_plan: bool,
}

/// The pages that are mapped for a block. [Carry it out](Self::carry_out), then [record](Segments::finish) the result.
///
#[derive(Debug)]
pub struct Plan<M, U> {
    incomplete: Incomplete<M, U>,
    /// The most bytes of each of the new pages.
    new_pages: usize,
    /// Pages that are mapped nowhere.
    spare: Vec<Pages<M>>,
    /// Pages that move, and their old places.
    moved: Vec<Moving<M, U>>,
    is_planned: bool,
}

/// Free pages that were taken where they are mapped.
#[derive(Debug)]
struct Moving<M, U> {
    from: Former<M, U>,
    memory: M,
}

/// Where pages are, or were, before they move.
#[derive(Debug)]
struct Former<M, U> {
    place: Place<M>,
    /// The commands that may still use them there, so that they stay mapped; `None` if these have ended.
    pending: Option<U>,
}

/// The result of a [`Plan`]: which pages are mapped where.
///
#[derive(Debug)]
pub struct Done<M, U> {
    incomplete: Incomplete<M, U>,
    /// The pages that are mapped to the missing part, in order: to all of it or, after a failure, those that could not be unmapped again.
    mapped: Vec<Mapped<M, U>>,
    /// Old places of pages that now count elsewhere, and that are not the `from` of one of `mapped`.
    left: Vec<Former<M, U>>,
    /// Pages that have not moved.
    stayed: Vec<Moving<M, U>>,
    /// Pages that are mapped nowhere.
    spare: Vec<Pages<M>>,
    /// The bytes of pages that were created.
    pub created_bytes: u64,
    /// How often pages were mapped.
    pub maps: u64,
    /// How often pages were unmapped.
    pub unmaps: u64,
    is_planned: bool,
    failure: Option<Error>,
    /// Set if the first call that failed was to map pages a second time.
    pub is_alias_refused: bool,
}

/// Pages that are mapped to a part that was missing.
#[derive(Debug)]
struct Mapped<M, U> {
    offset: usize,
    pages: Pages<M>,
    /// Their old place; `None` for spare and new ones.
    from: Option<Former<M, U>>,
}

impl<M, U> Plan<M, U> {
    /// Returns whether pages move.
    pub fn moves(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Creates the missing pages, unmaps those that move if no command uses them, and maps both and the spare ones. If a call fails,
    /// everything is mapped as it was before, as far as the device permits. Pages that cannot be mapped again, and those that were created
    /// before a map failed, are kept for the next plan; pages that cannot be unmapped are free where they are.
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
            is_planned: self.is_planned,
            failure: None,
            is_alias_refused: false,
        };
        let others = self.spare.iter().map(|pages| pages.bytes);
        let others = others.chain(self.moved.iter().map(|it| it.from.place.region.bytes));
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
        for moving in self.moved {
            done.move_one(allocator, moving);
        }
        done.map_each(allocator, created);
        if done.failure.is_some() {
            done.undo(allocator);
        }
        done
    }
}

/// Creates pages of `bytes` bytes together, each of at most `most` bytes. If that fails, those already created are released.
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
                        tracing::warn!(%error, "could not release pages that were not needed");
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
    /// The places where pages are mapped that were not mapped there before: the reservation of each, and the region in it.
    pub fn mapped(&self) -> impl Iterator<Item = (&M, Region)> {
        let reservation = &*self.incomplete.reservation;
        let mapped = self.mapped.iter();
        mapped.map(move |it| (reservation, Region::new(it.offset, it.pages.bytes)))
    }

    /// The places that pages have left, except for commands that have not ended: the reservation of each, and the region in it.
    pub fn unmapped(&self) -> impl Iterator<Item = (&M, Region)> {
        let moved = self.mapped.iter().filter_map(|it| it.from.as_ref());
        let places = moved.chain(&self.left).map(|former| &former.place);
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

    /// Maps pages that are mapped nowhere. After a failed call they become spare ones.
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

    /// Maps free pages to the missing part, unless a call has failed.
    fn move_one<A>(&mut self, allocator: &A, moving: Moving<M, U>)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        let is_mapped_there = moving.from.pending.is_some();
        if self.failure.is_some() || !(is_mapped_there || self.unmap(allocator, &moving.from.place))
        {
            self.stayed.push(moving);
            return;
        }
        let Moving { from, memory } = moving;
        let bytes = from.place.region.bytes;
        self.map(allocator, Pages { bytes, memory }, Some(from));
    }

    /// Maps pages after those that are mapped already. If that fails, they are put back.
    fn map<A>(&mut self, allocator: &A, pages: Pages<M>, from: Option<Former<M, U>>)
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
                from,
            });
        } else {
            self.is_alias_refused = from.as_ref().is_some_and(|from| from.pending.is_some());
            self.put_back(allocator, from, pages);
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

    /// Keeps the first failure. Returns whether this is not one.
    fn keep_failure(&mut self, result: Result<()>) -> bool {
        result
            .map_err(|error| {
                tracing::debug!(%error, "pages are mapped as they were");
                self.failure.get_or_insert(error);
            })
            .is_ok()
    }

    /// Unmaps the new places, and maps the pages at their old ones. Pages that cannot be unmapped stay.
    fn undo<A>(&mut self, allocator: &A)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        for mapped in std::mem::take(&mut self.mapped) {
            let Mapped {
                offset,
                pages,
                from,
            } = mapped;
            let place = Place {
                range: self.incomplete.range,
                is_small: self.incomplete.is_small,
                reservation: Arc::clone(&self.incomplete.reservation),
                region: Region::new(offset, pages.bytes),
            };
            if self.unmap(allocator, &place) {
                self.put_back(allocator, from, pages);
            } else {
                self.left.extend(from);
                self.mapped.push(Mapped {
                    offset,
                    pages,
                    from: None,
                });
            }
        }
    }

    /// Maps pages at their old places, unless they are still mapped there, or makes them spare ones.
    fn put_back<A>(&mut self, allocator: &A, from: Option<Former<M, U>>, pages: Pages<M>)
    where
        A: Allocator<Backend: Backend<Memory = M>>,
    {
        let Some(from) = from else {
            self.spare.push(pages);
            return;
        };
        if from.pending.is_none() {
            let Place {
                reservation,
                region,
                ..
            } = &from.place;
            let map = || allocator.map(reservation, region.offset, &pages.memory);
            if let Err(error) = guarded("Allocator::map", map) {
                tracing::warn!(%error, bytes = pages.bytes, "could not map pages again; they are kept");
                self.left.push(from);
                self.spare.push(pages);
                return;
            }
            self.maps += 1;
        }
        let memory = pages.memory;
        self.stayed.push(Moving { from, memory });
    }
}

impl<M: fmt::Debug, U: Clone + Default + fmt::Debug> Segments<M, U> {
    /// Returns what to do for a request that finds no free range. It may have the ranges whose uses are `usable`, and pages of ranges whose
    /// uses are `over` may move. With `after`, uses that come after all that are `usable`, pages of such ranges may move too: they are
    /// mapped a second time, and unmapped where they were [once their uses are over](Self::take_stale).
    ///
    pub fn plan(
        &mut self,
        request: PageRequest,
        usable: impl Fn(&U) -> bool,
        over: impl Fn(&U) -> bool,
        after: Option<U>,
    ) -> Mapping<M, U> {
        let PageRequest {
            home,
            bytes,
            in_use,
            capacity,
            slack,
            is_for_plan,
        } = request;
        let Some(page_bytes) = self.page_bytes else {
            return Mapping::NoAddresses;
        };
        if !is_for_plan {
            self.growth
                .reach(in_use.saturating_add(bytes as u64), capacity);
            self.tell_arenas();
        }
        let is_small = self.growth_of(home).is_small(bytes);
        let mut own = self.arenas.to_add(home);
        if !own.has_reservation(is_small) {
            let addresses = capacity.saturating_mul(ADDRESSES_PER_BYTE);
            let most = usize::MAX / 2;
            let bytes = usize::try_from(addresses).map_or(most, |addresses| addresses.min(most));
            let bytes = bytes.max(1).next_multiple_of(page_bytes);
            return Mapping::Reserve { bytes, is_small };
        }
        let taken = own.take_incomplete(bytes, is_small, page_bytes, &usable);
        drop(own);
        let Some(mut incomplete) = taken else {
            return Mapping::NoAddresses;
        };
        let mut rest = incomplete.missing.bytes;
        let new_pages = if is_small {
            page_bytes
        } else {
            self.growth.new_pages(page_bytes)
        };
        let spare: Vec<_> = self
            .spare
            .extract_if(.., |pages| {
                let fits = pages.bytes <= rest;
                rest -= if fits { pages.bytes } else { 0 };
                fits
            })
            .collect();
        let used: u64 = spare.iter().map(|pages| pages.bytes as u64).sum();
        // The spare ones are no longer among the pages of this value.
        let mapped = self.bytes() + used;
        let may_create = if is_for_plan {
            0
        } else {
            let used = mapped - self.free_page_bytes() + rest as u64;
            self.growth.reach_pages(used);
            let room = self.growth.most_mapped(slack).min(capacity);
            room.saturating_sub(mapped)
        };
        let mut moved = self.take_pages_to_move(&mut rest, may_create, &over, false);
        if let Some(after) = after.filter(|_| self.may_alias(capacity)) {
            let aliased = self.take_pages_to_move(&mut rest, may_create, usable, true);
            if !aliased.is_empty() {
                incomplete.uses = after;
            }
            moved.extend(aliased);
        }
        Mapping::Map(Plan {
            incomplete,
            new_pages,
            spare,
            moved,
            is_planned: is_for_plan,
        })
    }

    /// Takes free pages whose uses are `movable` until at most `may_create` of the `rest` bytes are left; lowers `rest`. With `is_pending`,
    /// commands may still use them.
    fn take_pages_to_move(
        &mut self,
        rest: &mut usize,
        may_create: u64,
        movable: impl Fn(&U) -> bool,
        is_pending: bool,
    ) -> Vec<Moving<M, U>> {
        let mut moved = Vec::new();
        if *rest as u64 <= may_create || self.is_kept {
            return moved;
        }
        for free in self.free_pages(&movable) {
            if *rest as u64 <= may_create {
                break;
            }
            if free.bytes <= *rest
                && let Some((place, memory, uses)) = self.take_pages(free, &movable)
            {
                *rest -= free.bytes;
                let pending = is_pending.then_some(uses);
                let from = Former { place, pending };
                moved.push(Moving { from, memory });
            }
        }
        moved
    }

    /// Returns whether pages may be mapped at a second address: if the backend has not refused it, and old addresses take at most as much
    /// of the reservations as the `capacity`.
    fn may_alias(&self, capacity: u64) -> bool {
        let stale = self.stale.iter();
        !self.refuses_aliases
            && stale.map(|it| it.place.region.bytes as u64).sum::<u64>() < capacity
    }

    /// Takes out the places whose uses `are_over` and whose pages are mapped elsewhere, too. [Unmap](Place::unmap) and
    /// [forget](Self::forget) them; if unmapping fails, [keep](Self::keep_stale) them.
    pub fn take_stale(&mut self, are_over: impl Fn(&U) -> bool) -> Vec<Place<M>> {
        let over = self.stale.extract_if(.., |stale| are_over(&stale.uses));
        over.map(|stale| stale.place).collect()
    }

    /// Takes back a place that [was to be unmapped](Self::take_stale), but could not be.
    pub fn keep_stale(&mut self, place: Place<M>) {
        let uses = U::default();
        self.stale.push(Stale { place, uses });
    }

    /// The pages that lie in free ranges whose uses are `over`: those that have been free longest first, since a program that repeats its work
    /// needs them last.
    pub(super) fn free_pages(&self, over: &impl Fn(&U) -> bool) -> Vec<FreePages> {
        let page_bytes = self.page_bytes.unwrap_or(1);
        let mut free: Vec<_> = self
            .arenas
            .each()
            .flat_map(|arena| arena.free_pages(page_bytes, over))
            .collect();
        FreePages::sort(&mut free);
        free
    }

    /// The bytes of the pages that are free as a whole.
    pub(super) fn free_page_bytes(&self) -> u64 {
        let free = self.free_pages(&|_| true);
        free.iter().map(|pages| pages.bytes as u64).sum()
    }

    /// Takes free pages. Returns where they are mapped, and the uses of their range.
    fn take_pages(
        &mut self,
        free: FreePages,
        over: &impl Fn(&U) -> bool,
    ) -> Option<(Place<M>, M, U)> {
        let taken = self.arenas.numbered(free.arena).take_pages(free, over)?;
        self.count_removed(free.arena, free.bytes);
        Some(taken)
    }

    /// Adds a reservation of `bytes` bytes to the arena `home`. Returns it if the arena has got one in the meantime.
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

    /// Records the result of a plan. Returns the range of the block, unless a call failed.
    ///
    /// # Errors
    ///
    /// The error of the first call that failed.
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
        for former in done.left {
            self.leave(former);
        }
        for Moving { from, memory } in done.stayed {
            self.keep_used(&from.place, memory, from.pending.unwrap_or_default());
        }
        self.spare.extend(done.spare);
        let refusal = done.failure.as_ref().filter(|_| done.is_alias_refused);
        self.refuses_aliases |=
            refusal.is_some_and(|error| matches!(error, Error::Unsupported { .. }));
        let mapped_bytes = done.mapped.iter().map(|mapped| mapped.pages.bytes).sum();
        self.count(range.arena as usize, mapped_bytes);
        let mut arena = self.arenas.of(range);
        let (mut left, mut holes) = (Vec::new(), Vec::new());
        let mut end = missing.offset;
        for Mapped {
            offset,
            pages,
            from,
        } in done.mapped
        {
            holes.push(Region::new(end, offset - end));
            end = offset + pages.bytes;
            arena.add_pages(is_small, offset, pages);
            left.extend(from);
        }
        if let Some(error) = done.failure {
            holes.push(Region::new(end, missing.offset + missing.bytes - end));
            holes.retain(|hole| hole.bytes > 0);
            arena.give_incomplete(range, &holes, &uses);
            return Err(error);
        }
        let region = Region::new(region.offset, bytes);
        arena.shrink(range, region, uses.clone());
        // A few pages more from time to time change little, and a log goes on.
        let is_more = done.created_bytes > 0 && !is_small && !done.is_planned;
        if is_more && !arena.low_points.is_watching() {
            arena.grew(self.bytes[range.arena as usize]);
        }
        if let Some(segment) = arena.segment_of(range) {
            arena.note_taken(range.number(), (segment, region));
        }
        drop(arena);
        // After the arena is unlocked, since a place may lie in it.
        for former in left {
            self.leave(former);
        }
        self.tell_arenas();
        Ok(Carved {
            range,
            region,
            segment: reservation,
            view: None,
            overlapping: Vec::new(),
            uses,
            has_excess: false,
        })
    }

    /// Gives back the pages that were mapped for a plan, which then begins.
    pub fn follow(&mut self, plan: NewPlan, carved: Carved<M, U>) {
        let Carved {
            range,
            region,
            uses,
            ..
        } = carved;
        let mut arena = self.arenas.of(range);
        let segment = arena.segment_of(range);
        arena.give(range, uses, None);
        if let Some(segment) = segment.filter(|_| range.arena() == plan.arena) {
            arena.follow(plan.plan, (segment, region.offset));
        }
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
                && let Some((place, memory, _)) = self.take_pages(free, &wanted)
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

    /// Takes back pages that were to leave or to move but could not be unmapped: they are free where they are.
    pub fn keep(&mut self, place: &Place<M>, memory: M) {
        self.keep_used(place, memory, U::default());
    }

    fn keep_used(&mut self, place: &Place<M>, memory: M, uses: U) {
        let bytes = place.region.bytes;
        self.count(place.range.arena as usize, bytes);
        let mut arena = self.arenas.of(place.range);
        arena.add_pages(place.is_small, place.region.offset, Pages { bytes, memory });
        arena.give(place.range, uses, None);
    }

    /// Records that pages now count elsewhere.
    fn leave(&mut self, Former { place, pending }: Former<M, U>) {
        let Some(uses) = pending else {
            self.forget(&place);
            return;
        };
        self.arenas.of(place.range).set_stale(place.range);
        self.stale.push(Stale { place, uses });
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
