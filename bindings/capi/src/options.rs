//! The settings of a pool, as C has them.

#![expect(unsafe_code, reason = "a struct of the program's size is read")]

use std::{mem::offset_of, ptr};

use binpool::{PoolOptions, ReusePolicy};

use crate::status::{Failure, Status};

/// How free blocks are reused on other queues: the values of `reuse` in `binpool_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The default: `BINPOOL_REUSE_OPPORTUNISTIC`.
    Default = 0,
    /// Each queue reuses only what it has used itself.
    SameQueue = 1,
    /// A block goes to another queue once the commands of its former user have ended.
    Opportunistic = 2,
    /// Likewise, but at once if the commands have not ended, with a wait on the device.
    InsertWait = 3,
    /// Likewise, but after a wait on the host if the commands have not ended.
    WaitOnHost = 4,
}

/// Segments, or a buffer of its own for each block: the values of `segments` in `binpool_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// The default: `BINPOOL_SEGMENTS_ON`.
    Default = 0,
    /// Blocks are parts of large pieces of device memory, in which free neighbours merge.
    On = 1,
    /// Each block is a buffer of its own. Not for the device memory of CUDA, whose pools map pages.
    Off = 2,
}

/// Where a pool's memory lies: the values of `memory` in `binpool_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMemory {
    /// The default: `BINPOOL_MEMORY_DEVICE`.
    Default = 0,
    /// Memory of the device, which the host reaches by copies and maps.
    Device = 1,
    /// Memory that host and device use at the same address (`binpool_block_host_ptr`): fine-grained shared virtual memory of OpenCL, managed
    /// memory of CUDA. Without such memory on the device, making a pool fails with `UNSUPPORTED`.
    Shared = 2,
}

/// The settings of a pool. A field of 0 means the default, so this is enough:
///
/// ```c
/// binpool_options options = {.struct_size = sizeof options, .limit_bytes = 1 << 30};
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The size of this struct as the program knows it. Later versions may add fields after the others.
    pub struct_size: usize,
    /// The most bytes that the pool may take from the device. 0 means no limit, as for `binpool_pool_set_limit` and `binpool_pool_limit`; a
    /// limit of 0 bytes cannot be set.
    pub limit_bytes: u64,
    /// A value of `binpool_segments`.
    pub segments: u32,
    /// A value of `binpool_reuse`.
    pub reuse: u32,
    /// A value of `binpool_memory`.
    pub memory: u32,
    /// Padding, which is 0, so that every byte of the struct has a name.
    pub reserved: u32,
}

impl Options {
    /// Reads the settings of a program; a null pointer stands for those that are all 0.
    ///
    /// # Safety
    ///
    /// `pointer` is null, or points to as many bytes as its `struct_size` says.
    pub(crate) unsafe fn read(pointer: *const Self) -> Result<Self, Failure> {
        let mut options = Self::default();
        if pointer.is_null() {
            return Ok(options);
        }
        // SAFETY: The struct has this field at least, as the caller promises.
        let theirs = unsafe { pointer.cast::<usize>().read_unaligned() };
        if theirs < offset_of!(Self, segments) {
            return Err(Failure::argument(format!(
                "`struct_size` is {theirs}: set it to `sizeof(binpool_options)`"
            )));
        }
        let ours = size_of::<Self>();
        let (from, to) = (pointer.cast::<u8>(), (&raw mut options).cast::<u8>());
        // SAFETY: The program has `theirs` bytes, as the caller promises, and the fields are integers, which any bytes are.
        unsafe { ptr::copy_nonoverlapping(from, to, ours.min(theirs)) };
        for offset in ours..theirs {
            // SAFETY: The program has `theirs` bytes, as the caller promises.
            if unsafe { from.wrapping_add(offset).read() } != 0 {
                return Err(Failure::new(
                    Status::Unsupported,
                    format!(
                        "a field of `binpool_options` after byte {ours}, which this version does not have: leave it 0, or use a \
                         later version"
                    ),
                ));
            }
        }
        if options.reserved != 0 {
            return Err(Failure::argument("`reserved` is not 0"));
        }
        Ok(options)
    }

    /// Returns whether the pool is one of shared memory.
    pub(crate) fn is_shared(&self) -> Result<bool, Failure> {
        chosen(self.memory, &MEMORY, "memory")
    }

    /// Returns the same settings for the pool.
    pub(crate) fn pool(&self) -> Result<PoolOptions, Failure> {
        let reuse = chosen(self.reuse, &REUSE, "reuse")?;
        let segments = chosen(self.segments, &SEGMENTS, "segments")?;
        Ok(PoolOptions::new()
            .limit(limit_of(self.limit_bytes))
            .reuse(reuse)
            .segments(segments))
    }
}

const REUSE: [(u32, ReusePolicy); 5] = [
    (Reuse::Default as u32, ReusePolicy::Opportunistic),
    (Reuse::SameQueue as u32, ReusePolicy::SameQueue),
    (Reuse::Opportunistic as u32, ReusePolicy::Opportunistic),
    (Reuse::InsertWait as u32, ReusePolicy::InsertWait),
    (Reuse::WaitOnHost as u32, ReusePolicy::WaitOnHost),
];

const SEGMENTS: [(u32, bool); 3] = [
    (Segments::Default as u32, true),
    (Segments::On as u32, true),
    (Segments::Off as u32, false),
];

/// The choices of memory, and whether each is shared.
const MEMORY: [(u32, bool); 3] = [
    (PoolMemory::Default as u32, false),
    (PoolMemory::Device as u32, false),
    (PoolMemory::Shared as u32, true),
];

/// Returns what the program has chosen by the value of a field.
fn chosen<T: Copy>(value: u32, choices: &[(u32, T)], field: &str) -> Result<T, Failure> {
    let choice = choices.iter().find(|(number, _)| *number == value);
    choice.map(|(_, choice)| *choice).ok_or_else(|| {
        Failure::argument(format!(
            "`{field}` is {value}, which is not a value of `binpool_{field}`"
        ))
    })
}

/// The limit in bytes that a number of the program stands for.
pub(crate) const fn limit_of(bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { bytes }
}
