//! Reading a trace from its lines.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    io::{BufReader, Read},
};

use binpool_trace::{
    LONGEST_NAME, Line, PoolEvent, Request, TraceError, TraceErrorKind, cut, number,
};

use crate::{
    Event, Trace, error,
    followed::{self, Followed},
    text_lines::{TextLines, too_long},
    trace::Asked,
};

/// The newest version of the format that this crate knows.
const VERSION: u64 = 3;

/// The first version in which a line says that a block is used on a stream.
const WITH_USES: u64 = 3;

/// The most characters of a frame that count.
const LONGEST_FRAME: usize = 2048;

/// The longest part of a line that an error quotes, in characters.
const QUOTED: usize = 60;

/// The state of reading a trace.
#[derive(Default)]
struct Reader {
    trace: Trace,
    /// The block of each ID that is live.
    live: HashMap<u64, usize>,
    /// Set where stream 0 stands for none: the first use of a block says its stream.
    has_uses: bool,
    /// The allocation of each live block that is for no stream yet, as the index of its event.
    without_stream: HashMap<usize, usize>,
    /// The index of each group among [`Trace::groups`].
    groups: HashMap<u64, u32>,
    /// The index of each call stack among [`Trace::stacks`].
    stacks: HashMap<u64, u32>,
    /// The keys of the header.
    keys: HashSet<String>,
    /// Set once there is a line that is not of the header.
    has_begun: bool,
    /// The time of the line before.
    time: u64,
    has_times: bool,
    /// Set where the memory of an allocator is recorded.
    followed: Option<Followed>,
}

impl Trace {
    /// Reads a trace from text.
    ///
    /// # Errors
    ///
    /// [`TraceError`], with `name` as the file's name.
    pub fn parse(name: impl Into<String>, text: impl Read) -> Result<Self, TraceError> {
        let mut reader = Reader {
            trace: Self::empty(name.into(), "line"),
            ..Reader::default()
        };
        let mut lines = TextLines::new(BufReader::new(text));
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => return reader.end(),
                Err(error) => return Err(TraceError::from(error).in_file(reader.trace.name)),
            };
            if line.ends_in_nuls {
                let remark = "the recording was not closed: its program crashed, was killed, or called _exit";
                reader.trace.push_remark(remark.to_owned());
                return reader.end();
            }
            let pushed = if line.is_too_long {
                Err(too_long())
            } else {
                reader.push(line.bytes, line.number)
            };
            let Err(error) = pushed else {
                continue;
            };
            // The program ended while it wrote this.
            if line.may_be_cut && reader.trace.allocations() > 0 {
                let remark = format!("line {} is cut: left out", line.number);
                reader.trace.push_remark(remark);
                return reader.end();
            }
            let text = String::from_utf8_lossy(line.bytes.trim_ascii());
            let quoted: String = text.chars().take(QUOTED).collect();
            let error = error.quoting(&quoted).at(format!("line {}", line.number));
            return Err(error.in_file(reader.trace.name));
        }
    }
}

impl Reader {
    fn end(mut self) -> Result<Trace, TraceError> {
        if self.trace.allocations() == 0 {
            let advice = "expected lines like \"a 0 4096 0\" and \"f 0\"";
            return Err(error::no_allocation(advice).in_file(self.trace.name));
        }
        if let Some(followed) = self.followed {
            followed.end(&mut self.trace);
        }
        if !self.has_times {
            self.trace.forget_times();
        }
        Ok(self.trace)
    }

    /// Reads the line of this number.
    fn push(&mut self, line: &[u8], number: usize) -> Result<(), TraceError> {
        let text =
            str::from_utf8(line).map_err(|_| TraceError::malformed("expected text in UTF-8"))?;
        let Some(line) = Line::read(text)? else {
            return Ok(());
        };
        if let Line::Header { key, value } = line {
            return self.push_header(&cut(key, LONGEST_NAME), value);
        }
        self.has_begun = true;
        match line {
            Line::Header { .. } => {}
            Line::Allocated { id, request } => self.push_allocation(id, request, number)?,
            Line::Freed { id, time } => {
                let block = self.live_block(id)?;
                let time = self.advance(time)?;
                self.live.remove(&id);
                self.without_stream.remove(&block);
                if let Some(followed) = &mut self.followed {
                    followed.free(id);
                }
                self.trace.push_free(block, time, number);
            }
            Line::Used { id, stream, time } => {
                let block = self.live_block(id)?;
                let time = self.advance(time)?;
                self.trace.push_use(block, stream, time);
                if let Some(event) = self.without_stream.remove(&block) {
                    self.trace.set_stream(event, stream);
                }
            }
            Line::Refused { request } => {
                let asked = self.asked(request)?;
                let followed = self.followed.as_mut();
                let report = followed.and_then(|followed| followed.report(asked.bytes));
                self.trace.push_shortage(asked, report);
            }
            Line::Pool { event, time } => self.push_pool_event(event, time)?,
            Line::Frame { stack, frame } => {
                let stacks = &mut self.trace.stacks;
                let index = *self.stacks.entry(stack).or_insert_with(|| {
                    stacks.push(Vec::new());
                    u32::try_from(stacks.len() - 1).unwrap_or(u32::MAX)
                });
                stacks[index as usize].push(cut(frame, LONGEST_FRAME).into_owned());
            }
            Line::Group { group, name } => {
                let index = self.trace.push_group(name);
                if self.groups.insert(group, index).is_some() {
                    return Err(TraceError::malformed(format_args!(
                        "group {group} has a name already: expected each group once"
                    )));
                }
            }
        }
        Ok(())
    }

