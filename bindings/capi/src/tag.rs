//! Tags for the blocks that a thread allocates.

#![expect(unsafe_code, reason = "texts of the program are pointers")]

use std::{cell::RefCell, ffi::c_char};

use binpool::{Tag, TagScope};

use crate::{
    border::{guarded, string},
    status::{Failure, Status},
};

thread_local! {
    /// The tags of the thread, the innermost one last.
    static SCOPES: RefCell<Vec<TagScope>> = const { RefCell::new(Vec::new()) };
}

/// Gives the blocks that the calling thread allocates from now on a tag, such as `"weights"`, until `binpool_tag_leave`. Tags may be
/// nested: the innermost one counts. Reports, snapshots and recordings show them.
///
/// Any thread may call it; the tag is of that thread. Use a few tags, not one for each block: binpool keeps each name forever.
///
/// # Safety
///
/// `name` is null, or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_tag_enter(name: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let name = unsafe { string(name, "name") }?.to_string_lossy();
        let scope = Tag::new(name).enter();
        // A thread that ends allocates nothing more.
        let _ended = SCOPES.try_with(|scopes| scopes.borrow_mut().push(scope));
        Ok(())
    })
}

/// Ends the tag that the calling thread entered last.
///
/// Errors: `INVALID_ARGUMENT` if the thread has no tag.
// SAFETY: No other library has names that begin like this.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_tag_leave() -> Status {
    guarded(|| {
        let left = SCOPES.try_with(|scopes| scopes.borrow_mut().pop());
        match left.ok().flatten() {
            Some(scope) => {
                drop(scope);
                Ok(())
            }
            None => Err(Failure::argument(
                "this thread has no tag: each `binpool_tag_leave` ends a `binpool_tag_enter` of the same thread",
            )),
        }
    })
}
