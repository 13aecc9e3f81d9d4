//! Size classes of the program's own, honest ones and others.

use std::io::{self, Write};

use binpool::{LeadingBits, PoolError, PoolOptions, QueueOrder, Retain, SizeClasses, Verdict};
use binpool_mock::MockDevice;

use crate::common::{MIB, Rig};

/// A bin for each size.
#[derive(Debug)]
struct Exact;

impl SizeClasses for Exact {
    fn bin_count(&self) -> usize {
        usize::MAX
    }

    fn bin_number(&self, bytes: usize) -> usize {
        bytes
    }

    fn alloc_size(&self, bin: usize) -> usize {
        bin
    }
}

/// Puts everything into one bin, the last there can be.
#[derive(Debug)]
struct Last;

impl SizeClasses for Last {
    fn bin_count(&self) -> usize {
        usize::MAX
    }

    fn bin_number(&self, _: usize) -> usize {
        usize::MAX - 1
    }

    fn alloc_size(&self, _: usize) -> usize {
        4096
    }
}

fn rig(classes: impl SizeClasses + 'static, segments: bool) -> Rig {
    let builder = MockDevice::builder().capacity_bytes(64 * MIB as u64);
    let options = PoolOptions::new().segments(segments).size_classes(classes);
    Rig::with_options(builder, options.retain(Retain::new().at_least(u64::MAX)))
}

#[test]
fn bins_take_memory_for_the_blocks_that_they_have_and_not_for_their_numbers() {
    for segments in [false, true] {
        let rig = rig(Exact, segments);
        let unordered = rig.another_queue(QueueOrder::OutOfOrder);
        for queue in [&rig.queue, &unordered] {
            // The bin of the larger one has number 33 554 432.
            let blocks = [4096, 32 * MIB].map(|bytes| rig.pool.allocate_on(queue, bytes).unwrap());
            drop(blocks);
            assert!(rig.pool.free_held() >= 32 << 20);
            assert_eq!(rig.pool.managed_bytes(), 0);
        }
    }
}

#[test]
fn a_bin_number_may_be_as_large_as_it_gets() {
    for segments in [false, true] {
        let rig = rig(Last, segments);
        let unordered = rig.another_queue(QueueOrder::OutOfOrder);
        for queue in [&rig.queue, &unordered] {
            for _ in 0..2 {
                drop(rig.pool.allocate_on(queue, 4096).unwrap());
            }
            assert!(rig.pool.statistics().hits > 0);
            assert!(rig.pool.free_held() > 0);
            assert_eq!(rig.pool.managed_bytes(), 0);
        }
    }
}

#[test]
fn a_full_device_is_looked_through_by_the_bins_that_have_blocks() {
    let rig = rig(Exact, false);
    drop(rig.pool.allocate(40 * MIB).unwrap());
    // Of all the sizes in between, none is looked at.
    let block = rig.pool.allocate(30 * MIB).unwrap();
    assert_eq!(block.class_size(), 40 * MIB);
    assert!(rig.pool.allocate(30 * MIB).is_err());
}

#[test]
fn what_a_request_would_take_is_what_its_block_takes() {
    for segments in [false, true] {
        let options = PoolOptions::new().segments(segments);
        let builder = MockDevice::builder().capacity_bytes(64 * MIB as u64);
        let rig = Rig::with_options(builder, options);
        // The class of the last one is larger than the device.
        for bytes in [0, 1, 1000, 100_000, 3 * MIB + 1, 64 * MIB - 1] {
            let told = rig.pool.class_size(bytes).unwrap();
            let block = rig.pool.allocate(bytes).unwrap();
            assert_eq!(told, block.class_size(), "{bytes}");
            drop(block);
            rig.pool.free_held();
        }
        let error = rig.pool.class_size(64 * MIB + 1).unwrap_err();
        let report = error.out_of_memory().unwrap();
        assert_eq!(report.verdict, Verdict::NeverFits);
        assert_eq!(
            rig.pool.statistics().out_of_memory,
            0,
            "nothing was refused"
        );
    }
    let error = rig(Last, false).pool.class_size(5000).unwrap_err();
    assert!(matches!(error, PoolError::SizeClassTooSmall { .. }));
}

#[test]
#[ignore = "prints what scripts/proofs compares"]
fn boundaries_are_printed() {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for bits in 0..=LeadingBits::LARGEST {
        let classes = LeadingBits::new(bits).unwrap();
        writeln!(out, "bins {bits} {}", classes.bin_count()).unwrap();
        let ends = (0..classes.bin_count()).map(|bin| classes.alloc_size(bin));
        let powers = (0..usize::BITS).map(|exponent| 1 << exponent);
        for end in ends.chain(powers).chain([0, usize::MAX]) {
            for size in [end.saturating_sub(1), end, end.saturating_add(1)] {
                let bin = classes.bin_number(size);
                let class_size = classes.alloc_size(bin);
                writeln!(out, "row {bits} {size} {bin} {class_size}").unwrap();
            }
        }
    }
}

#[test]
fn the_size_of_a_block_is_what_was_said_of_it_before() {
    for segments in [false, true] {
        for bits in [2, 4, 8, 10] {
            for asked in [1, 257, 4097, 5000, 65_537, 100_000, MIB + 1, 5 * MIB + 1] {
                let options = PoolOptions::new().segments(segments).leading_bits(bits);
                let rig = Rig::with_options(MockDevice::builder(), options);
                for round in 0..2 {
                    let said = rig.pool.class_size(asked).unwrap();
                    let block = rig.pool.allocate(asked).unwrap();
                    let given = block.class_size();
                    assert_eq!(said, given, "{asked} bytes, {bits} bits, round {round}");
                }
            }
        }
    }
}

#[test]
fn what_would_fit_is_a_block_of_its_whole_size() {
    let options = PoolOptions::new().leading_bits(8);
    let rig = Rig::with_options(
        MockDevice::builder().capacity_bytes(8 * MIB as u64),
        options,
    );
    let _kept = rig.pool.allocate(8 * MIB - 4224).unwrap();
    let would_fit = rig.pool.would_fit(4097);
    assert_eq!(would_fit, rig.pool.allocate(4097).is_ok());
}
