//! Python's pickles, as far as they hold plain data.
//!
//! A pickle is a program for a machine with a stack. This one takes the steps that make numbers, texts, lists, tuples and
//! dictionaries, and refuses all that name classes or call functions. It is written here because the crates for pickles build
//! nested values: a small file that is nested deep enough overflows the stack, and one that names an object many times is
//! copied as often. Here every step costs no more than the bytes that it reads, whatever the file says (see
//! [`objects`](super::objects)).

use std::{
    collections::HashMap,
    io::{self, BufRead, Read},
};

use super::{
    ImportError,
    objects::{Id, Object, Objects},
};
use crate::trace::error::ImportProblem;

/// Reads a document.
pub(crate) fn read(reader: impl BufRead) -> Result<Objects, ImportError> {
    let mut machine = Machine {
        reader,
        read: 0,
        objects: Objects::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    while machine.step()? {}
    Ok(machine.objects)
}

struct Machine<R> {
    reader: R,
    /// The bytes that were read.
    read: u64,
    objects: Objects,
    stack: Vec<Id>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<R: BufRead> Machine<R> {
    /// Takes a step; whether there is another.
    fn step(&mut self) -> Result<bool, ImportError> {
        let [opcode] = self.bytes()?;
        match opcode {
            // PROTO, FRAME: what comes is the same.
            0x80 => drop(self.bytes::<1>()?),
            0x95 => drop(self.bytes::<8>()?),
            b'.' => {
                let root = self.pop()?;
                self.objects.set_root(root);
                return Ok(false);
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'(' => self.marks.push(self.stack.len()),
            // NONE, NEWTRUE, NEWFALSE, EMPTY_TUPLE.
            b'N' | 0x88 | 0x89 | b')' => self.push(Object::Other),
            b'G' => {
                self.bytes::<8>()?;
                self.push(Object::Other);
            }
            b'J' => {
                let number = i32::from_le_bytes(self.bytes()?);
                self.push(Object::Integer(number.into()));
            }
            b'K' => {
                let number = u8::from_le_bytes(self.bytes()?);
                self.push(Object::Integer(number.into()));
            }
            b'M' => {
                let number = u16::from_le_bytes(self.bytes()?);
                self.push(Object::Integer(number.into()));
            }
            0x8a => {
                let length = u8::from_le_bytes(self.bytes()?);
                self.push_long(length.into())?;
            }
            0x8b => {
                let length = u32::from_le_bytes(self.bytes()?);
                self.push_long(length.into())?;
            }
            b'X' | 0x8c | 0x8d => self.push_text(opcode)?,
            // BINBYTES and its sisters.
            b'C' => {
                let length = u8::from_le_bytes(self.bytes()?);
                self.push_skipped(length.into())?;
            }
            b'B' => {
                let length = u32::from_le_bytes(self.bytes()?);
                self.push_skipped(length.into())?;
            }
            b']' => self.push(Object::List(Vec::new())),
            b'}' => self.push(Object::Dict(Vec::new())),
            b'l' => {
                let items = self.pop_to_mark()?;
                self.push(Object::List(items));
            }
            b't' => {
                self.pop_to_mark()?;
                self.push(Object::Other);
            }
            0x85..=0x87 => {
                for _ in 0x84..opcode {
                    self.pop()?;
                }
                self.push(Object::Other);
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                let pairs = self.pairs(&items)?;
                self.push(Object::Dict(pairs));
            }
            b'a' | b'e' => self.append(opcode)?,
            b's' | b'u' => self.set_items(opcode)?,
            b'q' | b'r' | 0x94 => self.memoize(opcode)?,
            b'h' | b'j' => self.recall(opcode)?,
            _ => return Err(self.error(ImportProblem::Opcode { opcode })),
        }
        Ok(true)
    }

    /// A text: `BINUNICODE` and its sisters.
    fn push_text(&mut self, opcode: u8) -> Result<(), ImportError> {
        let length = match opcode {
            0x8c => u8::from_le_bytes(self.bytes()?).into(),
            b'X' => u32::from_le_bytes(self.bytes()?).into(),
            _ => u64::from_le_bytes(self.bytes()?),
        };
        let bytes = self.many(length)?;
        // Python writes lone surrogates, which file names may have, as UTF-8 does not know them.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let id = self.objects.add_text(text);
        self.stack.push(id);
        Ok(())
    }

    /// A number of so many bytes, the least first.
    fn push_long(&mut self, length: u64) -> Result<(), ImportError> {
        let bytes = self.many(length)?;
        let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) {
            0xff
        } else {
            0
        };
        let mut number = [fill; 8];
        let low = bytes.len().min(8);
        number[..low].copy_from_slice(&bytes[..low]);
        let number = i64::from_le_bytes(number);
        // Some writers have more bytes than they need.
        let fits = bytes[low..].iter().all(|byte| *byte == fill) && (number < 0) == (fill == 0xff);
        let object = if fits {
            Object::Integer(number)
        } else {
            Object::Other
        };
        self.push(object);
        Ok(())
    }

    fn push_skipped(&mut self, length: u64) -> Result<(), ImportError> {
        self.many(length)?;
        self.push(Object::Other);
        Ok(())
    }

    /// Moves what is on top to the list below: `APPEND`, `APPENDS`.
    fn append(&mut self, opcode: u8) -> Result<(), ImportError> {
        let items = match opcode {
            b'a' => vec![self.pop()?],
            _ => self.pop_to_mark()?,
        };
        let list = self.top()?;
        match self.objects.get_mut(list) {
            Some(Object::List(own)) => own.extend(items),
            _ => return Err(self.missing("a list")),
        }
        Ok(())
    }

    /// Moves what is on top to the dictionary below: `SETITEM`, `SETITEMS`.
    fn set_items(&mut self, opcode: u8) -> Result<(), ImportError> {
        let items = match opcode {
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_to_mark()?,
        };
        let pairs = self.pairs(&items)?;
        let dict = self.top()?;
        match self.objects.get_mut(dict) {
            Some(Object::Dict(own)) => own.extend(pairs),
            _ => return Err(self.missing("a dictionary")),
        }
        Ok(())
    }

    fn pairs(&self, items: &[Id]) -> Result<Vec<(Id, Id)>, ImportError> {
        let pairs = items.chunks(2).map(|pair| match pair {
            [key, value] => Ok((*key, *value)),
            _ => Err(self.missing("a value for each key")),
        });
        pairs.collect()
    }

    /// Keeps what is on top: `BINPUT` and its sisters.
    fn memoize(&mut self, opcode: u8) -> Result<(), ImportError> {
        let place = match opcode {
            b'q' => u8::from_le_bytes(self.bytes()?).into(),
            b'r' => u32::from_le_bytes(self.bytes()?),
            _ => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
        };
        let top = self.top()?;
        self.memo.insert(place, top);
        Ok(())
    }

    /// Takes what was kept: `BINGET`, `LONG_BINGET`.
    fn recall(&mut self, opcode: u8) -> Result<(), ImportError> {
        let place = match opcode {
            b'h' => u8::from_le_bytes(self.bytes()?).into(),
            _ => u32::from_le_bytes(self.bytes()?),
        };
        let id = self.memo.get(&place).copied();
        let id = id.ok_or_else(|| self.missing("an object made before"))?;
        self.stack.push(id);
        Ok(())
    }

    fn push(&mut self, object: Object) {
        let id = self.objects.add(object);
        self.stack.push(id);
    }

    fn top(&self) -> Result<Id, ImportError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.get(floor..).and_then(<[Id]>::last).copied();
        top.ok_or_else(|| self.missing("an object on the stack"))
    }

    fn pop(&mut self) -> Result<Id, ImportError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, ImportError> {
        let mark = self.marks.pop();
        let mark = mark.ok_or_else(|| self.missing("a mark on the stack"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let mut bytes = [0; N];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => {
                self.read += N as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.error(ImportProblem::Truncated))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// So many bytes. Memory is taken as they come: the length may be a lie.
    fn many(&mut self, length: u64) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(length).read_to_end(&mut bytes)?;
        self.read += read as u64;
        if (read as u64) < length {
            return Err(self.error(ImportProblem::Truncated));
        }
        Ok(bytes)
    }

    fn missing(&self, what: &'static str) -> ImportError {
        self.error(ImportProblem::Pickle { what })
    }

    fn error(&self, problem: ImportProblem) -> ImportError {
        ImportError::at(format!("byte {}", self.read), problem)
    }
}
