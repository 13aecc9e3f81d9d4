//! `Limit` and the budget behind it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use binpool_allocators::{
    Allocator, Backend, DeferredAllocator, Error, InvalidRequest, OutOfMemory, Outcome, Scope,
    adaptors::{Budget, Limit},
};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::{
    adaptors::{deferred, device, immediate, odd::Odd},
    log::logged,
};

fn refusal<T>(result: Result<T, Error>) -> OutOfMemory {
    match result {
        Err(Error::OutOfMemory(refusal)) => *refusal,
        Err(error) => panic!("expected out-of-memory, got {error:?}"),
        Ok(_) => panic!("expected out-of-memory, got a block"),
    }
}

#[test]
fn a_block_counts_with_the_bytes_that_it_really_has() {
    let limit = Limit::new(Odd::generous(&device()), 10_000);
    let budget = limit.budget();
    let small = limit.allocate(1).unwrap();
    assert_eq!(
        (budget.used_bytes(), budget.available_bytes()),
        (1024, 8976)
    );
    let large = limit.allocate(1025).unwrap();
    assert_eq!((budget.used_bytes(), budget.peak_bytes()), (3072, 3072));
    limit.release(small, &[]).unwrap();
    limit.release(large, &[]).unwrap();
    assert_eq!((budget.used_bytes(), budget.peak_bytes()), (0, 3072));
}

#[test]
fn what_does_not_fit_is_refused_without_a_call_and_takes_nothing() {
    let device = device();
    let limit = Limit::new(deferred(&device), 2048);
    let block = limit.allocate(1024).unwrap();
    let calls = device.call_count(CallKind::CreateBuffer);
    let refused = refusal(limit.allocate(1025));
    assert_eq!(refused.scope, Scope::Limit);
    assert_eq!((refused.requested, refused.available), (1025, Some(1024)));
    assert_eq!(device.call_count(CallKind::CreateBuffer), calls);
    assert_eq!(limit.budget().used_bytes(), 1024);
    // To the last byte.
    let rest = limit.allocate(1024).unwrap();
    assert_eq!(limit.budget().available_bytes(), 0);
    limit.release(block, &[]).unwrap();
    limit.release(rest, &[]).unwrap();
    assert!(limit.allocate(2048).is_ok());
}

#[test]
fn a_failed_allocation_takes_nothing() {
    let device = device();
    let limit = Limit::new(immediate(&device), u64::MAX);
    let all = limit.allocate(1 << 20).unwrap();
    assert_eq!(refusal(limit.allocate(1000)).scope, Scope::Device);
    assert!(limit.allocate(0).is_err());
    let usage = limit.budget().usage();
    assert_eq!((usage.used_bytes, usage.peak_bytes), (1 << 20, 1 << 20));
    assert_eq!(usage.available_bytes, u64::MAX - (1 << 20));
    limit.release(all, &[]).unwrap();
    assert_eq!(limit.budget().available_bytes(), u64::MAX);
}

#[test]
fn an_allocation_that_panics_takes_nothing() {
    let odd = Odd::new(&device()).on_allocate(|_| panic!("on purpose"));
    let limit = Limit::new(odd, 1000);
    assert!(catch_unwind(AssertUnwindSafe(|| limit.allocate(600))).is_err());
    assert_eq!(limit.budget().available_bytes(), 1000);
}

#[test]
fn a_release_that_fails_gives_its_bytes_back() {
    let device = device();
    let limit = Limit::new(deferred(&device), 1000);
    let block = limit.allocate(1000).unwrap();
    device.fail_nth(CallKind::Release, 1, Fault::Backend(-5), Persistence::Once);
    assert!(limit.release(block, &[]).is_err());
    assert_eq!(limit.budget().used_bytes(), 0);
    assert!(limit.allocate(1000).is_ok());
}

#[test]
fn a_release_that_panics_gives_its_bytes_back() {
    let odd = Odd::new(&device()).on_release(|_| panic!("on purpose"));
    let limit = Limit::new(odd, 1000);
    let block = limit.allocate(600).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| limit.release(block, &[]))).is_err());
    assert_eq!(limit.budget().used_bytes(), 0);
}

#[test]
fn a_block_that_is_dropped_counts_as_taken() {
    let limit = Limit::new(deferred(&device()), 1000);
    drop(limit.allocate(600).unwrap());
    assert_eq!(limit.budget().used_bytes(), 600);
}

#[test]
fn a_block_that_turns_out_too_large_goes_back_at_once() {
    let device = device();
    let limit = Limit::new(Odd::generous(&device), 1500);
    let block = limit.allocate(100).unwrap();
    let refused = refusal(limit.allocate(100));
    assert_eq!(refused.scope, Scope::Limit);
    assert_eq!((refused.requested, refused.available), (1024, Some(476)));
    assert_eq!(device.leaks().memory.len(), 1);
    assert_eq!(limit.budget().used_bytes(), 1024);
    assert_eq!(limit.budget().peak_bytes(), 1024);
    assert_eq!(limit.budget().available_bytes(), 476);
    // The answer is the same where it does not go back cleanly, and the failure is not lost.
    device.fail_nth(CallKind::Release, 1, Fault::Backend(-5), Persistence::Once);
    let error = tracing_subscriber::filter::LevelFilter::ERROR;
    let lines = logged(error, || {
        assert_eq!(refusal(limit.allocate(100)).scope, Scope::Limit);
    });
    assert!(
        lines.len() == 1 && lines[0].contains("bytes=1024"),
        "{lines:?}"
    );
    drop(block);
}

