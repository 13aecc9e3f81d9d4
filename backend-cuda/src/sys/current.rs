//! Which context is current on the calling thread.

use std::{marker::PhantomData, ops::Deref};

use binpool_allocators::contained::contained;

use super::{
    driver::{Driver, Handle},
    status::CudaResult,
};

/// The driver, while a context is current on the calling thread. When this value is dropped, what was current before is so again, so that
/// the calls of the program and of its other libraries go to the device that they chose.
pub(super) struct Current<'a> {
    driver: &'a Driver,
    /// What was current, where it was not the same context. 0 is none.
    before: Option<Handle>,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl<'a> Current<'a> {
    /// Makes a context current, which lives.
    pub(super) fn set(driver: &'a Driver, context: Handle) -> CudaResult<Self> {
        let mut before = 0;
        // SAFETY: `before` is a place for the result.
        unsafe { driver.context_get(&raw mut before) }?;
        let is_new = before != context;
        if is_new {
            // SAFETY: It takes no pointers; the context lives.
            unsafe { driver.context_set(context) }?;
        }
        Ok(Self {
            driver,
            before: is_new.then_some(before),
            _thread: PhantomData,
        })
    }
}

impl Deref for Current<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before else {
            return;
        };
        // SAFETY: It takes no pointers; the program keeps the context that it has made current.
        if let Err(error) = unsafe { self.driver.context_set(before) } {
            // A subscriber that panics here would unwind through a call that has enqueued a command.
            contained("a subscriber", || {
                tracing::error!(%error, "the calling thread has another context than before");
            });
        }
    }
}
