//! The notes of several threads in the order of their time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, binary_heap::PeekMut},
};

use crate::seeing::note::{Asked, Note, Noted};

/// Notes of one thread, in the order of their time.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Tells the thread.
    pub(crate) reel: u64,
    pub(crate) notes: Vec<Note>,
}

/// The rest of what one thread wrote.
struct Cursor<'a> {
    chunks: &'a [Vec<Note>],
    /// Within the first of them.
    place: usize,
    asked: Asked,
}

impl<'a> Cursor<'a> {
    fn new(chunks: &'a [Vec<Note>]) -> Self {
        let mut cursor = Self {
            chunks,
            place: 0,
            asked: Asked::default(),
        };
        cursor.skip();
        cursor
    }

    fn note(&self) -> Option<Note> {
        self.chunks.first()?.get(self.place).copied()
    }

    fn advance(&mut self) {
        self.place += 1;
        self.skip();
    }

    fn visit_rest<E>(
        mut self,
        visit: &mut impl FnMut(Note, Asked) -> Result<(), E>,
    ) -> Result<(), E> {
        for chunk in self.chunks {
            for note in &chunk[self.place..] {
                match note.says() {
                    Noted::Asked(asked) => self.asked = asked,
                    _ => visit(*note, self.asked)?,
                }
            }
            self.place = 0;
        }
        Ok(())
    }

    /// Goes to the next note of a block.
    fn skip(&mut self) {
        while let Some(chunk) = self.chunks.first() {
            match chunk.get(self.place).map(|note| note.says()) {
                Some(Noted::Asked(asked)) => {
                    self.asked = asked;
                    self.place += 1;
                }
                Some(_) => return,
                None => {
                    self.chunks = &self.chunks[1..];
                    self.place = 0;
                }
            }
        }
    }
}

/// Visits the notes of all blocks in order, with what they were asked for. The chunks of one thread are in order. What is
/// returned is what the notes were in.
pub(crate) fn in_order<E>(
    chunks: Vec<Chunk>,
    mut visit: impl FnMut(Note, Asked) -> Result<(), E>,
) -> Result<Vec<Vec<Note>>, E> {
    let mut reels: BTreeMap<u64, Vec<Vec<Note>>> = BTreeMap::new();
    for Chunk { reel, notes } in chunks {
        reels.entry(reel).or_default().push(notes);
    }
    let mut cursors: Vec<Cursor<'_>> = reels.values().map(|chunks| Cursor::new(chunks)).collect();
    let heads = cursors.iter().enumerate();
    let heads = heads.filter_map(|(place, cursor)| Some(Reverse((cursor.note()?.order(), place))));
    let mut heads: BinaryHeap<_> = heads.collect();
    // Most programs allocate on one thread.
    while heads.len() > 1
        && let Some(mut head) = heads.peek_mut()
    {
        let Reverse((_, place)) = *head;
        let cursor = &mut cursors[place];
        if let Some(note) = cursor.note() {
            visit(note, cursor.asked)?;
            cursor.advance();
        }
        match cursor.note() {
            Some(next) => head.0.0 = next.order(),
            None => drop(PeekMut::pop(head)),
        }
    }
    if let Some(Reverse((_, place))) = heads.pop() {
        cursors.swap_remove(place).visit_rest(&mut visit)?;
    }
    drop(cursors);
    Ok(reels.into_values().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn merged(chunks: Vec<Chunk>) -> Vec<(Note, Asked)> {
        let mut seen = Vec::new();
        let emptied = in_order(chunks, |note, asked| {
            seen.push((note, asked));
            Ok::<_, Infallible>(())
        });
        assert!(emptied.is_ok());
        seen
    }

    fn of(reel: u64, notes: &[Note]) -> Chunk {
        Chunk {
            reel,
            notes: notes.to_vec(),
        }
    }

    #[test]
    fn a_block_that_another_thread_frees_in_the_tick_of_its_allocation_begins_before_it_ends() {
        let [begin, end] = [Note::allocated(5, 1, 8), Note::freed(5, 1)];
        for (first, second) in [(begin, end), (end, begin)] {
            let seen = merged(vec![of(0, &[first]), of(1, &[second])]);
            assert_eq!(
                seen.iter().map(|(note, _)| *note).collect::<Vec<_>>(),
                [begin, end]
            );
        }
    }

    #[test]
    fn what_a_thread_asks_for_holds_for_its_own_blocks_until_it_says_something_else() {
        let asked = |queue| Asked { queue, group: 0 };
        let seen = merged(vec![
            of(0, &[Note::asked(0, asked(3)), Note::allocated(0, 1, 8)]),
            of(1, &[Note::asked(1, asked(4)), Note::allocated(1, 2, 8)]),
            of(
                0,
                &[
                    Note::allocated(2, 3, 8),
                    Note::asked(3, asked(5)),
                    Note::allocated(3, 4, 8),
                ],
            ),
        ]);
        let queues: Vec<_> = seen.iter().map(|(_, asked)| asked.queue).collect();
        assert_eq!(queues, [3, 4, 3, 5]);
    }

    proptest! {
        #[test]
        fn notes_come_in_the_order_of_time_and_those_of_a_thread_in_its_own(
            steps in prop::collection::vec((0_u64..4, 0_u64..3), 0..200),
            size in 1_usize..9,
        ) {
            // Each note has a number of its own, and each thread its time.
            let mut reels = vec![Vec::new(); 4];
            let mut times = [0; 4];
            for (number, (reel, ticks)) in steps.iter().enumerate() {
                let reel = usize::try_from(*reel).unwrap();
                times[reel] += ticks;
                reels[reel].push(Note::allocated(times[reel], number as u64, 1));
            }
            let mut chunks = Vec::new();
            for (reel, notes) in reels.iter().enumerate() {
                chunks.extend(notes.chunks(size).map(|notes| of(reel as u64, notes)));
            }
            let seen: Vec<_> = merged(chunks).into_iter().map(|(note, _)| note).collect();
            prop_assert!(seen.is_sorted_by_key(|note| note.time));
            for notes in reels {
                let own: Vec<_> = seen.iter().filter(|note| notes.contains(note)).copied().collect();
                prop_assert_eq!(own, notes);
            }
        }
    }
}
