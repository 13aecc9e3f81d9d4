//! Segments, which are large pieces of device memory, and the ranges of them that blocks are carved from: the bookkeeping of a pool.
//!
//! Nothing here calls the device. The types that are handed out say which calls have to follow, and in which order:
//! [`Carved`] and [`Leaving`].

#![forbid(unsafe_code)]

mod arena;
mod arenas;
mod by_size;
mod growth;
mod growth_policy;
mod handed_out;
mod layout;
mod log;
mod low_points;
mod mapping;
mod pages;
mod period;
mod period_plan;
mod placement;
mod review;
mod space;
mod views;

use std::{collections::HashSet, fmt, sync::Arc};

use arena::{Arena, Pages};
use arenas::Locked;
use growth::{Growth, LEAST_SEGMENT};
use pages::{PagesKey, Stale};
use placement::Placement;
use space::{Idle, SegmentKey};

pub use arenas::Arenas;
pub use growth_policy::GrowthPolicy;
pub use handed_out::{Carved, Leaving, Place, RangeKey, RangeState, Ready, SegmentState};
pub use mapping::{Done, Mapping, PageRequest, Plan};
pub use period_plan::{NewPlan, Planned};
pub use review::{Review, Reviewed};

use binpool_allocators::Region;

/// A request takes from any arena while at least one part in this of the segments is free.
const FREE_PARTS_TO_TAKE: u64 = 4;

/// Segments of memory `M`, and the ranges of them, free and taken.
///
/// A free range remembers its uses `U`. The owner of the segments defines their meaning, and uses them to decide which request may have the
/// range.
///
/// Ranges are chosen by best fit, with these rules. `docs/design/growth.md` says what each earns:
///
/// - the size of a segment is a multiple of its first block's, up to 1/20 of the most that the program has had in use (the high water); a larger
///   block has a segment of its own;
/// - before the segments grow past 1.1 times the high water (or past the high water and 2 MiB, if that is more), idle segments are
///   evicted, the smallest one that is enough first;
/// - small blocks have segments of their own;
/// - if the program repeats its work, its blocks are placed as a plan, for which one segment takes the place of idle ones;
/// - where the high water is more than half of the capacity, segments keep to 1.01 times the high water, blocks of more than 1 MiB mostly have
///   segments of their own, and a large idle segment is not split for a block of less than 9/10 of it. [`GrowthPolicy::Dense`] does so
///   everywhere;
/// - the view of a block that is given back is cached in the free range, and serves the next block of exactly its place and size.
#[derive(Debug)]
pub struct Segments<M, U> {
    arenas: Arenas<M, U>,
    growth: Growth,
    /// The bytes of the segments of each arena.
    bytes: Vec<u64>,
    /// Their sum.
    all_bytes: u64,
    /// What each arena knows of the rules of growth.
    placements: Vec<Placement>,
    /// Pages that are mapped nowhere, since a call failed.
    spare: Vec<Pages<M>>,
    /// Where pages are still mapped that are mapped elsewhere too.
    stale: Vec<Stale<M, U>>,
    /// Set once the backend has refused to map pages at a second address.
    refuses_aliases: bool,
    /// The pages that were free at the last sweep.
    free_at_sweep: HashSet<PagesKey>,
    /// The size of a page of virtual memory in bytes, where pages are mapped to reservations.
    page_bytes: Option<usize>,
    /// Set while nothing may leave or move.
    is_kept: bool,
    /// The bytes of free pages that a plan does not need, and the arena that they are in.
    unneeded: Option<(usize, u64)>,
    /// Returns the combined uses of two free neighbours.
    join: fn(&U, &U) -> Option<U>,
}

impl<M: fmt::Debug, U: Clone + Default + fmt::Debug> Segments<M, U> {
    /// Makes an empty set of segments, in one arena. `join` returns the combined uses of two free neighbours, or `None` if they
    /// must stay apart.
    #[must_use]
    pub fn new(join: fn(&U, &U) -> Option<U>) -> Self {
        Self {
            arenas: Arenas::new(1, join, true),
            growth: Growth::default(),
            bytes: vec![0],
            all_bytes: 0,
            placements: vec![Placement::default()],
            spare: Vec::new(),
            stale: Vec::new(),
            refuses_aliases: false,
            free_at_sweep: HashSet::new(),
            page_bytes: None,
            is_kept: false,
            unneeded: None,
            join,
        }
    }

