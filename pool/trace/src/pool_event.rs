//! What a pool did, as recorded.

use std::fmt;

use crate::{
    ShortageReport, TraceError,
    name::{LONGEST_NAME, cut},
    words::{Words, form, push_if_any, push_number, push_words},
};

/// Something that the pool of a recorded program did. Its line ends with a time, except for a report.
///
/// A pool of pages has neither [`Taken`](Self::Taken) nor [`GivenBack`](Self::GivenBack), and begins with [`Mapped`](Self::Mapped) for what
/// is mapped already; those of older versions lack these events. A request that moves pages maps each before it is unmapped elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// `s MEMORY BYTES`: it got memory from its allocator: a segment, or one block by itself.
    Taken {
        /// The number of the memory.
        memory: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// `S MEMORY`: memory left the pool.
    GivenBack {
        /// The number of the memory.
        memory: u64,
    },
    /// `b BLOCK MEMORY OFFSET BYTES`: a block lies there whenever it is handed out.
    Placed {
        /// The number of the block: all of its IDs are 256 times this, and a number below 256.
        block: u64,
        /// The number of the memory that it lies in.
        memory: u64,
        /// Its offset there, in bytes.
        offset: u64,
        /// The bytes that it takes.
        bytes: u64,
    },
    /// `m RESERVATION OFFSET BYTES`: pages were mapped to these bytes of a reservation.
    Mapped {
        /// The number of the reservation, which is the memory of the blocks in it.
        reservation: u64,
        /// Their offset there, in bytes.
        offset: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// `M RESERVATION OFFSET BYTES`: the pages that were [mapped](Self::Mapped) there, as a whole, were unmapped.
    Unmapped {
        /// The number of the reservation.
        reservation: u64,
        /// Their offset there, in bytes.
        offset: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// `w BLOCK`: the program freed the block, and commands of another stream still use it: the allocator of another tool has it until its
    /// free. No pool of binpool writes this.
    Waiting {
        /// The number of the block.
        block: u64,
    },
    /// `r KEY=NUMBER ...`: the report of the request that was refused last. It has no time.
    Report(Box<ShortageReport>),
    /// `p WHAT BYTES TIME [TEXT]`: anything else.
    Did {
        /// What it did.
        what: What,
        /// The bytes that it was about.
        bytes: u64,
        /// More about it, in words.
        text: Box<str>,
    },
}

/// What a pool did, in a word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// `untracked`: these bytes were in use when the recording began, and have no lines of their own.
    Untracked,
    /// `miss`: a request of this size found no free memory, and why.
    Miss,
    /// `flush`: cached blocks returned to their segments.
    Flush,
    /// `trim`: this much free memory was released, because the program called for it.
    Trim,
    /// `sweep`: this much was released, because it was idle.
    Sweep,
    /// `hook`: a reclaim hook was called, for a request of this size.
    Hook,
    /// `wait`: the host waited for a queue.
    Wait,
    /// `map`: pages of this size were created for a request, and pages were mapped.
    Map,
    /// `spare`: pages of this size are mapped nowhere from now on, because a call failed.
    Spare,
    /// Any other word. Other tools write `begin` and `end` of a part of the program, `annotate` and `snapshot`.
    ///
    /// `binpool run` writes `call`, `context`, `stream` and `passed`, and where a framework such as PyTorch tells of its memory:
    /// `allocator`, with the name of its allocator. From there on, blocks have their addresses for IDs; segments have theirs for
    /// numbers, and pages for offsets. A line `b` says what the blocks at an address take from there on, without it they take what PyTorch's
    /// allocator gives them. `free` says what the device has free when the next request fails, and `divided` that the blocks are segments of a
    /// framework that does not tell.
    Other(Box<str>),
}

impl What {
    const ALL: [Self; 9] = [
        Self::Untracked,
        Self::Miss,
        Self::Flush,
        Self::Trim,
        Self::Sweep,
        Self::Hook,
        Self::Wait,
        Self::Map,
        Self::Spare,
    ];

    /// Returns what a word means.
    #[must_use]
    pub fn of(word: &str) -> Self {
        let known = Self::ALL.into_iter().find(|what| what.word() == word);
        known.unwrap_or_else(|| Self::Other(cut(word, LONGEST_NAME).into()))
    }

    /// The word.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Untracked => "untracked",
            Self::Miss => "miss",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Sweep => "sweep",
            Self::Hook => "hook",
            Self::Wait => "wait",
            Self::Map => "map",
            Self::Spare => "spare",
            Self::Other(word) => word,
        }
    }
}

impl PoolEvent {
    /// Returns [`Did`](Self::Did).
    pub fn did(what: What, bytes: u64, text: impl fmt::Display) -> Self {
        Self::Did {
            what,
            bytes,
            text: text.to_string().into(),
        }
    }

    /// Appends the line, without its end.
    pub(crate) fn write(&self, time: Option<u64>, line: &mut Vec<u8>) {
        let mut push = |letter: u8, numbers: &[u64]| {
            line.push(letter);
            for number in numbers {
                push_number(line, *number);
            }
            push_if_any(line, time);
        };
        match *self {
            Self::Taken { memory, bytes } => push(b's', &[memory, bytes]),
            Self::GivenBack { memory } => push(b'S', &[memory]),
            Self::Placed {
                block,
                memory,
                offset,
                bytes,
            } => push(b'b', &[block, memory, offset, bytes]),
            Self::Mapped {
                reservation,
                offset,
                bytes,
            } => push(b'm', &[reservation, offset, bytes]),
            Self::Unmapped {
                reservation,
                offset,
                bytes,
            } => push(b'M', &[reservation, offset, bytes]),
            Self::Waiting { block } => push(b'w', &[block]),
            Self::Report(ref report) => report.write(line),
            Self::Did {
                ref what,
                bytes,
                ref text,
            } => {
                push_words(line, &["p", what.word()]);
                push_number(line, bytes);
                push_if_any(line, time);
                // A text follows a time.
                if time.is_some() && !text.is_empty() {
                    push_words(line, &["", text]);
                }
            }
        }
    }

    /// Reads the words of a line after its letter: the event, and its time.
    pub(crate) fn read(
        letter: &str,
        words: &mut Words<'_>,
    ) -> Result<(Self, Option<u64>), TraceError> {
        let event = match letter {
            "s" => Self::Taken {
                memory: words.number("MEMORY")?,
                bytes: words.number("BYTES")?,
            },
            "S" => Self::GivenBack {
                memory: words.number("MEMORY")?,
            },
            "b" => Self::Placed {
                block: words.number("BLOCK")?,
                memory: words.number("MEMORY")?,
                offset: words.number("OFFSET")?,
                bytes: words.number("BYTES")?,
            },
            "m" => Self::Mapped {
                reservation: words.number("RESERVATION")?,
                offset: words.number("OFFSET")?,
                bytes: words.number("BYTES")?,
            },
            "M" => Self::Unmapped {
                reservation: words.number("RESERVATION")?,
                offset: words.number("OFFSET")?,
                bytes: words.number("BYTES")?,
            },
            "w" => Self::Waiting {
                block: words.number("BLOCK")?,
            },
            "r" => return Ok((Self::Report(Box::new(ShortageReport::read(words)?)), None)),
            "p" => {
                let what = What::of(words.next().ok_or_else(form)?);
                let bytes = words.number("BYTES")?;
                let time = words.number_if_any("TIME")?;
                let text = cut(words.take_rest(), LONGEST_NAME).into();
                return Ok((Self::Did { what, bytes, text }, time));
            }
            _ => return Err(form()),
        };
        Ok((event, words.number_if_any("TIME")?))
    }
}
