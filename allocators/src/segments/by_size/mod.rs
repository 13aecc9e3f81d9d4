//! An index of keys by size, for best fit: it finds the smallest size that is large enough.

use std::{
    collections::{BTreeSet, btree_set},
    iter, slice,
};

/// The number of leading bits, behind the first one, that choose a size's bin. Sizes in one bin differ by less than 1/16.
const LEADING_BITS: u32 = 4;

/// The bins for sizes with the same exponent.
const BINS_PER_EXPONENT: usize = 1 << LEADING_BITS;

/// Each size below 16 has a bin of its own, and each exponent from 4 on has 16.
const BINS: usize = (usize::BITS - LEADING_BITS + 1) as usize * BINS_PER_EXPONENT;

/// The most entries of a bin that is a list; a bin with more is a tree.
const MOST_IN_A_LIST: usize = 32;

/// A tree with no more entries than this becomes a list again. Well below the other limit, so that a bin near it does not
/// change back and forth.
const FEWEST_IN_A_TREE: usize = 8;

/// A size in bytes, and its key.
type Entry = (usize, usize);

/// Sizes and keys, ordered by size and then by key, as in a `BTreeSet` of pairs.
///
/// Entries lie in bins by the exponent and the leading bits of their sizes, and a bitmap tells which bins have any. So
/// most calls touch one bin of a few entries. A bin with many is a tree, so nothing takes more than `O(log n)` steps even
/// where all sizes are equal.
///
/// # Invariants
///
/// - B1: an entry is in the bin of its size, and in no other.
/// - B2: a bin is marked as occupied if it has an entry.
#[derive(Debug, Default)]
pub(super) struct BySize {
    /// The bins up to the largest one that ever had an entry.
    bins: Vec<Bin>,
    occupied: Occupied,
}

impl BySize {
    /// Adds an entry that is not there yet.
    pub(super) fn insert(&mut self, bytes: usize, key: usize) {
        let bin = bin_of(bytes);
        self.occupied.mark(bin);
        match self.bins.get_mut(bin) {
            Some(Bin::List(list)) if list.len() < list.capacity().min(MOST_IN_A_LIST) => {
                insert_into_list(list, (bytes, key));
            }
            _ => self.make_room_and_insert(bin, (bytes, key)),
        }
    }

    /// The rare path of `insert`, kept out of line.
    #[cold]
    fn make_room_and_insert(&mut self, bin: usize, entry: Entry) {
        if self.bins.len() <= bin {
            self.bins.resize_with(bin + 1, Bin::default);
        }
        self.bins[bin].insert(entry);
    }

    /// Removes an entry that is there.
    pub(super) fn remove(&mut self, bytes: usize, key: usize) {
        let bin = bin_of(bytes);
        let entries = &mut self.bins[bin];
        entries.remove((bytes, key));
        if entries.is_empty() {
            self.occupied.unmark(bin);
        }
    }

    /// Returns the first entry of at least `bytes` bytes whose key `suits`.
    pub(super) fn first_from(
        &self,
        bytes: usize,
        mut suits: impl FnMut(usize) -> bool,
    ) -> Option<Entry> {
        let mut next = self.occupied.first_from(bin_of(bytes));
        while let Some(bin) = next {
            let found = self.bins[bin].first_from(bytes, &mut suits);
            if found.is_some() {
                return found;
            }
            next = self.occupied.first_from(bin + 1);
        }
        None
    }

    /// The keys of exactly `bytes` bytes, in order.
    pub(super) fn of_size(&self, bytes: usize) -> impl Iterator<Item = usize> {
        let bin = self.bins.get(bin_of(bytes));
        bin.into_iter()
            .flat_map(move |bin| bin.from(bytes))
            .take_while(move |(size, _)| *size == bytes)
            .map(|(_, key)| key)
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        let first = self.occupied.first_from(0);
        let bins = iter::successors(first, |bin| self.occupied.first_from(bin + 1));
        bins.flat_map(|bin| self.bins[bin].from(0))
    }

    /// Returns the largest size.
    pub(super) fn largest(&self) -> Option<usize> {
        let bin = self.occupied.last()?;
        self.bins[bin].largest()
    }
}

fn bin_of(bytes: usize) -> usize {
    let shift = (bytes | BINS_PER_EXPONENT).ilog2() - LEADING_BITS;
    // A size that is not shifted still has its first bit, which counts as one exponent.
    shift as usize * BINS_PER_EXPONENT + (bytes >> shift)
}

