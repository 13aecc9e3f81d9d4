//! What is new, gone, or has another size in the second of two recordings or snapshots.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use serde::Serialize;

use binpool_trace::{BlockState, Snapshot, SnapshotBlock};

use crate::view::{By, History, SnapshotNumbers, numbers::Numbers, snapshot_numbers::all_blocks};

/// Two recordings, or two snapshots of pools, side by side. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The two files.
    pub files: [String; 2],
    /// The figures of both.
    pub figures: Vec<Figure>,
    /// What has changed, by each property of blocks.
    pub tables: Vec<ChangeTable>,
}

/// A figure of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// What it is, such as `in use at the peak`.
    pub name: &'static str,
    /// Its value in the first and in the second.
    pub bytes: [u64; 2],
}

/// The blocks in use of both, by a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChangeTable {
    /// The property: `group`, `size`, `stream` or `stack`, or `tag` or `call_site` of snapshots.
    pub by: &'static str,
    /// The moment: `peak`, the first one with the most bytes in use; `end`; or `snapshot`.
    pub at: &'static str,
    /// The rows, those first whose bytes differ most.
    pub rows: Vec<ChangeRow>,
}

/// A group of blocks in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChangeRow {
    /// Its name; of a stack, its frames, innermost first, one a line.
    pub name: String,
    /// What has happened to it.
    pub change: Change,
    /// The requested bytes that are in use in the first and in the second.
    pub bytes: [u64; 2],
    /// The blocks in use.
    pub blocks: [u64; 2],
    /// Its name in the first, if an edit moved its line; `None` if the name is the same in both.
    pub moved_from: Option<String>,
}

/// What has happened to a group of blocks between the first and the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The first has no blocks of it.
    New,
    /// Only the first has blocks of it.
    Gone,
    /// The second has more bytes of it.
    Grown,
    /// The second has fewer.
    Shrunk,
    /// Both have equally many bytes.
    Same,
}

/// The bytes and blocks of each name.
type Sums = BTreeMap<String, (u64, u64)>;

impl Comparison {
    /// Compares two histories: the blocks in use at the peak of each, and at the end of each.
    ///
    /// ```
    /// use binpool_recordings::{Trace, view::{Change, Comparison, History}};
    ///
    /// let history = |text: &str| {
    ///     let recorded = format!("h version 2\nh capacity 8192\nh blocks bins\n{text}");
    ///     History::happened(&Trace::parse("t", recorded.as_bytes()).unwrap()).unwrap()
    /// };
    /// let before = history("g 0 weights\ns 9 4096 0\nb 1 9 0 4096 0\na 256 4096 0 0 0\n");
    /// let after = history("g 0 weights\ng 1 cache\ns 9 4096 0\nb 1 9 0 4096 0\na 256 4096 0 0 0\n\
    ///                      s 8 128 0\nb 2 8 0 128 0\na 512 100 0 0 1\n");
    /// let comparison = Comparison::of_histories([&before, &after]);
    /// let row = &comparison.tables[0].rows[0];
    /// assert_eq!((row.name.as_str(), row.change, row.bytes), ("cache", Change::New, [0, 100]));
    /// ```
    #[must_use]
    pub fn of_histories(histories: [&History; 2]) -> Self {
        let numbers = histories.map(History::numbers);
        let figure = |name, bytes: fn(&Numbers) -> u64| Figure {
            name,
            bytes: numbers.each_ref().map(bytes),
        };
        let mut tables = Vec::new();
        for (at, moment) in [
            (
                "peak",
                (|it| it.peak_active.moment) as fn(&Numbers) -> usize,
            ),
            ("end", |it| it.at_end.moment),
        ] {
            let moments = numbers.each_ref().map(moment);
            let sides = [0, 1].map(|side| (histories[side], moments[side]));
            for by in By::ALL {
                let sums = sides.map(|(history, moment)| by_group(history, by, moment));
                tables.push(ChangeTable::new(by.name(), at, sums));
            }
            if histories.iter().any(|history| !history.stacks.is_empty()) {
                let sums = sides.map(|(history, moment)| by_stack(history, moment));
                tables.push(ChangeTable::new("stack", at, sums));
            }
        }
        Self {
            files: numbers.each_ref().map(|it| it.file.clone()),
            figures: vec![
                figure("in use at the peak", |it| it.peak_active.active_bytes),
                figure("reserved at most", |it| it.peak_reserved.reserved_bytes),
                figure("in use at the end", |it| it.at_end.active_bytes),
                figure("held at the end", |it| it.at_end.held_bytes),
            ],
            tables,
        }
    }

