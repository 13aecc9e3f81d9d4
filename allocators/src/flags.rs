//! How memory may be used.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// How the device and the host may use a buffer, like OpenCL's `cl_mem_flags`.
    ///
    /// The empty set means read and write from kernels, and every transfer from the host.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let results = backend.create_buffer(64, MemoryFlags::WRITE_ONLY | MemoryFlags::HOST_READ_ONLY)?;
    /// assert!(backend.write(&queue, &results, 0, &[1_u8]).is_err());
    /// assert!(backend.read(&queue, &results, 0, &mut [0_u8]).is_ok());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MemoryFlags: u32 {
        /// Kernels only read the buffer.
        const READ_ONLY = 1 << 0;
        /// Kernels only write the buffer.
        const WRITE_ONLY = 1 << 1;
        /// The host only reads the buffer.
        const HOST_READ_ONLY = 1 << 2;
        /// The host only writes the buffer.
        const HOST_WRITE_ONLY = 1 << 3;
        /// The host neither reads nor writes the buffer.
        const HOST_NO_ACCESS = 1 << 4;
        /// The buffer lies in host memory that the device can access (pinned memory, on most runtimes).
        const HOST_RESIDENT = 1 << 5;
    }
}

/// The names of the flags.
impl fmt::Display for MemoryFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}