/// The entries of one bin.
#[derive(Debug)]
enum Bin {
    /// In order.
    List(Vec<Entry>),
    Tree(BTreeSet<Entry>),
}

impl Default for Bin {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Bin {
    fn insert(&mut self, entry: Entry) {
        match self {
            Self::List(list) if list.len() < MOST_IN_A_LIST => insert_into_list(list, entry),
            Self::List(list) => *self = Self::Tree(list.drain(..).chain([entry]).collect()),
            Self::Tree(tree) => {
                tree.insert(entry);
            }
        }
    }

    fn remove(&mut self, entry: Entry) {
        match self {
            Self::List(list) => {
                // The entries behind it move forward by one, beginning with the last.
                let Some(mut moving) = list.pop() else { return };
                for other in list.iter_mut().rev() {
                    if moving == entry {
                        return;
                    }
                    std::mem::swap(&mut moving, other);
                }
            }
            Self::Tree(_) => self.remove_from_tree(entry),
        }
    }

    #[cold]
    fn remove_from_tree(&mut self, entry: Entry) {
        let Self::Tree(tree) = self else { return };
        tree.remove(&entry);
        if tree.len() <= FEWEST_IN_A_TREE {
            *self = Self::List(self.from(0).collect());
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::List(list) => list.is_empty(),
            Self::Tree(tree) => tree.is_empty(),
        }
    }

    fn first_from(&self, bytes: usize, mut suits: impl FnMut(usize) -> bool) -> Option<Entry> {
        let mut suits = |entry: &&Entry| entry.0 >= bytes && suits(entry.1);
        let first = match self {
            Self::List(list) => list.iter().find(&mut suits),
            Self::Tree(tree) => tree.range((bytes, 0)..).find(&mut suits),
        };
        first.copied()
    }

    /// The entries of at least `bytes` bytes, in order.
    fn from(&self, bytes: usize) -> Entries<'_> {
        match self {
            Self::List(list) => {
                let first = list.partition_point(|(size, _)| *size < bytes);
                Entries::List(list[first..].iter())
            }
            Self::Tree(tree) => Entries::Tree(tree.range((bytes, 0)..)),
        }
    }

    fn largest(&self) -> Option<usize> {
        let last = match self {
            Self::List(list) => list.last(),
            Self::Tree(tree) => tree.last(),
        };
        last.map(|(bytes, _)| *bytes)
    }
}

fn insert_into_list(list: &mut Vec<Entry>, entry: Entry) {
    let mut place = list.len();
    list.push(entry);
    while place > 0 && list[place - 1] > entry {
        list[place] = list[place - 1];
        place -= 1;
    }
    list[place] = entry;
}

/// Entries of one bin, in order.
enum Entries<'a> {
    List(slice::Iter<'a, Entry>),
    Tree(btree_set::Range<'a, Entry>),
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        match self {
            Self::List(list) => list.next(),
            Self::Tree(tree) => tree.next(),
        }
        .copied()
    }
}

const WORD_BITS: usize = u64::BITS as usize;

const WORDS: usize = BINS.div_ceil(WORD_BITS);

/// A bit for each bin, and a summary bit for each word of these.
#[derive(Debug, Default)]
struct Occupied {
    words: [u64; WORDS],
    /// The words that are not zero.
    any: u64,
}

impl Occupied {
    fn mark(&mut self, bin: usize) {
        let word = bin / WORD_BITS;
        self.words[word] |= 1 << (bin % WORD_BITS);
        self.any |= 1 << word;
    }

    fn unmark(&mut self, bin: usize) {
        let word = bin / WORD_BITS;
        self.words[word] &= !(1 << (bin % WORD_BITS));
        if self.words[word] == 0 {
            self.any &= !(1 << word);
        }
    }

    /// Returns the first occupied bin from this one on.
    fn first_from(&self, bin: usize) -> Option<usize> {
        let word = bin / WORD_BITS;
        let bits = self.words.get(word)? & (u64::MAX << (bin % WORD_BITS));
        if bits != 0 {
            return Some(word * WORD_BITS + bits.trailing_zeros() as usize);
        }
        let later = self.any & (u64::MAX << word << 1);
        let word = later.trailing_zeros() as usize;
        let bits = self.words.get(word)?;
        Some(word * WORD_BITS + bits.trailing_zeros() as usize)
    }

    fn last(&self) -> Option<usize> {
        let word = self.any.checked_ilog2()? as usize;
        let bit = self.words[word].checked_ilog2()?;
        Some(word * WORD_BITS + bit as usize)
    }
}

#[cfg(test)]
mod tests;