    /// Compares two snapshots of pools, each with its file.
    #[must_use]
    pub fn of_snapshots(snapshots: [(&str, &Snapshot); 2]) -> Self {
        let numbers = snapshots.map(|(file, snapshot)| SnapshotNumbers::new(file, snapshot));
        let figure = |name, bytes: fn(&SnapshotNumbers) -> u64| Figure {
            name,
            bytes: numbers.each_ref().map(bytes),
        };
        let table = |by, name: fn(&SnapshotBlock) -> &str| {
            let sums = snapshots.map(|(_, snapshot)| by_name(snapshot, name));
            ChangeTable::new(by, "snapshot", sums)
        };
        Self {
            files: numbers.each_ref().map(|it| it.file.clone()),
            figures: vec![
                figure("in use", |it| it.active_bytes),
                figure("held", |it| it.held_bytes),
                figure("reserved", |it| it.reserved_bytes),
            ],
            tables: vec![
                table("tag", |it| it.tag.as_deref().unwrap_or("(no tag)")),
                table("call_site", |it| {
                    it.call_site.as_deref().unwrap_or("(not known)")
                }),
            ],
        }
    }
}

impl ChangeTable {
    fn new(by: &'static str, at: &'static str, [before, after]: [Sums; 2]) -> Self {
        let mut moved = moved([&before, &after]);
        let mut both: BTreeMap<String, [(u64, u64); 2]> = BTreeMap::new();
        let mut old_names = HashMap::new();
        for (name, sum) in before {
            let name = match moved.remove(&name) {
                Some(new) => {
                    old_names.insert(new.clone(), name);
                    new
                }
                None => name,
            };
            both.entry(name).or_default()[0] = sum;
        }
        for (name, sum) in after {
            both.entry(name).or_default()[1] = sum;
        }
        let mut rows: Vec<ChangeRow> = both
            .into_iter()
            .map(|(name, sides)| {
                let (bytes, blocks) = (sides.map(|it| it.0), sides.map(|it| it.1));
                ChangeRow {
                    change: Change::between(bytes, blocks),
                    bytes,
                    blocks,
                    moved_from: old_names.remove(&name),
                    name,
                }
            })
            .filter(|row| row.blocks != [0, 0])
            .collect();
        rows.sort_by_key(|row| Reverse(row.bytes[0].abs_diff(row.bytes[1])));
        Self { by, at, rows }
    }
}

/// The names of the first that an edit moved, each with its name in the second: those that differ in nothing but their lines, and that one name of
/// the first alone and one of the second alone do.
fn moved(sides: [&Sums; 2]) -> HashMap<String, String> {
    let mut alike: HashMap<String, [Vec<&String>; 2]> = HashMap::new();
    for (side, other) in [(0, 1), (1, 0)] {
        for name in sides[side].keys() {
            if !sides[other].contains_key(name) {
                alike.entry(without_lines(name)).or_default()[side].push(name);
            }
        }
    }
    let pairs = alike
        .into_values()
        .filter_map(|[before, after]| match (&*before, &*after) {
            ([before], [after]) => Some(((*before).clone(), (*after).clone())),
            _ => None,
        });
    pairs.collect()
}

/// A name without the numbers after colons: the lines and columns of source code.
fn without_lines(name: &str) -> String {
    let mut parts = name.split(':');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        text + ":" + rest
    })
}

impl Change {
    fn between([before, after]: [u64; 2], blocks: [u64; 2]) -> Self {
        match blocks {
            [0, _] => Self::New,
            [_, 0] => Self::Gone,
            _ if before < after => Self::Grown,
            _ if before > after => Self::Shrunk,
            _ => Self::Same,
        }
    }
}

fn by_group(history: &History, by: By, moment: usize) -> Sums {
    let grouping = &history.groupings[by as usize];
    let blocks = grouping.numbers.iter().zip(&history.blocks);
    let there = blocks.filter(|(_, life)| life.is_there(moment));
    let sums = sums(
        there.map(|(group, life)| (*group as usize, life.requested_bytes)),
        |group| grouping.names.get(group).cloned().unwrap_or_default(),
    );
    with_all(sums, grouping.names.iter().cloned())
}

