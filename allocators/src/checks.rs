//! Checks of arguments, which each backend makes before it calls its runtime.

use crate::{Error, HostUse, InvalidRequest, MemoryFlags, Region, Result};

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
    /// [`InvalidRequest::ContradictoryFlags`].
    pub fn check(self) -> Result<()> {
        let kernel = Self::READ_ONLY | Self::WRITE_ONLY;
        let host = Self::HOST_READ_ONLY | Self::HOST_WRITE_ONLY | Self::HOST_NO_ACCESS;
        let named = |group: Self| (self & group).iter().count();
        if named(kernel) > 1 || named(host) > 1 {
            return Err(InvalidRequest::ContradictoryFlags { flags: self }.into());
        }
        Ok(())
    }

    /// Checks flags of shared virtual memory: they say only what kernels do.
    ///
    /// A backend does so before it allocates some:
    ///
    /// ```
    /// use binpool_allocators::MemoryFlags;
    ///
    /// assert!(MemoryFlags::READ_ONLY.check_svm().is_ok());
    /// assert!(MemoryFlags::HOST_READ_ONLY.check_svm().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::ContradictoryFlags`]; [`Unsupported`](Error::Unsupported) for flags about the host.
    pub fn check_svm(self) -> Result<()> {
        match self - (Self::READ_ONLY | Self::WRITE_ONLY) {
            others if others.is_empty() => self.check(),
            others => Err(Error::unsupported(format!(
                "shared virtual memory with {others}: the host accesses it through maps"
            ))),
        }
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
    /// [`InvalidRequest::HostAccess`].
    pub fn check_host(self, way: HostUse) -> Result<()> {
        let but = match way {
            HostUse::Read => Self::HOST_WRITE_ONLY,
            HostUse::Write => Self::HOST_READ_ONLY,
        };
        if self.intersects(Self::HOST_NO_ACCESS | but) {
            return Err(InvalidRequest::HostAccess { way, flags: self }.into());
        }
        Ok(())
    }
}

impl InvalidRequest {
    /// Checks a fill's pattern against its region.
    ///
    /// [`Backend::enqueue_fill`](crate::Backend::enqueue_fill) does so with the region that it is given. What a backend is asked to
    /// [`submit`](crate::Backend::submit) may be a part that starts anywhere in its block, so there only the length is checked again, as
    /// that of `Region::first(bytes)`.
    ///
    /// ```
    /// use binpool_allocators::{Error, InvalidRequest, Region};
    ///
    /// let pixel = [0xFF, 0x80, 0x00, 0xFF];
    /// InvalidRequest::check_pattern(Region::new(8, 32), &pixel)?;
    /// let shifted = InvalidRequest::check_pattern(Region::new(6, 32), &pixel);
    /// let Err(Error::InvalidRequest(refusal)) = shifted else { unreachable!() };
    /// assert_eq!(refusal, InvalidRequest::PatternMismatch { offset: 6, bytes: 32, pattern: 4 });
    /// InvalidRequest::check_pattern(Region::first(30), &pixel[..3])?;
    /// assert!(InvalidRequest::check_pattern(Region::first(30), &[]).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EmptyPattern`](Self::EmptyPattern) or [`PatternMismatch`](Self::PatternMismatch).
    pub fn check_pattern(region: Region, pattern: &[u8]) -> Result<()> {
        let length = pattern.len();
        if length == 0 {
            return Err(Self::EmptyPattern.into());
        }
        if !region.offset.is_multiple_of(length) || !region.bytes.is_multiple_of(length) {
            return Err(Self::PatternMismatch {
                offset: region.offset,
                bytes: region.bytes,
                pattern: length,
            }
            .into());
        }
        Ok(())
    }
}
