//! The format of recorded allocations, which pools write and tools read.
//!
//! A recording is text, and each of its lines is a [`Line`].
//!
//! # Features
//!
//! - `snapshot`: snapshots of pools, as JSON.

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod error;
mod line;
mod name;
mod pool_event;
mod shortage_report;
#[cfg(feature = "snapshot")]
mod snapshot;
mod verdict;
mod words;

pub use error::{TraceError, TraceErrorKind};
pub use line::{Line, Request};
pub use name::{LONGEST_NAME, cut, shown};
pub use pool_event::{PoolEvent, What};
pub use shortage_report::ShortageReport;
#[cfg(feature = "snapshot")]
pub use snapshot::{
    BlockState, Counters, Snapshot, SnapshotBlock, SnapshotSegment, SnapshotSettings,
    SnapshotShortage,
};
pub use verdict::Verdict;
pub use words::number;
