//! Arenas, which threads share. Each has its own lock.

use std::{
    fmt, iter,
    num::NonZeroU64,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use crossbeam_utils::CachePadded;

use super::{
    arena::Arena,
    by_size::bin_of,
    handed_out::{RangeKey, Ready},
};
use binpool_lock::spin_lock::{Lock, LockGuard};

/// The most arenas, one for each bit of [`Shared::occupied`].
const MOST_ARENAS: usize = 64;

/// The arenas of [`Segments`](super::Segments), for threads that take and return ranges without the lock of the segments.
///
/// Each arena has segments of its own, and a lock. So threads with different arenas do not wait for each other, and the
/// bookkeeping of an arena stays in the cache of one processor. The arenas of jemalloc are the same idea ("A Scalable Concurrent
/// malloc(3) Implementation for FreeBSD", Evans, 2006).
pub struct Arenas<M, U>(Arc<Shared<M, U>>);

#[derive(Debug)]
struct Shared<M, U> {
    /// A bit for each arena that has had a segment.
    occupied: AtomicU64,
    /// Set if the views of free ranges are cached.
    caches_views: bool,
    /// Set if a request that its home cannot serve searches other arenas; unset while the home should grow instead.
    searches_others: AtomicBool,
    all: Box<[Cell<M, U>]>,
}

/// An arena, and what threads can read of it without locking it.
#[derive(Debug)]
struct Cell<M, U> {
    arena: CachePadded<Lock<Arena<M, U>>>,
    /// The number of [bins](bin_of) up to that of the largest free range. On a cache line of its own, which a thread that only looks keeps
    /// in its cache. Changed only under the lock.
    bins: CachePadded<AtomicUsize>,
}

/// A locked arena.
pub(super) struct Locked<'a, M, U: Clone + Default> {
    arena: LockGuard<'a, Arena<M, U>>,
    bins: &'a AtomicUsize,
}

impl<M, U: Clone + Default> Deref for Locked<'_, M, U> {
    type Target = Arena<M, U>;

    fn deref(&self) -> &Arena<M, U> {
        &self.arena
    }
}

impl<M, U: Clone + Default> DerefMut for Locked<'_, M, U> {
    fn deref_mut(&mut self) -> &mut Arena<M, U> {
        &mut self.arena
    }
}

/// Publishes the bin of the largest free range.
impl<M, U: Clone + Default> Drop for Locked<'_, M, U> {
    #[inline]
    fn drop(&mut self) {
        let bins = self.arena.bins();
        if self.bins.load(Ordering::Relaxed) != bins {
            self.bins.store(bins, Ordering::Relaxed);
        }
    }
}

impl<M, U> Clone for Arenas<M, U> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: fmt::Debug, U: fmt::Debug> fmt::Debug for Arenas<M, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arenas").field(&self.0.all.len()).finish()
    }
}

impl<M, U> Arenas<M, U> {
    /// Drops the content of all arenas.
    pub(super) fn clear(&self, join: fn(&U, &U) -> Option<U>) {
        for (number, arena) in (0..).zip(&self.0.all) {
            let empty = Arena::new(number, join);
            // Dropped without the lock: the end of a segment calls the device.
            let _cleared = std::mem::replace(&mut *arena.arena.lock(), empty);
        }
    }
}

