//! Locks that a fork must not leave locked in the child.

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError},
};

use super::process_mark::ProcessMark;

/// The locks, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Frameworks,
    OpenCl,
    Cuda,
    PooledMemory,
    Recording,
}

/// Unlocks after a fork. The argument says whether this is the child.
type LetGo = Box<dyn FnOnce(bool)>;
/// Locks before a fork.
type Hold = Box<dyn Fn() -> LetGo + Send + Sync>;

static LOCKS: [OnceLock<Hold>; 5] = [const { OnceLock::new() }; 5];

/// The locks that a thread holds while it forks.
struct Held {
    locks: Vec<LetGo>,
    /// The mark of the parent. If there is none, this process counts as the parent.
    mark: Option<ProcessMark>,
}

impl Held {
    fn is_in_child(&self) -> bool {
        let mark = self.mark.as_ref();
        mark.is_some_and(|mark| !mark.is_of_this_process())
    }
}

thread_local! {
    /// Set only while the thread forks. Nothing has to be dropped, so threads may come here while they end.
    static HELD: ManuallyDrop<RefCell<Option<Held>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Locks a mutex. A panic while it was locked was a fault that was contained.
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

/// Calls `action` without the locks that this thread holds if it is forking: the program's own functions for `pthread_atfork` may call the layer.
pub(super) fn without_locks<T>(action: impl FnOnce() -> T) -> T {
    let is_child = HELD.with(|held| held.borrow().as_ref().map(Held::is_in_child));
    if let Some(is_child) = is_child {
        after(is_child);
    }
    let answer = action();
    if is_child == Some(false) {
        before();
    }
    answer
}

extern "C" fn before() {
    let locks = LOCKS.iter().filter_map(OnceLock::get);
    let held = Held {
        locks: locks.map(|hold| hold()).collect(),
        mark: ProcessMark::new().ok(),
    };
    HELD.with(|place| place.replace(Some(held)));
}

extern "C" fn in_parent() {
    after(false);
}

extern "C" fn after_in_child() {
    after(true);
}

fn after(is_child: bool) {
    let held = HELD.with(|place| place.take());
    for let_go in held.into_iter().flat_map(|held| held.locks).rev() {
        let_go(is_child);
    }
}
