//! Events of the driver, each recorded once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    context::Context,
    driver::Handle,
    status::{CudaResult, NOT_READY},
};

/// Events without timing, which is what makes them cheap.
const NO_TIMING: u32 = 2;

/// An event, which a stream or the context records once after commands that are not captured.
///
/// Its event is used again when this value is dropped: a stream that waits for it waits for what was recorded when it was told to.
///
/// # Invariants
///
/// I1: `raw` is an event of `context` that no other value has.
pub(crate) struct Mark {
    context: Arc<Context>,
    raw: Handle,
    has_ended: AtomicBool,
}

impl Mark {
    pub(crate) fn new(context: &Arc<Context>) -> CudaResult<Self> {
        let raw = match context.idle_event() {
            Some(raw) => raw,
            None => Self::create(context)?,
        };
        Ok(Self {
            context: Arc::clone(context),
            raw,
            has_ended: AtomicBool::new(false),
        })
    }

    fn create(context: &Context) -> CudaResult<Handle> {
        let mut raw = 0;
        // SAFETY: `raw` is a place for the result.
        context.enqueue(|driver| unsafe { driver.event_create(&raw mut raw, NO_TIMING) })?;
        Ok(raw)
    }

    /// Records the end of everything that was enqueued in the context so far, on whatever stream. No stream is captured.
    pub(crate) fn record_all(&self) -> CudaResult<()> {
        let context = self.context.raw();
        // SAFETY: The context is retained as long as this value lives, and the event is one of it (I1).
        self.context
            .call(|driver| unsafe { driver.context_record(context, self.raw) })
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns whether the command is known to have ended. Where the context is lost, it has, and that is the error.
    pub(crate) fn has_ended(&self) -> CudaResult<bool> {
        if self.has_ended.load(Ordering::Acquire) {
            return Ok(true);
        }
        match self.context.call(|driver| {
            // SAFETY: It takes no pointers; the event lives (I1).
            unsafe { driver.event_query(self.raw) }
        }) {
            Err(error) if error.code() == NOT_READY => return Ok(false),
            result => result?,
        }
        self.has_ended.store(true, Ordering::Release);
        Ok(true)
    }

    /// Waits until the command has ended.
    pub(crate) fn wait(&self) -> CudaResult<()> {
        if self.has_ended.load(Ordering::Acquire) {
            return Ok(());
        }
        self.context.call(|driver| {
            // SAFETY: It takes no pointers; the event lives (I1).
            unsafe { driver.event_wait(self.raw) }
        })?;
        self.has_ended.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.context.keep_event(self.raw) {
            return;
        }
        let raw = self.raw;
        // SAFETY: It takes no pointers; nothing else has this event (I1).
        self.context.free("an event", move |driver| unsafe {
            driver.event_destroy(raw)
        });
    }
}
