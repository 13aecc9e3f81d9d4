//! Sizes and counts as text for people.

use bytesize::ByteSize;

pub(crate) fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

pub(crate) fn blocks(blocks: u64) -> String {
    match blocks {
        1 => "1 block".into(),
        blocks => format!("{blocks} blocks"),
    }
}