#[test]
fn sizes_at_the_end_of_the_range_do_not_wrap() {
    let device = MockDevice::builder()
        .capacity_bytes(u64::MAX)
        .largest_block_bytes(usize::MAX)
        .build();
    let limit = Limit::new(DeferredAllocator::new(&device.backend()), u64::MAX);
    let budget = limit.budget().clone();
    let small = limit.allocate(10).unwrap();
    let left = u64::MAX - 10;
    let refused = refusal(limit.allocate(usize::MAX));
    assert_eq!(
        (refused.requested, refused.available),
        (usize::MAX, Some(left))
    );
    let rest = limit.allocate(usize::try_from(left).unwrap()).unwrap();
    assert_eq!(
        (budget.used_bytes(), budget.available_bytes()),
        (u64::MAX, 0)
    );
    assert_eq!(refusal(limit.allocate(1)).available, Some(0));
    limit.release(rest, &[]).unwrap();
    limit.release(small, &[]).unwrap();
    assert!(limit.allocate(usize::MAX).is_ok());
    assert_eq!(budget.peak_bytes(), u64::MAX);
}

#[test]
fn what_no_limit_lets_pass_is_too_large() {
    let limit = Limit::new(deferred(&device()), 1000);
    let requested = limit.largest_block() + 1;
    let Err(Error::InvalidRequest(refused)) = limit.allocate(requested) else {
        panic!("expected an invalid request");
    };
    let largest = limit.largest_block();
    assert_eq!(refused, InvalidRequest::TooLarge { requested, largest });
}

#[test]
fn several_allocators_and_their_clones_share_one_budget() {
    let budget = Budget::new(3000);
    let [one, two] = [(); 2].map(|()| Limit::shared(deferred(&device()), &budget));
    let first = one.allocate(1000).unwrap();
    let second = two.allocate(1000).unwrap();
    let third = one.clone().allocate(1000).unwrap();
    for limit in [&one, &two] {
        assert_eq!(refusal(limit.allocate(1)).available, Some(0));
    }
    one.clone().release(first, &[]).unwrap();
    two.release(second, &[]).unwrap();
    assert_eq!((budget.used_bytes(), budget.peak_bytes()), (1000, 3000));
    one.release(third, &[]).unwrap();
    // One made by itself is shared by its clones only.
    assert!(Limit::new(deferred(&device()), 1).allocate(1).is_ok());
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_limit_can_be_raised_and_lowered_while_blocks_are_out() {
    let limit = Limit::new(deferred(&device()), 1000);
    let budget = limit.budget();
    let block = limit.allocate(1000).unwrap();
    budget.set_max_bytes(400);
    assert_eq!((budget.max_bytes(), budget.available_bytes()), (400, 0));
    assert_eq!(refusal(limit.allocate(1)).available, Some(0));
    limit.release(block, &[]).unwrap();
    assert_eq!(refusal(limit.allocate(401)).available, Some(400));
    budget.set_max_bytes(401);
    assert!(limit.allocate(401).is_ok());
}

/// Otherwise a call that was let through would fail, and no other call would gain by it.
#[test]
fn a_limit_that_is_lowered_in_the_middle_of_a_call_lets_it_pass() {
    let budget = Budget::new(1000);
    let lowered = budget.clone();
    let odd = Odd::new(&device()).on_allocate(move |_| {
        // What is being asked for counts for the caller already, and is not used yet.
        assert_eq!((lowered.used_bytes(), lowered.available_bytes()), (0, 400));
        lowered.set_max_bytes(1);
        Ok(())
    });
    let limit = Limit::shared(odd, &budget);
    assert!(limit.allocate(600).is_ok());
    assert_eq!((budget.used_bytes(), budget.available_bytes()), (600, 0));
}

#[test]
fn events_of_released_blocks_do_not_gather_while_an_older_one_is_pending() {
    let device = device();
    let limit = Limit::new(immediate(&device), 1 << 20);
    let release_after = || {
        let event = limit.backend().create_user_event().unwrap();
        let block = limit.allocate(256).unwrap();
        limit.release(block, slice::from_ref(&event)).unwrap();
        event
    };
    let end = |event| {
        let ended = limit
            .backend()
            .resolve_user_event(&event, Outcome::Complete);
        ended.unwrap();
    };
    let oldest = release_after();
    for _ in 0..100 {
        end(release_after());
        assert!(device.live_events() <= 3, "{}", device.leaks());
    }
    assert_eq!(limit.budget().used_bytes(), 256);
    end(oldest);
    assert_eq!(limit.budget().used_bytes(), 0);
    assert_eq!(device.live_events(), 0);
}
