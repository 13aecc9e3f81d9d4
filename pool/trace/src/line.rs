//! The lines of a trace, written and read.

use std::borrow::Cow;

use crate::{
    PoolEvent, TraceError,
    words::{Words, form, number, push_if_any, push_number, push_words},
};

/// A line of a trace, which is text. This is the whole format: everything that writes or reads a trace uses this type.
///
/// A trace begins with its [header](Self::Header), if it has one: recordings of pools do. Lines with a time come in its order. A group or a
/// stack is named before it is used. Empty lines, and lines that begin with `#`, are ignored. A line has at most 65536 bytes.
///
/// ```
/// use binpool_trace::{Line, Request};
///
/// let line = Line::read("a 7 4096 0 250 1")?.ok_or("an empty line")?;
/// let Line::Allocated { id: 7, request } = &line else {
///     return Err("another line".into());
/// };
/// assert_eq!((request.bytes, request.time, request.group), (4096, Some(250), Some(1)));
/// let mut text = Vec::new();
/// line.write(&mut text);
/// assert_eq!(text, b"a 7 4096 0 250 1\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'t> {
    /// `h KEY VALUE`: a setting. Keys that a pool writes: `version` (2, the first line; 3 in a recording of a program without a pool),
    /// `time` (in seconds since 1970), `program`, `device`, `backend`, `allocator`, `capacity` (of the device, in bytes), `limit` (of the
    /// allocator, if it is less), `blocks` (`segments` or `bins`), `growth`, `reuse`, `scrub`, `thread_caches`, `release_threshold`, and
    /// `pages` (the bytes of one). `source` is the kind of another tool's recording, or what `binpool run` recorded, and `pooled` is
    /// present if the program ran over a pool. Other keys are kept.
    Header {
        /// The key.
        key: &'t str,
        /// The value.
        value: &'t str,
    },
    /// `g GROUP NAME`: what the blocks of a group have in common, such as a tag of the program, or the place of their request. The first
    /// 512 characters count.
    Group {
        /// The number of the group.
        group: u64,
        /// Its name.
        name: &'t str,
    },
    /// `k STACK FRAME`: the next frame of a call stack, innermost first. The last one may say how many more there are.
    Frame {
        /// The number of the stack.
        stack: u64,
        /// The frame.
        frame: &'t str,
    },
    /// `a ID BYTES STREAM [TIME [GROUP [STACK]]]`: a block is allocated.
    Allocated {
        /// A number that no live block has.
        id: u64,
        /// Its request.
        request: Request,
    },
    /// `f ID [TIME]`: a block is freed.
    Freed {
        /// The number of the block.
        id: u64,
        /// The time, in nanoseconds since the recording began.
        time: Option<u64>,
    },
    /// `u ID STREAM [TIME]`: a block is used on this stream for the first time. In a recording of version 3, a block that was allocated for
    /// stream 0 has the stream of its first use.
    Used {
        /// The number of the block.
        id: u64,
        /// The stream.
        stream: u32,
        /// The time, in nanoseconds since the recording began.
        time: Option<u64>,
    },
    /// `o BYTES STREAM [TIME [GROUP [STACK]]]`: a request failed for lack of memory.
    Refused {
        /// The request.
        request: Request,
    },
    /// What the pool did; see [`PoolEvent`]. Most of these lines end with a time.
    Pool {
        /// What it did.
        event: Cow<'t, PoolEvent>,
        /// The time, in nanoseconds since the recording began.
        time: Option<u64>,
    },
}

/// A request of a program for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The bytes.
    pub bytes: usize,
    /// The stream (a queue, in OpenCL's terms) that the block is for.
    pub stream: u32,
    /// The time, in nanoseconds since the recording began. A line without one has the time of the line before.
    pub time: Option<u64>,
    /// The number of its group.
    pub group: Option<u64>,
    /// The number of its call stack. Only a request with a group has one.
    pub stack: Option<u64>,
}

