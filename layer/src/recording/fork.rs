//! Processes that fork.

use std::{
    cell::RefCell,
    sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError},
};

/// Whose lock it is, in the order in which they are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    OpenCl,
    Cuda,
    PooledMemory,
    Recording,
}

/// Unlocks after a fork, in the child if that is true.
type LetGo = Box<dyn FnOnce(bool)>;
/// Locks before a fork.
type Hold = Box<dyn Fn() -> LetGo + Send + Sync>;

static LOCKS: [OnceLock<Hold>; 4] = [const { OnceLock::new() }; 4];

thread_local! {
    /// The locks that this thread has while it forks.
    static HELD: RefCell<Vec<LetGo>> = const { RefCell::new(Vec::new()) };
}

/// Locks. A panic while it was locked before is a fault that was contained.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a mutex from being copied into a child while another thread has it: it is locked before each fork. In the child, `in_child` changes what
/// it guards.
///
/// The mutex must not be one of `parking_lot`: there, an unlock may hand the lock to a thread that waits for it, which the child does not have.
pub(crate) fn hold_over_fork<T: Send>(which: Lock, mutex: &'static Mutex<T>, in_child: fn(&mut T)) {
    static WATCHES: Once = Once::new();
    WATCHES.call_once(|| {
        // SAFETY: the functions live as long as the process, since this library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(after_in_child)) };
    });
    let hold = move || -> LetGo {
        let mut guard = lock(mutex);
        Box::new(move |is_child| {
            if is_child {
                in_child(&mut guard);
            }
        })
    };
    let _ = LOCKS[which as usize].set(Box::new(hold));
}

extern "C" fn before() {
    let held = LOCKS
        .iter()
        .filter_map(OnceLock::get)
        .map(|hold| hold())
        .collect();
    let _ = HELD.try_with(|place| place.replace(held));
}

extern "C" fn in_parent() {
    after(false);
}

extern "C" fn after_in_child() {
    after(true);
}

fn after(is_child: bool) {
    let held = HELD.try_with(RefCell::take).unwrap_or_default();
    for let_go in held.into_iter().rev() {
        let_go(is_child);
    }
}
