//! How much the pools keep.

use crate::{
    child::pooled,
    queue_driver::{bytes, load},
};

const MIB: usize = 1 << 20;

#[test]
fn up_to_64_mib_are_kept_whatever_was_in_use() {
    pooled(|| {
        let device = load();
        for mib in 1..=40 {
            device.touch(mib * MIB);
            assert!(bytes() <= 64 * MIB, "{}", bytes());
        }
        assert!(bytes() > 40 * MIB);
    });
}

#[test]
fn beyond_that_a_quarter_more_than_was_in_use_at_the_most_is_kept() {
    pooled(|| {
        let device = load();
        let blocks = [(); 10].map(|()| device.create(10 * MIB));
        for block in blocks {
            device.release(block);
        }
        assert_eq!(bytes(), 100 * MIB);
        for mib in 1..=9 {
            device.touch(mib * MIB);
            assert!(bytes() <= 125 * MIB, "{}", bytes());
        }
        assert!(bytes() > 100 * MIB);
    });
}
