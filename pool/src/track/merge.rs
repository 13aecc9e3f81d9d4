//! Merges the events of several threads by time.

use std::ops::Range;

use crate::track::trace_event::{Chunk, Source, TraceEvent};

/// The events of one buffer that are not merged yet.
struct Cursor<'a> {
    chunks: &'a [Chunk],
    /// The index of the next event in the first chunk.
    index: usize,
    /// The source of the next event, if it is a request, and those after it.
    sources: &'a [Source],
}

/// The [order](TraceEvent::order) of what comes after all events.
const NEVER: u64 = u64::MAX;

impl<'a> Cursor<'a> {
    /// Begins with the first event at this time or later.
    fn at(chunks: &'a [Chunk], time: u64) -> Self {
        let ends_before = |chunk: &Chunk| chunk.events.last().is_none_or(|event| event.time < time);
        let chunks = &chunks[chunks.partition_point(ends_before)..];
        let index = chunks.first().map_or(0, |chunk| {
            chunk.events.partition_point(|event| event.time < time)
        });
        let mut cursor = Self {
            chunks,
            index,
            sources: &[],
        };
        cursor.settle();
        cursor
    }

    fn event(&self) -> Option<TraceEvent> {
        self.chunks.first()?.events.get(self.index).copied()
    }

    fn order(&self) -> u64 {
        self.event().map_or(NEVER, TraceEvent::order)
    }

    fn advance(&mut self) {
        self.index += 1;
        self.settle();
    }

    /// Goes on to the next chunk if this one has no more events, and to the source of the next event.
    fn settle(&mut self) {
        while let Some(chunk) = self.chunks.first()
            && self.index >= chunk.events.len()
        {
            self.chunks = &self.chunks[1..];
            self.index = 0;
            self.sources = &[];
        }
        if self.sources.is_empty() {
            self.sources = self.chunks.first().map_or(&[], |chunk| &chunk.sources);
        }
        while let [_, rest @ ..] = self.sources
            && rest.first().is_some_and(|next| next.from <= self.index)
        {
            self.sources = rest;
        }
    }
}

/// Visits the events of all buffers at these times in the order of time, each with its chunk and, if it is a request, its source. The
/// chunks of one buffer must be in order.
pub(crate) fn in_order(
    buffers: &[Vec<Chunk>],
    times: Range<u64>,
    mut visit: impl FnMut(TraceEvent, &Source, &Chunk),
) {
    let unknown = Source::default();
    let cursors = buffers.iter().map(|chunks| Cursor::at(chunks, times.start));
    let mut cursors: Vec<_> = cursors.collect();
    let mut first = Tournament::of(cursors.iter().map(Cursor::order));
    while let Some(cursor) = cursors.get_mut(first.winner())
        && let Some(chunk) = cursor.chunks.first()
        && let Some(event) = cursor.event()
        && event.time < times.end
    {
        visit(event, cursor.sources.first().unwrap_or(&unknown), chunk);
        cursor.advance();
        first.replace(cursor.order());
    }
}

/// Finds the least of some keys repeatedly, after each change of the least. No branch depends on the keys, since the processor would
/// mispredict it half of the time.
struct Tournament {
    /// The keys, up to a power of two.
    keys: Vec<u64>,
    /// The loser of each match, by the number of the match: those of the players of match `n` are `2 n` and `2 n + 1`, and the player
    /// with key `i` begins at `keys.len() + i`. The first entry is the winner of all.
    losers: Vec<usize>,
}

impl Tournament {
    fn of(keys: impl Iterator<Item = u64>) -> Self {
        let mut keys: Vec<_> = keys.collect();
        let players = keys.len().next_power_of_two();
        keys.resize(players, NEVER);
        let (mut losers, mut winners) = (vec![0; players], vec![0; 2 * players]);
        for (player, winner) in winners[players..].iter_mut().enumerate() {
            *winner = player;
        }
        for game in (1..players).rev() {
            let (one, other) = (winners[2 * game], winners[2 * game + 1]);
            let is_other = keys[other] < keys[one];
            winners[game] = if is_other { other } else { one };
            losers[game] = if is_other { one } else { other };
        }
        losers[0] = winners[1];
        Self { keys, losers }
    }

    /// The index of the least key.
    fn winner(&self) -> usize {
        self.losers[0]
    }