    /// Divides the segments among this many arenas, up to 64, before the first segment is added.
    ///
    /// Each request names a home: the arena that is searched first, and that gets the new segments. So threads with different homes seldom
    /// meet. All arenas grow by the same rules, and together have as much memory as one would.
    #[must_use]
    pub fn with_arenas(mut self, arenas: usize) -> Self {
        self.arenas = Arenas::new(arenas, self.join, self.arenas.caches_views());
        self.bytes = vec![0; self.arenas.len()];
        self.all_bytes = 0;
        self.placements = vec![Placement::default(); self.arenas.len()];
        self
    }

    /// The arenas, for threads that take and give ranges without this value. They are empty once this value is dropped.
    #[must_use]
    pub fn arenas(&self) -> Arenas<M, U> {
        self.arenas.clone()
    }

    /// Sets what to save when the segments grow. Call it before the first segment is added.
    #[must_use]
    pub fn with_growth(mut self, policy: GrowthPolicy) -> Self {
        self.growth = Growth::new(policy);
        self
    }

    /// Passes the current rules of growth on to the arenas.
    fn tell_arenas(&mut self) {
        // An arena without segments has no range to place blocks in.
        for number in self.arenas.occupied() {
            if self.bytes[number] == 0 {
                continue;
            }
            let placement = self.growth_of(number).placement();
            if self.placements[number] != placement {
                self.placements[number] = placement;
                self.arenas.numbered(number).placement = placement;
            }
        }
    }

    /// The rules of growth for the arena `home`.
    fn growth_of(&self, home: usize) -> Growth {
        let bytes = self.bytes[home % self.bytes.len()];
        self.growth.of_arena(bytes, self.bytes())
    }

    /// Drops the view of a range when that is given back, for views that [are only addresses](binpool_allocators::Allocator::views_are_addresses).
    #[must_use]
    pub fn without_cached_views(mut self) -> Self {
        self.arenas = Arenas::new(self.arenas.len(), self.join, false);
        self
    }

    /// Maps pages to reservations instead of adding segments. Their sizes are multiples of `page_bytes` bytes. Views are then only
    /// addresses, and are not cached.
    #[must_use]
    pub fn with_pages(mut self, page_bytes: usize) -> Self {
        self.page_bytes = Some(page_bytes);
        self.without_cached_views()
    }

    /// Returns whether pages are mapped to reservations. Then only pages whose commands have ended are released.
    #[must_use]
    pub fn has_pages(&self) -> bool {
        self.page_bytes.is_some()
    }

    /// Sets whether all memory stays where it is: if so, no segment is released, and no pages move.
    pub fn keep_addresses(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }

