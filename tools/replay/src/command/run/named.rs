//! The lines of a recording, with names: of native functions, and of what made each request.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
};

use binpool_replay::report::caller;
use binpool_trace::{Line, Request};

use super::frames::Symbols;

/// Names the lines of a recording.
pub(super) struct Named<'s> {
    symbols: &'s mut Symbols,
    /// The names of the groups as they were recorded: `buffer, context 1`.
    kinds: HashMap<u64, String>,
    stacks: HashMap<u64, Vec<String>>,
    /// The new group of each group and stack, if there is one.
    groups: HashMap<(u64, Option<u64>), u64>,
    /// The number of each new group.
    numbers: HashMap<String, u64>,
    /// A line that is being written.
    text: Vec<u8>,
}

impl<'s> Named<'s> {
    pub(super) fn new(symbols: &'s mut Symbols) -> Self {
        Self {
            symbols,
            kinds: HashMap::new(),
            stacks: HashMap::new(),
            groups: HashMap::new(),
            numbers: HashMap::new(),
            text: Vec::new(),
        }
    }

    /// Copies lines. Frames become the names of functions, and the groups of blocks the callers that allocated them: `train.py:12 in forward (buffer, context
    /// 1)`. Returns the number of allocations.
    pub(super) fn copy(mut self, mut lines: impl BufRead, to: &mut dyn Write) -> io::Result<u64> {
        let mut allocations = 0;
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            allocations += u64::from(line.starts_with(b"a "));
            let changes = [b"g ", b"k ", b"a ", b"o "]
                .iter()
                .any(|letter| line.starts_with(*letter));
            let read = changes.then(|| str::from_utf8(&line).ok());
            self.text.clear();
            match read.flatten().map(Line::read) {
                Some(Ok(Some(read))) => {
                    self.push(read);
                    to.write_all(&self.text)?;
                }
                _ => to.write_all(&line)?,
            }
            line.clear();
        }
        Ok(allocations)
    }

    /// Appends what a line becomes.
    fn push(&mut self, line: Line<'_>) {
        match line {
            Line::Group { group, name } => {
                self.kinds.insert(group, name.to_owned());
            }
            Line::Frame { stack, frame } => {
                let frames = self.symbols.frames_of(frame);
                self.stacks
                    .entry(stack)
                    .or_default()
                    .extend_from_slice(frames);
                for frame in frames {
                    Line::Frame { stack, frame }.write(&mut self.text);
                }
            }
            Line::Allocated { id, request } => {
                let request = self.grouped(request);
                Line::Allocated { id, request }.write(&mut self.text);
            }
            Line::Refused { request } => {
                let request = self.grouped(request);
                Line::Refused { request }.write(&mut self.text);
            }
            other => other.write(&mut self.text),
        }
    }

    /// Returns a request with its new group, which is named first if it is new.
    fn grouped(&mut self, request: Request) -> Request {
        let Some(group) = request.group else {
            return request;
        };
        let number = match self.groups.get(&(group, request.stack)) {
            Some(number) => *number,
            None => self.name(group, request.stack),
        };
        Request {
            group: Some(number),
            ..request
        }
    }

    fn name(&mut self, group: u64, stack: Option<u64>) -> u64 {
        let kind = self.kinds.get(&group).map_or("", String::as_str);
        let name = match stack {
            Some(stack) => {
                let frames = self.stacks.get(&stack).map_or(&[][..], Vec::as_slice);
                format!("{} ({kind})", caller(frames))
            }
            None => kind.to_owned(),
        };
        let next = self.numbers.len() as u64;
        let text = &mut self.text;
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            Line::Group { group: next, name }.write(text);
            next
        });
        self.groups.insert((group, stack), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_stacks_blocks_are_grouped_by_their_kinds() {
        let recorded = "g 3 buffer, context 1\na 1 10 0 7 3\no 30 0 10 3\n";
        let mut named = Vec::new();
        let mut symbols = Symbols::default();
        let copied = Named::new(&mut symbols).copy(recorded.as_bytes(), &mut named);
        assert_eq!(copied.unwrap(), 1);
        let expected = "g 0 buffer, context 1\na 1 10 0 7 0\no 30 0 10 0\n";
        assert_eq!(String::from_utf8(named).unwrap(), expected);
    }

    #[test]
    fn blocks_are_grouped_by_what_allocated_them() {
        let recorded = "g 0 buffer, context 1\nk 5 /home/me/a.py:1 in f\na 1 10 0 7 0 5\nf 1 8\n\
                        k 6 /home/me/a.py:2 in g\na 2 20 0 9 0 6\no 30 0 10 0 5\ng 1 image, context 1\na 3 1 0 11 1 5\n";
        let mut named = Vec::new();
        let mut symbols = Symbols::default();
        let allocations = Named::new(&mut symbols)
            .copy(recorded.as_bytes(), &mut named)
            .unwrap();
        assert_eq!(allocations, 3);
        let expected = "k 5 /home/me/a.py:1 in f\ng 0 me/a.py:1 in f (buffer, context 1)\na 1 10 0 7 0 5\nf 1 8\n\
                        k 6 /home/me/a.py:2 in g\ng 1 me/a.py:2 in g (buffer, context 1)\na 2 20 0 9 1 6\no 30 0 10 0 5\n\
                        g 2 me/a.py:1 in f (image, context 1)\na 3 1 0 11 2 5\n";
        assert_eq!(String::from_utf8(named).unwrap(), expected);
    }
}
