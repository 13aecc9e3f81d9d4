//! What a pool tells about itself: live blocks, recordings, snapshots, metrics.

pub(crate) mod held_back;
pub(crate) mod live_blocks;
#[cfg(feature = "metrics")]
mod metrics;
pub(crate) mod record;
#[cfg(feature = "snapshot")]
pub(crate) mod snapshot;
pub(crate) mod watching;
