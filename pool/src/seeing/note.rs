//! What a thread writes down of a block: three words a time.

use crate::seeing::asker::Asker;

/// How many notes a thread writes before it hands them over: 48 KiB, which stay in the processor's cache meanwhile.
pub(crate) const CHUNK: usize = 2048;

/// What a note is of, in the upper two bits of its second word.
const KIND: u32 = 62;
const ALLOCATED: u64 = 0;
const FREED: u64 = 1;
const REFUSED: u64 = 2;
const ASKED: u64 = 3;

/// What happened, and when in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) time: u64,
    /// The kind, and the number of a block or of a group.
    what: u64,
    /// Bytes, or the number of a queue.
    more: u64,
}

/// For which queue blocks are asked for, and by whom. It holds for all blocks of the same chunk, until the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) queue: u64,
    /// The tag, or the call site.
    pub(crate) group: u32,
}

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Allocated {
        id: u64,
        bytes: u64,
    },
    Freed {
        id: u64,
    },
    /// For lack of memory.
    Refused {
        bytes: u64,
    },
    Asked(Asked),
}

impl Asked {
    #[inline]
    pub(crate) fn new(queue: u64, asker: Asker) -> Self {
        let group = asker.group();
        Self { queue, group }
    }
}

impl Note {
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

    pub(crate) fn asked(time: u64, asked: Asked) -> Self {
        Self {
            time,
            what: ASKED << KIND | u64::from(asked.group),
            more: asked.queue,
        }
    }

    pub(crate) const fn says(self) -> Noted {
        let number = self.what & ((1 << KIND) - 1);
        match self.what >> KIND {
            ALLOCATED => Noted::Allocated {
                id: number,
                bytes: self.more,
            },
            FREED => Noted::Freed { id: number },
            REFUSED => Noted::Refused { bytes: self.more },
            _ => Noted::Asked(Asked {
                queue: self.more,
                #[expect(clippy::cast_possible_truncation, reason = "it was a group's number")]
                group: number as u32,
            }),
        }
    }

    /// Notes of several threads are put in the order of this. At the same time, a block begins before it ends.
    pub(crate) const fn order(self) -> (u64, bool) {
        (self.time, self.what >> KIND == FREED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_was_put_into_it() {
        let largest = (1 << KIND) - 1;
        assert_eq!(
            Note::allocated(1, largest, u64::MAX).says(),
            Noted::Allocated {
                id: largest,
                bytes: u64::MAX
            }
        );
        assert_eq!(Note::freed(1, 5).says(), Noted::Freed { id: 5 });
        assert_eq!(Note::refused(1, 7).says(), Noted::Refused { bytes: 7 });
        let asked = Asked {
            queue: u64::MAX,
            group: u32::MAX,
        };
        assert_eq!(Note::asked(1, asked).says(), Noted::Asked(asked));
    }

    #[test]
    fn at_the_same_time_a_block_begins_before_it_ends() {
        let begun = Note::allocated(5, 1, 1).order();
        assert!(begun < Note::freed(5, 1).order());
        assert!(Note::freed(4, 2).order() < begun);
    }
}
