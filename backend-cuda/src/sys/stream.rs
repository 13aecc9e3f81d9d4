//! Streams, and the commands on them.
//!
//! Commands name bytes of the device by their addresses. The memory behind these lives until the command has ended: its owner keeps
//! the last mark of each queue that uses it ([`crate::memory`]), and frees nothing before.

use std::{ffi::c_void, sync::Arc};

use super::{
    context::Context,
    driver::{Address, Driver, Handle},
    gate::Gate,
    mark::Mark,
    staging::Staging,
    status::CudaResult,
    streams::is_captured,
};

/// Streams that do not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// A stream goes on when the word is at least the value, counted round.
const AT_LEAST: u32 = 0;

pub(crate) const LEGACY: Handle = 1;
pub(crate) const PER_THREAD: Handle = 2;

/// A stream of the driver.
///
/// # Invariants
///
/// I1: `raw` is a stream of `context` that lives as long as this value; if `is_ours`, nothing else destroys it.
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: Handle,
    is_ours: bool,
}

impl Stream {
    pub(crate) fn create(context: &Arc<Context>) -> CudaResult<Self> {
        let mut raw = 0;
        // SAFETY: `raw` is a place for the result.
        context.enqueue(|driver| unsafe { driver.stream_create(&raw mut raw, NON_BLOCKING) })?;
        Ok(Self::new(context, raw, true))
    }

    /// A default stream, or a stream of the program, which outlives this value (I1).
    pub(crate) fn adopt(context: &Arc<Context>, raw: Handle) -> Self {
        Self::new(context, raw, false)
    }

    fn new(context: &Arc<Context>, raw: Handle, is_ours: bool) -> Self {
        context.note_stream(raw);
        Self {
            context: Arc::clone(context),
            raw,
            is_ours,
        }
    }

