//! What is called when a budget is nearly used up.

use std::{
    panic::panic_any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool_allocators::{
    Allocator,
    adaptors::{Budget, BudgetUse, Limit},
};
use tracing_subscriber::filter::LevelFilter;

use crate::{
    adaptors::{deferred, device, immediate},
    log::logged,
};

type Seen = Arc<Mutex<Vec<BudgetUse>>>;

/// Keeps what the callback of a soft limit is told.
fn watch(budget: &Budget, soft_bytes: u64) -> Seen {
    let seen = Seen::default();
    let keep = Arc::clone(&seen);
    budget.on_soft_limit(soft_bytes, move |usage| keep.lock().unwrap().push(*usage));
    seen
}

fn used(seen: &Seen) -> Vec<u64> {
    let seen = seen.lock().unwrap();
    seen.iter().map(|usage| usage.used_bytes).collect()
}

#[test]
fn it_is_called_once_each_time_the_limit_is_crossed_from_below() {
    let limit = Limit::new(deferred(&device()), 1000);
    let (at_500, at_0) = (watch(limit.budget(), 500), watch(limit.budget(), 0));
    let one = limit.allocate(500).unwrap();
    assert_eq!((used(&at_500), used(&at_0)), (vec![], vec![500]));
    let two = limit.allocate(1).unwrap();
    let three = limit.allocate(300).unwrap();
    assert_eq!(used(&at_500), [501]);
    limit.release(three, &[]).unwrap();
    let three = limit.allocate(300).unwrap();
    assert_eq!(used(&at_500), [501]);
    limit.release(two, &[]).unwrap();
    limit.release(three, &[]).unwrap();
    let two = limit.allocate(400).unwrap();
    assert_eq!(used(&at_500), [501, 900]);
    assert_eq!(used(&at_0), [500]);
    let told = at_500.lock().unwrap()[1];
    assert_eq!(told, limit.budget().usage());
    assert_eq!(
        (told.max_bytes, told.available_bytes, told.peak_bytes),
        (1000, 100, 900)
    );
    for block in [one, two] {
        limit.release(block, &[]).unwrap();
    }
}

#[test]
fn it_is_not_called_for_blocks_that_are_not_given() {
    let device = device();
    let limit = Limit::new(immediate(&device), 1 << 21);
    let all = limit.allocate(1 << 20).unwrap();
    let seen = watch(limit.budget(), 1 << 20);
    assert!(limit.allocate(1000).is_err()); // The device is full.
    assert!(limit.allocate((1 << 20) + 1).is_err());
    limit.release(all, &[]).unwrap();
    assert_eq!(used(&seen), []);
}

#[test]
fn it_may_release_and_allocate() {
    let limit = Limit::new(deferred(&device()), 1000);
    let cache = Arc::new(Mutex::new(vec![limit.allocate(400).unwrap()]));
    let calls = Arc::new(AtomicU64::new(0));
    let (inside, cached, called) = (limit.clone(), Arc::clone(&cache), Arc::clone(&calls));
    limit.budget().on_soft_limit(500, move |_| {
        called.fetch_add(1, Ordering::Relaxed);
        let dropped = std::mem::take(&mut *cached.lock().unwrap());
        for block in dropped {
            inside.release(block, &[]).unwrap();
        }
        let block = inside.allocate(10).unwrap();
        inside.release(block, &[]).unwrap();
    });
    let block = limit.allocate(300).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(limit.budget().used_bytes(), 300);
    assert!(cache.lock().unwrap().is_empty());
    limit.release(block, &[]).unwrap();
}

#[test]
fn a_panic_in_it_is_caught_and_logged() {
    let limit = Limit::new(deferred(&device()), 1000);
    limit.budget().on_soft_limit(100, |_| panic!("on purpose"));
    let seen = watch(limit.budget(), 100);
    let mut given = None;
    let lines = logged(LevelFilter::ERROR, || given = limit.allocate(200).ok());
    assert!(given.is_some());
    let [line] = &lines[..] else {
        panic!("expected one line, got {lines:?}");
    };
    assert!(
        line.contains("ERROR") && line.contains("soft limit of 100 bytes panicked"),
        "{line}"
    );
    // The next one is called anyway.
    assert_eq!(used(&seen), [200]);
    assert_eq!(limit.budget().used_bytes(), 200);
}

/// Panics when it is dropped.
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn what_it_panics_with_may_panic_when_it_is_dropped() {
    let limit = Limit::new(deferred(&device()), 1000);
    limit.budget().on_soft_limit(100, |_| panic_any(Fuse));
    assert!(limit.allocate(200).is_ok());
    assert_eq!(limit.budget().used_bytes(), 200);
}
