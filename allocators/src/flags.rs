//! How a block of memory may be used.

use std::fmt;

use bitflags::bitflags;

use crate::HostUse;

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

impl MemoryFlags {
    /// Checks that no two flags contradict each other.
    ///
    /// A backend does so before it makes a buffer:
    ///
    /// ```
    /// use binpool_allocators::MemoryFlags;
    ///
    /// let inputs = MemoryFlags::READ_ONLY | MemoryFlags::HOST_WRITE_ONLY;
    /// assert!(inputs.check().is_ok());
    /// assert!((inputs | MemoryFlags::WRITE_ONLY).check().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::ContradictoryFlags`](crate::InvalidRequest::ContradictoryFlags).
    pub fn check(self) -> crate::Result<()> {
        let kernel = Self::READ_ONLY | Self::WRITE_ONLY;
        let host = Self::HOST_READ_ONLY | Self::HOST_WRITE_ONLY | Self::HOST_NO_ACCESS;
        let named = |group: Self| (self & group).iter().count();
        if named(kernel) > 1 || named(host) > 1 {
            return Err(crate::InvalidRequest::ContradictoryFlags { flags: self }.into());
        }
        Ok(())
    }

    /// Checks that the host may use memory with these flags in this way.
    ///
    /// ```
    /// use binpool_allocators::{HostUse, MemoryFlags};
    ///
    /// let results = MemoryFlags::HOST_READ_ONLY;
    /// assert!(results.check_host(HostUse::Read).is_ok());
    /// assert!(results.check_host(HostUse::Write).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::HostAccess`](crate::InvalidRequest::HostAccess).
    pub fn check_host(self, way: HostUse) -> crate::Result<()> {
        let but = match way {
            HostUse::Read => Self::HOST_WRITE_ONLY,
            HostUse::Write => Self::HOST_READ_ONLY,
        };
        if self.intersects(Self::HOST_NO_ACCESS | but) {
            return Err(crate::InvalidRequest::HostAccess { way, flags: self }.into());
        }
        Ok(())
    }
}
