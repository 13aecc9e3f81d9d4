//! Callbacks for the destruction of memory.

use binpool_allocators::Result;

use crate::{
    memory::cl_memory::{ClMemory, MemoryBody},
    sys::destructor::when_destroyed,
};

impl ClMemory {
    /// Calls `call` once, when the runtime has destroyed this memory, after every value of it is dropped and every command
    /// that uses it has ended (OpenCL 3.0, section 5.5.1). A sub-buffer is an object of its own here; regions of shared
    /// virtual memory are destroyed with their block.
    ///
    /// On Intel's runtime, the events of commands that were enqueued before this call delay it as long as the program keeps them.
    ///
    /// Of several, the last one set is called first. It is called on the thread that finds the memory unused: one inside a
    /// `drop`, or a thread of the runtime, which it must not hold up. So it must not wait, nor call OpenCL, even through
    /// this crate. A panic in it is caught and logged.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// use std::sync::mpsc;
    ///
    /// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let (gone, is_gone) = mpsc::channel();
    /// memory.on_destroy(move || {
    ///     let _listening = gone.send(());
    /// })?;
    /// drop(memory);
    /// is_gone.recv()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lent`](binpool_allocators::InvalidRequest::Lent) for a buffer over memory that was lent to it; a failure of
    /// the runtime. `call` is dropped then.
    pub fn on_destroy(&self, call: impl FnOnce() + Send + 'static) -> Result<()> {
        self.check_may_be_retained()?;
        let (root, handle) = match self.body() {
            MemoryBody::Buffer(root) => (root, &root.handle),
            MemoryBody::Part(part) => (part.root(), part.object(self.context())?),
            MemoryBody::Svm { block, .. } => {
                block.when_freed(call);
                return Ok(());
            }
        };
        root.log().await_end();
        when_destroyed(handle, call).map_err(Into::into)
    }
}
