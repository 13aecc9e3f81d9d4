//! `Fallback`.

use std::sync::Arc;

use binpool_allocators::{
    Allocator, Error, InvalidRequest, Memory, MemoryKind, OutOfMemory, Result, Scope, SvmAllocator,
    SvmGrain,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::adaptors::{Immediate, device, immediate, odd::Odd};

type Counted = Statistics<Limit<Immediate>>;

/// Two allocators of the same kind of block, so that nothing but memory tells whose a block is.
fn twins(device: &MockDevice, first_bytes: u64, second_bytes: u64) -> Fallback<Counted, Counted> {
    let counted = |bytes| Statistics::new(Limit::new(immediate(device), bytes));
    Fallback::new(counted(first_bytes), counted(second_bytes))
}

fn current(allocator: &Fallback<Counted, Counted>) -> (u64, u64) {
    let first = allocator.first().reading().current_bytes;
    (first, allocator.second().reading().current_bytes)
}

#[test]
fn a_block_goes_back_to_the_allocator_that_gave_it() {
    let allocator = twins(&device(), 1000, 1000);
    let mut blocks: Vec<_> = (0..4).map(|_| allocator.allocate(500).unwrap()).collect();
    assert_eq!(current(&allocator), (1000, 1000));
    // In another order, and by a clone.
    let order = [
        (2, (1000, 500)),
        (0, (500, 500)),
        (1, (500, 0)),
        (0, (0, 0)),
    ];
    for (which, expected) in order {
        let block = blocks.remove(which);
        allocator.clone().release(block, &[]).unwrap();
        assert_eq!(current(&allocator), expected);
    }
    // The first is asked first, again.
    let block = allocator.clone().allocate(500).unwrap();
    assert_eq!(current(&allocator), (500, 0));
    allocator.release(block, &[]).unwrap();
    assert_eq!(current(&allocator), (0, 0));
}

#[test]
fn only_blocks_of_the_second_that_are_out_are_remembered() {
    let allocator = twins(&device(), 500, 500);
    let remembered = || format!("{allocator:?}").matches("MemoryId").count();
    let first = allocator.allocate(500).unwrap();
    assert_eq!(remembered(), 0);
    let second = allocator.allocate(500).unwrap();
    assert_eq!(remembered(), 1);
    allocator.release(second, &[]).unwrap();
    assert_eq!(remembered(), 0);
    // One that is dropped stays, and changes no answer.
    drop(allocator.allocate(500).unwrap());
    assert_eq!(remembered(), 1);
    allocator.release(first, &[]).unwrap();
    assert_eq!(current(&allocator), (0, 500));
}

#[test]
fn a_release_that_fails_does_not_make_its_block_the_firsts() {
    let device = device();
    let allocator = twins(&device, 0, 1000);
    let block = allocator.allocate(500).unwrap();
    device.fail_nth(CallKind::Release, 1, Fault::Backend(-5), Persistence::Once);
    assert!(allocator.release(block, &[]).is_err());
    assert_eq!(allocator.second().reading().failed_releases, 1);
    assert_eq!(allocator.first().reading().releases, 0);
}

#[test]
fn fallbacks_nest() {
    let device = device();
    let inside = twins(&device, 100, 100);
    let svm = SvmAllocator::new(&device.backend(), SvmGrain::Fine).unwrap();
    let allocator = Fallback::new(inside, Statistics::new(svm));
    let blocks = [(); 3].map(|()| allocator.allocate(100).unwrap());
    let kinds = blocks.each_ref().map(Memory::kind);
    let expected = [
        MemoryKind::Buffer,
        MemoryKind::Buffer,
        MemoryKind::Svm(SvmGrain::Fine),
    ];
    assert_eq!(kinds, expected);
    for block in blocks {
        allocator.release(block, &[]).unwrap();
    }
    assert_eq!(current(allocator.first()), (0, 0));
    assert_eq!(allocator.second().reading().current_bytes, 0);
    assert!(device.leaks().memory.is_empty());
}

/// A first allocator that answers so, and whether the second was asked.
fn asked_after(answer: impl Fn() -> Error + Send + Sync + 'static) -> (Result<()>, bool) {
    let device = device();
    let first = Odd::new(&device).on_allocate(move |_| Err(answer()));
    let allocator = Fallback::new(first, Statistics::new(immediate(&device)));
    let result = allocator.allocate(100).map(drop);
    (result, allocator.second().reading().allocations == 1)
}

#[test]
fn the_second_is_asked_where_the_first_has_no_memory() {
    let too_large = || InvalidRequest::TooLarge {
        requested: 100,
        largest: 9,
    };
    for (result, asked) in [
        asked_after(|| OutOfMemory::new(100, Scope::Device).into()),
        asked_after(|| OutOfMemory::new(100, Scope::Limit).into()),
        asked_after(move || too_large().into()),
        asked_after(|| Error::unsupported("memory")),
    ] {
        assert!(result.is_ok() && asked, "{result:?}");
    }
}

#[test]
fn any_other_failure_of_the_first_is_the_answer() {
    let operation = "create_buffer";
    for (result, asked) in [
        asked_after(|| InvalidRequest::ZeroSize.into()),
        asked_after(move || Error::DeviceLost {
            operation,
            source: None,
        }),
        asked_after(move || Error::backend(operation, Some(-5), std::fmt::Error)),
    ] {
        assert!(result.is_err() && !asked, "{result:?}");
    }
}

/// The answer where these are those of the two.
fn answer_of_both(
    first: impl Fn() -> Error + Send + Sync + 'static,
    second: impl Fn() -> Error + Send + Sync + 'static,
) -> String {
    let device = device();
    let odd = |answer: Arc<dyn Fn() -> Error + Send + Sync>| {
        Odd::new(&device).on_allocate(move |_| Err(answer()))
    };
    let allocator = Fallback::new(odd(Arc::new(first)), odd(Arc::new(second)));
    allocator.allocate(100).map(drop).unwrap_err().to_string()
}

#[test]
fn where_both_fail_the_answer_is_the_one_to_act_on() {
    let full = |scope| move || Error::from(OutOfMemory::new(100, scope));
    let too_large = |largest| {
        move || {
            Error::from(InvalidRequest::TooLarge {
                requested: 100,
                largest,
            })
        }
    };
    let unsupported = || Error::unsupported("memory");
    let lost = || Error::backend("create_buffer", Some(-5), std::fmt::Error);
    let (device, host) = (full(Scope::Device), full(Scope::Host));
    // Freeing may help.
    assert_eq!(answer_of_both(device, unsupported), device().to_string());
    assert_eq!(answer_of_both(device, too_large(9)), device().to_string());
    assert_eq!(answer_of_both(unsupported, device), device().to_string());
    assert_eq!(answer_of_both(too_large(9), device), device().to_string());
    assert_eq!(answer_of_both(host, device), host().to_string());
    // A runtime that fails is not hidden.
    assert_eq!(answer_of_both(device, lost), lost().to_string());
    // The size is that of `largest_block`.
    let larger = too_large(12)().to_string();
    assert_eq!(answer_of_both(too_large(9), too_large(12)), larger);
    assert_eq!(answer_of_both(too_large(12), too_large(9)), larger);
    assert_eq!(answer_of_both(too_large(12), unsupported), larger);
    // Where that is the same, it is the first one's.
    let rounded_up = || {
        Error::from(InvalidRequest::TooLarge {
            requested: 128,
            largest: 9,
        })
    };
    assert_eq!(
        answer_of_both(too_large(9), rounded_up),
        too_large(9)().to_string()
    );
}

#[test]
fn a_block_larger_than_the_first_ever_gives_comes_from_the_second() {
    let device = device();
    let backend = device.backend();
    let small = Limit::new(
        Odd {
            largest: 1000,
            ..Odd::new(&device)
        },
        u64::MAX,
    );
    let svm = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let allocator = Fallback::new(small, svm);
    let block = allocator.allocate(1001).unwrap();
    assert_eq!(block.kind(), MemoryKind::Svm(SvmGrain::Coarse));
    allocator.release(block, &[]).unwrap();
    assert_eq!(allocator.first().budget().peak_bytes(), 0);
}

#[test]
fn what_is_made_to_fail_is_served_by_the_second() {
    let device = device();
    let first = Failing::new(immediate(&device));
    let full = AllocatorFault::OutOfMemory(Scope::Device);
    first.fail(AllocatorCall::Allocate, FaultTrigger::EveryNth(2), full);
    let allocator = Fallback::new(Statistics::new(first), Statistics::new(immediate(&device)));
    let blocks: Vec<_> = (0..10).map(|_| allocator.allocate(64).unwrap()).collect();
    assert_eq!(allocator.first().reading().allocations, 5);
    assert_eq!(allocator.second().reading().allocations, 5);
    for block in blocks {
        allocator.release(block, &[]).unwrap();
    }
    assert_eq!(allocator.first().reading().current_bytes, 0);
    assert_eq!(allocator.second().reading().current_bytes, 0);
}
