//! The index has the same entries as a tree of pairs, and finds the smallest of them, for any distribution of sizes.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::{BySize, MOST_STEPS, NONE, bin_of};

/// Sizes of all magnitudes, a few repeated sizes, and adjacent ones, so that bins become full and empty.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => prop::sample::select(vec![0, 1, 15, 16, 512, 4096, 4097, usize::MAX]),
        2 => 4000..4300_usize,
        2 => (0..usize::BITS, any::<usize>()).prop_map(|(shift, bits)| bits >> shift),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(usize, usize),
    /// Removes the entry at this index.
    Remove(usize),
    /// Gives the entry at this index another size, which is near its own or any.
    Resize(usize, usize, bool),
    /// Removes all but a few entries, from the smallest on or from the largest.
    Drain(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (bytes(), 0..1000_usize).prop_map(|(bytes, key)| Step::Insert(bytes, key)),
        20 => any::<usize>().prop_map(Step::Remove),
        20 => (any::<usize>(), bytes(), any::<bool>())
            .prop_map(|(at, bytes, is_near)| Step::Resize(at, bytes, is_near)),
        1 => any::<bool>().prop_map(Step::Drain),
    ]
}

/// Checks B1 to B3, and that the lists are linked both ways. `most` has the most keys that each bin ever had.
fn check(index: &BySize, most: &HashMap<usize, usize>) {
    for bin in 0..index.bins.len() {
        let listed: Vec<_> = index.of_bin(bin).collect();
        let is_marked = index.occupied.first_from(bin) == Some(bin);
        assert_eq!(is_marked, !listed.is_empty(), "bin {bin}");
        assert!(listed.iter().all(|(bytes, _)| bin_of(*bytes) == bin));
        if most.get(&bin).is_none_or(|most| *most <= MOST_STEPS) {
            assert!(listed.is_sorted_by_key(|(bytes, _)| *bytes), "{listed:?}");
        }
        let mut before = NONE;
        for (_, key) in listed {
            assert_eq!(index.entries[key].before, before);
            before = key;
        }
    }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for numbers alone")]
    fn it_has_the_entries_of_a_tree_of_pairs_and_finds_the_smallest(
        steps in prop::collection::vec(step(), 1..1000),
        looks in prop::collection::vec((bytes(), 1..5_usize), 1..20),
    ) {
        let mut index = BySize::default();
        let mut model = BTreeSet::new();
        let mut most = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(bytes, key) => {
                    if !model.iter().any(|(_, other)| *other == key) {
                        model.insert((bytes, key));
                        index.insert(bytes, key);
                        let bin = bin_of(bytes);
                        let most = most.entry(bin).or_default();
                        *most = index.of_bin(bin).count().max(*most);
                    }
                }
                Step::Remove(place) => {
                    let entry = model.iter().nth(place % model.len().max(1)).copied();
                    if let Some((bytes, key)) = entry {
                        model.remove(&(bytes, key));
                        index.remove(key);
                    }
                }
                Step::Resize(place, bytes, is_near) => {
                    let entry = model.iter().nth(place % model.len().max(1)).copied();
                    if let Some((old, key)) = entry {
                        let bytes = if is_near { old ^ (bytes & 7) } else { bytes };
                        model.remove(&(old, key));
                        model.insert((bytes, key));
                        index.resize(key, bytes);
                        let bin = bin_of(bytes);
                        let most = most.entry(bin).or_default();
                        *most = index.of_bin(bin).count().max(*most);
                    }
                }
                Step::Drain(from_the_start) => while model.len() > 3 {
                    let entry = if from_the_start { model.pop_first() } else { model.pop_last() };
                    if let Some((_, key)) = entry {
                        index.remove(key);
                    }
                }
            }
            prop_assert_eq!(index.bins(), index.largest().map_or(0, |largest| bin_of(largest) + 1));
            prop_assert_eq!(index.largest(), model.last().map(|(bytes, _)| *bytes));
        }
        check(&index, &most);
        prop_assert_eq!(index.iter().collect::<BTreeSet<_>>(), model.clone());
        for (bytes, part) in looks {
            let suits = |key: usize| key.is_multiple_of(part);
            let found = index.first_from(bytes, suits);
            let best = model.range((bytes, 0)..).find(|(_, key)| suits(*key));
            prop_assert_eq!(found.is_some(), best.is_some(), "it finds one if there is any");
            if let (Some((size, key)), Some((smallest, _))) = (found, best) {
                prop_assert!(model.contains(&(size, key)) && suits(key) && size >= bytes);
                if most[&bin_of(*smallest)] <= MOST_STEPS {
                    prop_assert_eq!(size, *smallest);
                }
            }
        }
    }
}

#[test]
fn a_larger_size_is_in_no_smaller_bin() {
    let powers = (0..usize::BITS).map(|bit| 1_usize << bit);
    let sizes = powers.flat_map(|power| [power - 1, power, power + 1, power + power / 32]);
    let mut sizes: Vec<_> = sizes.chain([usize::MAX]).collect();
    sizes.sort_unstable();
    assert!(sizes.is_sorted_by_key(|bytes| bin_of(*bytes)));
    assert_eq!(bin_of(usize::MAX) + 1, super::BINS);
}

#[test]
fn of_many_equal_sizes_the_last_one_is_found_first() {
    let mut index = BySize::default();
    for key in 0..1000 {
        index.insert(4096, key);
    }
    assert_eq!(index.first_from(4000, |_| true), Some((4096, 999)));
    assert_eq!(index.first_from(4000, |key| key == 0), Some((4096, 0)));
    index.remove(999);
    assert_eq!(index.first_from(4096, |_| true), Some((4096, 998)));
}

#[test]
fn a_key_that_gets_the_size_of_others_is_found_before_them() {
    let mut index = BySize::default();
    index.insert(4100, 0);
    index.insert(4120, 1);
    index.resize(1, 4100);
    assert_eq!(index.first_from(4000, |_| true), Some((4100, 1)));
}

#[test]
fn what_fits_is_found_behind_more_different_sizes_than_are_looked_at() {
    let mut index = BySize::default();
    let sizes = (1 << 20)..(1 << 20) + 100;
    for bytes in sizes {
        index.insert(bytes, bytes - (1 << 20));
    }
    let (size, key) = index
        .first_from((1 << 20) + 99, |_| true)
        .unwrap_or_default();
    assert_eq!((size, key), ((1 << 20) + 99, 99));
}
