//! The packed data of a page: an object, and columns of numbers.

use std::io::{self, Write};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::ZlibEncoder};
use serde::Serialize;

/// The data of a page: an object, and tables with columns of numbers.
///
/// Packed, it is compressed (zlib) and then text (Base64): the length of the object's JSON as four bytes, the lowest first;
/// that JSON; then, for each of the columns of each of the tables that it names, its numbers one by one, seven bits a byte, the lowest first, the
/// eighth bit set in all but the last byte of each number.
#[derive(Debug)]
pub(crate) struct PageData {
    tables: Vec<Vec<Head>>,
    numbers: Vec<u8>,
}

#[derive(Debug, Serialize)]
struct Head {
    name: &'static str,
    count: usize,
}

#[derive(Serialize)]
struct Packed<'a, T> {
    #[serde(flatten)]
    about: &'a T,
    tables: &'a [Vec<Head>],
}

impl PageData {
    pub(crate) const fn new() -> Self {
        Self {
            tables: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Begins a table. The columns that follow are its own.
    pub(crate) fn begin_table(&mut self) {
        self.tables.push(Vec::new());
    }

    /// Adds a column to the last table.
    pub(crate) fn push(&mut self, name: &'static str, numbers: impl IntoIterator<Item = u64>) {
        let mut count = 0;
        for number in numbers {
            self.push_number(number);
            count += 1;
        }
        if let Some(table) = self.tables.last_mut() {
            table.push(Head { name, count });
        }
    }

    /// Adds a column of numbers that never fall, stored as differences.
    pub(crate) fn push_rising(
        &mut self,
        name: &'static str,
        numbers: impl IntoIterator<Item = u64>,
    ) {
        let mut before = 0;
        let steps = numbers.into_iter().map(|number| {
            let step = number.saturating_sub(before);
            before = number;
            step
        });
        self.push(name, steps);
    }

    fn push_number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.numbers.push(low & 0x7f);
            }
            self.numbers.push(low | 0x80);
        }
    }

    /// Returns `about` and the tables as text without characters that have a meaning in HTML.
    pub(crate) fn pack(&self, about: &impl Serialize) -> String {
        // All values have a JSON form, and writing to memory succeeds.
        let packed = self.compressed(about).unwrap_or_default();
        BASE64_STANDARD.encode(packed)
    }

    fn compressed(&self, about: &impl Serialize) -> io::Result<Vec<u8>> {
        let tables = &self.tables;
        let json = serde_json::to_vec(&Packed { about, tables })?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&length.to_le_bytes())?;
        packed.write_all(&json)?;
        packed.write_all(&self.numbers)?;
        packed.finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_is_told_what_its_reader_expects() {
        let mut data = PageData::new();
        data.begin_table();
        data.push("plain", [0, 127, 128, 300]);
        data.begin_table();
        data.push_rising("rising", [5, 5, 7]);
        let text = data.pack(&json!({"name": "</script>"}));
        assert!(!text.contains(['<', '>', '&']));
        let mut bytes = Vec::new();
        let packed = BASE64_STANDARD.decode(text).unwrap();
        ZlibDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
        let (json, numbers) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let about: serde_json::Value = serde_json::from_slice(json).unwrap();
        assert_eq!(about["name"], "</script>");
        assert_eq!(
            about["tables"],
            json!([[{"name": "plain", "count": 4}], [{"name": "rising", "count": 3}]])
        );
        assert_eq!(numbers, [0, 127, 128, 1, 172, 2, 5, 0, 2]);
    }
}
