//! The small types: alignments, regions, flags, errors, identities.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use std::{error::Error as _, ops::Range};

use binpool_allocators::{
    Align, DeviceLimits, Error, EventStatus, InvalidRequest, MemoryFlags, OutOfMemory, QueueId,
    Region, Scope, SvmGrain, SvmSupport,
};
use proptest::prelude::*;

fn any_align() -> impl Strategy<Value = Align> {
    (0..usize::BITS).prop_map(|exponent| Align::new(1 << exponent).unwrap())
}

proptest! {
    #[test]
    fn rounding_up_gives_the_least_multiple(align in any_align(), bytes in any::<usize>()) {
        match align.round_up(bytes) {
            Some(rounded) => {
                prop_assert!(align.divides(rounded));
                prop_assert!(rounded >= bytes && rounded - bytes < align.bytes());
            }
            None => prop_assert!(bytes > usize::MAX - align.bytes() + 1),
        }
    }

    #[test]
    fn only_powers_of_two_are_alignments(bytes in any::<usize>()) {
        let power = (0..usize::BITS).any(|exponent| bytes == 1 << exponent);
        prop_assert_eq!(Align::new(bytes).is_some(), power);
    }

    #[test]
    fn a_region_lies_within_a_block_if_each_of_its_bytes_does(
        offset in 0_usize..40, bytes in 0_usize..40, size in 0_usize..40,
    ) {
        let region = Region::new(offset, bytes);
        let inside = offset <= size && (offset..offset + bytes).all(|byte| byte < size);
        prop_assert_eq!(region.check_within(size).is_ok(), inside);
    }

    #[test]
    fn regions_overlap_if_they_share_a_byte(
        a in 0_usize..20, b in 0_usize..20, c in 0_usize..20, d in 0_usize..20,
    ) {
        let share = (a..a + b).any(|byte| (c..c + d).contains(&byte));
        prop_assert_eq!(Region::new(a, b).overlaps(Region::new(c, d)), share);
        prop_assert_eq!(Region::new(c, d).overlaps(Region::new(a, b)), share);
    }
}

#[test]
fn regions_at_the_end_of_the_range_do_not_wrap() {
    let last = Region::new(usize::MAX, 1);
    assert_eq!(last.end(), None);
    assert!(last.check_within(usize::MAX).is_err());
    assert!(!last.overlaps(Region::first(1)));
    let backwards = Range { start: 5, end: 3 };
    assert_eq!(Region::from(backwards), Region::new(5, 0));
}

#[test]
fn contradictory_flags_are_told_from_others() {
    let bad = MemoryFlags::HOST_NO_ACCESS | MemoryFlags::HOST_READ_ONLY;
    assert!(
        bad.check()
            .unwrap_err()
            .to_string()
            .contains("HOST_NO_ACCESS")
    );
    for flags in [
        MemoryFlags::empty(),
        MemoryFlags::READ_ONLY | MemoryFlags::HOST_WRITE_ONLY | MemoryFlags::HOST_RESIDENT,
    ] {
        assert!(flags.check().is_ok());
    }
}

#[test]
fn limits_check_sizes() {
    let limits = DeviceLimits::new("d", 1000, 100, Align::ONE);
    assert!(limits.check_block(100).is_ok());
    let error = limits.check_block(101).unwrap_err();
    assert!(!error.is_out_of_memory());
    assert!(error.to_string().contains("101 bytes") && error.to_string().contains("100 bytes"));
    assert!(
        limits
            .check_block(0)
            .unwrap_err()
            .to_string()
            .contains("at least 1")
    );
}

#[test]
fn shortage_keeps_the_runtimes_error_as_its_source() {
    let runtime = std::io::Error::other("CL_MEM_OBJECT_ALLOCATION_FAILURE");
    let error = Error::device_out_of_memory(4096, runtime);
    assert!(error.is_out_of_memory());
    assert_eq!(
        error.to_string(),
        "out of device memory: 4096 bytes were asked for"
    );
    assert_eq!(
        error.source().unwrap().to_string(),
        "CL_MEM_OBJECT_ALLOCATION_FAILURE"
    );
    let limit: Error = OutOfMemory::new(10, Scope::Limit).with_available(5).into();
    assert_eq!(
        limit.to_string(),
        "out of limit memory: 10 bytes were asked for, 5 are free"
    );
    let failure = Error::backend("clFinish", Some(-36), std::io::Error::other("why"));
    assert_eq!(failure.to_string(), "clFinish failed with code -36");
    assert_eq!(failure.source().unwrap().to_string(), "why");
    assert!(!failure.is_out_of_memory());
}

#[test]
fn errors_say_what_to_do_next() {
    let support = SvmSupport {
        coarse: true,
        ..SvmSupport::default()
    };
    assert!(SvmGrain::Coarse.is_in(support) && !SvmGrain::Fine.is_in(support));
    let error = Error::svm_unsupported("the device", SvmGrain::Fine);
    assert_eq!(
        error.to_string(),
        "unsupported: the device has no fine-grained SVM: see `DeviceLimits::svm` for what it has"
    );
    let alignment = Align::new(512).unwrap();
    let error = InvalidRequest::Misaligned {
        offset: 100,
        alignment,
    };
    assert!(error.to_string().contains("multiples of 512 bytes"));
}

#[test]
fn identities_are_fresh_and_statuses_end() {
    let (first, second) = (QueueId::fresh(), QueueId::fresh());
    assert!(second > first && second.get() > 0);
    assert!(!EventStatus::Pending.has_ended());
    assert!(EventStatus::Complete.has_ended() && EventStatus::Failed.has_ended());
}
