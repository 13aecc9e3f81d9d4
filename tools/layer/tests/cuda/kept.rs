//! How much the pool of whole blocks keeps.

use crate::{
    calls::{MIB, allocate, begin, count, free, used},
    child::pooled,
};

/// Takes and frees a block of each size, one after another, of which the pool keeps at most `most` bytes.
fn take_each(mib: std::ops::RangeInclusive<usize>, most: usize) {
    for mib in mib {
        free(allocate(mib * MIB).unwrap());
        // What is released goes back when the pool asks for it again.
        let is_within = (0..1000).any(|_| {
            free(allocate(1).unwrap());
            used() <= most
        });
        assert!(is_within, "{}", used());
    }
}

#[test]
fn up_to_32_mib_are_kept_whatever_was_in_use() {
    pooled(|| {
        begin(1024 * MIB);
        take_each(1..=20, 32 * MIB);
        assert!(used() > 20 * MIB);
        let before = count("cuMemAlloc");
        free(allocate(20 * MIB).unwrap());
        assert_eq!(count("cuMemAlloc"), before);
    });
}

#[test]
fn beyond_that_five_percent_more_than_was_in_use_at_the_most_are_kept() {
    pooled(|| {
        begin(1024 * MIB);
        let blocks = [(); 10].map(|()| allocate(10 * MIB).unwrap());
        blocks.into_iter().for_each(free);
        assert_eq!(used(), 100 * MIB);
        take_each(1..=9, 105 * MIB);
        assert!(used() > 32 * MIB, "{}", used());
    });
}
