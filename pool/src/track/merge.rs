//! Merges the events of several threads by time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, binary_heap::PeekMut},
};

use crate::track::trace_event::{DecodedEvent, QueueAndGroup, TraceEvent};

/// Events of one event buffer, in the order of time.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The number of the event buffer.
    pub(crate) buffer: u64,
    pub(crate) events: Vec<TraceEvent>,
}

/// The events of one buffer that are not merged yet.
struct Cursor<'a> {
    chunks: &'a [Vec<TraceEvent>],
    /// The index of the next event in the first chunk.
    index: usize,
    /// The queue and group of the next events.
    source: QueueAndGroup,
}

impl<'a> Cursor<'a> {
    fn new(chunks: &'a [Vec<TraceEvent>]) -> Self {
        let mut cursor = Self {
            chunks,
            index: 0,
            source: QueueAndGroup::default(),
        };
        cursor.skip();
        cursor
    }

    fn event(&self) -> Option<TraceEvent> {
        self.chunks.first()?.get(self.index).copied()
    }

    fn advance(&mut self) {
        self.index += 1;
        self.skip();
    }

    fn visit_rest<E>(
        mut self,
        visit: &mut impl FnMut(TraceEvent, QueueAndGroup) -> Result<(), E>,
    ) -> Result<(), E> {
        for chunk in self.chunks {
            for event in &chunk[self.index..] {
                match event.decode() {
                    DecodedEvent::QueueAndGroup(source) => self.source = source,
                    _ => visit(*event, self.source)?,
                }
            }
            self.index = 0;
        }
        Ok(())
    }

    /// Moves to the next event of a block, and remembers the queue and group on the way.
    fn skip(&mut self) {
        while let Some(chunk) = self.chunks.first() {
            match chunk.get(self.index).map(|event| event.decode()) {
                Some(DecodedEvent::QueueAndGroup(source)) => {
                    self.source = source;
                    self.index += 1;
                }
                Some(_) => return,
                None => {
                    self.chunks = &self.chunks[1..];
                    self.index = 0;
                }
            }
        }
    }
}

/// Visits the events of all blocks in the order of time, with their queue and group. The chunks of one buffer must be
/// in order. Returns the memory of the events.
pub(crate) fn in_order<E>(
    chunks: Vec<Chunk>,
    mut visit: impl FnMut(TraceEvent, QueueAndGroup) -> Result<(), E>,
) -> Result<Vec<Vec<TraceEvent>>, E> {
    let mut buffers: BTreeMap<u64, Vec<Vec<TraceEvent>>> = BTreeMap::new();
    for Chunk { buffer, events } in chunks {
        buffers.entry(buffer).or_default().push(events);
    }
    let mut cursors: Vec<Cursor<'_>> = buffers.values().map(|chunks| Cursor::new(chunks)).collect();
    let heads = cursors.iter().enumerate();
    let heads = heads.filter_map(|(index, cursor)| Some(Reverse((cursor.event()?.order(), index))));
    let mut heads: BinaryHeap<_> = heads.collect();
    // The last buffer is visited without the heap: most programs allocate on one thread.
    while heads.len() > 1
        && let Some(mut head) = heads.peek_mut()
    {
        let Reverse((_, index)) = *head;
        let cursor = &mut cursors[index];
        if let Some(event) = cursor.event() {
            visit(event, cursor.source)?;
            cursor.advance();
        }
        match cursor.event() {
            Some(next) => head.0.0 = next.order(),
            None => drop(PeekMut::pop(head)),
        }
    }
    if let Some(Reverse((_, index))) = heads.pop() {
        cursors.swap_remove(index).visit_rest(&mut visit)?;
    }
    drop(cursors);
    Ok(buffers.into_values().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn merged(chunks: Vec<Chunk>) -> Vec<(TraceEvent, QueueAndGroup)> {
        let mut seen = Vec::new();
        let emptied = in_order(chunks, |event, source| {
            seen.push((event, source));
            Ok::<_, Infallible>(())
        });
        assert!(emptied.is_ok());
        seen
    }

    fn of(buffer: u64, events: &[TraceEvent]) -> Chunk {
        Chunk {
            buffer,
            events: events.to_vec(),
        }
    }

    #[test]
    fn a_block_that_another_thread_frees_in_the_tick_of_its_allocation_begins_before_it_ends() {
        let [begin, end] = [TraceEvent::allocated(5, 1, 8), TraceEvent::freed(5, 1)];
        for (first, second) in [(begin, end), (end, begin)] {
            let seen = merged(vec![of(0, &[first]), of(1, &[second])]);
            assert_eq!(
                seen.iter().map(|(event, _)| *event).collect::<Vec<_>>(),
                [begin, end]
            );
        }
    }

    #[test]
    fn a_queue_and_group_hold_for_the_same_buffer_until_the_next_ones() {
        let source = |queue| QueueAndGroup {
            queue,
            ..QueueAndGroup::default()
        };
        let seen = merged(vec![
            of(
                0,
                &[
                    TraceEvent::source(0, source(3)),
                    TraceEvent::allocated(0, 1, 8),
                ],
            ),
            of(
                1,
                &[
                    TraceEvent::source(1, source(4)),
                    TraceEvent::allocated(1, 2, 8),
                ],
            ),
            of(
                0,
                &[
                    TraceEvent::allocated(2, 3, 8),
                    TraceEvent::source(3, source(5)),
                    TraceEvent::allocated(3, 4, 8),
                ],
            ),
        ]);
        let queues: Vec<_> = seen.iter().map(|(_, source)| source.queue).collect();
        assert_eq!(queues, [3, 4, 3, 5]);
    }

    proptest! {
        #[test]
        fn events_are_in_the_order_of_time_and_those_of_a_buffer_keep_their_order(
            steps in prop::collection::vec((0_u64..4, 0_u64..3), 0..200),
            size in 1_usize..9,
        ) {
            // Each event has a number of its own, and each buffer its own time.
            let mut buffers = vec![Vec::new(); 4];
            let mut times = [0; 4];
            for (number, (buffer, ticks)) in steps.iter().enumerate() {
                let buffer = usize::try_from(*buffer).unwrap();
                times[buffer] += ticks;
                buffers[buffer].push(TraceEvent::allocated(times[buffer], number as u64, 1));
            }
            let mut chunks = Vec::new();
            for (buffer, events) in buffers.iter().enumerate() {
                chunks.extend(events.chunks(size).map(|events| of(buffer as u64, events)));
            }
            let seen: Vec<_> = merged(chunks).into_iter().map(|(event, _)| event).collect();
            prop_assert!(seen.is_sorted_by_key(|event| event.time));
            for events in buffers {
                let own: Vec<_> = seen.iter().filter(|event| events.contains(event)).copied().collect();
                prop_assert_eq!(own, events);
            }
        }
    }
}
