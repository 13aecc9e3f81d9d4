//! The figures of a snapshot.

use std::collections::BTreeMap;

use serde::Serialize;

use binpool_trace::{BlockState, Snapshot, SnapshotBlock};

use crate::view::{
    free_memory::FreeMemory,
    neighbours::{Neighbour, Neighbours, Stretch},
    out_of_memory::{LargestGroup, OutOfMemory},
};

/// The figures of a snapshot, which its page shows. Sizes are in bytes, times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SnapshotNumbers {
    /// The file.
    pub file: String,
    /// The device.
    pub device: String,
    /// The allocator's capacity.
    pub capacity_bytes: u64,
    /// The bytes of all segments and blocks that the snapshot lists.
    pub reserved_bytes: u64,
    /// The requested bytes of all active blocks.
    pub active_bytes: u64,
    /// The number of active blocks.
    pub active_blocks: u64,
    /// The free bytes of the pool.
    pub held_bytes: u64,
    /// The part of these that commands may still use: the bytes of the pending blocks.
    pub pending_bytes: u64,
    /// The free memory for blocks. Adjacent ranges count as one.
    pub free: FreeMemory,
    /// The part of it that is not in the largest range, from 0 to 1.
    pub scattered: f64,
    /// The blocks by state.
    pub states: Vec<SnapshotRow>,
    /// The active blocks by tag.
    pub tags: Vec<SnapshotRow>,
    /// The active blocks by the place of their request.
    pub call_sites: Vec<SnapshotRow>,
    /// The allocation that failed, if that is why the snapshot was taken.
    pub out_of_memory: Option<OutOfMemory>,
}

/// The blocks of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SnapshotRow {
    /// The group's name.
    pub name: String,
    /// The bytes that its blocks take of the device.
    pub bytes: u64,
    /// The requested bytes, as far as they are known.
    pub requested_bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The age of the oldest block in use; `None` if no age is known.
    pub oldest_ns: Option<u64>,
}

impl SnapshotNumbers {
    /// The figures of `snapshot`, from the file `file`.
    #[must_use]
    pub fn new(file: &str, snapshot: &Snapshot) -> Self {
        let settings = &snapshot.settings;
        let free = free_memory(snapshot);
        let active = || all_blocks(snapshot).filter(|block| block.state == BlockState::Active);
        let tags = rows(active(), |block| block.tag.as_deref().unwrap_or("(no tag)"));
        let segments = snapshot.segments.iter().map(|segment| segment.bytes);
        let sizes = segments.chain(snapshot.blocks.iter().map(|block| block.bytes));
        let reserved_bytes = sizes.fold(0, u64::saturating_add);
        Self {
            file: file.to_owned(),
            device: settings.device.clone(),
            capacity_bytes: settings.capacity_bytes,
            reserved_bytes,
            active_bytes: snapshot.counter("active_bytes"),
            active_blocks: snapshot.counter("active_blocks"),
            held_bytes: snapshot.counter("held_bytes"),
            pending_bytes: all_blocks(snapshot)
                .filter(|block| block.state == BlockState::Pending)
                .map(|block| block.bytes)
                .fold(0, u64::saturating_add),
            free,
            scattered: free.scattered(),
            states: rows(all_blocks(snapshot), |block| state_name(block.state)),
            call_sites: rows(active(), |block| {
                block.call_site.as_deref().unwrap_or("(not known)")
            }),
            out_of_memory: snapshot.out_of_memory.as_ref().map(|shortage| {
                let holds_most =
                    LargestGroup::of(tags.iter().map(|row| (&row.name, row.bytes, row.blocks)));
                let cheapest = Neighbours::cheapest(stretches(snapshot), shortage.class_bytes);
                OutOfMemory::of_snapshot(shortage, snapshot, reserved_bytes, holds_most, cheapest)
            }),
            tags,
        }
    }
}

pub(crate) fn all_blocks(snapshot: &Snapshot) -> impl Iterator<Item = &SnapshotBlock> {
    let ranges = snapshot.segments.iter().flat_map(|segment| &segment.ranges);
    ranges.chain(&snapshot.blocks)
}

fn is_in_use(block: &SnapshotBlock) -> bool {
    matches!(block.state, BlockState::Active | BlockState::Withheld)
}

/// The parts of the segments between blocks that the program cannot end.
fn stretches(snapshot: &Snapshot) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for (index, segment) in snapshot.segments.iter().enumerate() {
        let stretch = |from| Stretch {
            segment: index,
            from,
            to: segment.bytes,
            blocks: Vec::new(),
        };
        let mut open = stretch(0);
        for range in segment.ranges.iter().filter(|range| is_in_use(range)) {
            if range.state == BlockState::Active {
                open.blocks.push(Neighbour {
                    block: None,
                    offset: range.offset,
                    bytes: range.bytes,
                    group: range.tag.clone().or_else(|| range.call_site.clone()),
                });
                continue;
            }
            open.to = range.offset;
            let next = stretch(range.offset.saturating_add(range.bytes));
            stretches.push(std::mem::replace(&mut open, next));
        }
        stretches.push(open);
    }
    stretches
}

fn free_memory(snapshot: &Snapshot) -> FreeMemory {
    let mut free = FreeMemory::default();
    for segment in &snapshot.segments {
        let used = segment.ranges.iter().filter(|range| is_in_use(range));
        free.add_segment(segment.bytes, used.map(|range| (range.offset, range.bytes)));
    }
    for block in snapshot.blocks.iter().filter(|block| !is_in_use(block)) {
        free.add_segment(block.bytes, []);
    }
    free
}

/// The name of the state in the snapshot's format.
fn state_name(state: BlockState) -> &'static str {
    match state {
        BlockState::Active => "active",
        BlockState::Held => "held",
        BlockState::Pending => "pending",
        BlockState::Free => "free",
        BlockState::Withheld => "withheld",
    }
}

/// A row for each name, in the order of the names.
fn rows<'a>(
    blocks: impl Iterator<Item = &'a SnapshotBlock>,
    name: impl Fn(&'a SnapshotBlock) -> &'a str,
) -> Vec<SnapshotRow> {
    let mut rows: BTreeMap<&str, SnapshotRow> = BTreeMap::new();
    for block in blocks {
        let row = rows.entry(name(block)).or_default();
        row.bytes = row.bytes.saturating_add(block.bytes);
        row.requested_bytes = row
            .requested_bytes
            .saturating_add(block.requested_bytes.unwrap_or(0));
        row.blocks += 1;
        row.oldest_ns = row.oldest_ns.max(block.age_ns);
    }
    let named = rows.into_iter().map(|(name, row)| SnapshotRow {
        name: name.to_owned(),
        ..row
    });
    named.collect()
}
