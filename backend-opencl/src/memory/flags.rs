//! The flags of memory, in the words of the traits and in the runtime's.

use binpool_allocators::{MemoryFlags, Result};
use cl3::memory::{
    CL_MEM_ALLOC_HOST_PTR, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY,
    CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY,
};

const BITS: [(MemoryFlags, u64); 6] = [
    (MemoryFlags::READ_ONLY, CL_MEM_READ_ONLY),
    (MemoryFlags::WRITE_ONLY, CL_MEM_WRITE_ONLY),
    (MemoryFlags::HOST_READ_ONLY, CL_MEM_HOST_READ_ONLY),
    (MemoryFlags::HOST_WRITE_ONLY, CL_MEM_HOST_WRITE_ONLY),
    (MemoryFlags::HOST_NO_ACCESS, CL_MEM_HOST_NO_ACCESS),
    (MemoryFlags::HOST_RESIDENT, CL_MEM_ALLOC_HOST_PTR),
];

/// Returns the flags of `clCreateBuffer`.
pub(crate) fn to_cl(flags: MemoryFlags) -> u64 {
    BITS.into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(0, |all, (_, bit)| all | bit)
}

/// Returns the runtime's flags for a buffer over memory of the host, where `HOST_RESIDENT` is not allowed.
pub(crate) fn host_flags(flags: MemoryFlags) -> u64 {
    to_cl(flags - MemoryFlags::HOST_RESIDENT)
}

/// Returns the flags of the runtime's bits, without those that the traits do not have.
pub(crate) fn from_cl(bits: u64) -> MemoryFlags {
    BITS.into_iter()
        .filter(|(_, bit)| bits & bit != 0)
        .map(|(flag, _)| flag)
        .collect()
}

/// Returns the flags of a part, used as `wanted` says, of memory with the flags `whole`. The part has the restrictions of
/// the whole and those of `wanted`. The place of the memory cannot be changed.
///
/// # Errors
///
/// `ContradictoryFlags`, for flags among those wanted, or with those of the whole.
pub(crate) fn narrowed(whole: MemoryFlags, wanted: MemoryFlags) -> Result<MemoryFlags> {
    wanted.check()?;
    let wanted = wanted - MemoryFlags::HOST_RESIDENT;
    // No access for the host excludes the other two, which it replaces.
    let host = MemoryFlags::HOST_READ_ONLY | MemoryFlags::HOST_WRITE_ONLY;
    let whole = if wanted.contains(MemoryFlags::HOST_NO_ACCESS) {
        whole - host
    } else {
        whole
    };
    let flags = whole | wanted;
    flags.check()?;
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_goes_there_and_back() {
        for flag in MemoryFlags::all().iter() {
            assert_eq!(from_cl(to_cl(flag)), flag);
        }
        assert_eq!(from_cl(to_cl(MemoryFlags::all())), MemoryFlags::all());
        assert_eq!(to_cl(MemoryFlags::empty()), 0);
        // CL_MEM_READ_WRITE and CL_MEM_USE_HOST_PTR.
        assert_eq!(from_cl(1 | 8), MemoryFlags::empty());
    }

    #[test]
    fn a_part_permits_no_use_that_the_whole_forbids() {
        let none = MemoryFlags::empty();
        let (input, output) = (MemoryFlags::READ_ONLY, MemoryFlags::WRITE_ONLY);
        let (read, write) = (MemoryFlags::HOST_READ_ONLY, MemoryFlags::HOST_WRITE_ONLY);
        let closed = MemoryFlags::HOST_NO_ACCESS;
        let resident = MemoryFlags::HOST_RESIDENT;
        for (whole, wanted, flags) in [
            (none, input, Some(input)),
            (input, none, Some(input)),
            (input, input | read, Some(input | read)),
            (input, output, None),
            (output, input, None),
            (none, input | output, None),
            (read, write, None),
            (read, closed, Some(closed)),
            (closed, read, None),
            (closed, output, Some(closed | output)),
            (none, resident, Some(none)),
            (resident, input, Some(resident | input)),
        ] {
            assert_eq!(narrowed(whole, wanted).ok(), flags, "{whole:?}, {wanted:?}");
        }
    }
}
