//! An event of a recording: three words.

use crate::track::{caller::Caller, pool_event::PoolEvent};

/// The events of a full chunk: 48 KiB, which stay in the processor's cache until they are handed over. Fewer under `shuttle`, whose
/// programs are short.
pub(crate) const EVENTS_PER_CHUNK: usize = if cfg!(shuttle) { 2 } else { 2048 };

/// The most events of the pool in a chunk. With the report of a failed request, one takes some 200 bytes.
pub(crate) const POOL_EVENTS_PER_CHUNK: usize = 256;

/// The position of an event's kind: the upper three bits of its second word.
const KIND: u32 = 61;
const ALLOCATED: u64 = 0;
const FREED: u64 = 1;
const REFUSED: u64 = 2;
const OF_POOL: u64 = 3;

/// An event and its time in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceEvent {
    pub(crate) time: u64,
    /// The kind, and the number of a block.
    what: u64,
    /// Bytes.
    more: u64,
}

/// The events of one event buffer. Their times never decrease.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The number of the event buffer.
    pub(crate) buffer: u64,
    pub(crate) events: Vec<TraceEvent>,
    /// Where the requests among the events come from, in their order.
    pub(crate) sources: Vec<Source>,
    /// What the pool did.
    pub(crate) of_pool: Vec<PoolEvent>,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The index of the first event in the chunk for which this holds, up to the next entry.
    pub(crate) from: usize,
    pub(crate) caller: QueueAndGroup,
    /// The number of the queue in the trace, which its writer gives it.
    pub(crate) stream: u32,
}

/// The queue and group of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct QueueAndGroup {
    pub(crate) queue: u64,
    /// The number of the tag, or else of the call site.
    pub(crate) group: u32,
    /// The number of the call stack; 0 for none.
    pub(crate) stack: u32,
}

/// An event, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodedEvent {
    Allocated {
        id: u64,
        bytes: u64,
    },
    Freed {
        id: u64,
    },
    /// A request failed for lack of memory.
    Refused {
        bytes: u64,
    },
    /// The pool's own event with this number in the chunk.
    OfPool {
        number: u64,
    },
}

impl QueueAndGroup {
    /// `stack_mask` has all bits set if call sites are stacks, and none otherwise.
    #[inline]
    pub(crate) fn new(queue: u64, caller: Caller, stack_mask: u32) -> Self {
        let group = caller.group();
        let stack = caller.call_site & stack_mask;
        Self {
            queue,
            group,
            stack,
        }
    }
}

impl TraceEvent {
    #[inline]
    pub(crate) const fn allocated(time: u64, id: u64, bytes: u64) -> Self {
        Self {
            time,
            what: ALLOCATED << KIND | id,
            more: bytes,
        }
    }

    #[inline]
    pub(crate) const fn freed(time: u64, id: u64) -> Self {
        Self {
            time,
            what: FREED << KIND | id,
            more: 0,
        }
    }

    pub(crate) const fn refused(time: u64, bytes: u64) -> Self {
        Self {
            time,
            what: REFUSED << KIND,
            more: bytes,
        }
    }

    pub(crate) const fn of_pool(time: u64, number: usize) -> Self {
        Self {
            time,
            what: OF_POOL << KIND | number as u64,
            more: 0,
        }
    }

    pub(crate) const fn decode(self) -> DecodedEvent {
        let number = self.what & ((1 << KIND) - 1);
        match self.what >> KIND {
            ALLOCATED => DecodedEvent::Allocated {
                id: number,
                bytes: self.more,
            },
            FREED => DecodedEvent::Freed { id: number },
            REFUSED => DecodedEvent::Refused { bytes: self.more },
            _ => DecodedEvent::OfPool { number },
        }
    }

    /// The key by which the events of several threads are sorted. At the same time, an allocation comes before a free.
    #[inline]
    pub(crate) const fn order(self) -> u64 {
        self.time << 1 | (self.what >> KIND == FREED) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_decodes_to_what_was_encoded() {
        let largest = (1 << KIND) - 1;
        assert_eq!(
            TraceEvent::allocated(1, largest, u64::MAX).decode(),
            DecodedEvent::Allocated {
                id: largest,
                bytes: u64::MAX
            }
        );
        assert_eq!(
            TraceEvent::freed(1, 5).decode(),
            DecodedEvent::Freed { id: 5 }
        );
        assert_eq!(
            TraceEvent::refused(1, 7).decode(),
            DecodedEvent::Refused { bytes: 7 }
        );
        assert_eq!(
            TraceEvent::of_pool(1, 9).decode(),
            DecodedEvent::OfPool { number: 9 }
        );
    }

    #[test]
    fn at_the_same_time_an_allocation_comes_before_a_free() {
        let begun = TraceEvent::allocated(5, 1, 1).order();
        assert!(begun < TraceEvent::freed(5, 1).order());
        assert!(TraceEvent::freed(4, 2).order() < begun);
    }
}
