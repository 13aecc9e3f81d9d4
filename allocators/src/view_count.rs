//! Counting the views of a value of memory.

use std::sync::{
    Arc, OnceLock,
    atomic::{Ordering, fence},
};

/// Counts the existing views of a value of memory, to implement [`Memory::has_views`].
///
/// Every value of memory has one. A view of it is a value with a count [of a view](Self::of_view), or another object that
/// keeps a [`CountedView`]. A view of a view counts for both: the block has views until the last of them is gone, in
/// any order. Memory without views costs one check of an empty cell.
///
/// [`Memory::has_views`]: crate::Memory::has_views
///
/// ```
/// use binpool_allocators::{CountedView, Memory, MemoryId, MemoryKind, ViewCount};
///
/// #[derive(Debug)]
/// struct OwnMemory {
///     id: MemoryId,
///     bytes: usize,
///     /// The last field: a view counts until the other fields are dropped.
///     views: ViewCount,
/// }
///
/// impl OwnMemory {
///     fn new(bytes: usize, views: ViewCount) -> Self {
///         Self { id: MemoryId::fresh(), bytes, views }
///     }
///
///     /// The result of `Backend::create_sub_region`.
///     fn region(&self, bytes: usize) -> Self {
///         Self::new(bytes, ViewCount::of_view(self.views.count_view()))
///     }
///
///     /// The count that a map, or an image over this memory, keeps.
///     fn mapped(&self) -> CountedView {
///         self.views.count_view()
///     }
/// }
///
/// impl Memory for OwnMemory {
///     # fn id(&self) -> MemoryId { self.id }
///     # fn bytes(&self) -> usize { self.bytes }
///     # fn kind(&self) -> MemoryKind { MemoryKind::Buffer }
///     // ...
///     fn has_views(&self) -> bool {
///         self.views.has_views()
///     }
/// }
///
/// let block = OwnMemory::new(4096, ViewCount::default());
/// let map = block.region(1024).mapped(); // The region is dropped, and the map made from it is left.
/// assert!(block.has_views());
/// drop(map);
/// assert!(!block.has_views());
/// ```
#[derive(Debug, Default)]
pub struct ViewCount {
    /// Shared by this count and by every view that is left; made with the first view.
    views: OnceLock<Arc<Viewed>>,
}

/// A view that [counts](ViewCount::count_view) until this value and all of its clones are dropped. A forgotten one counts
/// forever.
///
/// ```
/// use binpool_allocators::ViewCount;
///
/// let block = ViewCount::default();
/// let image = block.count_view();
/// let map_of_image = image.clone();
/// drop(image);
/// assert!(block.has_views());
/// drop(map_of_image);
/// assert!(!block.has_views());
/// ```
#[derive(Clone, Debug)]
pub struct CountedView {
    #[expect(dead_code, reason = "that it is held is what counts")]
    viewed: Arc<Viewed>,
}

/// Shared by all views of one value.
#[derive(Debug)]
struct Viewed {
    /// If the value is a view itself, what it counts for, since a view of it may outlive it.
    #[expect(dead_code, reason = "that it is held is what counts")]
    of: Option<CountedView>,
}

impl ViewCount {
    /// The count of a value that is a view itself: `view` counts while the value, or a view of it, is left.
    #[must_use]
    pub fn of_view(view: CountedView) -> Self {
        let of = Some(view);
        Self {
            views: OnceLock::from(Arc::new(Viewed { of })),
        }
    }

    /// Counts one more view until the result and all of its clones are dropped.
    #[must_use = "the view counts until this is dropped"]
    pub fn count_view(&self) -> CountedView {
        let viewed = self.views.get_or_init(|| Arc::new(Viewed { of: None }));
        CountedView {
            viewed: Arc::clone(viewed),
        }
    }

    /// Returns whether views exist. `false` also means that everything other threads did with former views has happened.
    #[inline]
    #[must_use]
    pub fn has_views(&self) -> bool {
        let Some(viewed) = self.views.get() else {
            return false;
        };
        let is_left = Arc::strong_count(viewed) > 1;
        if !is_left {
            // Pairs with the release with which each view dropped its `Arc`.
            fence(Ordering::Acquire);
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_never_viewed_has_no_views() {
        assert!(!ViewCount::default().has_views());
    }

    #[test]
    fn a_view_counts_until_it_is_dropped() {
        let block = ViewCount::default();
        let [one, two] = [(); 2].map(|()| block.count_view());
        drop(one);
        assert!(block.has_views());
        drop(two);
        assert!(!block.has_views());
        let _again = block.count_view();
        assert!(block.has_views());
    }

    #[test]
    fn a_view_of_a_view_counts_for_both_whichever_goes_first() {
        let block = ViewCount::default();
        let view = ViewCount::of_view(block.count_view());
        let inner = view.count_view();
        assert!(view.has_views() && block.has_views());
        drop(inner);
        assert!(!view.has_views() && block.has_views());
        let inner = view.count_view();
        drop(view);
        assert!(block.has_views());
        drop(inner);
        assert!(!block.has_views());
    }
}
