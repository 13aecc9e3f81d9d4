//! Calls of the driver that the layer makes itself, which are not the program's.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs code of the layer.
pub(super) fn is_set() -> bool {
    INSIDE.get()
}

/// Runs code of the layer.
pub(super) fn run<T>(code: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _leave = Leave(INSIDE.replace(true));
    code()
}