fn by_stack(history: &History, moment: usize) -> Sums {
    let [groups, ..] = &history.groupings;
    let blocks = groups.numbers.iter().zip(&history.blocks);
    let there = blocks.filter(|(_, life)| life.is_there(moment));
    // The name of a group in parentheses explains why there is no stack.
    let without_stack = |group: u32| {
        let name = groups.names.get(group as usize);
        name.filter(|name| name.starts_with('('))
            .map_or("(no stack)", String::as_str)
    };
    let key = |group: u32, stack: Option<usize>| match stack.and_then(|it| history.stacks.get(it)) {
        Some(frames) => (Some(frames), ""),
        None => (None, without_stack(group)),
    };
    let sums = sums(
        there.map(|(group, life)| (key(*group, life.stack), life.requested_bytes)),
        |(frames, unknown)| frames.map_or_else(|| unknown.to_owned(), |frames| frames.join("\n")),
    );
    with_all(sums, history.stacks.iter().map(|frames| frames.join("\n")))
}

/// The sums, with those names, too, that have no blocks at the moment.
fn with_all(mut sums: Sums, names: impl Iterator<Item = String>) -> Sums {
    for name in names {
        sums.entry(name).or_default();
    }
    sums
}

fn by_name(snapshot: &Snapshot, name: fn(&SnapshotBlock) -> &str) -> Sums {
    let active = all_blocks(snapshot).filter(|block| block.state == BlockState::Active);
    sums(
        active.map(|block| (name(block), block.requested_bytes.unwrap_or(block.bytes))),
        str::to_owned,
    )
}

/// Sums up blocks by a key, which `name` makes a name of. The sizes of a damaged snapshot may have a sum that is too large for a number.
fn sums<K: Ord>(blocks: impl Iterator<Item = (K, u64)>, name: impl Fn(K) -> String) -> Sums {
    let mut sums = BTreeMap::<K, (u64, u64)>::new();
    for (key, bytes) in blocks {
        let (all, blocks) = sums.entry(key).or_default();
        *all = all.saturating_add(bytes);
        *blocks += 1;
    }
    sums.into_iter()
        .map(|(key, sum)| (name(key), sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_an_edit_moved_is_one_row() {
        let sums = |rows: &[(&str, u64)]| -> Sums {
            let rows = rows.iter();
            rows.map(|(name, blocks)| ((*name).to_owned(), (blocks * 10, *blocks)))
                .collect()
        };
        // Line 31 moved to 36; 40 moved, too, but to which of two lines is not known; 7 is in both.
        let before = sums(&[
            ("a.py:31 f", 1),
            ("a.py:40 g", 1),
            ("b.rs:7:9", 2),
            ("b.rs:8:9", 0),
        ]);
        let after = sums(&[
            ("a.py:36 f", 2),
            ("a.py:45 g", 1),
            ("a.py:46 g", 1),
            ("b.rs:7:9", 0),
            ("b.rs:9:5", 3),
        ]);
        let rows = ChangeTable::new("group", "end", [before, after]).rows;
        let mut rows: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    &*row.name,
                    row.change,
                    row.moved_from.as_deref(),
                    row.blocks,
                )
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.0);
        assert_eq!(
            rows,
            [
                ("a.py:36 f", Change::Grown, Some("a.py:31 f"), [1, 2]),
                ("a.py:40 g", Change::Gone, None, [1, 0]),
                ("a.py:45 g", Change::New, None, [0, 1]),
                ("a.py:46 g", Change::New, None, [0, 1]),
                ("b.rs:7:9", Change::Gone, None, [2, 0]),
                ("b.rs:9:5", Change::New, Some("b.rs:8:9"), [0, 3]),
            ]
        );
    }

    #[test]
    fn a_row_is_new_gone_grown_shrunk_or_the_same() {
        let sums = |rows: &[(&str, u64, u64)]| {
            let rows = rows.iter();
            rows.map(|(name, bytes, blocks)| ((*name).to_owned(), (*bytes, *blocks)))
                .collect()
        };
        let before = sums(&[
            ("a", 10, 1),
            ("b", 10, 1),
            ("c", 10, 2),
            ("d", 7, 1),
            ("z", 0, 1),
        ]);
        let after = sums(&[("b", 11, 1), ("c", 3, 1), ("d", 7, 2), ("e", 90, 1)]);
        let table = ChangeTable::new("group", "end", [before, after]);
        let rows: Vec<_> = table
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.change, row.bytes, row.blocks))
            .collect();
        assert_eq!(
            rows,
            [
                ("e", Change::New, [0, 90], [0, 1]),
                ("a", Change::Gone, [10, 0], [1, 0]),
                ("c", Change::Shrunk, [10, 3], [2, 1]),
                ("b", Change::Grown, [10, 11], [1, 1]),
                ("d", Change::Same, [7, 7], [1, 2]),
                ("z", Change::Gone, [0, 0], [1, 0]),
            ]
        );
    }
}
