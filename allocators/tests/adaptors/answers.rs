//! Adaptors answer as the allocators do that they wrap, and clones are the same adaptor.

use binpool_allocators::{
    Align, Allocator, Failing, Fallback, Limit, Logging, Recording, Statistics,
};
use binpool_mock::MockBackend;

use crate::{device, odd::Odd};

fn answers(allocator: &impl Allocator) -> (bool, bool, Align, usize) {
    (
        allocator.is_deferred(),
        allocator.release_needs_events(),
        allocator.alignment(),
        allocator.largest_block(),
    )
}

/// None of the defaults.
fn unusual() -> [Odd; 2] {
    let device = device();
    let one = Odd {
        deferred: false,
        needs_events: true,
        alignment: 64,
        largest: 77,
        ..Odd::new(&device)
    };
    let other = Odd {
        deferred: true,
        needs_events: false,
        alignment: 8192,
        largest: 99_999,
        ..Odd::new(&device)
    };
    [one, other]
}

#[test]
fn adaptors_of_one_allocator_answer_as_it_does() {
    for odd in unusual() {
        let expected = answers(&odd);
        assert_eq!(answers(&Limit::new(odd.clone(), 1)), expected);
        assert_eq!(answers(&Statistics::new(odd.clone())), expected);
        assert_eq!(answers(&Failing::new(odd.clone())), expected);
        assert_eq!(answers(&Logging::new(odd.clone(), "odd")), expected);
        assert_eq!(answers(&Recording::new(odd, std::io::sink())), expected);
    }
}

#[test]
fn a_fallback_answers_for_both_in_either_order() {
    let [one, other] = unusual();
    let expected = (true, true, Align::new(64).unwrap(), 99_999);
    assert_eq!(
        answers(&Fallback::new(one.clone(), other.clone())),
        expected
    );
    assert_eq!(answers(&Fallback::new(other, one.clone())), expected);
    let same = answers(&one);
    assert_eq!(answers(&Fallback::new(one.clone(), one)), same);
}

#[test]
fn adaptors_stack_in_any_order_and_show_what_they_wrap() {
    fn is_allocator<A: Allocator<Backend = MockBackend> + Clone>(allocator: &A) -> String {
        let block = allocator.clone().allocate(100).unwrap();
        allocator.release(block, &[]).unwrap();
        format!("{allocator:?}")
    }
    let odd = || Odd::new(&device());
    let inside = Recording::new(Failing::new(Limit::new(odd(), 1000)), std::io::sink());
    let stack = Logging::new(Statistics::new(Fallback::new(inside, odd())), "stack");
    let shown = is_allocator(&stack);
    for part in [
        "Logging",
        "stack",
        "Statistics",
        "Fallback",
        "Recording",
        "Failing",
        "Limit",
        "Odd",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let inside = stack.inner().inner().first();
    assert_eq!(stack.inner().reading().releases, 1);
    assert_eq!(inside.inner().inner().budget().peak_bytes(), 100);
    let (first, _) = stack.into_inner().into_inner().into_inner();
    let Odd { alignment, .. } = first.into_inner().into_inner().into_inner();
    assert_eq!(alignment, 256);
}
