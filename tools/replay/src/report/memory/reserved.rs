//! What the program's own allocator has from the driver.

use std::{cmp::Reverse, collections::BTreeMap};

use binpool_allocators::words::{bytes, counted};
use binpool_recordings::Trace;
use binpool_trace::PoolEvent;

use crate::figures::ratio;

/// The most sizes of segments that are named.
const SIZES_NAMED: usize = 4;

/// Segments or pages: the bytes of each, by their place.
#[derive(Debug, Default)]
struct Memory {
    pieces: BTreeMap<(bool, u64), u64>,
    bytes: u64,
}

/// Says what an allocator reserved at most, beside the most that was live, and in what pieces.
pub(super) fn reserved(trace: &Trace, live: u64) -> String {
    let (moment, most) = most_reserved(trace);
    let allocator = trace.header_value("allocator").unwrap_or("its allocator");
    let mut memory = Memory::default();
    for step in trace.pool_steps() {
        if step.events_before <= moment {
            memory.take(&step.event);
        }
    }
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for bytes in memory.pieces.values() {
        *sizes.entry(*bytes).or_default() += 1;
    }
    let mut sizes: Vec<(u64, u64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(size, count)| Reverse(size * count));
    let (first, others) = sizes.split_at(sizes.len().min(SIZES_NAMED));
    let mut named: Vec<String> = (first.iter())
        .map(|(size, count)| format!("{count} of {}", bytes(*size)))
        .collect();
    if !others.is_empty() {
        let others = others.iter().map(|(_, count)| count).sum();
        named.push(counted(others, "other"));
    }
    let are_pages = memory.pieces.keys().any(|(are_pages, _)| *are_pages);
    let piece = if are_pages { "map" } else { "segment" };
    format!(
        "\nreserved by {allocator}: {}, {:.2} times that, in {}: {}",
        bytes(most),
        ratio(most, live),
        counted(memory.pieces.len() as u64, piece),
        named.join(", "),
    )
}

/// Returns the moment at which the most bytes were reserved first, and these bytes.
pub(super) fn most_reserved(trace: &Trace) -> (usize, u64) {
    let mut memory = Memory::default();
    let mut most = (0, 0);
    let mut steps = trace.pool_steps().iter().peekable();
    while let Some(step) = steps.next() {
        memory.take(&step.event);
        // Pages that move are mapped twice for a while.
        let is_last = steps
            .peek()
            .is_none_or(|next| next.events_before > step.events_before);
        if is_last && memory.bytes > most.1 {
            most = (step.events_before, memory.bytes);
        }
    }
    most
}

impl Memory {
    fn take(&mut self, event: &PoolEvent) {
        let (place, is_new) = match *event {
            PoolEvent::Taken { memory, bytes } => ((false, memory), Some(bytes)),
            PoolEvent::GivenBack { memory } => ((false, memory), None),
            PoolEvent::Mapped { offset, bytes, .. } => ((true, offset), Some(bytes)),
            PoolEvent::Unmapped { offset, .. } => ((true, offset), None),
            _ => return,
        };
        let gone = match is_new {
            Some(bytes) => {
                self.bytes = self.bytes.saturating_add(bytes);
                self.pieces.insert(place, bytes)
            }
            None => self.pieces.remove(&place),
        };
        self.bytes = self.bytes.saturating_sub(gone.unwrap_or(0));
    }
}
