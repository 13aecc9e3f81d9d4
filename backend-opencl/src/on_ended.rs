//! Callbacks for the ends of commands.
//!
//! A thread waits and then calls. The runtime's callbacks would not do: `PoCL` 3.1 does not call those of commands that
//! fail, and NVIDIA's driver (580) may deadlock between a callback and a release on another thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use binpool_allocators::{Error, Outcome, Result};

use crate::{
    event::ClEvent,
    sys::{self},
};

impl ClEvent {
    /// Calls `call` once with the outcome, when the command has ended: `set_callback` of `PyOpenCL`'s `Event`.
    ///
    /// It is called on a thread of its own, never on this one, even if the command has ended before. No other thread waits
    /// for it, so it may take long and make any call. The thread exists from now on: for many events, wait for one marker
    /// behind them. A panic in it is caught and logged. It is not called if the program ends first.
    ///
    /// This does not keep a user event from being resolved as failed when its last clone is dropped.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use binpool_allocators::Outcome;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let (tell, told) = mpsc::channel();
    /// let filled = backend.enqueue_fill(&queue, &memory, Region::first(64), &[7_u8])?;
    /// filled.on_ended(move |outcome| {
    ///     let _listening = tell.send(outcome);
    /// })?;
    /// assert_eq!(told.recv()?, Outcome::Complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](Error::Backend) where the operating system refuses a thread, and the failures of the runtime: `call` is
    /// dropped without having been called.
    pub fn on_ended(&self, call: impl FnOnce(Outcome) + Send + 'static) -> Result<()> {
        self.flush_producer()?;
        // Holds the runtime's event alone: a clone of this value would keep a user event from being resolved as failed when
        // it is dropped.
        let event = self.handle().another()?;
        let wait_and_call = move || {
            let waited = sys::wait_until_ended(&event);
            // A wait for a user event that has failed succeeds on NVIDIA's runtime, and the status of a command that
            // has failed reads as complete on Intel's.
            let failed = waited.is_err() || matches!(sys::execution_status(&event), Ok(..=-1));
            drop(event);
            let outcome = if failed {
                Outcome::Failed
            } else {
                Outcome::Complete
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(outcome))) {
                tracing::error!("what was to be called when a command had ended has panicked");
                // Dropping it might panic again.
                std::mem::forget(payload);
            }
        };
        thread::Builder::new()
            .name("binpool-on-ended".into())
            .spawn(wait_and_call)
            .map(drop)
            .map_err(|error| Error::backend("starting a thread", error.raw_os_error(), error))
    }
}
