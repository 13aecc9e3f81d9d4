//! Recorded allocation traces: their format, the recordings of other tools, and pages for the browser that show them.
//!
//! A trace is text, and each of its lines is a [`Line`]. Pools write them, and so do the importers of other recordings.
//!
//! # Features
//!
//! Without a feature, there is the format alone.
//!
//! - `snapshot`: snapshots of pools, as JSON.
//! - `tools`: whole traces, read from any kind of recording, and their histories and pages.

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod error;
#[cfg(feature = "tools")]
mod import;
mod line;
mod name;
mod pool_event;
#[cfg(feature = "tools")]
mod reader;
mod shortage_report;
#[cfg(feature = "snapshot")]
mod snapshot;
#[cfg(feature = "tools")]
mod text_lines;
#[cfg(feature = "tools")]
mod trace;
mod verdict;
#[cfg(feature = "tools")]
pub mod view;
mod words;
#[cfg(feature = "tools")]
mod writer;

pub use error::{TraceError, TraceErrorKind};
pub use line::{Line, Request};
pub use name::{counted, cut, shown};
pub use pool_event::{PoolEvent, What};
pub use shortage_report::ShortageReport;
#[cfg(feature = "snapshot")]
pub use snapshot::{
    BlockState, Counters, Snapshot, SnapshotBlock, SnapshotSegment, SnapshotSettings,
    SnapshotShortage,
};
pub use verdict::Verdict;
#[cfg(feature = "tools")]
pub use {
    import::content::Content,
    trace::{Event, PoolStep, Shortage, Trace, Use},
};
