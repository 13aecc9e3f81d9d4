//! Reads Python's pickles of plain data, of protocol 2 and later.
//!
//! A pickle is a program for a stack machine. This one performs the steps that make numbers, texts, lists, tuples and
//! dictionaries, and refuses those that name classes or call functions. Crates for pickles build nested values instead:
//! a small file that is nested deeply overflows the stack, and an object that is referred to many times is
//! copied each time. Here every step costs no more than the bytes that it reads, for any file (see
//! [`objects`](super::objects)). Values that no recording needs, such as bytes and very long texts, are skipped.

use std::{
    collections::HashMap,
    io::{self, BufRead, Read},
};

use super::objects::{Id, Object, Objects};
use crate::TraceError;

/// The most bytes of a text or a number that is stored. The longest that a recording needs is a file's path.
const LONGEST_KEPT: u64 = 1 << 16;

/// Reads a document.
pub(crate) fn read(reader: impl BufRead) -> Result<Objects, TraceError> {
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
    /// The number of bytes that were read.
    read: u64,
    objects: Objects,
    stack: Vec<Id>,
    /// The height of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<R: BufRead> Machine<R> {
    /// Performs a step. Returns whether there is another.
    fn step(&mut self) -> Result<bool, TraceError> {
        let [opcode] = self.bytes()?;
        match opcode {
            // PROTO, FRAME: the rest reads the same without them.
            0x80 => drop(self.bytes::<1>()?),
            0x95 => drop(self.bytes::<8>()?),
            b'.' => {
                let root = self.pop()?;
                self.objects.complete(root);
                return Ok(false);
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'(' => self.marks.push(self.stack.len()),
            // NEWTRUE, NEWFALSE.
            0x88 | 0x89 => self.push(Object::Integer((opcode == 0x88).into())),
            // NONE, EMPTY_TUPLE.
            b'N' | b')' => self.push(Object::Other),
            b'G' => {
                self.bytes::<8>()?;
                self.push(Object::Other);
            }
            b'J' => {
                let number = i32::from_le_bytes(self.bytes()?);
                self.push(Object::Integer(number.into()));
            }
            b'K' | b'M' => {
                let number = self.argument(opcode)?;
                let number = i64::try_from(number).map_or(Object::Other, Object::Integer);
                self.push(number);
            }
            0x8a | 0x8b => {
                let length = self.argument(opcode)?;
                self.push_long(length)?;
            }
            b'X' | 0x8c | 0x8d => self.push_text(opcode)?,
            // BINBYTES and its variants.
            b'C' | b'B' => {
                let length = self.argument(opcode)?;
                self.push_skipped(length)?;
            }
            b']' => self.push(Object::List(Vec::new())),
            b'}' => self.push(Object::Dict(Vec::new())),
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
            b'a' | b'e' => self.append(opcode)?,
            b's' | b'u' => self.set_items(opcode)?,
            b'q' | b'r' | 0x94 => {
                let key = self.key(opcode)?;
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            b'h' | b'j' => {
                let key = self.key(opcode)?;
                let id = self.memo.get(&key).copied();
                let id = id.ok_or_else(|| self.missing("an object made before"))?;
                self.stack.push(id);
            }
            _ => {
                return Err(self.error(TraceError::malformed(format_args!(
                    "a pickle of plain numbers, text, lists and dictionaries was expected, as \
                     torch.cuda.memory._dump_snapshot writes it; this one has opcode {opcode:#04x}"
                ))));
            }
        }
        Ok(true)
    }

    /// Pushes a text: `BINUNICODE` and its variants.
    fn push_text(&mut self, opcode: u8) -> Result<(), TraceError> {
        let length = self.argument(opcode)?;
        let Some(bytes) = self.many(length)? else {
            return Ok(());
        };
        // Python writes lone surrogates, which file names may have, in a form that is not valid UTF-8.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let id = self.objects.add_text(text);
        self.stack.push(id);
        Ok(())
    }

    /// Pushes a number of `length` bytes, lowest first.
    fn push_long(&mut self, length: u64) -> Result<(), TraceError> {
        let Some(bytes) = self.many(length)? else {
            return Ok(());
        };
        let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) {
            0xff
        } else {
            0
        };
        let mut number = [fill; 8];
        let low = bytes.len().min(8);
        number[..low].copy_from_slice(&bytes[..low]);
        let number = i64::from_le_bytes(number);
        // Some writers use more bytes than needed.
        let fits = bytes[low..].iter().all(|byte| *byte == fill) && (number < 0) == (fill == 0xff);
        let object = if fits {
            Object::Integer(number)
        } else {
            Object::Other
        };
        self.push(object);
        Ok(())
    }

    /// Skips this many bytes. Their value still counts as an object.
    fn push_skipped(&mut self, length: u64) -> Result<(), TraceError> {
        let read = io::copy(&mut (&mut self.reader).take(length), &mut io::sink())?;
        self.check_length(read, length)?;
        self.push(Object::Other);
        Ok(())
    }

    /// Moves the items on top of the stack to the list below: `APPEND`, `APPENDS`.
    fn append(&mut self, opcode: u8) -> Result<(), TraceError> {
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

    /// Moves the items on top of the stack to the dictionary below: `SETITEM`, `SETITEMS`.
    fn set_items(&mut self, opcode: u8) -> Result<(), TraceError> {
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

    fn pairs(&self, items: &[Id]) -> Result<Vec<(Id, Id)>, TraceError> {
        let pairs = items.chunks(2).map(|pair| match pair {
            [key, value] => Ok((*key, *value)),
            _ => Err(self.missing("a value for each key")),
        });
        pairs.collect()
    }

    /// Reads the key of the memo that a step names: `PUT`, `GET` and their variants. `MEMOIZE` names none.
    fn key(&mut self, opcode: u8) -> Result<u32, TraceError> {
        match opcode {
            0x94 => Ok(u32::try_from(self.memo.len()).unwrap_or(u32::MAX)),
            _ => Ok(u32::try_from(self.argument(opcode)?).unwrap_or(u32::MAX)),
        }
    }

    /// Reads the number that an opcode is followed by: a value, a length or a key.
    fn argument(&mut self, opcode: u8) -> Result<u64, TraceError> {
        match opcode {
            b'K' | b'C' | b'q' | b'h' | 0x8a | 0x8c => Ok(u8::from_le_bytes(self.bytes()?).into()),
            b'M' => Ok(u16::from_le_bytes(self.bytes()?).into()),
            0x8d => Ok(u64::from_le_bytes(self.bytes()?)),
            _ => Ok(u32::from_le_bytes(self.bytes()?).into()),
        }
    }

    fn push(&mut self, object: Object) {
        let id = self.objects.add(object);
        self.stack.push(id);
    }

    fn top(&self) -> Result<Id, TraceError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.get(floor..).and_then(<[Id]>::last).copied();
        top.ok_or_else(|| self.missing("an object on the stack"))
    }

    fn pop(&mut self) -> Result<Id, TraceError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, TraceError> {
        let mark = self.marks.pop();
        let mark = mark.ok_or_else(|| self.missing("a mark on the stack"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        let mut bytes = [0; N];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => {
                self.read += N as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.error(TraceError::truncated()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads this many bytes; `None` if they are too many to store, and were skipped.
    fn many(&mut self, length: u64) -> Result<Option<Vec<u8>>, TraceError> {
        if length > LONGEST_KEPT {
            return self.push_skipped(length).map(|()| None);
        }
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(length).read_to_end(&mut bytes)?;
        self.check_length(read as u64, length)?;
        Ok(Some(bytes))
    }

    fn check_length(&mut self, read: u64, length: u64) -> Result<(), TraceError> {
        self.read += read;
        if read < length {
            return Err(self.error(TraceError::truncated()));
        }
        Ok(())
    }

    fn missing(&self, what: &'static str) -> TraceError {
        self.error(TraceError::malformed(format_args!(
            "this step of the pickle needs {what}, which is missing: the file is damaged"
        )))
    }

    fn error(&self, error: TraceError) -> TraceError {
        error.at(format!("byte {}", self.read))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::{super::objects::Node, *};
    use crate::TraceErrorKind;

    #[test]
    fn a_text_that_no_recording_needs_is_not_kept() {
        let is_kept = |length: u64| {
            let text = vec![b'x'; usize::try_from(length).unwrap()];
            let file = [&b"\x80\x04\x8d"[..], &length.to_le_bytes(), &text, b"."].concat();
            let objects = read(&*file).ok().unwrap();
            objects.root().unwrap().as_text().is_some()
        };
        assert!(is_kept(LONGEST_KEPT));
        assert!(!is_kept(LONGEST_KEPT + 1));
    }

    /// The number that a pickle of these steps has; `None` if it has anything else.
    fn number(steps: &[u8]) -> Option<i64> {
        let objects = read(&*[b"\x80\x04", steps].concat()).ok().unwrap();
        objects.root().unwrap().as_integer()
    }

    #[test]
    fn steps_that_drop_or_repeat_what_is_on_the_stack_leave_the_rest() {
        assert_eq!(number(b"K\x07K\x080."), Some(7));
        assert_eq!(number(b"K\x07(K\x01K\x021."), Some(7));
        for bytes in [&b"C\x03abc"[..], b"B\x03\0\0\0abc"] {
            assert_eq!(number(&[b"K\x07", bytes, b"0."].concat()), Some(7));
            assert_eq!(number(&[bytes, b"."].concat()), None);
        }
        let objects = read(&b"\x80\x04](K\x052e."[..]).ok().unwrap();
        let list = objects.root().unwrap().as_list().unwrap();
        let numbers: Vec<Option<i64>> = list.iter().map(Node::as_integer).collect();
        assert_eq!(numbers, [Some(5), Some(5)]);
        assert_eq!((number(b"\x88."), number(b"\x89.")), (Some(1), Some(0)));
    }

    #[test]
    fn a_pickle_that_ends_within_a_value_ends_there() {
        for (file, end) in [
            (&b"\x80\x04X\x05\0\0\0abcd"[..], 11),
            (b"\x80\x04\x8a\x03ab", 6),
            (b"\x80\x04C\x03ab", 6),
            (b"\x80\x04J\0\0", 3),
        ] {
            let error = read(file).err().unwrap();
            assert_eq!(error.kind(), TraceErrorKind::Malformed, "{file:?}");
            assert!(error.message().contains("ends here"), "{}", error.message());
            assert_eq!(error.place(), format!("byte {end}"), "{file:?}");
        }
    }

    /// The number that a file of one long number has: its bytes, the lowest first, with the sign in the highest bit.
    fn long(bytes: &[u8]) -> Option<i64> {
        let length = u8::try_from(bytes.len()).unwrap();
        let file = [&b"\x80\x04\x8a"[..], &[length], bytes, b"."].concat();
        let objects = read(&*file).ok().unwrap();
        objects.root().unwrap().as_integer()
    }

    #[test]
    fn a_long_number_has_the_sign_of_its_highest_bit() {
        assert_eq!(long(&[]), Some(0));
        assert_eq!(long(&[0x80]), Some(-128));
        assert_eq!(long(&[0x80, 0]), Some(128));
        assert_eq!(long(&[0xff, 0xfe]), Some(-257));
        assert_eq!(long(&i64::MAX.to_le_bytes()), Some(i64::MAX));
        assert_eq!(long(&i64::MIN.to_le_bytes()), Some(i64::MIN));
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none_and_bytes_that_add_nothing_do_no_harm() {
        let with = |number: i64, more: &[u8]| long(&[&number.to_le_bytes(), more].concat());
        for number in [0, 1, i64::MAX] {
            assert_eq!(with(number, &[0]), Some(number));
            assert_eq!(with(number, &[0, 0, 0]), Some(number));
        }
        for number in [-1, i64::MIN] {
            assert_eq!(with(number, &[0xff]), Some(number));
            assert_eq!(with(number, &[0xff, 0xff]), Some(number));
        }
        // 2^64 - 1 and 2^63; -2^64 and -2^63 - 1; numbers with a digit in their ninth byte.
        assert_eq!(with(-1, &[0]), None);
        assert_eq!(with(i64::MIN, &[0]), None);
        assert_eq!(with(0, &[0xff]), None);
        assert_eq!(with(i64::MAX, &[0xff]), None);
        assert_eq!(with(5, &[1]), None);
        assert_eq!(with(-5, &[0xfe, 0xff]), None);
    }
}
