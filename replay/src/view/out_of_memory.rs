//! Why memory ran out, as data.

use binpool::{PoolStatistics, SnapshotSettings, SnapshotShortage};
use serde::Serialize;

use crate::view::FailedRequest;

/// Why memory ran out, of a replay or of a snapshot. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Where the request stands in the trace.
    pub event: Option<String>,
    /// What was asked for.
    pub requested_bytes: u64,
    /// The size of its class.
    pub class_bytes: u64,
    /// In the program's hands, as it was asked for.
    pub active_bytes: u64,
    /// Free, in the pool.
    pub held_bytes: u64,
    /// The part of it that pending commands may still use.
    pub pending_bytes: u64,
    /// The largest block that is held.
    pub largest_held_bytes: u64,
    /// What the pool gave back for this request, without avail.
    pub released_bytes: u64,
    /// The largest block that the allocator gives in one piece.
    pub largest_block_bytes: u64,
    /// All that the allocator can give.
    pub capacity_bytes: u64,
    /// Why, in a word.
    pub verdict: String,
    /// Why, in a sentence.
    pub reason: String,
    /// What can be done about it.
    pub advice: String,
    /// The group that it was for.
    pub group: Option<String>,
    /// The stream that it was for.
    pub stream: Option<u32>,
}

impl OutOfMemory {
    pub(crate) fn of_replay(failed: &FailedRequest) -> Self {
        let report = &failed.report;
        Self {
            event: Some(failed.event.clone()),
            requested_bytes: report.requested_bytes as u64,
            class_bytes: report.class_bytes as u64,
            active_bytes: report.active_bytes,
            held_bytes: report.held_bytes,
            pending_bytes: report.pending_bytes,
            largest_held_bytes: report.largest_held_bytes,
            released_bytes: report.released_bytes,
            largest_block_bytes: report.largest_block_bytes as u64,
            capacity_bytes: report.capacity_bytes,
            verdict: report.verdict.name().into(),
            reason: report.verdict.to_string(),
            advice: report.verdict.advice().into(),
            group: failed.group.clone(),
            stream: Some(failed.stream),
        }
    }

    pub(crate) fn of_snapshot(
        shortage: &SnapshotShortage,
        settings: &SnapshotSettings,
        statistics: &PoolStatistics,
    ) -> Self {
        Self {
            event: None,
            requested_bytes: shortage.requested_bytes,
            class_bytes: shortage.class_bytes,
            active_bytes: statistics.active_bytes,
            held_bytes: shortage.held_bytes,
            pending_bytes: shortage.pending_bytes,
            largest_held_bytes: shortage.largest_held_bytes,
            released_bytes: shortage.released_bytes,
            largest_block_bytes: settings.largest_block_bytes,
            capacity_bytes: settings.capacity_bytes,
            verdict: shortage.verdict.clone(),
            reason: shortage.reason.clone(),
            advice: shortage.advice.clone(),
            group: shortage.tag.clone().or_else(|| shortage.call_site.clone()),
            stream: None,
        }
    }
}
