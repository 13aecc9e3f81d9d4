//! The parts of a replay, one for each thread.

use binpool_trace::{Event, Trace};

/// What one thread replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The places of its events in the trace; `None` for all of them.
    pub(crate) events: Option<Vec<usize>>,
    /// The number of the queue of the first stream.
    pub(crate) first_queue: usize,
    /// The number of the first block.
    pub(crate) first_block: usize,
}

/// The parts of a replay by threads, and how many queues and copies of the trace they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    pub(crate) copies: usize,
}

impl Parts {
    /// Deals the streams to the threads in turn, or gives each thread a copy of the whole trace where there are fewer streams
    /// than threads. `streams` says the stream of each block, as a number below `count`.
    pub(crate) fn of(trace: &Trace, streams: &[usize], count: usize, threads: usize) -> Self {
        let copy = |number| Part {
            events: None,
            first_queue: number * count,
            first_block: number * trace.allocations(),
        };
        if threads <= 1 || count < threads {
            let copies = threads.max(1);
            let parts = (0..copies).map(copy).collect();
            return Self { parts, copies };
        }
        let mut dealt = vec![Vec::new(); threads];
        for (place, event) in trace.events().iter().enumerate() {
            let (Event::Allocate { block, .. } | Event::Free { block }) = *event;
            dealt[streams[block] % threads].push(place);
        }
        let part = |events| Part {
            events: Some(events),
            ..copy(0)
        };
        Self {
            parts: dealt.into_iter().map(part).collect(),
            copies: 1,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    #[test]
    fn streams_are_dealt_in_turn_and_a_few_streams_are_copied() {
        let lines = b"a 0 100 7\na 1 100 8\na 2 100 9\nf 1\nf 0\nf 2\n";
        let trace = Trace::parse("t", &lines[..]).unwrap();
        let parts = |threads| Parts::of(&trace, &[0, 1, 2], 3, threads);
        let events = |threads: usize| parts(threads).parts.into_iter().map(|part| part.events);
        assert_eq!(events(1).collect::<Vec<_>>(), [None]);
        let dealt: Vec<_> = events(2).map(Option::unwrap).collect();
        assert_eq!(dealt, [vec![0, 2, 4, 5], vec![1, 3]]);
        assert_eq!(events(3).flatten().count(), 3);
        assert_eq!(parts(3).copies, 1);
        let copied = parts(4);
        assert_eq!((copied.copies, copied.parts.len()), (4, 4));
        assert_eq!(copied.parts[3].first_queue, 9);
        assert_eq!(copied.parts[3].first_block, 9);
        assert_eq!(parts(0), parts(1));
    }
}