impl<'t> Line<'t> {
    /// Appends the line to `text`, with its end.
    #[inline]
    pub fn write(&self, text: &mut Vec<u8>) {
        match self {
            Self::Allocated { id, request } => {
                text.push(b'a');
                push_number(text, *id);
                request.write(text);
            }
            Self::Freed { id, time } => {
                text.push(b'f');
                push_number(text, *id);
                push_if_any(text, *time);
            }
            Self::Used { id, stream, time } => {
                text.push(b'u');
                push_number(text, *id);
                push_number(text, u64::from(*stream));
                push_if_any(text, *time);
            }
            Self::Refused { request } => {
                text.push(b'o');
                request.write(text);
            }
            Self::Header { key, value } => push_words(text, &["h", key, value]),
            Self::Group { group, name } => {
                text.push(b'g');
                push_number(text, *group);
                push_words(text, &["", name]);
            }
            Self::Frame { stack, frame } => {
                text.push(b'k');
                push_number(text, *stack);
                push_words(text, &["", frame]);
            }
            Self::Pool { event, time } => event.write(*time, text),
        }
        text.push(b'\n');
    }

    /// Reads a line; `None` for one that is ignored.
    ///
    /// # Errors
    ///
    /// [`TraceError`], without the file.
    pub fn read(text: &'t str) -> Result<Option<Self>, TraceError> {
        let mut words = Words::of(text);
        let Some(letter) = words.next() else {
            return Ok(None);
        };
        let line = match letter {
            "a" => Self::Allocated {
                id: words.number("ID")?,
                request: Request::read(&mut words)?,
            },
            "f" => Self::Freed {
                id: words.number("ID")?,
                time: words.number_if_any("TIME")?,
            },
            "u" => Self::Used {
                id: words.number("ID")?,
                stream: stream(&mut words)?,
                time: words.number_if_any("TIME")?,
            },
            "o" => Self::Refused {
                request: Request::read(&mut words)?,
            },
            "h" => Self::Header {
                key: words.next().ok_or_else(form)?,
                value: words.take_rest(),
            },
            "g" => Self::Group {
                group: words.number("GROUP")?,
                name: words.take_rest(),
            },
            "k" => Self::Frame {
                stack: words.number("STACK")?,
                frame: words.take_rest(),
            },
            comment if comment.starts_with('#') => return Ok(None),
            letter => {
                let (event, time) = PoolEvent::read(letter, &mut words)?;
                Self::Pool {
                    event: Cow::Owned(event),
                    time,
                }
            }
        };
        if !matches!(
            line,
            Self::Header { .. } | Self::Group { .. } | Self::Frame { .. }
        ) {
            words.end()?;
        }
        Ok(Some(line))
    }

    /// Returns whether a text begins like a line: with a letter, and with what comes after that.
    #[must_use]
    pub fn looks_like_one(text: &str) -> bool {
        let mut words = Words::of(text);
        let letter = words.next().unwrap_or_default();
        let next = words.next().unwrap_or_default();
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        match letter {
            "a" | "f" | "u" | "o" | "g" | "k" | "s" | "S" | "b" | "m" | "M" | "w" => {
                is_number(next)
            }
            "h" => next
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "p" => words.next().is_some_and(is_number),
            "r" => next.contains('='),
            _ => false,
        }
    }
}

impl Request {
    /// Appends the words after the letter and the ID.
    #[inline]
    fn write(&self, text: &mut Vec<u8>) {
        push_number(text, self.bytes as u64);
        push_number(text, u64::from(self.stream));
        let Some(group) = self.group else {
            return push_if_any(text, self.time);
        };
        // A group follows a time, even where there are none.
        push_number(text, self.time.unwrap_or(0));
        push_number(text, group);
        push_if_any(text, self.stack);
    }

    fn read(words: &mut Words<'_>) -> Result<Self, TraceError> {
        let bytes = number(words.next(), "BYTES", usize::MAX as u64)?;
        Ok(Self {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            stream: stream(words)?,
            time: words.number_if_any("TIME")?,
            group: words.number_if_any("GROUP")?,
            stack: words.number_if_any("STACK")?,
        })
    }
}

fn stream(words: &mut Words<'_>) -> Result<u32, TraceError> {
    let stream = number(words.next(), "STREAM", u64::from(u32::MAX))?;
    Ok(u32::try_from(stream).unwrap_or(u32::MAX))
}
