//! What requests are for, as the program says.

use std::sync::OnceLock;

use binpool::Tag;

static NAME: OnceLock<fn() -> Option<Tag>> = OnceLock::new();

/// Sets the function that says what a request is for, by a tag, for reports and recordings. The thread that makes a request calls it, and
/// holds none of the pool's locks. The first function that is set stays.
pub fn name_requests(name: fn() -> Option<Tag>) {
    NAME.get_or_init(|| name);
}

/// Makes a request under its tag.
pub(super) fn within<R>(request: impl FnOnce() -> R) -> R {
    match NAME.get().and_then(|name| name()) {
        Some(tag) => tag.within(request),
        None => request(),
    }
}
