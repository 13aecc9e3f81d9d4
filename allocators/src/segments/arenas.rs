//! Arenas that threads share: each has a lock of its own.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;

use super::{
    Carved,
    arena::{Arena, RangeKey, Search},
};
use crate::spin_lock::{Lock, LockGuard};

/// The most arenas, one for each bit of [`Shared::occupied`].
const MOST_ARENAS: usize = 64;

/// The arenas of [`Segments`](super::Segments), for threads that take and give ranges without these.
///
/// Each arena has segments of its own, and a lock. So threads with different arenas do not wait for each other, and the
/// bookkeeping of an arena stays in the cache of one processor. The arenas of jemalloc are the same idea ("A Scalable Concurrent
/// malloc(3) Implementation for FreeBSD", Evans, 2006).
///
/// ```
/// use binpool_allocators::segments::Segments;
///
/// let mut segments: Segments<&str, ()> = Segments::new(|(), ()| Some(())).with_arenas(2);
/// let first = segments.add_near(1, "segment", 4096, 1024).unwrap();
/// let arenas = segments.arenas();
/// assert!(arenas.take(0, 1024, |()| true).is_none()); // The segment is in the other one.
/// let second = arenas.take(1, 1024, |()| true).unwrap();
/// assert_eq!(second.region.offset, 1024);
/// arenas.give(second.range, (), Some("view"));
/// assert_eq!(segments.free_bytes(), 3072);
/// # segments.give(first.range, (), None);
/// ```
pub struct Arenas<M, U>(Arc<Shared<M, U>>);

#[derive(Debug)]
struct Shared<M, U> {
    /// A bit for each arena that has had a segment.
    occupied: AtomicU64,
    /// Set if the views of free ranges are cached.
    caches_views: bool,
    all: Box<[CachePadded<Lock<Arena<M, U>>>]>,
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
    /// Drops what all arenas have.
    pub(super) fn clear(&self, join: fn(&U, &U) -> Option<U>) {
        for (number, arena) in (0..).zip(&self.0.all) {
            let empty = Arena::new(number, join);
            // Dropped without the lock: the end of a segment calls the device.
            let _cleared = std::mem::replace(&mut *arena.lock(), empty);
        }
    }
}

impl<M, U: Clone + Default> Arenas<M, U> {
    pub(super) fn new(arenas: usize, join: fn(&U, &U) -> Option<U>, caches_views: bool) -> Self {
        let arenas = arenas.clamp(1, MOST_ARENAS);
        let all = (0..).take(arenas).map(|number| {
            let arena = Arena::new(number, join);
            CachePadded::new(Lock::new(arena))
        });
        Self(Arc::new(Shared {
            occupied: AtomicU64::new(0),
            caches_views,
            all: all.collect(),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.0.all.len()
    }

    pub(super) fn caches_views(&self) -> bool {
        self.0.caches_views
    }

    /// Takes a range of `bytes` bytes of the arena `home`, whose uses are `usable`. Returns `None` also if cached views have to be
    /// released before.
    ///
    /// Numbers beyond the last arena go round.
    pub fn take(
        &self,
        home: usize,
        bytes: usize,
        usable: impl Fn(&U) -> bool,
    ) -> Option<Carved<M, U>> {
        let mut arena = self.0.all[home % self.0.all.len()].lock();
        arena.take(bytes, Search::WithoutOverlap, usable)
    }

    /// Returns whether the view of a range may be passed when the range is given back. Otherwise it must be dropped before.
    #[must_use]
    pub fn may_keep_view(&self, range: RangeKey) -> bool {
        !self.0.caches_views || self.of(range).may_keep_view(range)
    }

    /// Gives a range back to its arena, which commands of `uses` may still use, with its view, unless that was dropped before.
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
    pub(super) fn of(&self, range: RangeKey) -> LockGuard<'_, Arena<M, U>> {
        self.numbered(range.arena as usize)
    }

    /// Locks all arenas, one after the other.
    pub(super) fn all(&self) -> impl Iterator<Item = LockGuard<'_, Arena<M, U>>> {
        self.0.all.iter().map(|arena| arena.lock())
    }

    /// Locks the arena of this number.
    pub(super) fn numbered(&self, number: usize) -> LockGuard<'_, Arena<M, U>> {
        self.0.all[number].lock()
    }

    /// Locks the arenas that have had a segment, one after the other, from `home` on. Returns their numbers, too.
    pub(super) fn occupied(
        &self,
        home: usize,
    ) -> impl Iterator<Item = (usize, LockGuard<'_, Arena<M, U>>)> {
        let all = &self.0.all;
        let occupied = self.0.occupied.load(Ordering::Relaxed);
        let numbers = (0..all.len()).map(move |step| (home + step) % all.len());
        let numbers = numbers.filter(move |number| occupied & (1 << number) != 0);
        numbers.map(|number| (number, self.numbered(number)))
    }

    /// Locks the arena `home` to add a segment.
    pub(super) fn to_add(&self, home: usize) -> LockGuard<'_, Arena<M, U>> {
        let number = home % self.0.all.len();
        self.0.occupied.fetch_or(1 << number, Ordering::Relaxed);
        self.numbered(number)
    }
}
