//! A lock that nobody waits for.

use crate::sync::{AtomicBool, Ordering};

/// Lets one in at a time, on any thread, and turns all others away.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    is_taken: AtomicBool,
}

impl Turnstile {
    /// Whether the caller is inside from now on. It sees all that was done inside before.
    pub(crate) fn enter(&self) -> bool {
        let taken =
            self.is_taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// The one who is inside goes.
    pub(crate) fn leave(&self) {
        // Shows what was done inside to who comes next.
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Every schedule of small programs, by `scripts/schedules`.
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
        /// Whether there was a visit. `loom` fails where two could be at the same time, or one not see the other.
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
