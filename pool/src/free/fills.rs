//! Fills with zeros that are not known to have completed.

use std::collections::BTreeMap;

use binpool_allocators::{MemoryId, Region};

/// With fewer fills than this, the pool does not look for completed ones.
const MIN_FILLS_TO_LOOK: usize = 64;

/// The fills of free memory that are not known to have completed, by the bytes that they fill. No two fills overlap.
///
/// They are remembered because a fill fails if a command before it fails, and then the old bytes are still there.
#[derive(Debug)]
pub(crate) struct Fills<E> {
    by_start: BTreeMap<(MemoryId, usize), Fill<E>>,
    /// With at least this many fills, the pool looks for completed ones.
    look_from: usize,
}

#[derive(Debug)]
struct Fill<E> {
    end: usize,
    event: E,
}

impl<E> Default for Fills<E> {
    fn default() -> Self {
        Self {
            by_start: BTreeMap::new(),
            look_from: MIN_FILLS_TO_LOOK,
        }
    }
}

impl<E: Clone> Fills<E> {
    /// Adds a fill of this region. Returns the events of earlier fills there, to be dropped without the lock.
    pub(crate) fn add(&mut self, memory: MemoryId, region: Region, event: E) -> Vec<E> {
        let former = self.take(memory, region);
        let end = region.offset.saturating_add(region.bytes);
        let fill = Fill { end, event };
        self.by_start.insert((memory, region.offset), fill);
        former
    }

    /// Forgets the fills of this region, and returns their events. A fill that reaches beyond it stays for its other bytes.
    pub(crate) fn take(&mut self, memory: MemoryId, region: Region) -> Vec<E> {
        let (start, end) = (region.offset, region.offset.saturating_add(region.bytes));
        // Fills do not overlap, so their ends have the same order as their starts.
        let before_end = self.by_start.range(..(memory, end)).rev();
        let overlapping =
            before_end.take_while(|((of, _), fill)| *of == memory && fill.end > start);
        let starts: Vec<_> = overlapping.map(|(start, _)| *start).collect();
        let mut taken = Vec::new();
        for key in starts {
            let Some(fill) = self.by_start.remove(&key) else {
                continue;
            };
            let event = fill.event;
            if fill.end > end {
                let rest = Fill {
                    end: fill.end,
                    event: event.clone(),
                };
                self.by_start.insert((memory, end), rest);
            }
            if key.1 < start {
                let rest = Fill {
                    end: start,
                    event: event.clone(),
                };
                self.by_start.insert(key, rest);
            }
            taken.push(event);
        }
        taken
    }

    /// Returns the events among which to look for completed ones: none until there are twice as many fills as the last look left.
    pub(crate) fn to_look_at(&self) -> Vec<E> {
        if self.by_start.len() < self.look_from {
            return Vec::new();
        }
        let fills = self.by_start.values();
        fills.map(|fill| fill.event.clone()).collect()
    }

    /// Forgets the fills that completed. Returns their events, to be dropped without the lock.
    pub(crate) fn forget(&mut self, has_completed: impl Fn(&E) -> bool) -> Vec<E> {
        let fills = std::mem::take(&mut self.by_start).into_iter();
        let (completed, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            fills.partition(|(_, fill)| has_completed(&fill.event));
        self.look_from = MIN_FILLS_TO_LOOK.max(2 * rest.len());
        self.by_start = rest;
        completed.into_values().map(|fill| fill.event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_that_is_taken_in_part_stays_for_its_other_bytes() {
        let [memory, other] = [(); 2].map(|()| MemoryId::fresh());
        let mut fills = Fills::default();
        assert!(fills.add(memory, Region::new(100, 300), 'a').is_empty());
        assert!(fills.add(memory, Region::new(400, 100), 'b').is_empty());
        assert!(fills.add(other, Region::new(0, 1000), 'c').is_empty());
        assert!(fills.take(memory, Region::new(0, 100)).is_empty());
        assert!(fills.take(memory, Region::new(500, 100)).is_empty());
        assert_eq!(fills.take(memory, Region::new(200, 100)), ['a']);
        assert!(fills.take(memory, Region::new(200, 100)).is_empty());
        assert_eq!(fills.take(memory, Region::new(0, 110)), ['a']);
        assert_eq!(fills.take(memory, Region::new(390, 20)), ['b', 'a']);
        assert_eq!(fills.take(memory, Region::first(1000)), ['b', 'a', 'a']);
        assert_eq!(fills.take(other, Region::new(999, 1)), ['c']);
        assert_eq!(fills.take(other, Region::new(0, 999)), ['c']);
        assert!(fills.by_start.is_empty(), "no fill of nothing is left");
    }

    #[test]
    fn a_later_fill_replaces_an_earlier_one() {
        let memory = MemoryId::fresh();
        let mut fills = Fills::default();
        fills.add(memory, Region::first(100), 'a');
        assert_eq!(fills.add(memory, Region::new(50, 100), 'b'), ['a']);
        assert_eq!(fills.take(memory, Region::first(200)), ['b', 'a']);
    }

    #[test]
    fn the_next_look_for_completed_fills_is_due_when_there_are_twice_as_many() {
        let mut fills = Fills::default();
        let add = |fills: &mut Fills<usize>, events: std::ops::Range<usize>| {
            for event in events {
                fills.add(MemoryId::fresh(), Region::first(1), event);
            }
        };
        add(&mut fills, 0..MIN_FILLS_TO_LOOK - 1);
        assert!(fills.to_look_at().is_empty());
        add(&mut fills, MIN_FILLS_TO_LOOK - 1..MIN_FILLS_TO_LOOK);
        assert_eq!(fills.to_look_at().len(), MIN_FILLS_TO_LOOK);
        assert_eq!(fills.forget(|event| *event < 10).len(), 10);
        let twice = 2 * (MIN_FILLS_TO_LOOK - 10);
        add(
            &mut fills,
            MIN_FILLS_TO_LOOK..MIN_FILLS_TO_LOOK + MIN_FILLS_TO_LOOK - 11,
        );
        assert!(fills.to_look_at().is_empty());
        add(&mut fills, 0..1);
        assert_eq!(fills.to_look_at().len(), twice);
    }
}
