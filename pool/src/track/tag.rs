//! Names that the program gives to its blocks.

use std::{cell::Cell, fmt, marker::PhantomData};

use crate::track::names;
use binpool_lock::sync::thread_local;

/// The number for no tag.
const NONE: u32 = 0;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(NONE) };
}

/// A name for the blocks that a part of the program requests: `weights`, `gradients`, `halo exchange`.
///
/// While a thread is within a tag, its requests carry the tag. Pools that [watch](crate::MemoryPool::watch) or
/// [record](crate::MemoryPool::record) blocks store it; other pools ignore it. Names are kept as long as the process
/// runs, so a program should not make a new one for every block.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let weights = Tag::new("weights");
/// let block = weights.within(|| pool.allocate(1 << 20))?;
///
/// let _scope = Tag::new("activations").enter(); // Until it is dropped.
/// let other = pool.allocate(4096)?;
/// let groups = pool.live_blocks().groups;
/// assert_eq!(groups[0].tag.as_deref(), Some("weights"));
/// assert_eq!(groups[1].tag.as_deref(), Some("activations"));
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    number: u32,
}

impl Tag {
    /// Returns the tag of this name, a `&str` or a `String`. The same name is the same tag, and is kept as long as the process
    /// runs. Line breaks in it become spaces.
    #[must_use]
    pub fn new(name: impl AsRef<str>) -> Self {
        Self {
            number: names::number_of_tag(name.as_ref()),
        }
    }

    /// The name of the tag.
    ///
    /// ```
    /// use binpool::Tag;
    ///
    /// let tag = Tag::new("layer 1\nweights");
    /// assert_eq!(tag.name(), "layer 1 weights");
    /// assert_eq!(Tag::new("layer 1 weights"), tag);
    /// ```
    #[must_use]
    pub fn name(self) -> String {
        names::name_of(self.number).unwrap_or_default()
    }

    /// Puts all requests of this thread under this tag, until the result is dropped. A tag entered inside takes
    /// precedence.
    pub fn enter(self) -> TagScope {
        let current = CURRENT.try_with(|current| current.replace(self.number));
        TagScope {
            before: current.unwrap_or(NONE),
            stays: PhantomData,
        }
    }

    /// Runs `ask` with all its requests on this thread under this tag.
    pub fn within<R>(self, ask: impl FnOnce() -> R) -> R {
        let _scope = self.enter();
        ask()
    }

    /// Returns the number of this thread's current tag; 0 for none.
    #[inline]
    pub(crate) fn current() -> u32 {
        CURRENT.try_with(Cell::get).unwrap_or(NONE)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tag").field(&self.name()).finish()
    }
}

/// The scope of a [`Tag`] on a thread. Scopes end in the reverse order of their beginning.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let step = Tag::new("step").enter();
/// let forward = Tag::new("forward pass").enter();
/// let first = pool.allocate(3 << 20)?;
/// drop(forward); // In "step" again.
/// let second = pool.allocate(2 << 20)?;
/// drop(step);
/// let third = pool.allocate(1 << 20)?;
///
/// let live = pool.live_blocks();
/// let tags = live.groups.into_iter().map(|group| group.tag);
/// let names: Vec<_> = tags.map(Option::unwrap_or_default).collect();
/// assert_eq!(names, ["forward pass", "step", ""]); // The most bytes first.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Debug)]
#[must_use = "the tag ends when this is dropped"]
pub struct TagScope {
    /// The number of the tag before this scope.
    before: u32,
    /// Not `Send`: the scope ends on the thread where it began.
    stays: PhantomData<*const ()>,
}

impl Drop for TagScope {
    fn drop(&mut self) {
        // A thread that ends makes no more requests.
        let _ended = CURRENT.try_with(|current| current.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_end() {
        let [outer, inner] = ["outer of scopes_nest", "inner of scopes_nest"].map(Tag::new);
        assert_eq!(Tag::current(), NONE);
        outer.within(|| {
            assert_eq!(Tag::current(), outer.number);
            inner.within(|| assert_eq!(Tag::current(), inner.number));
            assert_eq!(Tag::current(), outer.number);
        });
        assert_eq!(Tag::current(), NONE);
    }

    #[test]
    fn a_name_is_one_line_and_the_same_name_is_the_same_tag() {
        let tag = Tag::new(" two\nlines ");
        assert_eq!(tag.name(), "two lines");
        assert_eq!(tag, Tag::new("two lines"));
        assert_ne!(tag, Tag::new("two  lines"));
        assert_eq!(Tag::new("").name(), "(no name)");
    }

    #[test]
    fn a_thread_is_within_its_own_tags_only() {
        let _scope = Tag::new("of one thread").enter();
        let other = std::thread::spawn(Tag::current).join().unwrap();
        assert_eq!(other, NONE);
    }
}
