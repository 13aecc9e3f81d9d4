//! How often the functions of a driver were called, and how long they took.

use std::{
    collections::BTreeMap,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    time::Instant,
};

/// A function of a driver, as a static at the place that calls it.
#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    count: AtomicU64,
    nanoseconds: AtomicU64,
    /// Set once it is in the list.
    is_listed: AtomicBool,
    /// The next in the list.
    next: AtomicPtr<Call>,
}

/// What was counted of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) count: u64,
    pub(super) nanoseconds: u64,
}

/// The beginning of the list.
static NEWEST: AtomicPtr<Call> = AtomicPtr::new(ptr::null_mut());

impl Call {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            count: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Calls the driver.
    pub(crate) fn time<T>(&'static self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let returned = call();
        let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.add(nanoseconds);
        returned
    }

    /// Counts a call.
    pub(crate) fn add(&'static self, nanoseconds: u64) {
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.is_listed.load(Ordering::Relaxed) && !self.is_listed.swap(true, Ordering::Relaxed)
        {
            self.list();
        }
    }

    fn list(&'static self) {
        let this = ptr::from_ref(self).cast_mut();
        let listed = NEWEST.fetch_update(Ordering::AcqRel, Ordering::Acquire, |newest| {
            self.next.store(newest, Ordering::Relaxed);
            Some(this)
        });
        debug_assert!(listed.is_ok());
    }
}

/// Returns the functions that were called, by their names.
pub(super) fn by_name() -> BTreeMap<&'static str, Counted> {
    let mut counted: BTreeMap<_, Counted> = BTreeMap::new();
    for call in all() {
        let of_name = counted.entry(call.name).or_default();
        of_name.count += call.count.load(Ordering::Relaxed);
        of_name.nanoseconds += call.nanoseconds.load(Ordering::Relaxed);
    }
    counted.retain(|_, call| call.count > 0);
    counted
}

/// Forgets all calls so far: they were those of the parent of this process.
pub(super) fn forget() {
    for call in all() {
        call.count.store(0, Ordering::Relaxed);
        call.nanoseconds.store(0, Ordering::Relaxed);
    }
}

fn all() -> impl Iterator<Item = &'static Call> {
    let first = NEWEST.load(Ordering::Acquire);
    // SAFETY: the list has addresses of statics only.
    let call = |call: *mut Call| unsafe { call.as_ref() };
    std::iter::successors(call(first), move |last| {
        call(last.next.load(Ordering::Relaxed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_all_places_count_for_the_function() {
        static HERE: Call = Call::new("make");
        static THERE: Call = Call::new("make");
        static ENDED: Call = Call::new("end");
        HERE.add(5);
        ENDED.add(1);
        THERE.add(7);
        assert_eq!(ENDED.time(|| 3), 3);
        let counted = by_name();
        let made = Counted {
            count: 2,
            nanoseconds: 12,
        };
        assert_eq!(counted.get("make"), Some(&made));
        assert_eq!(counted.get("end").map(|call| call.count), Some(2));
    }
}
