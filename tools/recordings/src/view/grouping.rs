//! The grouping of blocks.

use binpool_allocators::words::bytes;

use crate::{Trace, view::Life};

/// The property that the blocks of a picture are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The program's tag, or the place of its request.
    Group,
    /// The size class, with all classes between two powers of two together.
    Size,
    /// The stream (the queue) that the block is for.
    Stream,
}

/// The group of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grouping {
    /// The name of each group.
    pub(crate) names: Vec<String>,
    /// The group of each block, as an index among the names.
    pub(crate) numbers: Vec<u32>,
}

/// The name of blocks without a group, if no block has one.
const NO_GROUP: &str = "(no group)";

/// The name of blocks without a group, if others have one.
const UNNAMED: &str = "(no tag or line was recorded)";

impl By {
    /// All properties, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Group, Self::Size, Self::Stream];

    /// Its word on the command line and in the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Size => "size",
            Self::Stream => "stream",
        }
    }

    /// Groups the blocks of `trace`, which have these lives.
    pub(crate) fn of(self, trace: &Trace, lives: &[Life]) -> Grouping {
        match self {
            Self::Group => {
                let none = match trace.groups() {
                    [] => NO_GROUP,
                    _ => UNNAMED,
                };
                let key = |block: usize, _: &Life| trace.group_of(block).unwrap_or(none);
                grouped(lives, key, |name| (*name).to_owned())
            }
            Self::Size => grouped(
                lives,
                |_, life| band(life.class_bytes),
                |band| size_name(*band),
            ),
            Self::Stream => grouped(
                lives,
                |_, life| life.stream,
                |stream| format!("stream {stream}"),
            ),
        }
    }
}

fn grouped<K: Copy + Ord>(
    lives: &[Life],
    key: impl Fn(usize, &Life) -> K,
    name: impl Fn(&K) -> String,
) -> Grouping {
    let keys: Vec<K> = lives
        .iter()
        .enumerate()
        .map(|(block, life)| key(block, life))
        .collect();
    let mut each = keys.clone();
    each.sort_unstable();
    each.dedup();
    let number = |key: &K| u32::try_from(each.partition_point(|other| other < key));
    Grouping {
        names: each.iter().map(name).collect(),
        numbers: keys
            .iter()
            .map(|key| number(key).unwrap_or(u32::MAX))
            .collect(),
    }
}

/// Returns the exponent of the least power of two that is no smaller; `None` for 0 bytes.
fn band(class_bytes: u64) -> Option<u32> {
    let last = class_bytes.checked_sub(1)?;
    Some(u64::BITS - last.leading_zeros())
}

/// Describes the classes of a band: above one power of two, up to the next.
fn size_name(band: Option<u32>) -> String {
    let power = |exponent: u32| bytes(1_u64.checked_shl(exponent).unwrap_or(u64::MAX));
    // A power of two needs no fraction: "1.0 MiB" becomes "1 MiB".
    let round = |exponent| power(exponent).replace(".0 ", " ");
    match band {
        None => "0 B".into(),
        Some(0) => round(0),
        Some(exponent) => {
            let (low, high) = (round(exponent - 1), round(exponent));
            match (low.split_once(' '), high.split_once(' ')) {
                (Some((low, unit)), Some((_, same))) if unit == same => format!("{low}–{high}"),
                _ => format!("{low} – {high}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_between_powers_of_two_are_together() {
        let names = |sizes: &[u64]| -> Vec<String> {
            sizes.iter().map(|size| size_name(band(*size))).collect()
        };
        assert_eq!(names(&[0, 1, 2, 3]), ["0 B", "1 B", "1–2 B", "2–4 B"]);
        assert_eq!(names(&[(1 << 20) + 1, 2 << 20]), ["1–2 MiB", "1–2 MiB"]);
        assert_eq!(names(&[1 << 20]), ["512 KiB – 1 MiB"]);
    }
}
