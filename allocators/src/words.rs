//! Sizes, counts and errors as text for people.

use std::{collections::BTreeSet, error::Error, fmt, iter};

use bytesize::ByteSize;

/// Returns a size with a unit, such as `4.0 KiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// The most decimals of a size. Sizes that are still alike are given in bytes.
const MOST_DECIMALS: usize = 3;

/// Returns sizes for one message, with as many decimals as tell those apart that differ: `2.00 MiB` and `1.98 MiB`.
#[must_use]
pub fn bytes_apart<const N: usize>(sizes: [u64; N]) -> [String; N] {
    let different = BTreeSet::from(sizes).len();
    (1..=MOST_DECIMALS)
        .map(|decimals| {
            sizes.map(|bytes| format!("{:.decimals$}", ByteSize::b(bytes).display().iec()))
        })
        .find(|texts| texts.iter().collect::<BTreeSet<_>>().len() == different)
        .unwrap_or_else(|| sizes.map(|bytes| format!("{bytes} B")))
}

/// Writes the text of an error, and of each of its causes on a line of its own.
///
/// # Errors
///
/// Those of the formatter.
pub fn write_with_causes(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    iter::successors(error.source(), |&cause| cause.source())
        .try_for_each(|cause| write!(f, "\ncause: {cause}"))
}

/// Returns a number of blocks, such as `1 block`.
#[must_use]
pub fn blocks(blocks: u64) -> String {
    match blocks {
        1 => "1 block".into(),
        blocks => format!("{blocks} blocks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_differ_are_told_apart_and_no_further() {
        let apart = bytes_apart::<2>;
        assert_eq!(apart([3 << 20, 1 << 20]), ["3.0 MiB", "1.0 MiB"]);
        assert_eq!(
            apart([2 << 20, (2 << 20) - (16 << 10)]),
            ["2.00 MiB", "1.98 MiB"]
        );
        assert_eq!(
            apart([4 << 30, (4 << 30) + 1]),
            ["4294967296 B", "4294967297 B"]
        );
        assert_eq!(apart([1 << 20; 2]), ["1.0 MiB"; 2]);
        let three = bytes_apart([1 << 20, (1 << 20) + 4096, 1 << 20]);
        assert_eq!(three, ["1.000 MiB", "1.004 MiB", "1.000 MiB"]);
    }
}
