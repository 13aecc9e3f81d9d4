//! An index of keys by size, for best fit: it finds one of the smallest sizes that are large enough.

use std::iter;

/// The key that stands for no entry.
const NONE: usize = usize::MAX;

/// The number of leading bits, after the first one, that choose a size's bin. Sizes in one bin differ by less than 1/32.
const LEADING_BITS: u32 = 5;

/// The bins for sizes with the same exponent.
const BINS_PER_EXPONENT: usize = 1 << LEADING_BITS;

/// Each size below 32 has a bin of its own, and each exponent from 5 on has 32.
const BINS: usize = (usize::BITS - LEADING_BITS + 1) as usize * BINS_PER_EXPONENT;

/// The most entries of a bin that one call compares. In recorded programs a bin rarely has three different sizes.
const MOST_STEPS: usize = 16;

/// The size of a key, and its neighbours in the list of its bin.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: usize,
    before: usize,
    after: usize,
}

/// The entry of a key that is not in the index.
const ABSENT: Entry = Entry {
    bytes: 0,
    before: NONE,
    after: NONE,
};

/// Sizes in bytes and their keys.
///
/// Each key lies in the bin of its size, by the exponent and the leading bits, and a bitmap tells which bins have any. A bin is
/// a doubly linked list, smallest size first. So adding and removing a key takes a few steps, however many there are, and
/// allocates nothing once the index has had this key and this bin before. The two levels are those of TLSF (Masmano et al.,
/// 2004), whose lists are not in order.
///
/// # Invariants
///
/// - B1: a key is in the list of the bin of its size, and in no other.
/// - B2: a bin is marked as occupied if it has a key, and only then.
/// - B3: a bin that never had more than [`MOST_STEPS`] keys has them in order of their sizes. In a longer one an insertion may
///   give up its search for the place, and put the key after that many smaller ones.
#[derive(Debug, Default)]
pub(super) struct BySize {
    /// The first key of each bin, up to the largest bin that ever had one.
    bins: Vec<usize>,
    /// By key.
    entries: Vec<Entry>,
    occupied: Occupied,
}

impl BySize {
    /// Adds a key that is not there yet.
    pub(super) fn insert(&mut self, bytes: usize, key: usize) {
        self.link(bin_of(bytes), bytes, key);
    }

    /// Adds a key of this bin.
    fn link(&mut self, bin: usize, bytes: usize, key: usize) {
        if key >= self.entries.len() || bin >= self.bins.len() {
            self.make_room(bin, key);
        }
        let first = self.bins[bin];
        let (mut before, mut after) = (NONE, first);
        for _ in 0..MOST_STEPS {
            match self.entries.get(after) {
                Some(entry) if entry.bytes < bytes => (before, after) = (after, entry.after),
                _ => break,
            }
        }
        self.entries[key] = Entry {
            bytes,
            before,
            after,
        };
        if let Some(after) = self.entries.get_mut(after) {
            after.before = key;
        }
        match self.entries.get_mut(before) {
            Some(before) => before.after = key,
            None => self.bins[bin] = key,
        }
        if first == NONE {
            self.occupied.mark(bin);
        }
    }

