//! Text in UTF-16, as PowerShell writes what it redirects to a file, read as UTF-8.

use std::{
    char,
    io::{self, Read},
};

/// The bytes that are decoded at a time.
const AT_A_TIME: u64 = 4096;

/// The text of `inner` in UTF-8. What is no valid UTF-16 is replaced.
pub(crate) struct Utf16<R> {
    inner: R,
    unit: fn([u8; 2]) -> u16,
    /// A unit, or half of one, that was read and belongs to the next character.
    rest: Vec<u8>,
    text: io::Cursor<Vec<u8>>,
}

impl<R: Read> Utf16<R> {
    /// Reads from after the byte order mark.
    pub(crate) fn new(inner: R, is_big_endian: bool) -> Self {
        Self {
            inner,
            unit: if is_big_endian {
                u16::from_be_bytes
            } else {
                u16::from_le_bytes
            },
            rest: Vec::new(),
            text: io::Cursor::default(),
        }
    }

    fn decode_more(&mut self) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.rest);
        let has_more = (&mut self.inner).take(AT_A_TIME).read_to_end(&mut bytes)? > 0;
        let pairs = bytes.chunks_exact(2);
        let mut units: Vec<u16> = pairs.map(|pair| (self.unit)([pair[0], pair[1]])).collect();
        let mut kept = bytes.len() / 2 * 2;
        if has_more
            && units
                .last()
                .is_some_and(|unit| (0xd800..0xdc00).contains(unit))
        {
            units.pop();
            kept -= 2;
        }
        if has_more {
            self.rest = bytes.split_off(kept);
        }
        let text =
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        self.text = io::Cursor::new(text.collect::<String>().into_bytes());
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.text.read(bytes)? {
            0 if !bytes.is_empty() => {
                self.decode_more()?;
                self.text.read(bytes)
            }
            read => Ok(read),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    /// Characters of one and of two units, in every place of what is decoded at a time.
    #[test]
    fn every_character_is_read_wherever_it_lies() {
        for before in 0..3 {
            let text = "x".repeat(before) + &"aé日😀".repeat(3000);
            for is_big_endian in [false, true] {
                let unit = |unit: u16| {
                    if is_big_endian {
                        unit.to_be_bytes()
                    } else {
                        unit.to_le_bytes()
                    }
                };
                let bytes: Vec<u8> = text.encode_utf16().flat_map(unit).collect();
                let mut read = String::new();
                let mut decoded = Utf16::new(&*bytes, is_big_endian);
                decoded.read_to_string(&mut read).unwrap();
                assert_eq!(read, text);
            }
        }
    }

    #[test]
    fn a_read_of_nothing_loses_nothing() {
        let mut decoded = Utf16::new(&b"a\0b\0c\0"[..], false);
        let mut first = [0];
        assert_eq!(decoded.read(&mut first).unwrap(), 1);
        assert_eq!(decoded.read(&mut []).unwrap(), 0);
        let mut rest = String::new();
        decoded.read_to_string(&mut rest).unwrap();
        assert_eq!((first, &*rest), ([b'a'], "bc"));
    }

    #[test]
    fn half_a_character_at_the_end_is_left_out_or_replaced() {
        let read = |bytes: &[u8]| {
            let mut read = String::new();
            Utf16::new(bytes, false).read_to_string(&mut read).unwrap();
            read
        };
        assert_eq!(read(b"a\0b"), "a");
        assert_eq!(read(b"a\0\0\xd8"), "a\u{fffd}");
        assert_eq!(read(b""), "");
    }
}
