//! Sizes and counts as text for people.

use bytesize::ByteSize;

/// Returns a size with a unit, such as `4.0 KiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// Returns a number of blocks, such as `1 block`.
#[must_use]
pub fn blocks(blocks: u64) -> String {
    match blocks {
        1 => "1 block".into(),
        blocks => format!("{blocks} blocks"),
    }
}