    #[cold]
    fn make_room(&mut self, bin: usize, key: usize) {
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, NONE);
        }
        if self.entries.len() <= key {
            self.entries.resize(key + 1, ABSENT);
        }
    }

    /// Removes a key that is there.
    pub(super) fn remove(&mut self, key: usize) {
        let entry = self.entries[key];
        self.unlink(bin_of(entry.bytes), entry);
    }

    /// Removes the key of this entry from its bin.
    fn unlink(&mut self, bin: usize, Entry { before, after, .. }: Entry) {
        if let Some(after) = self.entries.get_mut(after) {
            after.before = before;
        }
        if let Some(before) = self.entries.get_mut(before) {
            before.after = after;
            return;
        }
        self.bins[bin] = after;
        if after == NONE {
            self.occupied.unmark(bin);
        }
    }

    /// Changes the size of a key that is there.
    pub(super) fn resize(&mut self, key: usize, bytes: usize) {
        let entry = self.entries[key];
        let (old_bin, bin) = (bin_of(entry.bytes), bin_of(bytes));
        let size_of = |key: usize| self.entries.get(key).map(|entry| entry.bytes);
        let stays = old_bin == bin
            && size_of(entry.before).is_none_or(|before| before < bytes)
            && size_of(entry.after).is_none_or(|after| bytes <= after);
        if stays {
            self.entries[key].bytes = bytes;
        } else {
            self.unlink(old_bin, entry);
            self.link(bin, bytes, key);
        }
    }

    /// Returns the smallest key of at least `bytes` bytes that `suits`, as far as B3 goes, and its size. It finds one if there is any.
    pub(super) fn first_from(
        &self,
        bytes: usize,
        mut suits: impl FnMut(usize) -> bool,
    ) -> Option<(usize, usize)> {
        let own = bin_of(bytes);
        let mut of_own = self.of_bin(own);
        let mut first = of_own.by_ref().take(MOST_STEPS);
        if let Some(found) = first.find(|(size, key)| *size >= bytes && suits(*key)) {
            return Some(found);
        }
        // Not `bins_from`, which would look for the next bin before most searches need it.
        let mut next = self.occupied.first_from(own + 1);
        while let Some(bin) = next {
            if let Some(found) = self.of_bin(bin).find(|(_, key)| suits(*key)) {
                return Some(found);
            }
            next = self.occupied.first_from(bin + 1);
        }
        of_own.find(|(size, key)| *size >= bytes && suits(*key))
    }

    /// All sizes and keys, those of smaller bins first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.bins_from(0)
    }

    /// The sizes and keys of at least `bytes` bytes.
    pub(super) fn at_least(&self, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
        let all = self.bins_from(bin_of(bytes));
        all.filter(move |(size, _)| *size >= bytes)
    }

    /// Returns the number of bins up to that of the largest size.
    pub(super) fn bins(&self) -> usize {
        self.occupied.bins
    }

    /// Returns the largest size.
    pub(super) fn largest(&self) -> Option<usize> {
        let bin = self.bins().checked_sub(1)?;
        self.of_bin(bin).map(|(bytes, _)| bytes).max()
    }

    /// The sizes and keys of a bin.
    fn of_bin(&self, bin: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut key = self.bins.get(bin).copied().unwrap_or(NONE);
        iter::from_fn(move || {
            let entry = self.entries.get(key)?;
            let found = (entry.bytes, key);
            key = entry.after;
            Some(found)
        })
    }

    /// The sizes and keys of a bin and of all larger ones.
    fn bins_from(&self, bin: usize) -> impl Iterator<Item = (usize, usize)> {
        let first = self.occupied.first_from(bin);
        let bins = iter::successors(first, |bin| self.occupied.first_from(bin + 1));
        bins.flat_map(|bin| self.of_bin(bin))
    }
}

/// The bin of a size. Larger sizes have the same or a later one.
pub(super) fn bin_of(bytes: usize) -> usize {
    let shift = (bytes | BINS_PER_EXPONENT).ilog2() - LEADING_BITS;
    // A size that is not shifted still has its leading bit, which counts as one exponent.
    shift as usize * BINS_PER_EXPONENT + (bytes >> shift)
}

const WORD_BITS: usize = u64::BITS as usize;

const WORDS: usize = BINS.div_ceil(WORD_BITS);

/// A bit for each bin, and a summary bit for each word of these.
#[derive(Debug, Default)]
struct Occupied {
    words: [u64; WORDS],
    /// The words that are not zero.
    any: u64,
    /// The number of bins up to the last occupied one. Kept, since each change of an arena asks for it.
    bins: usize,
}

impl Occupied {
    fn mark(&mut self, bin: usize) {
        let word = bin / WORD_BITS;
        self.words[word] |= 1 << (bin % WORD_BITS);
        self.any |= 1 << word;
        self.bins = self.bins.max(bin + 1);
    }

    fn unmark(&mut self, bin: usize) {
        let word = bin / WORD_BITS;
        self.words[word] &= !(1 << (bin % WORD_BITS));
        if self.words[word] == 0 {
            self.any &= !(1 << word);
        }
        if bin + 1 == self.bins {
            self.bins = self.last().map_or(0, |last| last + 1);
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
