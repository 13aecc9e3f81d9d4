//! The index has the same entries in the same order as a tree of pairs, for any distribution of sizes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Bin, BySize, Entry, FEWEST_IN_A_TREE, MOST_IN_A_LIST, bin_of};

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
    Insert(Entry),
    /// Removes the entry at this index.
    Remove(usize),
    /// Removes all but a few entries, from the smallest on or from the largest.
    Drain(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (bytes(), 0..1000_usize).prop_map(Step::Insert),
        20 => any::<usize>().prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn it_is_a_tree_of_pairs(
        steps in prop::collection::vec(step(), 1..1000),
        looks in prop::collection::vec((bytes(), 1..5_usize), 1..20),
    ) {
        let mut index = BySize::default();
        let mut model = BTreeSet::new();
        for step in steps {
            match step {
                Step::Insert((bytes, key)) => {
                    if model.insert((bytes, key)) {
                        index.insert(bytes, key);
                    }
                }
                Step::Remove(place) => {
                    let entry = model.iter().nth(place % model.len().max(1)).copied();
                    if let Some((bytes, key)) = entry {
                        model.remove(&(bytes, key));
                        index.remove(bytes, key);
                    }
                }
                Step::Drain(from_the_start) => while model.len() > 3 {
                    let entry = if from_the_start { model.pop_first() } else { model.pop_last() };
                    if let Some((bytes, key)) = entry {
                        index.remove(bytes, key);
                    }
                }
            }
            prop_assert_eq!(index.largest(), model.last().map(|(bytes, _)| *bytes));
        }
        prop_assert_eq!(index.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        for (bytes, part) in looks {
            let mut from = model.range((bytes, 0)..).copied();
            let suits = |key: usize| key.is_multiple_of(part);
            prop_assert_eq!(index.first_from(bytes, suits), from.find(|(_, key)| suits(*key)));
            let same = model.range((bytes, 0)..=(bytes, usize::MAX)).map(|(_, key)| *key);
            prop_assert_eq!(index.of_size(bytes).collect::<Vec<_>>(), same.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_larger_size_is_in_no_smaller_bin() {
    let powers = (0..usize::BITS).map(|bit| 1_usize << bit);
    let sizes = powers.flat_map(|power| [power - 1, power, power + 1, power + power / 16]);
    let mut sizes: Vec<_> = sizes.chain([usize::MAX]).collect();
    sizes.sort_unstable();
    assert!(sizes.is_sorted_by_key(|bytes| bin_of(*bytes)));
    assert_eq!(bin_of(usize::MAX) + 1, super::BINS);
}

#[test]
fn many_of_one_size_stay_in_order() {
    let mut index = BySize::default();
    let keys = 0..10 * MOST_IN_A_LIST;
    for key in keys.clone().rev() {
        index.insert(4096, key);
    }
    assert!(index.of_size(4096).eq(keys.clone()));
    for key in keys.clone().skip(2) {
        index.remove(4096, key);
    }
    assert!(index.of_size(4096).eq([0, 1]));
    assert_eq!(index.first_from(1, |key| key > 0), Some((4096, 1)));
}

#[test]
fn a_bin_of_many_is_a_tree_until_few_are_left() {
    let mut index = BySize::default();
    let is_tree = |index: &BySize| matches!(index.bins[bin_of(4096)], Bin::Tree(_));
    for key in 0..2 * MOST_IN_A_LIST {
        index.insert(4096, key);
        assert_eq!(
            is_tree(&index),
            key + 1 > MOST_IN_A_LIST,
            "{} entries",
            key + 1
        );
    }
    for key in (0..2 * MOST_IN_A_LIST).rev() {
        index.remove(4096, key);
        assert_eq!(is_tree(&index), key > FEWEST_IN_A_TREE, "{key} entries");
    }
}
