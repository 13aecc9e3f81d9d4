//! Children of a fork, in which the driver does not work.

use std::sync::OnceLock;

use crate::recording::ProcessMark;

/// Of the process that has initialized the driver.
static MARK: OnceLock<Option<ProcessMark>> = OnceLock::new();

/// Notes that this process has initialized the driver.
pub(super) fn initialized() {
    MARK.get_or_init(|| ProcessMark::new().ok());
}

/// Returns whether this process is a child of one that had initialized the driver: its calls go to the driver, which refuses them.
pub(super) fn is_child() -> bool {
    let mark = MARK.get().and_then(Option::as_ref);
    mark.is_some_and(|mark| !mark.is_of_this_process())
}
