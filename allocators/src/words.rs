//! Text for people: sizes, counts, and errors with their causes.
//!
//! For backends and tools, so that their messages have the same form as those of this crate and of the pool.

use std::{collections::BTreeSet, error::Error, fmt, iter};

use bytesize::ByteSize;

/// Returns a size with a unit.
///
/// ```
/// assert_eq!(binpool_allocators::words::bytes(4096), "4.0 KiB");
/// ```
#[must_use]
pub fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// The most decimals of a size. Sizes that still look the same are given in bytes.
const MOST_DECIMALS: usize = 3;

/// Formats the sizes of one message with enough decimals to tell different sizes apart.
///
/// ```
/// use binpool_allocators::words::bytes_apart;
///
/// assert_eq!(bytes_apart([2 << 20, 1 << 20]), ["2.0 MiB", "1.0 MiB"]);
/// assert_eq!(bytes_apart([2 << 20, 2_080_768]), ["2.00 MiB", "1.98 MiB"]);
/// ```
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

/// Writes the message of an error, and the message of each of its causes on a line of its own. For `Debug` of an error type, which is
/// what `unwrap` and a `main` that returns the error print.
///
/// ```
/// use std::fmt;
///
/// use binpool_allocators::{Error, words::write_with_causes};
///
/// struct Report(Error);
///
/// impl fmt::Debug for Report {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write_with_causes(f, &self.0)
///     }
/// }
///
/// let report = Report(Error::backend("clCreateBuffer", Some(-5), "CL_OUT_OF_RESOURCES"));
/// assert!(format!("{report:?}").contains("\ncause: CL_OUT_OF_RESOURCES"));
/// ```
///
/// # Errors
///
/// Those of the formatter.
pub fn write_with_causes(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    iter::successors(error.source(), |&cause| cause.source())
        .try_for_each(|cause| write!(f, "\ncause: {cause}"))
}

/// Returns a number of blocks with its noun.
///
/// ```
/// use binpool_allocators::words::blocks;
///
/// assert_eq!([blocks(1), blocks(2)], ["1 block", "2 blocks"]);
/// ```
#[must_use]
pub fn blocks(blocks: u64) -> String {
    counted(blocks, "block")
}

/// Returns a number with its noun, which has an `s` in the plural.
///
/// ```
/// use binpool_allocators::words::counted;
///
/// assert_eq!((counted(1, "block"), counted(2, "block")), ("1 block".into(), "2 blocks".into()));
/// ```
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
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
