//! A lock that is only tried, never waited for.

use crate::sync::{AtomicBool, Ordering};

/// Lets one caller in at a time, on any thread, and refuses all others.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    is_taken: AtomicBool,
}

impl Turnstile {
    /// Returns whether the caller is inside now. If so, it sees everything that was done inside before.
    pub(crate) fn enter(&self) -> bool {
        let taken =
            self.is_taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Leaves the turnstile. Only the caller that is inside may call this.
    pub(crate) fn leave(&self) {
        // Makes what was done inside visible to the next caller.
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Explores every schedule of small programs, by `scripts/schedules`.
#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "something is to be guarded")]
mod schedules {
    use loom::{cell::UnsafeCell, model, sync::Arc, thread};

    use super::*;

    #[derive(Default)]
    struct Guarded {
        turnstile: Turnstile,
        visits: UnsafeCell<u32>,
    }

    impl Guarded {
        /// Returns whether there was a visit. `loom` fails where two could overlap, or where one does not see another.
        fn visit(&self) -> bool {
            let is_inside = self.turnstile.enter();
            if is_inside {
                self.visits.with_mut(|visits| {
                    // SAFETY: the turnstile lets one in at a time, which is what is tried here.
                    unsafe { *visits += 1 };
                });
                self.turnstile.leave();
            }
            is_inside
        }
    }

    // SAFETY: as above.
    unsafe impl Sync for Guarded {}

    #[test]
    fn visits_see_each_other_and_never_meet() {
        model(|| {
            let guarded = Arc::<Guarded>::default();
            let others = [(); 2].map(|()| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || u32::from(guarded.visit()) + u32::from(guarded.visit()))
            });
            let visits: u32 = others.into_iter().map(|it| it.join().unwrap()).sum();
            assert!(guarded.visit(), "the others have left");
            let counted = guarded.visits.with(|visits| {
                // SAFETY: the other threads have ended.
                unsafe { *visits }
            });
            assert_eq!(counted, visits + 1);
        });
    }
}
