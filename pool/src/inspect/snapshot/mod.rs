//! A pool at one moment, as data.

mod files;
mod taking;

use crate::PoolStatistics;

/// A pool at one moment, with its counters.
pub type Snapshot = binpool_trace::Snapshot<PoolStatistics>;
