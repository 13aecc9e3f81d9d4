//! Blocks of memory.

use std::fmt;

use crate::{MemoryId, SvmGrain};

/// What a block of memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// A memory object of the runtime, without an address that the host knows.
    Buffer,
    /// Shared virtual memory: a pointer that host and device both understand.
    Svm(SvmGrain),
}

/// A block of memory of one backend: a whole buffer, a whole SVM allocation, or a region of either.
///
/// The value owns the block. Dropping it gives the block back to the runtime as
/// [`Backend::release`](crate::Backend::release) does, except that a failure can only be logged. Commands
/// that were enqueued before keep what they use until they end, so that dropping a block is never a use
/// after free on the device.
///
/// A region of a block ([`Backend::create_sub_region`](crate::Backend::create_sub_region)) keeps the whole
/// block alive.
pub trait Memory: fmt::Debug + Send + Sync + 'static {
    /// This block's identity. A region has one of its own.
    fn id(&self) -> MemoryId;

    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// What the block is made of.
    fn kind(&self) -> MemoryKind;
}
