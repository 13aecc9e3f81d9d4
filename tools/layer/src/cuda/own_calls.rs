//! Calls of the driver that the layer makes itself, which are not the program's.

use std::cell::Cell;

use crate::recording::contained;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calls of this thread are the layer's own now.
pub(super) fn is_own() -> bool {
    IS_OWN.get()
}

/// Runs code of the layer, whose calls of the driver are not the program's. A panic in it is a fault of the layer.
pub(super) fn own<T: Default>(code: impl FnOnce() -> T) -> T {
    let before = IS_OWN.replace(true);
    let answer = contained(code);
    IS_OWN.set(before);
    answer
}
