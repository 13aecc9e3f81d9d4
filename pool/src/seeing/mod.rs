//! Seeing what a pool does: who has which block, recordings, snapshots, metrics.

pub(crate) mod asker;
pub(crate) mod life;
pub(crate) mod live_blocks;
pub(crate) mod merge;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod note;
pub(crate) mod record;
pub(crate) mod recorder;
#[cfg(feature = "snapshot")]
pub(crate) mod snapshot;
#[cfg(feature = "backtrace")]
pub(crate) mod stack;
pub(crate) mod tag;
pub(crate) mod tape;
pub(crate) mod ticks;
pub(crate) mod trace_writer;
pub(crate) mod watch;