    /// Gives the winner another key.
    fn replace(&mut self, key: u64) {
        let mut winner = self.winner();
        self.keys[winner] = key;
        let place = self.keys.len() + winner;
        let (mut least, mut game) = (key, place / 2);
        while game > 0 {
            let loser = self.losers[game];
            let other = self.keys[loser];
            let is_other = other < least;
            self.losers[game] = if is_other { winner } else { loser };
            winner = if is_other { loser } else { winner };
            least = least.min(other);
            game /= 2;
        }
        self.losers[0] = winner;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::track::trace_event::{DecodedEvent, QueueAndGroup};

    fn of(buffer: u64, events: &[TraceEvent]) -> Vec<Chunk> {
        vec![Chunk {
            buffer,
            events: events.to_vec(),
            ..Chunk::default()
        }]
    }

    /// What is visited at the times before each of these edges, and after the last one.
    fn merged(buffers: &[Vec<Chunk>], edges: &[u64]) -> Vec<(TraceEvent, u64)> {
        let mut seen = Vec::new();
        let (mut start, mut ends) = (0, edges.to_vec());
        ends.push(u64::MAX);
        for end in ends {
            in_order(buffers, start..end, |event, source, _| {
                assert!((start..end).contains(&event.time));
                seen.push((event, source.caller.queue));
            });
            start = end;
        }
        seen
    }

    #[test]
    fn a_block_that_another_thread_frees_in_the_tick_of_its_allocation_begins_before_it_ends() {
        let [begin, end] = [TraceEvent::allocated(5, 1, 8), TraceEvent::freed(5, 1)];
        for (first, second) in [(begin, end), (end, begin)] {
            let buffers = [of(0, &[first]), of(1, &[second])];
            for edges in [&[][..], &[5], &[5, 6]] {
                let seen = merged(&buffers, edges);
                let seen: Vec<_> = seen.iter().map(|(event, _)| *event).collect();
                assert_eq!(seen, [begin, end]);
            }
        }
    }

    proptest! {
        /// A program whose threads free what any of them allocated, on a clock that may stand still. Within one tick no thread allocates
        /// after a free: passing a block on takes longer.
        #[test]
        fn what_threads_did_one_after_the_other_is_merged_to_an_order_that_can_be(
            steps in prop::collection::vec(
                (0_usize..5, 0_u64..3, prop::option::of(any::<prop::sample::Index>())),
                0..200,
            ),
            size in 1_usize..9,
            mut edges in prop::collection::vec(0_u64..300, 0..6),
        ) {
            edges.sort_unstable();
            let mut buffers: [Vec<Chunk>; 5] = Default::default();
            let (mut live, mut program): (Vec<u64>, Vec<TraceEvent>) = (Vec::new(), Vec::new());
            let (mut time, mut last_free) = (0, None);
            for (number, (buffer, ticks, frees)) in steps.iter().enumerate() {
                time += ticks;
                let event = match frees {
                    Some(index) if !live.is_empty() => {
                        last_free = Some(time);
                        TraceEvent::freed(time, live.swap_remove(index.index(live.len())))
                    }
                    _ => {
                        time += u64::from(last_free == Some(time));
                        live.push(number as u64);
                        TraceEvent::allocated(time, number as u64, 1)
                    }
                };
                program.push(event);
                let chunks = &mut buffers[*buffer];
                if chunks.last().is_none_or(|chunk| chunk.events.len() == size) {
                    chunks.push(Chunk { buffer: *buffer as u64, ..Chunk::default() });
                }
                chunks.last_mut().unwrap().events.push(event);
            }
            let seen = merged(&buffers, &edges);
            let mut lives = BTreeSet::new();
            for (event, _) in &seen {
                match event.decode() {
                    DecodedEvent::Allocated { id, .. } => prop_assert!(lives.insert(id)),
                    DecodedEvent::Freed { id } => prop_assert!(lives.remove(&id), "{:?}", event),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(lives, live.into_iter().collect());
            // What happens in different ticks is in the order of the program.
            let times = |events: &[TraceEvent]| -> Vec<u64> { events.iter().map(|event| event.time).collect() };
            let seen: Vec<_> = seen.into_iter().map(|(event, _)| event).collect();
            prop_assert_eq!(times(&seen), times(&program));
        }

        /// Each event has a number of its own, each request the number of its source as its queue, and each buffer its own time.
        #[test]
        fn every_event_is_visited_once_with_its_source_in_the_order_of_time_and_of_its_buffer(
            steps in prop::collection::vec((0_usize..5, 0_u64..3, any::<bool>()), 0..200),
            size in 1_usize..9,
            mut edges in prop::collection::vec(0_u64..100, 0..6),
        ) {
            edges.sort_unstable();
            let mut buffers: [Vec<Chunk>; 5] = Default::default();
            let (mut times, mut queues, mut expected) = ([0; 5], [0; 5], vec![Vec::new(); 5]);
            for (number, (buffer, ticks, changes)) in steps.iter().enumerate() {
                times[*buffer] += ticks;
                let chunks = &mut buffers[*buffer];
                if chunks.last().is_none_or(|chunk| chunk.events.len() == size) {
                    chunks.push(Chunk { buffer: *buffer as u64, ..Chunk::default() });
                    queues[*buffer] = 0;
                }
                let chunk = chunks.last_mut().unwrap();
                if *changes || queues[*buffer] == 0 {
                    queues[*buffer] = number as u64 + 1;
                    let caller = QueueAndGroup { queue: queues[*buffer], ..QueueAndGroup::default() };
                    chunk.sources.push(Source { from: chunk.events.len(), caller, stream: 0 });
                }
                let event = TraceEvent::allocated(times[*buffer], number as u64, 1);
                chunk.events.push(event);
                expected[*buffer].push((event, queues[*buffer]));
            }
            let seen = merged(&buffers, &edges);
            prop_assert!(seen.is_sorted_by_key(|(event, _)| event.time));
            prop_assert_eq!(seen.len(), steps.len());
            for events in expected {
                let own: Vec<_> = seen.iter().filter(|event| events.contains(event)).copied().collect();
                prop_assert_eq!(own, events);
            }
        }
    }
}
