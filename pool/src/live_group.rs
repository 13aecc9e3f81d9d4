//! Active blocks of the same caller.

use std::{fmt, time::Duration};

/// Active blocks that were requested under the same tag and at the same call site.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let mut kept = Vec::new();
/// let _scope = Tag::new("gradients").enter();
/// for _ in 0..3 {
///     kept.push(pool.allocate(1 << 20)?); // One line, so one group.
/// }
/// let live = pool.live_blocks();
/// let group = &live.groups[0];
/// assert_eq!(group.tag.as_deref(), Some("gradients"));
/// assert_eq!((group.blocks, group.requested_bytes), (3, 3 << 20));
/// assert!(group.oldest >= group.youngest); // A group that grows older and larger is where to look for a leak.
/// assert!(group.call_site.is_some());
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveGroup {
    /// The tag; `None` if there was none.
    pub tag: Option<String>,
    /// The line of the request, or the frames of its call stack, one a line, innermost first; `None` if the pool watches
    /// [tags only](crate::WatchOptions::tags_only).
    pub call_site: Option<String>,
    /// The number of blocks.
    pub blocks: u64,
    /// Their bytes, as requested.
    pub requested_bytes: u64,
    /// How long the oldest of these blocks has been in use.
    pub oldest: Duration,
    /// How long the youngest of these blocks has been in use.
    pub youngest: Duration,
}

impl LiveGroup {
    /// Writes the tag and the call site. Further frames of a call stack go on lines of their own, indented.
    pub(crate) fn write_caller(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        let call_site = match (&self.tag, self.call_site.as_deref()) {
            (Some(tag), None) => return f.write_str(tag),
            (Some(tag), Some(call_site)) => {
                write!(f, "{tag}, ")?;
                call_site
            }
            (None, call_site) => call_site.unwrap_or("somewhere"),
        };
        let mut frames = call_site.lines();
        write!(f, "at {}", frames.next().unwrap_or_default())?;
        frames.try_for_each(|frame| write!(f, "\n{:indent$}{frame}", ""))
    }
}
