//! What requests are for, as the program says.

use std::sync::OnceLock;

use binpool::{Backend, MemoryPool, Tag};

static NAME: OnceLock<fn() -> Option<Tag>> = OnceLock::new();

/// Sets the function that says what a request is for, by a tag, for reports and recordings. The thread that makes a request calls it, and
/// holds none of the pool's locks. It is not called while the pool is neither watched nor recorded. The first function that is set stays.
pub fn name_requests(name: fn() -> Option<Tag>) {
    NAME.get_or_init(|| name);
}

/// Makes a request of a pool under its tag.
pub(super) fn within<B: Backend, R>(pool: &MemoryPool<B>, request: impl FnOnce() -> R) -> R {
    let name = NAME.get().filter(|_| pool.is_watching());
    match name.and_then(|name| name()) {
        Some(tag) => tag.within(request),
        None => request(),
    }
}