    pub(crate) fn raw(&self) -> Handle {
        self.raw
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns whether commands go into a graph instead of running (`cuStreamBeginCapture`).
    pub(crate) fn is_capturing(&self) -> CudaResult<bool> {
        self.context.enqueue(|driver| is_captured(driver, self.raw))
    }

    /// Waits until all commands have ended. The stream is not captured.
    pub(crate) fn synchronize(&self) -> CudaResult<()> {
        // SAFETY: It takes no pointers; the stream lives (I1).
        self.context
            .call(|driver| unsafe { driver.stream_wait(self.raw) })
    }

    /// Records the end of everything that was enqueued so far.
    pub(crate) fn record(&self, mark: &Mark) -> CudaResult<()> {
        // SAFETY: It takes no pointers; both live (I1).
        self.context
            .enqueue(|driver| unsafe { driver.event_record(mark.raw(), self.raw) })
    }

    /// Lets later commands wait for a mark.
    pub(crate) fn wait_for_mark(&self, mark: &Mark) -> CudaResult<()> {
        // SAFETY: It takes no pointers; both live (I1).
        self.context
            .enqueue(|driver| unsafe { driver.stream_wait_event(self.raw, mark.raw(), 0) })
    }

    /// Lets later commands wait for a gate, unless it is open.
    pub(crate) fn wait_for_gate(&self, gate: &Gate) -> CudaResult<()> {
        let Some((address, value)) = gate.word_to_wait_for() else {
            return Ok(());
        };
        // SAFETY: The word lives as long as the gate's context, which the command keeps where it is another one than the stream's.
        let wait = |driver: &Driver| unsafe {
            driver.stream_wait_value(self.raw, address, value, AT_LEAST)
        };
        self.context.enqueue(wait)
    }

    /// Enqueues a copy between memory of the device.
    pub(crate) fn copy(&self, to: Address, from: Address, bytes: usize) -> CudaResult<()> {
        // SAFETY: The owners of the memory keep it until the command has ended.
        self.context
            .enqueue(|driver| unsafe { driver.copy(to, from, bytes, self.raw) })
    }

    /// Enqueues a copy from memory of one device to that of another. The driver takes the way through the host where the devices cannot
    /// use each other's memory, and for pages, too, which `cuMemcpyAsync` does not.
    pub(crate) fn copy_across(
        &self,
        (there, to): (&Context, Address),
        (here, from): (&Context, Address),
        bytes: usize,
    ) -> CudaResult<()> {
        let (there, here) = (there.raw(), here.raw());
        // SAFETY: The owners of the memory keep it, and so its contexts, until the command has ended.
        let copy =
            |driver: &Driver| unsafe { driver.copy_across(to, there, from, here, bytes, self.raw) };
        self.context.enqueue(copy)
    }

    /// Enqueues a copy from staging memory, which the caller keeps until the command has ended.
    pub(crate) fn copy_in(&self, to: Address, from: &Staging, bytes: usize) -> CudaResult<()> {
        self.copy(to, from.address(), bytes)
    }

    /// Enqueues a copy to staging memory, which the caller keeps until the command has ended.
    pub(crate) fn copy_out(&self, to: &Staging, from: Address, bytes: usize) -> CudaResult<()> {
        self.copy(to.address(), from, bytes)
    }

    /// Copies `data` to the device, and waits until that is done.
    pub(crate) fn write(&self, to: Address, data: &[u8], mark: &Mark) -> CudaResult<()> {
        let from = data.as_ptr().expose_provenance() as Address;
        self.copy_and_wait(to, from, data.len(), mark)
    }

    /// Copies from the device to `data`, and waits until that is done.
    pub(crate) fn read(&self, data: &mut [u8], from: Address, mark: &Mark) -> CudaResult<()> {
        let to = data.as_mut_ptr().expose_provenance() as Address;
        self.copy_and_wait(to, from, data.len(), mark)
    }

    fn copy_and_wait(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
        mark: &Mark,
    ) -> CudaResult<()> {
        if bytes > 0 {
            self.copy(to, from, bytes)?;
        }
        let ended = self.record(mark).and_then(|()| mark.wait());
        ended.inspect_err(|_| self.settle())
    }

    /// Waits, after a call has failed, until nothing that was enqueued uses the host's bytes any more. Where this fails too, the context is
    /// lost, and runs no commands.
    fn settle(&self) {
        if let Err(error) = self.synchronize() {
            tracing::error!(%error, "could not wait for a stream");
        }
    }

    /// Enqueues a fill with repetitions of `pattern`, whose length divides `bytes`. Returns whether the driver has such fills.
    pub(crate) fn fill(&self, to: Address, bytes: usize, pattern: &[u8]) -> CudaResult<bool> {
        let driver = self.context.enter()?;
        let result = match *pattern {
            // SAFETY: The owner of the memory keeps it until the command has ended.
            [byte] => unsafe { driver.set_bytes(to, byte, bytes, self.raw) },
            [a, b] if to.is_multiple_of(2) => {
                let pair = u16::from_ne_bytes([a, b]);
                // SAFETY: As above.
                unsafe { driver.set_pairs(to, pair, bytes / 2, self.raw) }
            }
            [a, b, c, d] if to.is_multiple_of(4) => {
                let word = u32::from_ne_bytes([a, b, c, d]);
                // SAFETY: As above.
                unsafe { driver.set_words(to, word, bytes / 4, self.raw) }
            }
            _ => return Ok(false),
        };
        self.context.seen(result).map(|()| true)
    }

    /// Enqueues a kernel: this many blocks of this many threads in each dimension.
    ///
    /// # Safety
    ///
    /// `function` is loaded, and stays so until the command has ended. It has parameters of these bytes, and does with them what it may.
    pub(crate) unsafe fn launch(
        &self,
        function: Handle,
        [blocks, threads]: [[u32; 3]; 2],
        shared_bytes: u32,
        arguments: &[[u8; 8]],
    ) -> CudaResult<()> {
        let driver = self.context.enter()?;
        let places: Vec<*const c_void> = arguments
            .iter()
            .map(|bytes| bytes.as_ptr().cast())
            .collect();
        let ([x, y, z], [across, down, deep]) = (blocks, threads);
        // SAFETY: The driver copies the arguments before it returns; the caller promises the rest.
        let result = unsafe {
            driver.launch(
                function,
                x,
                y,
                z,
                across,
                down,
                deep,
                shared_bytes,
                self.raw,
                places.as_ptr(),
                0,
            )
        };
        self.context.seen(result)
    }

    /// Enqueues copies that repeat the first `first` bytes over all `bytes` bytes. Each doubles what is there.
    pub(crate) fn repeat(&self, to: Address, first: usize, bytes: usize) -> CudaResult<()> {
        let mut done = first;
        while done < bytes {
            let more = done.min(bytes - done);
            self.copy(to + done as Address, to, more)?;
            done += more;
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.forget_stream(self.raw);
        if !self.is_ours {
            return;
        }
        let raw = self.raw;
        // SAFETY: It takes no pointers; nothing else has this stream (I1). The driver lets its commands end.
        self.context.free("a stream", move |driver| unsafe {
            driver.stream_destroy(raw)
        });
    }
}