    /// The bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all_bytes + self.spare_bytes()
    }

    /// The bytes of all free ranges.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let free: u64 = self.arenas.each().map(|arena| arena.free_bytes()).sum();
        free + self.spare_bytes()
    }

    /// The bytes of the pages that are mapped nowhere because a call failed.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare.iter().map(|pages| pages.bytes as u64).sum()
    }

    /// The bytes of the idle segments, those without a taken range, and of the pages that are free as a whole.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        let idle = |arena: &Arena<M, U>| arena.idle().map(|idle| idle.bytes as u64).sum::<u64>();
        let idle: u64 = self.arenas.each().map(|arena| idle(&arena)).sum();
        if !self.has_pages() {
            return idle;
        }
        idle + self.free_page_bytes() + self.spare_bytes()
    }

    /// The size of the largest free range, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> usize {
        let largest = self.arenas.each().map(|arena| arena.largest_free());
        largest.max().unwrap_or(0)
    }

    /// Calls `visit` with the uses of each free range, and its size in bytes, except for addresses at which pages that have moved are still
    /// mapped.
    pub fn each_use(&self, mut visit: impl FnMut(&U, usize)) {
        for arena in self.arenas.each() {
            arena.uses().for_each(|(uses, bytes)| visit(uses, bytes));
        }
        self.stale.iter().for_each(|stale| visit(&stale.uses, 0));
    }

    /// The peak of the bytes in use, as seen at requests that needed more than was free.
    #[must_use]
    pub fn high_water(&self) -> u64 {
        self.growth.high_water()
    }

    /// The most bytes of free blocks that may be cached outside of their segments without harm.
    #[must_use]
    pub fn cacheable_bytes(&self) -> u64 {
        self.growth.cacheable_bytes()
    }

    /// The most bytes of a small block of the arena `home`. Small blocks lie in segments of their own.
    #[must_use]
    pub fn small_bytes(&self, home: usize) -> usize {
        self.growth_of(home).small_bytes()
    }

    /// Takes a range of `bytes` bytes whose uses are `usable`, from the arena `home` if that has one. Returns `None` also if that arena should
    /// [grow](Self::grow) instead: as long as segments have not reached a limit, and less than a quarter of them is free.
    pub fn take(
        &mut self,
        home: usize,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let take = |mut arena: Locked<'_, M, U>| arena.take(bytes, &usable);
        let own = 1 << (home % self.bytes.len());
        let mut of_home = self.arenas.with(home, bytes, own);
        if of_home.any(|arena| arena.is_at_low_point(bytes)) {
            return None;
        }
        let found = self.arenas.with(home, bytes, own).find_map(take);
        found.or_else(|| {
            let grows = self.arena_grows(home);
            // The same holds from now on for threads that find nothing in their own arenas.
            self.arenas.set_searches_others(!grows);
            if grows {
                return None;
            }
            self.arenas.with(home, bytes, !own).find_map(take)
        })
    }

    /// Takes `bytes` bytes from neighbouring free ranges of pages that are separate only because their uses differ, each with uses that are
    /// `usable`: from the arena `home` or from another one, as [`take`](Self::take) does. The uses in the result are those of the
    /// last range: this is for requests that need not wait for any use.
    pub fn take_run(
        &mut self,
        home: usize,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        if !self.has_pages() || self.is_at_low_point(home, bytes) {
            return None;
        }
        let arenas = if self.arena_grows(home) {
            1 << (home % self.bytes.len())
        } else {
            u64::MAX
        };
        // Arenas with anything free, since only a look at its place tells whether it is large enough.
        let mut arenas = self.arenas.with(home, 1, arenas);
        arenas.find_map(|mut arena| arena.take_run(bytes, &usable))
    }

    /// Restricts which free neighbours are joined to one range from now on. `join` returns their combined uses, as in [`new`](Self::new).
    pub fn set_join(&mut self, join: fn(&U, &U) -> Option<U>) {
        self.join = join;
        self.arenas
            .all()
            .for_each(|mut arena| arena.space.set_join(join));
    }

    /// Returns whether an arena grows before its requests take from others: if little of the others' segments is free, and all segments
    /// together are below their limit.
    fn arena_grows(&self, home: usize) -> bool {
        let own = self.bytes[home % self.bytes.len()];
        own < self.bytes()
            && self.bytes() < self.growth.most(0)
            && self.free_bytes() < self.bytes() / FREE_PARTS_TO_TAKE
    }

    /// Takes a range as [`take`](Self::take) does, but regardless of the rules that keep ranges for other blocks.
    pub fn take_anywhere(
        &mut self,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let mut arenas = self.arenas.with(0, bytes, u64::MAX);
        arenas.find_map(|mut arena| arena.take_anywhere(bytes, &usable))
    }

    /// Adds a segment to the arena `home`, and takes the first `bytes` of its `size` bytes.
    pub fn add(
        &mut self,
        home: usize,
        memory: M,
        size: usize,
        bytes: usize,
    ) -> Option<Carved<M, U>> {
        let is_small = self.growth_of(home).is_small(bytes);
        let number = home % self.bytes.len();
        self.count(number, size);
        let mut arena = self.arenas.to_add(home);
        if !is_small && self.growth.joins_idle() {
            arena.grew(self.bytes[number]);
        }
        let key = arena.add(memory, size, is_small);
        let carved = arena.take_first(key, bytes);
        drop(arena);
        self.growth.accept(self.bytes());
        self.tell_arenas();
        carved
    }

    /// Adds the segment of a plan, all of it free, and begins that.
    pub fn add_planned(&mut self, plan: NewPlan, memory: M) {
        let NewPlan { arena, bytes, plan } = plan;
        self.count(arena, bytes);
        let mut locked = self.arenas.to_add(arena);
        let key = locked.add(memory, bytes, false);
        locked.follow(plan, (key, 0));
        drop(locked);
        self.growth.accept(self.bytes());
        self.tell_arenas();
    }

    /// The segment that a taken range belongs to, and the position of the range in it.
    #[must_use]
    pub fn place_of(&self, range: RangeKey) -> Option<(Arc<M>, Region)> {
        self.arenas.of(range).place_of(range)
    }

    /// Calls `visit` with the state of each segment.
    pub fn each(&self, mut visit: impl FnMut(SegmentState<'_, M, U>)) {
        for arena in self.arenas.each() {
            arena.segments().for_each(&mut visit);
        }
    }

    /// Calls `visit` for the pages that are mapped, with their reservation and where they are in it. Pages are mapped and unmapped as a
    /// whole.
    ///
    pub fn each_pages(&self, mut visit: impl FnMut(&M, Region)) {
        for arena in self.arenas.each() {
            arena
                .pages()
                .for_each(|(memory, region)| visit(&memory, region));
        }
    }

    /// Frees the parts of a range before and after `region`; commands of `uses` may still use them.
    pub fn shrink(&mut self, range: RangeKey, region: Region, uses: U) {
        self.arenas.of(range).shrink(range, region, uses);
    }

    /// Returns whether the view of a range may be passed when the range is given back. Otherwise it must be dropped before.
    #[must_use]
    pub fn may_keep_view(&self, range: RangeKey) -> bool {
        self.arenas.may_keep_view(range)
    }

    /// Gives a range back, which commands of `uses` may still use, with its view, unless that was dropped before.
    pub fn give(&mut self, range: RangeKey, uses: U, view: Option<M>) {
        self.arenas.give(range, uses, view);
    }

    /// Forgets the uses that `are_over`, and joins free neighbours that these kept apart.
    pub fn settle(&mut self, are_over: impl Fn(&U) -> bool) {
        self.arenas
            .each()
            .for_each(|mut arena| arena.settle(&are_over));
    }

    /// Returns the size of the segment to request for a block of `bytes` bytes, and the segments to release before. The user has `in_use`
    /// bytes, and memory is limited to `capacity` bytes. The block is one of a thread whose arena is `home`: the
    /// segment is as large as the arena's part of all segments asks for.
    pub fn grow(
        &mut self,
        home: usize,
        bytes: usize,
        in_use: u64,
        alignment: usize,
        capacity: u64,
    ) -> (usize, Vec<Leaving<M, U>>) {
        let in_use = in_use.saturating_add(bytes as u64);
        self.growth.reach(in_use, capacity);
        self.tell_arenas();
        let growth = self.growth_of(home);
        let size = growth.segment_for(bytes);
        let leaving = self.make_room(size as u64, self.growth.most(LEAST_SEGMENT));
        // The device would refuse a segment beyond the capacity.
        let room = usize::try_from(capacity.saturating_sub(self.bytes())).unwrap_or(usize::MAX);
        (size.min(room - room % alignment).max(bytes), leaving)
    }

    /// Records that `free` bytes of the device are free: if others leave less than twice what the program has had in use, memory is
    /// tight, as with such a `capacity`.
    pub fn note_free(&mut self, free: u64) {
        let room = self.bytes().saturating_add(free);
        self.growth.set_room(room);
    }

    /// Returns what the arenas have planned, all together: nothing if no arena follows a plan.
    #[must_use]
    pub fn planned(&self) -> Planned {
        let mut all = Planned::default();
        for arena in self.arenas.each() {
            if let Some(plan) = &arena.plan {
                all.blocks += plan.planned.blocks;
                all.bytes += plan.planned.bytes;
                all.most_taken += plan.planned.most_taken;
            }
        }
        all
    }

    /// Returns whether the arena `home` looks for a period of the program, or follows a plan for one. Blocks that are not small should not be cached
    /// outside of it then.
    #[must_use]
    pub fn watches_carves(&self, home: usize) -> bool {
        let arena = self.arenas.numbered(home % self.bytes.len());
        arena.watches_carves()
    }

    /// Returns whether the arena `home` is at a low point of the program: then a [`review`](Self::review) may save memory, and requests for
    /// blocks that are not small find nothing in that arena before.
    #[must_use]
    pub fn is_at_low_point(&self, home: usize, bytes: usize) -> bool {
        let arena = self.arenas.numbered(home % self.bytes.len());
        arena.is_at_low_point(bytes)
    }

    /// At a low point of the arena `home`, returns what a request for `bytes` bytes should look at first, without any lock. Then
    /// [`join_idle`](Self::join_idle) takes the result. `largest` is the allocator's largest block; 0 stands for an allocator that gives none now.
    pub fn review(&mut self, home: usize, bytes: usize, largest: usize) -> Option<Review> {
        let number = home % self.bytes.len();
        let mut arena = self.arenas.numbered(number);
        if !arena.is_at_low_point(bytes) {
            return None;
        }
        let review = arena.review(self.bytes[number], largest);
        review.filter(|_| self.growth.joins_idle() && !self.is_kept && largest > 0)
    }

    /// If a review has found a plan, returns it, with room for `bytes` bytes, and the idle segments in whose place its own is [added](Self::add_planned).
    ///
    /// On pages, its bytes are to be [mapped](Self::plan) before it [begins](Self::follow), and what leaves are free pages that are not needed any more,
    /// if their uses are `over`. Those whose uses are `movable` can be mapped a second time.
    pub fn join_idle(
        &mut self,
        reviewed: Reviewed,
        bytes: usize,
        alignment: usize,
        movable: impl Fn(&U) -> bool,
        over: impl Fn(&U) -> bool,
    ) -> Option<(NewPlan, Vec<Leaving<M, U>>)> {
        let arena = reviewed.arena;
        if self.is_kept {
            return None;
        }
        if let Some(page_bytes) = self.page_bytes {
            return self.join_pages(reviewed, page_bytes, movable, over);
        }
        let (region, idle, plan) = self.arenas.numbered(arena).join_idle(reviewed)?;
        let leaving = idle.into_iter().filter_map(|idle| {
            self.remove(IdleSegment {
                bytes: idle.bytes,
                key: idle.segment,
                arena,
            })
        });
        let leaving = leaving.collect();
        let bytes = region.max(bytes).next_multiple_of(alignment);
        Some((NewPlan { arena, bytes, plan }, leaving))
    }

    /// The same for pages, of which enough are free whose uses are `movable`. Those that the plan does not need leave now if their uses are `over`, or
    /// [later](Self::take_unneeded).
    fn join_pages(
        &mut self,
        reviewed: Reviewed,
        page_bytes: usize,
        movable: impl Fn(&U) -> bool,
        over: impl Fn(&U) -> bool,
    ) -> Option<(NewPlan, Vec<Leaving<M, U>>)> {
        let arena = reviewed.arena;
        let (bytes, _, plan) = self.arenas.numbered(arena).join_idle(reviewed)?;
        let bytes = bytes.next_multiple_of(page_bytes);
        let free = self
            .free_pages(&|uses: &U| movable(uses) || over(uses))
            .into_iter();
        let free = free
            .filter(|free| free.is_planned(arena))
            .map(|free| free.bytes as u64);
        let unneeded = free.sum::<u64>().checked_sub(bytes as u64)?;
        self.unneeded = Some((arena, unneeded));
        let leaving = self.take_unneeded(arena, over);
        Some((NewPlan { arena, bytes, plan }, leaving))
    }

    /// Takes out what a plan of the arena `home` does not need: idle segments, or free pages whose uses are `over`.
    pub fn take_unneeded(&mut self, home: usize, over: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        if !self.has_pages() {
            let number = home % self.bytes.len();
            return self.take_idle(u64::MAX, |arena, idle| {
                arena.number as usize == number && arena.is_outside_plan(idle)
            });
        }
        let Some((number, unneeded)) = self.unneeded.take() else {
            return Vec::new();
        };
        let leaving = self.release_pages(unneeded, |free| free.is_planned(number), over);
        let left: u64 = leaving.iter().map(|leaving| leaving.bytes as u64).sum();
        let rest = unneeded.saturating_sub(left);
        // Pages leave as a whole.
        self.unneeded = (rest > 0).then_some((number, rest));
        leaving
    }

    /// Records that no memory was left for a segment of `size` bytes.
    pub fn refuse(&mut self, size: usize) {
        self.growth.refuse(self.bytes() + size as u64);
    }

    /// Removes idle segments until there is room for `size` bytes below `most`: the smallest that is enough, or else the largest.
    fn make_room(&mut self, size: u64, most: u64) -> Vec<Leaving<M, U>> {
        let mut leaving = Vec::new();
        loop {
            let excess = (self.bytes() + size).saturating_sub(most);
            if excess == 0 || self.is_kept {
                return leaving;
            }
            // What a plan needs stays, or the program would outgrow it.
            let may_leave = |arena: &Arena<M, U>, idle: Idle| !arena.is_planned(idle.segment);
            let idle = self.idle(may_leave).into_iter();
            let (enough, less): (Vec<_>, Vec<_>) =
                idle.partition(|idle| idle.bytes as u64 >= excess);
            let Some(next) = enough.into_iter().min().or_else(|| less.into_iter().max()) else {
                return leaving;
            };
            // A thread may have taken a range of it in the meantime. Then it is no longer idle in the next round.
            leaving.extend(self.remove(next));
        }
    }

    /// Removes idle segments all of whose uses are `wanted`, largest first, until they have `enough` bytes
    /// together.
    pub fn release(&mut self, enough: u64, wanted: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        let mut leaving = self.take_idle(enough, |space, idle| {
            space.uses_of(idle.segment).all(&wanted)
        });
        if self.has_pages() {
            leaving.extend(self.release_pages(enough, |_| true, wanted));
        }
        leaving
    }

    /// Removes the segments that have been idle since the last call of this, and all of whose uses are `wanted`. Pages are removed that
    /// were free then and are free now.
    pub fn sweep(&mut self, wanted: impl Fn(&U) -> bool) -> Vec<Leaving<M, U>> {
        let now = self.arenas.all().map(|mut arena| arena.sweep()).max();
        let mut leaving = self.take_idle(u64::MAX, |arena, idle| {
            Some(idle.since) < now && arena.uses_of(idle.segment).all(&wanted)
        });
        if self.has_pages() {
            leaving.extend(self.sweep_pages(wanted));
        }
        leaving
    }

    fn take_idle(
        &mut self,
        enough: u64,
        wanted: impl Fn(&Arena<M, U>, Idle) -> bool,
    ) -> Vec<Leaving<M, U>> {
        let mut idle = if self.is_kept {
            Vec::new()
        } else {
            self.idle(wanted)
        };
        // Without a closure, since one for each kind of memory would take long to compile.
        idle.sort_unstable();
        let mut released = 0;
        let mut leaving = Vec::new();
        for segment in idle.into_iter().rev() {
            if released >= enough {
                break;
            }
            if let Some(gone) = self.remove(segment) {
                released += gone.bytes as u64;
                leaving.push(gone);
                if self.bytes[segment.arena] == 0 {
                    self.arenas.numbered(segment.arena).low_points.forget();
                }
            }
        }
        leaving
    }

    /// The `wanted` segments without a taken range.
    fn idle(&self, wanted: impl Fn(&Arena<M, U>, Idle) -> bool) -> Vec<IdleSegment> {
        let mut found = Vec::new();
        for arena in self.arenas.occupied() {
            let locked = self.arenas.numbered(arena);
            let idle = locked.idle().filter(|idle| wanted(&locked, *idle));
            found.extend(idle.map(|idle| IdleSegment {
                bytes: idle.bytes,
                key: idle.segment,
                arena,
            }));
        }
        found
    }

    /// Counts bytes that an arena has from now on.
    fn count(&mut self, arena: usize, bytes: usize) {
        self.bytes[arena] += bytes as u64;
        self.all_bytes += bytes as u64;
    }

    fn count_removed(&mut self, arena: usize, bytes: usize) {
        self.bytes[arena] -= bytes as u64;
        self.all_bytes -= bytes as u64;
    }

    /// Removes a segment, unless a thread has taken a range of it in the meantime.
    fn remove(&mut self, IdleSegment { bytes, key, arena }: IdleSegment) -> Option<Leaving<M, U>> {
        let (uses, views, memory) = self.arenas.numbered(arena).remove(key)?;
        self.count_removed(arena, bytes);
        Some(Leaving {
            views,
            memory,
            bytes,
            uses,
            place: None,
        })
    }
}

/// Drops all segments, even if threads still have the arenas.
impl<M, U> Drop for Segments<M, U> {
    fn drop(&mut self) {
        self.arenas.clear(self.join);
    }
}

/// A segment that was idle when its arena was looked at. Smaller ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IdleSegment {
    bytes: usize,
    key: SegmentKey,
    arena: usize,
}

#[cfg(test)]
mod tests;
