//! Allocators say what their memory is like, adaptors answer as the allocators do that they wrap, and clones are the same
//! adaptor.

use std::{
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool_allocators::{
    Align, Allocator, Backend, DeferredAllocator, ImmediateAllocator, Outcome, Region,
    SvmAllocator, SvmGrain,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::Failing;
use binpool_mock::{MockBackend, MockDevice};

use crate::adaptors::{device, odd::Odd};

type Answers = (bool, bool, Align, usize);

fn answers(allocator: &impl Allocator) -> Answers {
    (
        allocator.is_deferred(),
        allocator.release_needs_events(),
        allocator.alignment(),
        allocator.largest_block(),
    )
}

/// The capacity, and what of it can still be allocated, in bytes.
fn limits(allocator: &impl Allocator) -> (u64, u64) {
    (allocator.capacity_bytes(), allocator.available_bytes())
}

#[test]
fn leaves_say_what_their_memory_is_like() {
    let device = MockDevice::builder()
        .capacity_bytes(1 << 20)
        .largest_block_bytes(1000)
        .build();
    let (backend, alignment) = (device.backend(), device.limits().alignment);
    let deferred = DeferredAllocator::new(&backend);
    assert_eq!(answers(&deferred), (true, false, alignment, 1000));
    let immediate = ImmediateAllocator::new(&backend).unwrap();
    assert_eq!(answers(&immediate), (false, false, alignment, 1000));
    // Any thread may use an address, and the runtime knows of no command that was given one.
    let svm = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    assert_eq!(answers(&svm), (false, true, alignment, 1000));
    for found in [limits(&deferred), limits(&immediate), limits(&svm)] {
        assert_eq!(found, (1 << 20, 1 << 20));
    }
}

#[test]
fn shared_virtual_memory_is_released_after_the_events_that_it_is_given() {
    let device = device();
    let backend = device.backend();
    let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse).unwrap();
    let gate = backend.create_user_event().unwrap();
    let block = allocator.allocate(100).unwrap();
    allocator.release(block, from_ref(&gate)).unwrap();
    assert_eq!(device.statistics().live_blocks, 1);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(device.statistics().live_blocks, 0);
}

/// None of the defaults.
fn unusual() -> [Odd; 2] {
    let device = device();
    let one = Odd {
        deferred: false,
        needs_events: true,
        alignment: 64,
        largest: 77,
        capacity: 1000,
        available: 400,
        ..Odd::new(&device)
    };
    let other = Odd {
        deferred: true,
        needs_events: false,
        alignment: 8192,
        largest: 99_999,
        capacity: 30_000,
        available: 300,
        ..Odd::new(&device)
    };
    [one, other]
}

#[test]
fn adaptors_of_one_allocator_answer_as_it_does() {
    fn is_as<A: Allocator>(adaptor: &A, odd: &Odd) {
        assert_eq!(answers(adaptor), answers(odd), "{adaptor:?}");
        assert_eq!(limits(adaptor), limits(odd), "{adaptor:?}");
    }
    for odd in unusual() {
        let expected = answers(&odd);
        assert_eq!(answers(&Limit::new(odd.clone(), 1)), expected);
        is_as(&Statistics::new(odd.clone()), &odd);
        is_as(&Failing::new(odd.clone()), &odd);
    }
}

/// The views that were made, and those that came back.
#[derive(Clone, Default)]
struct Views(Arc<[AtomicUsize; 2]>);

impl Views {
    fn made(&self) -> usize {
        self.0[0].load(Ordering::Relaxed)
    }

    fn live(&self) -> usize {
        self.made() - self.0[1].load(Ordering::Relaxed)
    }
}

fn with_counted_views() -> (Odd, Views) {
    let views = Views::default();
    let (made, released) = (views.clone(), views.clone());
    let odd = Odd::new(&device())
        .on_create_view(move |_| {
            made.0[0].fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .on_release_view(move |_| {
            released.0[1].fetch_add(1, Ordering::Relaxed);
        });
    (odd, views)
}

#[test]
fn adaptors_of_one_allocator_pass_views_on() {
    fn passes_on<A: Allocator<Backend = MockBackend>>(around: fn(Odd) -> A) {
        let (odd, views) = with_counted_views();
        let adaptor = around(odd);
        let block = adaptor.allocate(1000).unwrap();
        let view = adaptor.create_view(&block, Region::first(300)).unwrap();
        assert_eq!(views.live(), 1);
        adaptor.release_view(view);
        assert_eq!((views.made(), views.live()), (1, 0));
    }
    passes_on(|odd| Limit::new(odd, u64::MAX));
    passes_on(Statistics::new);
    passes_on(Failing::new);
    passes_on(|odd| Box::new(Arc::new(odd)));
}

#[test]
fn a_fallback_answers_for_both_in_either_order() {
    let [one, other] = unusual();
    let expected = (true, true, Align::new(64).unwrap(), 99_999);
    for fallback in [
        Fallback::new(one.clone(), other.clone()),
        Fallback::new(other.clone(), one.clone()),
    ] {
        assert_eq!(answers(&fallback), expected);
        assert_eq!(limits(&fallback), (31_000, 400));
    }
    for same in [one, other] {
        let fallback = Fallback::new(same.clone(), same.clone());
        assert_eq!(answers(&fallback), answers(&same));
    }
}

#[test]
fn adaptors_stack_in_any_order_and_show_what_they_wrap() {
    fn is_allocator<A: Allocator<Backend = MockBackend> + Clone>(allocator: &A) -> String {
        let block = allocator.clone().allocate(100).unwrap();
        allocator.release(block, &[]).unwrap();
        format!("{allocator:?}")
    }
    let odd = || Odd::new(&device());
    let inside = Failing::new(Limit::new(odd(), 1000));
    let stack = Statistics::new(Fallback::new(inside, odd()));
    let shown = is_allocator(&stack);
    for part in ["Statistics", "Fallback", "Failing", "Limit", "Odd"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let inside = stack.inner().first();
    assert_eq!(stack.reading().releases, 1);
    assert_eq!(inside.inner().budget().peak_bytes(), 100);
    let (first, _) = stack.into_inner().into_inner();
    let Odd { alignment, .. } = first.into_inner().into_inner();
    assert_eq!(alignment, 256);
}