impl<M, U: Clone + Default> Arenas<M, U> {
    pub(super) fn new(arenas: usize, join: fn(&U, &U) -> Option<U>, caches_views: bool) -> Self {
        let arenas = arenas.clamp(1, MOST_ARENAS);
        let all = (0..).take(arenas).map(|number| {
            let arena = Arena::new(number, join);
            Cell {
                arena: CachePadded::new(Lock::new(arena)),
                bins: CachePadded::default(),
            }
        });
        Self(Arc::new(Shared {
            occupied: AtomicU64::new(0),
            caches_views,
            searches_others: AtomicBool::new(true),
            all: all.collect(),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.0.all.len()
    }

    pub(super) fn caches_views(&self) -> bool {
        self.0.caches_views
    }

    /// Takes a range of `bytes` bytes whose uses are `usable`: from the arena `home` if that has one, or else from the next one that
    /// has. Returns `None` also if cached views have to be released before.
    ///
    /// Numbers beyond the last arena go round.
    pub fn take(&self, home: usize, bytes: usize, usable: impl Fn(&U) -> bool) -> Option<Ready<M>> {
        let home = self.number_of(home);
        if self.0.all[home].bins.load(Ordering::Relaxed) > bin_of(bytes) {
            let mut arena = self.numbered(home);
            if arena.is_at_low_point(bytes) {
                return None;
            }
            if let Some(ready) = arena.take_ready(bytes, &usable) {
                return Some(ready);
            }
        }
        self.take_from_others(home, bytes, usable)
    }

    /// Takes a range from an arena other than `home`, if requests search others.
    #[cold]
    fn take_from_others(
        &self,
        home: usize,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Ready<M>> {
        if !self.0.searches_others.load(Ordering::Relaxed) {
            return None;
        }
        let mut others = self.with(home, bytes, !(1 << home));
        others.find_map(|mut arena| arena.take_ready(bytes, &usable))
    }

    /// The number of the arena `home`. Numbers beyond the last arena go round.
    fn number_of(&self, home: usize) -> usize {
        // Compared first, since a division takes longer than everything else here.
        if home < self.len() {
            home
        } else {
            home % self.len()
        }
    }

    /// Sets whether requests search arenas other than their home.
    pub(super) fn set_searches_others(&self, searches_others: bool) {
        self.0
            .searches_others
            .store(searches_others, Ordering::Relaxed);
    }

    /// Locks, one after the other and starting at `home`, the arenas that may have a free range of `bytes` bytes. `arenas` has a bit for
    /// each arena to look at.
    pub(super) fn with(
        &self,
        home: usize,
        bytes: usize,
        arenas: u64,
    ) -> impl Iterator<Item = Locked<'_, M, U>> {
        let bin = bin_of(bytes);
        let has = move |number: &usize| self.0.all[*number].bins.load(Ordering::Relaxed) > bin;
        let numbers = numbers(self.occupied_bits() & arenas, self.number_of(home));
        numbers.filter(has).map(|number| self.numbered(number))
    }

    fn occupied_bits(&self) -> u64 {
        self.0.occupied.load(Ordering::Relaxed)
    }

    /// Returns whether the view of a range may be passed when the range is given back. Otherwise it must be dropped before.
    #[must_use]
    pub fn may_keep_view(&self, range: RangeKey) -> bool {
        !self.0.caches_views || self.of(range).may_keep_view(range)
    }

    /// Gives a range back to its arena, with its view unless that was dropped before. Commands of `uses` may still use the range.
    pub fn give(&self, range: RangeKey, uses: U, view: Option<M>) {
        // A view that is not cached is dropped without the lock.
        let (cached, _dropped) = if self.0.caches_views {
            (view, None)
        } else {
            (None, view)
        };
        self.of(range).give(range, uses, cached);
    }

    /// Locks the arena of a range.
    pub(super) fn of(&self, range: RangeKey) -> Locked<'_, M, U> {
        self.numbered(range.arena as usize)
    }

    /// Locks all arenas, one after the other.
    pub(super) fn all(&self) -> impl Iterator<Item = Locked<'_, M, U>> {
        (0..self.len()).map(|number| self.numbered(number))
    }

    /// Locks the arena of this number.
    pub(super) fn numbered(&self, number: usize) -> Locked<'_, M, U> {
        let Cell { arena, bins } = &self.0.all[number];
        Locked {
            arena: arena.lock(),
            bins,
        }
    }

    /// The numbers of the arenas that have had a segment.
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> + use<M, U> {
        numbers(self.occupied_bits(), 0)
    }

    /// Locks the arenas that have had a segment, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = Locked<'_, M, U>> {
        self.occupied().map(|number| self.numbered(number))
    }

    /// Locks the arena `home` to add a segment.
    pub(super) fn to_add(&self, home: usize) -> Locked<'_, M, U> {
        let number = self.number_of(home);
        self.0.occupied.fetch_or(1 << number, Ordering::Relaxed);
        self.numbered(number)
    }
}

/// The numbers of the bits that are set, from `first` on and round.
fn numbers(bits: u64, first: usize) -> impl Iterator<Item = usize> {
    let mut left = bits.rotate_right(u32::try_from(first).unwrap_or(0));
    iter::from_fn(move || {
        let step = NonZeroU64::new(left)?.trailing_zeros();
        left &= left - 1;
        Some((first + step as usize) % MOST_ARENAS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_are_searched_from_the_home_on_and_round() {
        let of = |bits, first| numbers(bits, first).collect::<Vec<_>>();
        assert!(of(0, 5).is_empty());
        assert_eq!(of(0b1_0011, 0), [0, 1, 4]);
        assert_eq!(of(0b1_0011, 1), [1, 4, 0]);
        assert_eq!(of(0b1_0011, 2), [4, 0, 1]);
        assert_eq!(of(1 << 63 | 1, 63), [63, 0]);
    }
}
