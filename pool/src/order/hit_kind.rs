//! The ways in which a request gets its block.

/// The way in which a request got its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitKind {
    /// The queue could have it at once: by its own order, or because no command used the block.
    Ready,
    /// Another queue or an out-of-order queue had used it, and the commands there had ended.
    Ended,
    /// The queue was made to wait for the commands of the former user.
    DeviceWait,
    /// The host waited for the commands of the former user.
    HostWait,
    /// It was carved from a segment that the pool had.
    Carved,
    /// The allocator made the block, or the segment that it was carved from.
    Fresh,
}