    fn push_header(&mut self, key: &str, value: &str) -> Result<(), TraceError> {
        if self.has_begun {
            return Err(TraceError::malformed(
                "expected the header before all other lines",
            ));
        }
        if (key == "version") != self.keys.is_empty() {
            return Err(TraceError::malformed(
                "expected the header to begin with \"h version NUMBER\", once",
            ));
        }
        match key {
            "version" => {
                let version = number(Some(value), "the version", VERSION)
                    .map_err(|error| error.of_kind(TraceErrorKind::Version))?;
                self.has_uses = version >= WITH_USES;
            }
            "capacity" => drop(number(Some(value), "the capacity", u64::MAX)?),
            "limit" => drop(number(Some(value), "the limit", u64::MAX)?),
            _ => {}
        }
        if !self.keys.insert(key.to_owned()) {
            return Err(TraceError::malformed(format_args!(
                "expected the key {key:?} of the header once"
            )));
        }
        self.trace.push_header(key, &cut(value, LONGEST_NAME));
        Ok(())
    }

    fn push_allocation(
        &mut self,
        id: u64,
        request: Request,
        line: usize,
    ) -> Result<(), TraceError> {
        let asked = self.asked(request)?;
        if let Some(block) = self.live.insert(id, self.trace.allocations()) {
            let since = self.line_of_allocation(block);
            return Err(TraceError::malformed(format_args!(
                "block {id} is allocated already, in line {since}: expected an ID that no live block has"
            )));
        }
        if let Some(followed) = &mut self.followed {
            followed.place(id, asked.bytes, asked.time, &mut self.trace);
        }
        let event = self.trace.events.len();
        let block = self.trace.push_allocation(id, asked, line);
        if self.has_uses && asked.stream == 0 {
            self.without_stream.insert(block, event);
        }
        Ok(())
    }

    fn live_block(&self, id: u64) -> Result<usize, TraceError> {
        self.live.get(&id).copied().ok_or_else(|| {
            TraceError::malformed(format_args!(
                "block {id} is not allocated: expected the ID of a live block"
            ))
        })
    }

    fn push_pool_event(
        &mut self,
        event: Cow<'_, PoolEvent>,
        time: Option<u64>,
    ) -> Result<(), TraceError> {
        let PoolEvent::Report(report) = &*event else {
            let time = self.advance(time)?;
            let allocator = followed::allocator(&event);
            match (allocator, &mut self.followed) {
                // The first one's, where there are two.
                (Some(_), Some(_)) => {}
                (Some(allocator), None) if self.has_uses && Followed::fits(&self.trace) => {
                    self.followed = Some(Followed::new(allocator, &mut self.trace));
                }
                (None, Some(followed)) => {
                    followed.take(event.into_owned(), time, &mut self.trace);
                }
                (_, None) => self.trace.push_step(event.into_owned(), time),
            }
            return Ok(());
        };
        let shortage = self.trace.shortages.last_mut();
        let shortage = shortage.filter(|shortage| shortage.report.is_none());
        let missing = "expected a line \"o BYTES STREAM\" before, which has no report yet";
        shortage
            .ok_or_else(|| TraceError::malformed(missing))?
            .report = Some(**report);
        Ok(())
    }

    /// Goes on to the time of a line, if it has one. Returns the time.
    fn advance(&mut self, time: Option<u64>) -> Result<u64, TraceError> {
        if let Some(time) = time {
            let before = self.time;
            if time < before {
                return Err(TraceError::malformed(format_args!(
                    "time {time} ns comes after {before} ns: expected times that do not fall"
                )));
            }
            self.time = time;
            self.has_times = true;
        }
        Ok(self.time)
    }

    /// Returns a request with its time, and with the indices of its group and its stack.
    fn asked(&mut self, request: Request) -> Result<Asked, TraceError> {
        Ok(Asked {
            bytes: request.bytes,
            stream: request.stream,
            time: self.advance(request.time)?,
            group: index_of(&self.groups, request.group, "group", "g {} NAME")?,
            stack: index_of(&self.stacks, request.stack, "stack", "k {} FRAME")?,
        })
    }

    fn line_of_allocation(&self, wanted: usize) -> usize {
        let is_it =
            |event: &Event| matches!(event, Event::Allocate { block, .. } if *block == wanted);
        let index = self.trace.events.iter().position(is_it);
        index.map_or(0, |index| self.trace.lines[index])
    }
}

/// Returns the index of what a line names by its number.
fn index_of(
    known: &HashMap<u64, u32>,
    number: Option<u64>,
    what: &str,
    line: &str,
) -> Result<Option<u32>, TraceError> {
    let Some(number) = number else {
        return Ok(None);
    };
    match known.get(&number) {
        Some(index) => Ok(Some(*index)),
        None => Err(TraceError::malformed(format_args!(
            "{what} {number} is unknown: expected a line \"{}\" before",
            line.replace("{}", &number.to_string())
        ))),
    }
}
