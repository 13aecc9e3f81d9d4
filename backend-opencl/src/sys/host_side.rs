//! The host's side of a transfer.

use std::{ffi::c_void, marker::PhantomData};

use bytemuck::{AnyBitPattern, NoUninit};

use super::host_vec::HostVec;

/// Bytes of the host that a command reads, or that it writes to.
///
/// # Invariants
///
/// I1: as long as `'a`, all of the bytes can be read; those of a target can be written, are valid with any contents, and
/// nothing else touches them.
#[derive(Debug)]
pub(crate) struct HostSide<'a> {
    start: *mut c_void,
    bytes: usize,
    is_target: bool,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> HostSide<'a> {
    /// Returns borrowed elements as the source of a transfer. They have no padding, so all their bytes can be read.
    pub(crate) const fn source<T: NoUninit>(data: &'a [T]) -> Self {
        Self::new(data.as_ptr().cast_mut().cast(), size_of_val(data), false)
    }

    /// Returns borrowed elements as the target of a transfer. Any bytes are valid elements.
    pub(crate) const fn target<T: AnyBitPattern + NoUninit>(data: &'a mut [T]) -> Self {
        Self::new(data.as_mut_ptr().cast(), size_of_val(data), true)
    }

    const fn new(start: *mut c_void, bytes: usize, is_target: bool) -> Self {
        Self {
            start,
            bytes,
            is_target,
            borrowed: PhantomData,
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn start(&self) -> *mut c_void {
        self.start
    }

    /// Returns whether the command writes to the host's bytes: it is a read of the device's.
    pub(crate) const fn is_target(&self) -> bool {
        self.is_target
    }
}

impl<T> HostVec<T> {
    /// Returns the elements as the source of a transfer. They are taken only after the command has ended.
    pub(crate) const fn as_source(&self) -> HostSide<'_>
    where
        T: NoUninit,
    {
        HostSide::new(self.start().cast(), self.bytes(), false)
    }

    /// Returns the elements as the target of a transfer. They are taken only after the command has ended.
    pub(crate) const fn as_target(&self) -> HostSide<'_>
    where
        T: AnyBitPattern,
    {
        HostSide::new(self.start().cast(), self.bytes(), true)
    }
}
