//! The cause of an out-of-memory failure, as data.

use serde::Serialize;

use binpool_trace::{ShortageReport, Snapshot, SnapshotShortage};

use crate::{Shortage, view::FailedRequest, view::neighbours::Neighbours};

/// The cause of an out-of-memory failure in a replay, a recording or a snapshot. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The event of the trace that requested the block.
    pub event: Option<String>,
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The size of its class.
    pub class_bytes: u64,
    /// The requested bytes of all active blocks.
    pub active_bytes: u64,
    /// What the pool had from its allocator.
    pub reserved_bytes: u64,
    /// The free bytes of the pool.
    pub held_bytes: u64,
    /// The part of these that pending commands may still use.
    pub pending_bytes: u64,
    /// The largest block that is held.
    pub largest_held_bytes: u64,
    /// The bytes that the pool released for this request, which was not enough.
    pub released_bytes: u64,
    /// The largest block that the allocator can allocate; 0 if another tool's recording does not say it.
    pub largest_block_bytes: u64,
    /// The bytes that the device had free, counting all programs; `None` if it was not asked.
    pub device_free_bytes: Option<u64>,
    /// The allocator's capacity.
    pub capacity_bytes: u64,
    /// The cause, in a word.
    pub verdict: String,
    /// The cause, in a sentence.
    pub reason: String,
    /// What can be done about it.
    pub advice: String,
    /// The group of the request.
    pub group: Option<String>,
    /// The stream of the request.
    pub stream: Option<u32>,
    /// The group that holds the most; `None` if no block is known.
    pub holds_most: Option<LargestGroup>,
    /// The blocks with the fewest bytes whose release would have made room in a segment; `None` if no segment is large enough.
    pub cheapest: Option<Neighbours>,
}

/// The group that holds the most memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LargestGroup {
    /// Its name.
    pub name: String,
    /// The bytes that it has in use.
    pub bytes: u64,
    /// The number of its blocks that are in use.
    pub blocks: u64,
}

impl LargestGroup {
    /// Returns the first of the groups with the most bytes; each is a name, its bytes and its blocks.
    pub(crate) fn of<'a>(groups: impl IntoIterator<Item = (&'a String, u64, u64)>) -> Option<Self> {
        let groups = groups.into_iter().filter(|(_, bytes, _)| *bytes > 0);
        let largest = groups.reduce(|most, group| if group.1 > most.1 { group } else { most });
        largest.map(|(name, bytes, blocks)| Self {
            name: name.clone(),
            bytes,
            blocks,
        })
    }
}

impl OutOfMemory {
    pub(crate) fn of_replay(
        failed: &FailedRequest,
        holds_most: Option<LargestGroup>,
        cheapest: Option<Neighbours>,
    ) -> Self {
        Self {
            event: Some(failed.event.clone()),
            group: failed.group.clone(),
            stream: Some(failed.stream),
            holds_most,
            cheapest,
            ..Self::of_report(failed.bytes, &failed.report)
        }
    }

    /// Returns the cause of a shortage that a recording has the report of.
    pub(crate) fn of_recording(
        shortage: &Shortage,
        group: Option<String>,
        holds_most: Option<LargestGroup>,
        cheapest: Option<Neighbours>,
    ) -> Option<Self> {
        Some(Self {
            group,
            stream: Some(shortage.stream),
            holds_most,
            cheapest,
            ..Self::of_report(shortage.bytes, &shortage.report?)
        })
    }

    fn of_report(requested_bytes: usize, report: &ShortageReport) -> Self {
        Self {
            requested_bytes: requested_bytes as u64,
            class_bytes: report.class_bytes,
            active_bytes: report.active_bytes,
            reserved_bytes: report.managed_bytes,
            held_bytes: report.held_bytes,
            pending_bytes: report.pending_bytes,
            largest_held_bytes: report.largest_held_bytes,
            released_bytes: report.released_bytes,
            largest_block_bytes: report.largest_block_bytes,
            device_free_bytes: report.device_free_bytes,
            capacity_bytes: report.capacity_bytes,
            verdict: report.verdict.name().into(),
            reason: report.verdict.to_string(),
            advice: report.verdict.advice().into(),
            ..Self::default()
        }
    }

    pub(crate) fn of_snapshot(
        shortage: &SnapshotShortage,
        snapshot: &Snapshot,
        reserved_bytes: u64,
        holds_most: Option<LargestGroup>,
        cheapest: Option<Neighbours>,
    ) -> Self {
        let settings = &snapshot.settings;
        Self {
            requested_bytes: shortage.requested_bytes,
            class_bytes: shortage.class_bytes,
            active_bytes: snapshot.counter("active_bytes"),
            reserved_bytes,
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
            holds_most,
            cheapest,
            ..Self::default()
        }
    }
}
