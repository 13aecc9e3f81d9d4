//! Tracking: which caller has which block, and recordings of that. Nothing here depends on the pool.

pub(crate) mod allocation_record;
pub(crate) mod batch;
pub(crate) mod caller;
pub(crate) mod event_buffer;
pub(crate) mod merge;
pub(crate) mod names;
pub(crate) mod pool_event;
pub(crate) mod recorder;
pub(crate) mod recording_summary;
#[cfg(feature = "backtrace")]
pub(crate) mod stack;
pub(crate) mod tag;
pub(crate) mod ticks;
pub(crate) mod trace_event;
pub(crate) mod trace_writer;
pub(crate) mod watch;
