//! The small types: alignments, regions, flags, errors, identities.

use std::{error::Error as _, ops::Range};

use binpool_allocators::{
    Align, AsMemory, Backend, DeviceLimits, Error, EventStatus, HostUse, InvalidRequest, Memory,
    MemoryFlags, MemoryId, ObjectKind, OutOfMemory, QueueId, QueueOrder, Region, Scope, SvmGrain,
    SvmSupport,
};
use binpool_conformance::told_once;
use binpool_mock::MockDevice;
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
}

#[test]
fn regions_overlap_if_they_share_a_byte() {
    let regions = || (0..6).flat_map(|offset| (0..6).map(move |bytes| Region::new(offset, bytes)));
    for one in regions() {
        for other in regions() {
            let is_in =
                |region: Region, byte| byte >= region.offset && byte - region.offset < region.bytes;
            let share = (0..12).any(|byte| is_in(one, byte) && is_in(other, byte));
            assert_eq!(one.overlaps(other), share, "{one:?}, {other:?}");
        }
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
fn the_host_uses_memory_as_its_flags_let_it() {
    let cases = [
        (MemoryFlags::empty(), true, true),
        (
            MemoryFlags::READ_ONLY | MemoryFlags::HOST_RESIDENT,
            true,
            true,
        ),
        (MemoryFlags::HOST_READ_ONLY, true, false),
        (MemoryFlags::HOST_WRITE_ONLY, false, true),
        (MemoryFlags::HOST_NO_ACCESS, false, false),
        (MemoryFlags::all(), false, false),
    ];
    for (flags, may_read, may_write) in cases {
        for (way, may) in [(HostUse::Read, may_read), (HostUse::Write, may_write)] {
            let refused = InvalidRequest::HostAccess { way, flags };
            match flags.check_host(way) {
                Ok(()) => assert!(may, "{flags:?}, {way}"),
                Err(error) => {
                    assert!(!may, "{flags:?}, {way}");
                    assert_eq!(error.to_string(), format!("invalid request: {refused}"));
                }
            }
        }
    }
}

#[test]
fn a_device_has_svm_if_it_can_be_allocated_and_the_grains_that_it_names() {
    for bits in 0..16 {
        let [coarse, fine, atomics, system] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let support = SvmSupport {
            coarse,
            fine,
            atomics,
            system,
        };
        assert_eq!(support.any(), coarse || fine, "{support:?}");
        assert_eq!(SvmGrain::Coarse.is_in(support), coarse, "{support:?}");
        assert_eq!(SvmGrain::Fine.is_in(support), fine, "{support:?}");
        let fine_atomics = SvmGrain::FineAtomics.is_in(support);
        assert_eq!(fine_atomics, fine && atomics, "{support:?}");
    }
}

#[test]
fn a_reference_to_memory_is_that_memory_for_commands() {
    fn of<B: Backend>(queue: &B::Queue, memory: impl AsMemory<B>) -> (usize, Option<MemoryId>) {
        (memory.size(), memory.memory_on(queue).map(Memory::id))
    }
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    assert_eq!(of(&queue, &memory), (64, Some(memory.id())));
}

#[test]
fn limits_check_sizes() {
    let limits = DeviceLimits::new("d", 1000, 100, Align::ONE);
    assert!(limits.check_block(100).is_ok());
    let error = limits.check_block(101).unwrap_err();
    assert!(!error.is_out_of_memory());
    assert!(error.to_string().contains("101 B") && error.to_string().contains("100 B"));
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
    assert_eq!(error.to_string(), "out of device memory: 4.0 KiB requested");
    assert_eq!(
        error.source().unwrap().to_string(),
        "CL_MEM_OBJECT_ALLOCATION_FAILURE"
    );
    let limit: Error = OutOfMemory::new(10, Scope::Limit).with_available(5).into();
    assert_eq!(
        limit.to_string(),
        "a limit is reached: 10 B requested, 5 B free"
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
    assert!(error.to_string().contains("a multiple of 512 bytes"));
    let (way, flags) = (HostUse::Write, MemoryFlags::HOST_READ_ONLY);
    let error = InvalidRequest::HostAccess { way, flags }.to_string();
    assert!(
        error.starts_with("the host cannot write memory that was created with"),
        "{error}"
    );
    assert_eq!(HostUse::Read.to_string(), "read");
    for (kind, name) in [
        (ObjectKind::Memory, "block of memory"),
        (ObjectKind::Queue, "queue"),
        (ObjectKind::Event, "event"),
    ] {
        let error = InvalidRequest::ForeignObject { kind }.to_string();
        let start = format!("this {name} belongs to another backend: ");
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn an_error_tells_each_of_its_causes_once() {
    let why = || "clFlush: CL_INVALID_COMMAND_QUEUE (-36)";
    let lost = Error::DeviceLost {
        operation: "clFlush",
        source: Some(why().into()),
    };
    let errors = [
        (Error::from(InvalidRequest::ZeroSize), 1),
        (Error::unsupported("images"), 1),
        (Error::device_out_of_memory(64, why()), 2),
        (OutOfMemory::new(64, Scope::Limit).into(), 1),
        (Error::backend("clFlush", Some(-36), why()), 2),
        (lost, 2),
    ];
    for (error, causes) in errors {
        assert_eq!(told_once(&error).len(), causes, "{error}");
    }
}

#[test]
fn identities_are_fresh_and_statuses_end() {
    let (first, second) = (QueueId::fresh(), QueueId::fresh());
    assert!(second > first && second.get() > 0);
    assert!(!EventStatus::Pending.has_ended());
    assert!(EventStatus::Complete.has_ended() && EventStatus::Failed.has_ended());
}

#[test]
fn an_error_is_printed_as_its_text_and_causes_where_main_returns_it() {
    let flags = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    let cases = [
        (
            InvalidRequest::ContradictoryFlags { flags }.into(),
            "invalid request: READ_ONLY | WRITE_ONLY contradict each other",
        ),
        (
            InvalidRequest::ZeroSize.into(),
            "invalid request: a block of 0 bytes: request at least 1, or use a pool, which supports empty blocks",
        ),
        (Error::unsupported("images"), "unsupported: images"),
        (
            Error::backend("clFlush", Some(-36), "no such queue"),
            "clFlush failed with code -36\ncause: no such queue",
        ),
        (
            Error::DeviceLost {
                operation: "finish",
                source: Some("it was unplugged".into()),
            },
            "the device is lost (finish)\ncause: it was unplugged",
        ),
        (
            Error::device_out_of_memory(4096, "no room"),
            "out of device memory: 4.0 KiB requested\ncause: no room",
        ),
    ];
    for (error, text) in cases {
        assert_eq!(format!("{error:?}"), text);
    }
}

#[test]
fn the_sizes_of_a_message_are_told_apart() {
    let refusal = OutOfMemory::new(2 << 20, Scope::Limit).with_available((2 << 20) - (16 << 10));
    assert_eq!(
        refusal.to_string(),
        "a limit is reached: 2.00 MiB requested, 1.98 MiB free"
    );
    let limits = DeviceLimits::new("device", 4 << 30, 1 << 30, Align::new(256).unwrap());
    let error = limits.check_block((1 << 30) + 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid request: a block of 1073741825 B: this device's largest is 1073741824 B"
    );
}
